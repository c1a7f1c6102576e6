// Test harness of the Binder uapi.
//
// A test is a script that drives threads of other processes one step at a time:
//
//   test process            process "client"          process "server"
//     script    --socket-->   thread, thread            thread
//        \                       |                        |
//         +--------- arena: shared memory at one address -+
//
// Command buffers, payloads and results live in the arena, so that the script
// builds and reads them in place while the driven thread makes the system call.
// A step that blocks is begun with read_begin() and collected by the next
// expect_br() on the same thread. Only the script checks results; the first failure ends
// the test, and the runner kills all of its processes.
#ifndef HARNESS_H
#define HARNESS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "binder_uapi.h"

// ---- tests

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};
void test_register(struct test *test);

#define TEST(id)                                                             \
	static void id(void);                                                \
	__attribute__((constructor)) static void register_##id(void)         \
	{                                                                    \
		static struct test test = {#id, id, NULL};                   \
		test_register(&test);                                        \
	}                                                                    \
	static void id(void)

// ---- judging

struct site {
	const char *file;
	int line;
};
#define HERE ((struct site){__FILE__, __LINE__})

_Noreturn void fail_at(struct site, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
// Skips the test if the driver is Baton: the rule of this name in docs/differences.md has the
// reason.
void differs(const char *rule);
// The same, unless a mounted binderfs is tested (BINDER_MOUNTED), which does as the kernel does.
void differs_interposed(const char *rule);
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void expect_eq_at(struct site, const char *what, long long got, long long want);
void expect_errno_at(struct site, const char *what, long got, int want);

#define fail(...) fail_at(HERE, __VA_ARGS__)
#define expect(condition)                                                    \
	((condition) ? (void)0 : fail_at(HERE, "expected %s", #condition))
#define expect_eq(got, want)                                                 \
	expect_eq_at(HERE, #got, (long long)(got), (long long)(want))
// The call returns a negative errno value; want 0 for success.
#define expect_errno(call, want) expect_errno_at(HERE, #call, call, want)

// ---- processes and threads

enum { MAP_BYTES = (1 << 20) - 8192 }; // libbinder's receive buffer

struct thread;

struct process_options {
	const char *name;
	const char *device; // NULL: $BINDER_DEVICE or /dev/binder
	size_t map_bytes;   // 0: MAP_BYTES
	int open_flags;     // added to O_RDWR | O_CLOEXEC
	bool unmapped;
};

// Starts a process with the device open and mapped. Returns its first thread.
struct thread *process_with(struct process_options);
struct thread *process_new(const char *name);
// Starts a process without an open device.
struct thread *process_bare(const char *name);
// Starts a process that is the context manager, with its first thread a looper.
struct thread *manager_new(void);
struct thread *manager_with(struct process_options);
struct thread *manager_ext(uint64_t ptr, uint64_t cookie, uint32_t flags);
// Starts another thread in the process of `sibling`.
struct thread *thread_new(struct thread *sibling);
struct thread *thread_fresh(struct thread *sibling); // has made no ioctl yet

pid_t process_pid(const struct thread *);
pid_t thread_tid(const struct thread *);
int process_fd(const struct thread *);
uint64_t process_map(const struct thread *); // address of the receive buffer
const char *device_path(void);

void process_kill(struct thread *); // SIGKILL, and reaped
void process_exit(struct thread *); // _exit(0), and reaped
void thread_end(struct thread *);   // the thread returns; its process lives on

// Runs function(argument) in the thread. The argument points into the arena or is a value. Returns
// the function's result; functions return a negative errno value on failure.
typedef long (*step)(void *argument);
long run(struct thread *, step, void *argument);
void run_begin(struct thread *, step, void *argument);
long run_end_at(struct site, struct thread *);
#define run_end(thread) run_end_at(HERE, thread)
bool has_ended(struct thread *); // the step that was begun
// Waits until the step that was begun sleeps in the kernel or has ended.
void await_asleep(struct thread *);

// ---- memory

void *arena_alloc(size_t bytes); // zeroed; freed with the test
void *arena_copy(const void *, size_t bytes);
// Copies the thread's memory at address.
void *peek(struct thread *, uint64_t address, size_t bytes);

// ---- system calls of a thread: result, or a negative errno value

long sys_ioctl(struct thread *, unsigned long request, void *argument);
long sys_ioctl_fd(struct thread *, int fd, unsigned long request, void *argument);
void sys_ioctl_begin(struct thread *, unsigned long request, void *argument);
long sys_open(struct thread *, const char *path, int flags);
struct binder_extended_error extended_error(struct thread *); // of its last failure
long sys_close(struct thread *, int fd);
int64_t sys_mmap(struct thread *, int fd, size_t bytes, int protection, int flags);
long sys_poll(struct thread *, short events, int timeout_ms); // answers revents
long sys_pipe(struct thread *, int fds[2]);
long sys_read(struct thread *, int fd, void *buffer, size_t bytes);
long sys_write(struct thread *, int fd, const void *buffer, size_t bytes);
long sys_fcntl(struct thread *, int fd, int command, long argument);
void set_nonblocking(struct thread *, bool on);
long open_fds(struct thread *); // number of open descriptors
long become_manager(struct thread *); // retries while the slot of a killed one is freed

// ---- BINDER_WRITE_READ

// Makes one call unchanged; the struct is in the arena and is written back.
long write_read(struct thread *, struct binder_write_read *);
struct binder_write_read *write_read_new(const void *write, size_t write_bytes,
					 size_t read_bytes);

// Adds a command to the thread's write buffer, which flush() or a read takes.
void bc(struct thread *, uint32_t command);
void bc_u32(struct thread *, uint32_t command, uint32_t value);
void bc_u64(struct thread *, uint32_t command, uint64_t value);
void bc_ptr_cookie(struct thread *, uint32_t command, uint64_t ptr, uint64_t cookie);
void bc_handle_cookie(struct thread *, uint32_t command, uint32_t handle, uint64_t cookie);
void bc_bytes(struct thread *, const void *, size_t);
void flush_at(struct site, struct thread *);
#define flush(thread) flush_at(HERE, thread)

struct br {
	uint32_t command;
	union {
		struct binder_transaction_data txn;
		struct binder_transaction_data_secctx secctx;
		struct binder_ptr_cookie node;
		struct frozen_state_info frozen;
		uint64_t cookie;
		int32_t error;
	};
};
const char *br_name(uint32_t command);

// Returns the next return command: from earlier reads, or else from a blocking read. The BR_NOOP at
// the head of each read is checked and dropped.
const struct br *next_br_at(struct site, struct thread *, const char *wanted);
const struct br *expect_br_at(struct site, struct thread *, uint32_t command);
void expect_node_at(struct site, struct thread *, uint32_t command, uint64_t ptr,
		    uint64_t cookie);
void expect_cookie_at(struct site, struct thread *, uint32_t command, uint64_t cookie);
const struct binder_transaction_data *expect_txn_at(struct site, struct thread *,
						    uint32_t code);
const struct binder_transaction_data *expect_reply_at(struct site, struct thread *);
// Checks that all returns are consumed, and that a non-blocking read has none.
void expect_nothing_at(struct site, struct thread *);
// Checks that all returns are consumed.
void expect_drained_at(struct site, struct thread *);
bool has_unread(const struct thread *);
#define next_br(thread) next_br_at(HERE, thread, "any BR")
#define expect_br(thread, command) expect_br_at(HERE, thread, command)
#define expect_node(thread, command, ptr, cookie)                            \
	expect_node_at(HERE, thread, command, ptr, cookie)
#define expect_cookie(thread, command, cookie)                               \
	expect_cookie_at(HERE, thread, command, cookie)
#define expect_txn(thread, code) expect_txn_at(HERE, thread, code)
#define expect_reply(thread) expect_reply_at(HERE, thread)
#define expect_nothing(thread) expect_nothing_at(HERE, thread)
#define expect_drained(thread) expect_drained_at(HERE, thread)

// Begins a blocking read with the gathered commands; expect_br() collects its result.
void read_begin(struct thread *);
void set_read_bytes(struct thread *, size_t bytes);

// ---- parcels

struct parcel {
	uint8_t *data;
	uint64_t data_bytes;
	binder_size_t *offsets;
	size_t n_offsets;
	bool sg; // goes by BC_TRANSACTION_SG, BC_REPLY_SG
	uint64_t buffers_bytes;
};

struct parcel *parcel_new(void);
struct parcel *parcel_bytes(size_t bytes); // so many bytes, a pattern
void put_u32(struct parcel *, uint32_t);
// These functions return the object's index among the offsets.
size_t put_object(struct parcel *, const void *object, size_t bytes);
size_t put_binder(struct parcel *, uint64_t ptr, uint64_t cookie);
size_t put_binder_flags(struct parcel *, uint64_t ptr, uint64_t cookie, uint32_t flags);
size_t put_weak_binder(struct parcel *, uint64_t ptr, uint64_t cookie);
size_t put_handle(struct parcel *, uint32_t handle);
size_t put_weak_handle(struct parcel *, uint32_t handle);
size_t put_fd(struct parcel *, int fd);
size_t put_ptr(struct parcel *, const void *buffer, size_t bytes);
size_t put_child(struct parcel *, const void *buffer, size_t bytes, uint64_t parent,
		 uint64_t parent_offset);
size_t put_fda(struct parcel *, uint64_t n_fds, uint64_t parent, uint64_t parent_offset);

void bc_transaction(struct thread *, uint32_t handle, uint32_t code, uint32_t flags,
		    const struct parcel *); // NULL: no payload
void bc_reply(struct thread *, uint32_t flags, const struct parcel *);
void bc_reply_with(struct thread *, uint32_t code, uint32_t flags, const struct parcel *);
void bc_free_buffer(struct thread *, const struct binder_transaction_data *);

// Copies the received payload.
void *payload(struct thread *, const struct binder_transaction_data *);
// Copies the index-th object of a received payload.
void *object_at_site(struct site, struct thread *, const struct binder_transaction_data *,
		     size_t index);
#define object_at(thread, txn, index) object_at_site(HERE, thread, txn, index)
const struct flat_binder_object *flat_at_site(struct site, struct thread *,
					      const struct binder_transaction_data *,
					      size_t index, uint32_t type);
#define flat_at(thread, txn, index, type) flat_at_site(HERE, thread, txn, index, type)

// ---- conversations

// The server frees the request's buffer, replies without a payload and reads its
// BR_TRANSACTION_COMPLETE. The client reads BR_TRANSACTION_COMPLETE and BR_REPLY, and frees.
void finish_call_at(struct site, struct thread *client, struct thread *server,
		    const struct binder_transaction_data *request);
#define finish_call(client, server, request) finish_call_at(HERE, client, server, request)
// Like finish_call(), for a client that has read its BR_TRANSACTION_COMPLETE.
void finish_completed_at(struct site, struct thread *client, struct thread *server,
			 const struct binder_transaction_data *request);
#define finish_completed(client, server, request)                            \
	finish_completed_at(HERE, client, server, request)
// Makes a whole call without a payload.
void ping_at(struct site, struct thread *client, uint32_t handle, struct thread *server);
#define ping(client, handle, server) ping_at(HERE, client, handle, server)
// Gives `to` a strong handle to a node of `from`, through the manager, which keeps no handle. The
// owner's BR_INCREFS and BR_ACQUIRE, where due, are acknowledged.
uint32_t share_flags_at(struct site, struct thread *manager, struct thread *from,
			struct thread *to, uint64_t ptr, uint64_t cookie, uint32_t flags);
#define share(manager, from, to, ptr, cookie)                                \
	share_flags_at(HERE, manager, from, to, ptr, cookie, 0)
#define share_flags(manager, from, to, ptr, cookie, flags)                   \
	share_flags_at(HERE, manager, from, to, ptr, cookie, flags)

#endif
