// The ioctl itself: command buffers, counts of bytes, errno values, interruption.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness.h"

enum { NO_COMMAND = 0x6bad };

// BINDER_VERSION answers the protocol's version.
TEST(commands_version)
{
	struct thread *client = process_new("client");
	struct binder_version *version = arena_alloc(sizeof(*version));
	expect_errno(sys_ioctl(client, BINDER_VERSION, version), 0);
	expect_eq(version->protocol_version, BINDER_CURRENT_PROTOCOL_VERSION);
}

// An ioctl that the driver does not know, or of another size, is EINVAL.
TEST(commands_unknown_ioctl)
{
	struct thread *client = process_new("client");
	void *argument = arena_alloc(256);
	expect_errno(sys_ioctl(client, _IOW('b', 99, int), argument), EINVAL);
	expect_errno(sys_ioctl(client, _IOWR('b', 1, int), argument), EINVAL);
	expect_errno(sys_ioctl(client, BINDER_SET_IDLE_TIMEOUT, argument), EINVAL);
	expect_errno(sys_ioctl(client, BINDER_SET_IDLE_PRIORITY, argument), EINVAL);
}

// A bad argument pointer: EFAULT, and EINVAL where the driver has always said so.
TEST(commands_bad_argument)
{
	static const struct { unsigned long request; int error; } table[] = {
		{BINDER_WRITE_READ, EFAULT},
		{BINDER_SET_MAX_THREADS, EINVAL},
		{BINDER_SET_CONTEXT_MGR_EXT, EINVAL},
		{BINDER_VERSION, EINVAL},
		{BINDER_GET_NODE_DEBUG_INFO, EFAULT},
		{BINDER_GET_NODE_INFO_FOR_REF, EFAULT},
		{BINDER_FREEZE, EFAULT},
		{BINDER_GET_FROZEN_INFO, EFAULT},
		{BINDER_ENABLE_ONEWAY_SPAM_DETECTION, EFAULT},
		{BINDER_GET_EXTENDED_ERROR, EFAULT},
	};
	struct thread *client = process_new("client");
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		long result = sys_ioctl(client, table[i].request, (void *)8);
		if (result != -table[i].error)
			fail("ioctl %lu of a bad pointer: expected -%d, came %ld",
			     _IOC_NR(table[i].request), table[i].error, result);
	}
}

// WRITE_READ with nothing to write and nothing to read succeeds at once.
TEST(commands_empty_call)
{
	struct thread *client = process_new("client");
	struct binder_write_read *bwr = write_read_new(NULL, 0, 0);
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, 0);
	expect_eq(bwr->read_consumed, 0);
}

// An unknown command is EINVAL; the commands before it count as consumed and are done.
TEST(commands_unknown_command)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t words[] = {BC_INCREFS, 0, BC_ACQUIRE, 0, NO_COMMAND, BC_RELEASE, 0};
	struct binder_write_read *bwr = write_read_new(words, sizeof(words), 256);
	expect_errno(write_read(client, bwr), EINVAL);
	expect_eq(bwr->write_consumed, 16);
	expect_eq(bwr->read_consumed, 0);
	ping(client, 0, manager);
}

// The commands that the protocol only reserves are EINVAL.
TEST(commands_unsupported_commands)
{
	struct thread *client = process_new("client");
	struct { uint32_t command; uint32_t body[2]; } attempt = {BC_ATTEMPT_ACQUIRE, {0, 0}};
	struct binder_write_read *bwr = write_read_new(&attempt, sizeof(attempt), 0);
	expect_errno(write_read(client, bwr), EINVAL);
	expect_eq(bwr->write_consumed, 0);
	struct { uint32_t command; uint32_t body[1]; } result = {BC_ACQUIRE_RESULT, {0}};
	bwr = write_read_new(&result, sizeof(result), 0);
	expect_errno(write_read(client, bwr), EINVAL);
	expect_eq(bwr->write_consumed, 0);
}

// Bytes of a page whose successor cannot be read, ending at the page's end.
static long step_guarded(void *argument)
{
	uint64_t *at = argument;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || mprotect(pages + 4096, 4096, PROT_NONE))
		return -errno;
	char *start = pages + 4096 - at[1];
	memcpy(start, at + 2, at[1]);
	at[0] = (uintptr_t)start;
	return 0;
}

static uint64_t guarded(struct thread *t, const void *bytes, size_t n)
{
	uint64_t *argument = arena_alloc(16 + n);
	argument[1] = n;
	memcpy(argument + 2, bytes, n);
	expect_errno(run(t, step_guarded, argument), 0);
	return argument[0];
}

// A command cut off by unreadable memory is EFAULT; those before it are consumed.
TEST(commands_truncated_command)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t words[] = {BC_INCREFS, 0, BC_ACQUIRE};
	struct binder_write_read *bwr = write_read_new(NULL, 0, 0);
	bwr->write_buffer = guarded(client, words, sizeof(words));
	bwr->write_size = sizeof(words);
	expect_errno(write_read(client, bwr), EFAULT);
	expect_eq(bwr->write_consumed, 8);

	uint32_t half[] = {BC_INCREFS, 0, BC_TRANSACTION, 0, 0, 0, 0};
	bwr = write_read_new(NULL, 0, 0);
	bwr->write_buffer = guarded(client, half, sizeof(half));
	bwr->write_size = sizeof(half);
	expect_errno(write_read(client, bwr), EFAULT);
	expect_eq(bwr->write_consumed, 8);
	ping(client, 0, manager);
}

// A write buffer that cannot be read is EFAULT, with nothing consumed.
TEST(commands_bad_write_buffer)
{
	struct thread *client = process_new("client");
	struct binder_write_read *bwr = write_read_new(NULL, 0, 0);
	bwr->write_size = 4;
	bwr->write_buffer = 8;
	expect_errno(write_read(client, bwr), EFAULT);
	expect_eq(bwr->write_consumed, 0);
}

// A read buffer that cannot be written is EFAULT; the write part was done before.
TEST(commands_bad_read_buffer)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t words[] = {BC_INCREFS, 0};
	struct binder_write_read *bwr = write_read_new(words, sizeof(words), 0);
	bwr->read_size = 256;
	bwr->read_buffer = 8;
	expect_errno(write_read(client, bwr), EFAULT);
	expect_eq(bwr->write_consumed, 8);
	expect_eq(bwr->read_consumed, 0);
	ping(client, 0, manager);
}

struct edge {
	int fd;
	uint64_t read_buffer;
};

static long read_at_edge(void *argument)
{
	struct edge *edge = argument;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || munmap(pages, 4096))
		return -errno;
	struct binder_write_read bwr = {.read_size = 256};
	bwr.read_buffer = (uintptr_t)(pages + 4096 - 4);
	long result = ioctl(edge->fd, BINDER_WRITE_READ, &bwr) ? -errno : 0;
	munmap(pages + 4096, 4096);
	return result;
}

// A read buffer whose first bytes alone cannot be written is EFAULT.
TEST(commands_bad_read_buffer_at_its_edge)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct edge edge = {.fd = process_fd(client)};
	set_nonblocking(client, true);
	expect_eq(run(client, read_at_edge, arena_copy(&edge, sizeof(edge))), -EFAULT);
	set_nonblocking(client, false);
	ping(client, 0, manager);
}

// The commands and the returns may lie in the same memory.
TEST(commands_write_and_read_buffer_are_one)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint32_t command; struct binder_transaction_data body; }
		__attribute__((packed)) command = {BC_TRANSACTION, {.code = 7}};
	for (int one_way = 0; one_way < 2; one_way++) {
		// Twice, so that the driver knows the memory the second time.
		uint8_t *buffer = arena_alloc(2 * 4096);
		buffer = (uint8_t *)(((uintptr_t)buffer + 4095) & ~(uintptr_t)4095);
		for (int known = 0; known < 2; known++) {
			command.body.flags = one_way ? TF_ONE_WAY : 0;
			memcpy(buffer, &command, sizeof(command));
			struct binder_write_read *bwr = write_read_new(NULL, 0, 0);
			bwr->write_buffer = bwr->read_buffer = (uintptr_t)buffer;
			bwr->write_size = sizeof(command);
			bwr->read_size = 256;
			sys_ioctl_begin(client, BINDER_WRITE_READ, bwr);
			const struct binder_transaction_data *txn = expect_txn(manager, 7);
			if (one_way)
				bc_free_buffer(manager, txn);
			else
				bc_reply(manager, 0, NULL);
			flush(manager);
			expect_errno(run_end(client), 0);
			expect_eq(bwr->write_consumed, sizeof(command));
			expect_eq(((uint32_t *)buffer)[1], BR_TRANSACTION_COMPLETE);
			if (!one_way) {
				expect_br(manager, BR_TRANSACTION_COMPLETE);
				bc_free_buffer(manager, txn);
				flush(manager);
			}
		}
	}
}

// A payload that cannot be read fails the transaction, not the ioctl.
TEST(commands_bad_payload)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *bad = parcel_bytes(64);
	bad->data = (uint8_t *)8;
	bc_transaction(client, 0, 7, 0, bad);
	expect_br(client, BR_FAILED_REPLY);
	struct parcel *offsets = parcel_new();
	put_handle(offsets, 0);
	offsets->offsets = (binder_size_t *)8;
	bc_transaction(client, 0, 7, 0, offsets);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(client);
	expect_nothing(manager);
	ping(client, 0, manager);
}

// Writing goes on at write_consumed, as after an interrupted call.
TEST(commands_write_resumes)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t words[] = {NO_COMMAND, NO_COMMAND, BC_INCREFS, 0, BC_DECREFS, 0};
	struct binder_write_read *bwr = write_read_new(words, sizeof(words), 0);
	bwr->write_consumed = 8;
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(words));
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(words));
	ping(client, 0, manager);
}

// Reading goes on at read_consumed; BR_NOOP comes only where that was 0.
TEST(commands_read_resumes)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	flush(client);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	uint32_t *words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	words[0] = words[1] = words[2] = 0x5555;
	bwr->read_consumed = 8;
	expect_errno(write_read(client, bwr), 0);
	expect_eq(words[0], 0x5555);
	expect_eq(words[1], 0x5555);
	expect_eq(words[2], BR_TRANSACTION_COMPLETE);
	expect_eq(bwr->read_consumed, 12);
	bc_free_buffer(manager, expect_txn(manager, 7));
	flush(manager);
}

// BR_NOOP heads each read that began at read_consumed 0.
TEST(commands_noop_first)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	flush(client);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	uint32_t *words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->read_consumed, 8);
	expect_eq(words[0], BR_NOOP);
	expect_eq(words[1], BR_TRANSACTION_COMPLETE);
	bwr = write_read_new(NULL, 0, 256);
	words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	expect_errno(write_read(manager, bwr), 0);
	expect_eq(bwr->read_consumed, 8 + sizeof(struct binder_transaction_data));
	expect_eq(words[0], BR_NOOP);
	expect_eq(words[1], BR_TRANSACTION);
}

// Writing is done before reading: a call that does both sees what its commands caused.
TEST(commands_write_before_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(manager, 7);
}

// With O_NONBLOCK and nothing to read: EAGAIN, the write part done, read_consumed 0.
TEST(commands_nonblocking_empty_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t words[] = {BC_INCREFS, 0};
	set_nonblocking(client, true);
	struct binder_write_read *bwr = write_read_new(words, sizeof(words), 256);
	expect_errno(write_read(client, bwr), EAGAIN);
	expect_eq(bwr->write_consumed, sizeof(words));
	expect_eq(bwr->read_consumed, 0);
	expect_errno(write_read(client, bwr), EAGAIN);
	set_nonblocking(client, false);
	ping(client, 0, manager);
}

// Whether a call blocks is the open file's flag at the time of the call: opened
// O_NONBLOCK, it can be made to block later.
TEST(commands_opened_nonblocking)
{
	struct thread *manager = manager_new();
	struct thread *client = process_with((struct process_options){.name = "client",
								      .open_flags = O_NONBLOCK});
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	expect_errno(write_read(client, bwr), EAGAIN);
	set_nonblocking(client, false);
	ping(client, 0, manager);
}

// A read buffer too small for a command gets none of it, and loses nothing.
TEST(commands_small_read_is_never_split)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, parcel_bytes(12));
	flush(client);
	static const size_t small[] = {4, 16, 40, 4 + 4 + 60};
	for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++) {
		struct binder_write_read *bwr = write_read_new(NULL, 0, small[i]);
		expect_errno(write_read(manager, bwr), 0);
		expect_eq(bwr->read_consumed, 4);
		expect_eq(*(uint32_t *)(uintptr_t)bwr->read_buffer, BR_NOOP);
	}
	set_read_bytes(manager, 128);
	finish_call(client, manager, expect_txn(manager, 7));
}

// Many small commands in 128-byte reads: each read ends at a whole command, none is lost.
TEST(commands_small_reads_lose_nothing)
{
	enum { NODES = 20 };
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *objects = parcel_new();
	for (uint64_t i = 1; i <= NODES; i++)
		put_binder(objects, i * 16, i);
	bc_transaction(client, 0, 7, TF_ONE_WAY, objects);
	set_read_bytes(client, 128);
	for (uint64_t i = 1; i <= NODES; i++) {
		expect_node(client, BR_INCREFS, i * 16, i);
		expect_node(client, BR_ACQUIRE, i * 16, i);
	}
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(manager, 7);
}

// A transaction ends its read, and a thread that serves a call takes no other call of
// its process; after its reply it reads BR_TRANSACTION_COMPLETE alone, then the next.
TEST(commands_serving_thread_takes_no_other_call)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(client);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_transaction(other, 0, 8, 0, NULL);
	flush(other);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_nothing(manager);
	finish_call(client, manager, txn);
	expect_drained(manager);
	finish_call(other, manager, expect_txn(manager, 8));
}

// A one-way transaction ends its read too; a thread that has taken one can take more.
TEST(commands_transaction_ends_the_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	bc_transaction(client, 0, 8, 0, NULL);
	flush(client);
	expect_txn(manager, 7);
	expect_drained(manager);
	expect_txn(manager, 8);
	expect_drained(manager);
}

// A failed transaction stops the writing: the commands after it in the buffer are left for
// the next call, and no call writes before the error has been read. The ioctl succeeds.
TEST(commands_failure_stops_the_writing)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint32_t command; struct binder_transaction_data txn; }
		__attribute__((packed)) two[2] = {
			{BC_TRANSACTION, {.target.handle = 99}}, // no such handle
			{BC_TRANSACTION, {.target.handle = 0, .code = 8, .flags = TF_ONE_WAY}},
		};
	struct binder_write_read *bwr = write_read_new(two, sizeof(two), 0);
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(two[0]));
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(two[0]));
	bwr->read_size = 256;
	bwr->read_buffer = (uintptr_t)arena_alloc(256);
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->read_consumed, 8);
	expect_eq(((uint32_t *)(uintptr_t)bwr->read_buffer)[1], BR_FAILED_REPLY);
	expect_eq(bwr->write_consumed, sizeof(two[0]));
	bwr->read_size = 0;
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(two));
	expect_txn(manager, 8);
}

static void on_signal(int signal)
{
	(void)signal;
}

struct interruption {
	struct binder_write_read *bwr;
	int fd;
	int sa_flags;
};

// One call with a signal every 5 ms until it ends.
static long step_interrupted(void *argument)
{
	struct interruption *i = argument;
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = i->sa_flags};
	struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	long result = ioctl(i->fd, BINDER_WRITE_READ, i->bwr);
	long error = errno;
	setitimer(ITIMER_REAL, &never, NULL);
	return result < 0 ? -error : result;
}

static long interrupted(struct thread *t, struct binder_write_read *bwr, int sa_flags)
{
	struct interruption i = {bwr, process_fd(t), sa_flags};
	return run(t, step_interrupted, arena_copy(&i, sizeof(i)));
}

// A signal without SA_RESTART ends a blocked read with EINTR; what was written is
// consumed, and the same struct can be given again.
TEST(commands_interrupted_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint32_t command; struct binder_transaction_data txn; }
		__attribute__((packed)) call = {BC_TRANSACTION, {.target.handle = 0, .code = 7}};
	struct binder_write_read *bwr = write_read_new(&call, sizeof(call), 256);
	uint32_t *words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	expect_errno(interrupted(client, bwr, 0), EINTR);
	expect_eq(bwr->write_consumed, sizeof(call));
	expect_eq(bwr->read_consumed, 0);
	expect_errno(interrupted(client, bwr, 0), EINTR);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_nothing(manager);
	expect_errno(write_read(client, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(call));
	expect_eq(words[0], BR_NOOP);
	expect_eq(words[1], BR_TRANSACTION_COMPLETE);
	expect_eq(words[2], BR_REPLY);
}

// A looper that is interrupted while it waits gets EINTR too, and serves afterwards.
TEST(commands_interrupted_looper)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	expect_errno(interrupted(manager, bwr, 0), EINTR);
	expect_eq(bwr->read_consumed, 0);
	ping(client, 0, manager);
}

// With SA_RESTART the system does not restart the call either: it ends with EINTR.
TEST(commands_sa_restart_is_interrupted_too)
{
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	expect_errno(interrupted(manager_new(), bwr, SA_RESTART), EINTR);
}

// GET_EXTENDED_ERROR: the calling thread's last failure, its BR_ and a negative errno
// value; reading it clears it.
TEST(commands_extended_error)
{
	struct thread *client = process_new("client");
	struct thread *manager = manager_new();
	struct binder_extended_error error = extended_error(client);
	expect_eq(error.command, BR_OK);
	expect_eq(error.param, 0);
	bc_transaction(client, 99, 7, 0, NULL);
	expect_br(client, BR_FAILED_REPLY);
	error = extended_error(client);
	expect_eq(error.command, BR_FAILED_REPLY);
	expect_eq(error.param, -EINVAL);
	expect(error.id != 0);
	error = extended_error(client);
	expect_eq(error.command, BR_OK);
	expect_eq(error.param, 0);
	ping(client, 0, manager);
}

// GET_EXTENDED_ERROR with a bad pointer takes the failure all the same.
TEST(commands_extended_error_bad_argument)
{
	struct thread *client = process_new("client");
	struct thread *manager = manager_new();
	bc_transaction(client, 99, 7, 0, NULL);
	expect_br(client, BR_FAILED_REPLY);
	expect_errno(sys_ioctl(client, BINDER_GET_EXTENDED_ERROR, (void *)8), EFAULT);
	struct binder_extended_error error = extended_error(client);
	expect_eq(error.command, BR_OK);
	expect_eq(error.param, 0);
	ping(client, 0, manager);
}

// GET_EXTENDED_ERROR of a transaction that does not fit: ENOSPC.
TEST(commands_extended_error_no_space)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAP_BYTES + 8));
	expect_br(client, BR_FAILED_REPLY);
	struct binder_extended_error error = extended_error(client);
	expect_eq(error.command, BR_FAILED_REPLY);
	expect_eq(error.param, -ENOSPC);
	ping(client, 0, manager);
}

// GET_EXTENDED_ERROR of a call whose server dies: nothing, it was not the call that failed.
TEST(commands_extended_error_killed)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_txn(manager, 7);
	process_kill(manager);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_DEAD_REPLY);
	struct binder_extended_error error = extended_error(client);
	expect_eq(error.command, BR_OK);
	expect_eq(error.param, 0);
}

// GET_EXTENDED_ERROR of a call to a dead node: BR_DEAD_REPLY, EINVAL.
TEST(commands_extended_error_dead)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, handle, 1);
	flush(client);
	process_kill(server);
	expect_cookie(client, BR_DEAD_BINDER, 1);
	bc_transaction(client, handle, 7, 0, NULL);
	expect_br(client, BR_DEAD_REPLY);
	struct binder_extended_error error = extended_error(client);
	expect_eq(error.command, BR_DEAD_REPLY);
	expect_eq(error.param, -EINVAL);
}
