// Many calls at once: threads that make and serve calls by themselves, out of step.
#include <string.h>
#include <sys/ioctl.h>

#include "harness.h"

enum {
	ECHO = 1,
	STOP = 2,
	READ_BYTES = 256,
	MAX_PAYLOAD = 6000,
	CLIENTS = 3,
	THREADS = 2, // of each client and of the server, beside its first
	CALLS = 150,
};

struct load_thread {
	int fd;
	uint32_t seed;
	uint32_t calls;	 // answered
	uint32_t ending; // the BR_ that ended the calls, or 0
	uint8_t payload[MAX_PAYLOAD];
	uint8_t read[READ_BYTES];
	uint8_t write[READ_BYTES];
	size_t write_bytes;
};

static void put(struct load_thread *p, uint32_t command, const void *body, size_t n)
{
	memcpy(p->write + p->write_bytes, &command, sizeof(command));
	memcpy(p->write + p->write_bytes + sizeof(command), body, n);
	p->write_bytes += sizeof(command) + n;
}

static void put_free(struct load_thread *p, const struct binder_transaction_data *txn)
{
	put(p, BC_FREE_BUFFER, &txn->data.ptr.buffer, sizeof(txn->data.ptr.buffer));
}

// Writes the queued commands and reads until a command of interest; its body goes to txn.
static int64_t next(struct load_thread *p, struct binder_transaction_data *txn)
{
	for (;;) {
		struct binder_write_read bwr = {
			.write_buffer = (uintptr_t)p->write, .write_size = p->write_bytes,
			.read_buffer = (uintptr_t)p->read, .read_size = READ_BYTES,
		};
		p->write_bytes = 0;
		if (ioctl(p->fd, BINDER_WRITE_READ, &bwr))
			return -errno;
		for (size_t at = 0; at < bwr.read_consumed;) {
			uint32_t command;
			memcpy(&command, p->read + at, sizeof(command));
			at += sizeof(command);
			switch (command) {
			case BR_TRANSACTION:
			case BR_REPLY:
				memcpy(txn, p->read + at, sizeof(*txn));
				return command;
			case BR_DEAD_REPLY:
			case BR_FAILED_REPLY:
				return command;
			}
			at += _IOC_SIZE(command);
		}
	}
}

static void put_reply(struct load_thread *p, const struct binder_transaction_data *request)
{
	struct binder_transaction_data reply = {.data_size = request->data_size};
	memcpy(p->payload, (const void *)(uintptr_t)request->data.ptr.buffer, request->data_size);
	reply.data.ptr.buffer = (uintptr_t)p->payload;
	put_free(p, request);
	put(p, BC_REPLY, &reply, sizeof(reply));
}

// Answers each call with its own payload, for good.
static long step_serve(void *argument)
{
	struct load_thread *p = argument;
	struct binder_transaction_data txn;
	put(p, BC_ENTER_LOOPER, NULL, 0);
	for (;;) {
		int64_t command = next(p, &txn);
		if (command != BR_TRANSACTION)
			return command;
		put_reply(p, &txn);
	}
}

static size_t fill(struct load_thread *p)
{
	p->seed = p->seed * 1103515245 + 12345;
	size_t bytes = p->seed >> 8 & 1 ? p->seed >> 16 & 127 : (p->seed >> 10) % MAX_PAYLOAD;
	for (size_t i = 0; i < bytes; i++)
		p->payload[i] = (uint8_t)(p->seed >> 24) + (uint8_t)i;
	return bytes;
}

// Calls handle 0 so many times, or until a call fails, and compares the answers.
static long step_call(void *argument)
{
	struct load_thread *p = argument;
	struct binder_transaction_data reply;
	while (p->calls < CALLS || p->ending == STOP) {
		struct binder_transaction_data txn = {.code = ECHO, .data_size = fill(p)};
		txn.data.ptr.buffer = (uintptr_t)p->payload;
		put(p, BC_TRANSACTION, &txn, sizeof(txn));
		int64_t command = next(p, &reply);
		if (command != BR_REPLY) {
			p->ending = (uint32_t)command;
			return 0;
		}
		if (reply.data_size != txn.data_size ||
		    memcmp((void *)(uintptr_t)reply.data.ptr.buffer, p->payload, reply.data_size))
			return -EBADMSG;
		put_free(p, &reply);
		p->calls++;
	}
	return 0;
}

static struct load_thread *load_thread(struct thread *t, uint32_t seed)
{
	struct load_thread *p = arena_alloc(sizeof(*p));
	p->fd = process_fd(t);
	p->seed = seed;
	return p;
}

static struct thread *echo_manager(void)
{
	struct thread *manager = manager_new();
	for (uint32_t i = 0; i < THREADS; i++) {
		struct thread *t = thread_new(manager);
		run_begin(t, step_serve, load_thread(t, i));
	}
	run_begin(manager, step_serve, load_thread(manager, 99));
	return manager;
}

struct crowd {
	struct thread *threads[CLIENTS * THREADS];
	struct load_thread *load_threads[CLIENTS * THREADS];
};

static struct crowd crowd_begin(uint32_t until)
{
	struct crowd crowd;
	for (uint32_t i = 0; i < CLIENTS * THREADS; i++) {
		struct thread *t = i % THREADS ? thread_new(crowd.threads[i - 1]) : process_new("client");
		crowd.threads[i] = t;
		crowd.load_threads[i] = load_thread(t, i * 77 + 1);
		crowd.load_threads[i]->ending = until;
	}
	for (size_t i = 0; i < CLIENTS * THREADS; i++)
		run_begin(crowd.threads[i], step_call, crowd.load_threads[i]);
	return crowd;
}

// Clients of several threads call a server of several threads; every answer is its
// caller's own.
TEST(load_many_callers)
{
	echo_manager();
	struct crowd crowd = crowd_begin(0);
	for (size_t i = 0; i < CLIENTS * THREADS; i++) {
		expect_errno(run_end(crowd.threads[i]), 0);
		expect_eq(crowd.load_threads[i]->ending, 0);
		expect_eq(crowd.load_threads[i]->calls, CALLS);
	}
}

// The server is killed amid the calls: every caller gets BR_DEAD_REPLY, none waits on.
TEST(load_server_killed)
{
	struct thread *manager = echo_manager();
	struct crowd crowd = crowd_begin(STOP); // without end
	struct thread *witness = process_new("witness");
	run(witness, step_call, load_thread(witness, 5)); // the calls are under way
	process_kill(manager);
	for (size_t i = 0; i < CLIENTS * THREADS; i++) {
		expect_errno(run_end(crowd.threads[i]), 0);
		expect_eq(crowd.load_threads[i]->ending, BR_DEAD_REPLY);
	}
}

// Callers are killed amid their calls: the server serves on.
TEST(load_callers_killed)
{
	struct thread *manager = echo_manager();
	struct crowd crowd = crowd_begin(STOP);
	struct thread *witness = process_new("witness");
	for (size_t i = 0; i < CLIENTS * THREADS; i += THREADS) {
		struct load_thread *p = load_thread(witness, 5);
		expect_errno(run(witness, step_call, p), 0);
		expect_eq(p->calls, CALLS);
		process_kill(crowd.threads[i]);
	}
	struct load_thread *p = load_thread(witness, 6);
	expect_errno(run(witness, step_call, p), 0);
	expect_eq(p->calls, CALLS);
	(void)manager;
}
