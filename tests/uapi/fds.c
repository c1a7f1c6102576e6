// File descriptors in transactions.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"

static struct thread *accepting_manager(void)
{
	return manager_ext(0, 0, FLAT_BINDER_FLAG_ACCEPTS_FDS);
}

// The descriptor writes into the pipe that fds[0] of t reads.
static void expect_pipe(struct thread *writer, int fd, struct thread *t, int reader)
{
	char got[8] = "";
	expect_eq(sys_write(writer, fd, "through", 8), 8);
	expect_eq(sys_read(t, reader, got, 8), 8);
	expect(!strcmp(got, "through"));
}

// A driver inside the process may keep descriptors of its own for each peer that it gets to know:
// before the program's are counted.
static void acquaint(struct thread *client, struct thread *manager)
{
	ping(client, 0, manager);
}

// An FD arrives as a new descriptor of the receiver, close-on-exec, on the same file.
TEST(fds_request)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	long before = open_fds(manager);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(open_fds(manager), before + 1);
	const struct flat_binder_object *o = flat_at(manager, txn, 0, BINDER_TYPE_FD);
	expect_eq(o->binder >> 32, 0);
	expect_eq(sys_fcntl(manager, (int)o->handle, F_GETFD, 0), FD_CLOEXEC);
	expect_pipe(manager, (int)o->handle, client, fds[0]);
	finish_call(client, manager, txn);
}

// A device, and the first call to another process, take no number but the device's own: programs
// count on it that a new descriptor has the lowest number that is free.
TEST(fds_have_the_lowest_numbers)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	const char *paths[] = {device_path(), "/dev/null", "/dev/null"};
	long lowest[3];
	for (int i = 0; i < 3; i++)
		lowest[i] = sys_open(client, "/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		expect_errno(sys_close(client, (int)lowest[i]), 0);
	for (int i = 0; i < 3; i++) {
		expect_eq(sys_open(client, paths[i], O_RDWR | O_CLOEXEC), lowest[i]);
		ping(client, 0, manager);
	}

	struct parcel *p = parcel_new();
	long awaited = sys_open(manager, "/dev/null", O_RDWR | O_CLOEXEC);
	expect_errno(sys_close(manager, (int)awaited), 0);
	put_fd(p, (int)lowest[2]);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(flat_at(manager, txn, 0, BINDER_TYPE_FD)->handle, awaited);
	finish_call(client, manager, txn);
}

// The receiver owns what it received: freeing the buffer does not close it.
TEST(fds_outlive_the_buffer)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	int fd = (int)flat_at(manager, txn, 0, BINDER_TYPE_FD)->handle;
	finish_call(client, manager, txn);
	expect_errno(sys_close(client, fds[1]), 0);
	expect_pipe(manager, fd, client, fds[0]);
}

// The sender may close its descriptor as soon as the transaction is sent.
TEST(fds_sender_closes)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, TF_ONE_WAY, p);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_errno(sys_close(client, fds[1]), 0);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_pipe(manager, (int)flat_at(manager, txn, 0, BINDER_TYPE_FD)->handle, client, fds[0]);
}

// Several descriptors in one transaction, the same one twice: each is new.
TEST(fds_several)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	int one = (int)flat_at(manager, txn, 0, BINDER_TYPE_FD)->handle;
	int two = (int)flat_at(manager, txn, 1, BINDER_TYPE_FD)->handle;
	expect(one != two);
	expect_pipe(manager, one, client, fds[0]);
	expect_pipe(manager, two, client, fds[0]);
}

// A node without ACCEPTS_FDS is sent none: BR_FAILED_REPLY.
TEST(fds_node_does_not_accept)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	long before = open_fds(manager);
	bc_transaction(client, 0, 7, 0, p);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
	expect_eq(open_fds(manager), before);
}

// ACCEPTS_FDS is the flag of the node as it was first sent.
TEST(fds_node_flag)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share_flags(manager, server, client, 0x10, 0x20,
				      FLAT_BINDER_FLAG_ACCEPTS_FDS);
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, handle, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(server, 7);
	expect_pipe(server, (int)flat_at(server, txn, 0, BINDER_TYPE_FD)->handle, client, fds[0]);
	finish_call(client, server, txn);
}

// A reply carries descriptors where the request said TF_ACCEPT_FDS.
TEST(fds_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(manager, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, TF_ACCEPT_FDS, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, p);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	int fd = (int)flat_at(client, reply, 0, BINDER_TYPE_FD)->handle;
	expect_eq(sys_fcntl(client, fd, F_GETFD, 0), FD_CLOEXEC);
	expect_pipe(client, fd, manager, fds[0]);
}

// Without TF_ACCEPT_FDS such a reply fails: BR_FAILED_REPLY for the caller.
TEST(fds_reply_not_accepted)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(manager, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	long before = open_fds(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, p);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_FAILED_REPLY);
	expect_eq(open_fds(client), before);
}

// A descriptor that the sender has not open fails the transaction, and those before it
// are not left with the receiver.
TEST(fds_closed_descriptor)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	put_fd(p, 900);
	long before = open_fds(manager);
	bc_transaction(client, 0, 7, 0, p);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
	expect_eq(open_fds(manager), before);
	// Nor anywhere else: the pipe ends once the sender's own end is closed.
	char byte;
	expect_errno(sys_close(client, fds[1]), 0);
	expect_eq(sys_read(client, fds[0], &byte, 1), 0);
}

// The driver's own descriptor can be sent.
TEST(fds_binder_descriptor_itself)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_fd(p, process_fd(client));
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	int fd = (int)flat_at(manager, txn, 0, BINDER_TYPE_FD)->handle;
	expect_errno(sys_close(manager, fd), 0);
	finish_call(client, manager, txn);
	ping(client, 0, manager);
}

// An undelivered transaction's descriptors are closed with the receiver.
TEST(fds_undelivered)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	char byte;
	struct parcel *p = parcel_new();
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	bc_transaction(client, 0, 7, TF_ONE_WAY, p);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_errno(sys_close(client, fds[1]), 0);
	process_kill(manager);
	expect_eq(sys_read(client, fds[0], &byte, 1), 0);
}

static long step_limit_fds(void *n)
{
	struct rlimit limit = {(rlim_t)(uintptr_t)n, (rlim_t)(uintptr_t)n};
	return setrlimit(RLIMIT_NOFILE, &limit) ? -errno : 0;
}

// A receiver at its limit of descriptors: the call fails with BR_FAILED_REPLY, the
// receiver does not see it, and what was installed before is closed again.
TEST(fds_receiver_at_its_limit)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2], spare[2];
	struct parcel *p = parcel_new();
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	expect_errno(sys_pipe(manager, spare), 0);
	put_fd(p, fds[1]);
	put_fd(p, fds[1]);
	long highest = sys_fcntl(manager, spare[0], F_DUPFD, 0);
	expect_errno(sys_close(manager, (int)highest), 0);
	// One of the two fits.
	expect_errno(run(manager, step_limit_fds, (void *)(uintptr_t)(highest + 1)), 0);
	bc_transaction(client, 0, 7, 0, p);
	read_begin(client);
	read_begin(manager);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_FAILED_REPLY);
	bc_transaction(client, 0, 8, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 8);
	finish_call(client, manager, txn);
	long at = sys_fcntl(manager, spare[0], F_DUPFD, 0);
	expect_eq(at, highest);
	expect_errno(sys_close(manager, (int)at), 0);
}

// A one-way call to a receiver at its limit is dropped without a word.
TEST(fds_receiver_at_its_limit_oneway)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	struct parcel *p = parcel_new();
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	put_fd(p, fds[1]);
	long highest = sys_fcntl(manager, process_fd(manager), F_DUPFD, 0);
	expect_errno(sys_close(manager, (int)highest), 0);
	expect_errno(run(manager, step_limit_fds, (void *)(uintptr_t)highest), 0);
	bc_transaction(client, 0, 7, TF_ONE_WAY, p);
	bc_transaction(client, 0, 8, TF_ONE_WAY, NULL);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(manager, 8);
	expect_nothing(client);
}

// A parcel with an array of this descriptor, in a buffer like a native_handle_t: counts, then
// descriptors.
static struct parcel *parcel_with_array(int fd)
{
	int native[4] = {2, 1, fd, 77};
	struct parcel *p = parcel_new();
	put_u32(p, 1);
	put_u32(p, 2);
	size_t parent = put_ptr(p, arena_copy(native, sizeof(native)), sizeof(native));
	put_fda(p, 1, parent, 8);
	return p;
}

// An array of descriptors in a buffer: each element becomes the receiver's.
TEST(fds_array)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	long before = open_fds(manager);
	bc_transaction(client, 0, 7, 0, parcel_with_array(fds[1]));
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(open_fds(manager), before + 1);
	const struct binder_buffer_object *o = object_at(manager, txn, 0);
	const int *got = peek(manager, o->buffer, 4 * sizeof(int));
	expect_eq(got[0], 2);
	expect_eq(got[3], 77);
	expect_eq(sys_fcntl(manager, got[2], F_GETFD, 0), FD_CLOEXEC);
	expect_pipe(manager, got[2], client, fds[0]);
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	// Unlike an FD's, an array's descriptors are the buffer's: they go with it.
	expect_eq(open_fds(manager), before);
}

// A receiver may have closed an array's descriptor itself. What has the number then goes with the
// buffer.
TEST(fds_array_closed_by_its_receiver)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	for (int takes_number = 0; takes_number < 2; takes_number++) {
		bc_transaction(client, 0, 7, 0, parcel_with_array(fds[1]));
		flush(client);
		const struct binder_transaction_data *txn = expect_txn(manager, 7);
		const struct binder_buffer_object *o = object_at(manager, txn, 0);
		int number = ((const int *)peek(manager, o->buffer, 4 * sizeof(int)))[2];
		expect_errno(sys_close(manager, number), 0);
		long file = takes_number ? sys_open(manager, "/dev/null", O_RDWR) : number;
		if (file != number)
			expect_eq(sys_fcntl(manager, (int)file, F_DUPFD, number), number);
		finish_call(client, manager, txn);
		expect_errno(sys_fcntl(manager, number, F_GETFD, 0), EBADF);
	}
}

// The ioctl that frees an array's buffer does not wait: descriptors are closed on the way back.
TEST(fds_array_freed_before_a_read)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	bc_transaction(client, 0, 7, 0, parcel_with_array(fds[1]));
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	uint32_t free_buffer[3] = {BC_FREE_BUFFER};
	memcpy(free_buffer + 1, &txn->data.ptr.buffer, sizeof(txn->data.ptr.buffer));
	struct binder_write_read *bwr = write_read_new(free_buffer, sizeof(free_buffer), 256);
	expect_errno(write_read(manager, bwr), 0);
	expect_eq(bwr->read_consumed, 4);
	expect_nothing(manager);
}

// A socket whose last close waits for so many seconds: its peer takes nothing.
static long lingering_socket(void *argument)
{
	struct linger linger = {.l_onoff = 1, .l_linger = (int)(intptr_t)argument};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, bytes) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &bytes) || connect(sender, (void *)&at, bytes) ||
	    accept(listener, NULL, NULL) < 0)
		return -errno;
	static char block[65536];
	while (send(sender, block, sizeof(block), MSG_DONTWAIT) > 0)
		;
	if (setsockopt(sender, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)))
		return -errno;
	return sender;
}

// The close of an array's descriptor takes as long as its sender likes. It holds up the thread that
// frees the buffer, and no other.
TEST(fds_array_whose_close_waits)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	struct thread *looper = thread_new(manager), *other = process_new("other");
	bc(looper, BC_ENTER_LOOPER);
	flush(looper);
	ping(other, 0, manager);
	long fd = run(client, lingering_socket, (void *)(intptr_t)60);
	expect(fd >= 0);
	bc_transaction(client, 0, 7, TF_ONE_WAY, parcel_with_array((int)fd));
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_errno(sys_close(client, (int)fd), 0);
	uint32_t free_buffer[3] = {BC_FREE_BUFFER};
	memcpy(free_buffer + 1, &txn->data.ptr.buffer, sizeof(txn->data.ptr.buffer));
	sys_ioctl_begin(manager, BINDER_WRITE_READ, write_read_new(free_buffer, sizeof(free_buffer), 0));
	await_asleep(manager);
	ping(other, 0, looper);
	expect(!has_ended(manager));
}

// An array with a closed descriptor in it fails as a whole.
TEST(fds_array_with_closed_descriptor)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	int fds[2];
	acquaint(client, manager);
	expect_errno(sys_pipe(client, fds), 0);
	int array[3] = {fds[1], 900, fds[1]};
	struct parcel *p = parcel_new();
	put_u32(p, 1);
	put_u32(p, 2);
	put_fda(p, 3, put_ptr(p, arena_copy(array, sizeof(array)), sizeof(array)), 0);
	long before = open_fds(manager);
	bc_transaction(client, 0, 7, 0, p);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
	expect_eq(open_fds(manager), before);
}

// An array needs ACCEPTS_FDS as an FD does.
TEST(fds_array_not_accepted)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	int fds[2];
	expect_errno(sys_pipe(client, fds), 0);
	struct parcel *p = parcel_new();
	put_u32(p, 1);
	put_u32(p, 2);
	put_fda(p, 2, put_ptr(p, arena_copy(fds, sizeof(fds)), sizeof(fds)), 0);
	bc_transaction(client, 0, 7, 0, p);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
}

// An empty array passes.
TEST(fds_array_empty)
{
	struct thread *manager = accepting_manager(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_u32(p, 1);
	put_u32(p, 2);
	put_fda(p, 0, put_ptr(p, arena_alloc(16), 16), 0);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	finish_call(client, manager, expect_txn(manager, 7));
}
