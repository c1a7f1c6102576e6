// The inside of a driven thread, for the harness's own files.
#ifndef DRIVEN_H
#define DRIVEN_H

#include "harness.h"

enum {
	WRITE_BYTES = 1 << 16,
	READ_BYTES = 4096,
	MAX_THREADS = 24, // of one process
};

struct channel {
	int script, driven;
};

struct process {
	char name[24];
	pid_t pid;
	int fd;
	uint64_t map;
	struct channel channels[MAX_THREADS];
	size_t n_threads;
};

struct thread {
	struct process *process;
	char name[48];
	int channel;
	pid_t tid;
	bool busy, reading;
	volatile bool started; // set by the driven thread as the step begins
	uint8_t *out; // commands that wait to be written
	size_t out_bytes;
	uint8_t *in; // what has been read, from in_at to in_end
	size_t in_at, in_end, in_bytes;
	struct binder_write_read *bwr;
	struct br br;
};

// Describes a test that does not end: the step at which it waits, and its reason.
void waiting_at(struct site);
void waiting_for(const struct thread *, const char *what);

// Closes the script's own descriptor in a process that was just forked.
void verdict_close(void);

#endif
