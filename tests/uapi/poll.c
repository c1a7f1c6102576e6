// poll and epoll on the device.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "harness.h"

// Work of the process shows in poll until it is read: level-triggered.
TEST(poll_process_work)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	expect_eq(sys_poll(manager, POLLIN, 0), 0);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_eq(sys_poll(manager, POLLIN, -1), POLLIN);
	expect_eq(sys_poll(manager, POLLIN, 0), POLLIN);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(sys_poll(manager, POLLIN, 0), 0);
	finish_call(client, manager, txn);
	expect_eq(sys_poll(manager, POLLIN, 0), 0);
}

// A reply is work of the thread that called: it shows in that thread's poll, and not in
// another's.
TEST(poll_thread_work)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(client);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(sys_poll(client, POLLIN, 0), 0); // BR_TRANSACTION_COMPLETE is held back
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_eq(sys_poll(client, POLLIN, -1), POLLIN);
	expect_eq(sys_poll(other, POLLIN, 0), 0);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_reply(client);
	expect_eq(sys_poll(client, POLLIN, 0), 0);
}

// BR_TRANSACTION_COMPLETE of a one-way call and of a reply shows at once.
TEST(poll_transaction_complete)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	flush(client);
	expect_eq(sys_poll(client, POLLIN, 0), POLLIN);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_eq(sys_poll(client, POLLIN, 0), 0);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_transaction(client, 0, 8, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 8));
	bc_reply(manager, 0, NULL);
	flush(manager);
	expect_eq(sys_poll(manager, POLLIN, 0), POLLIN);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
}

// A thread that awaits a reply does not see work of the process; it sees a call back.
TEST(poll_while_awaiting_a_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *stranger = process_new("stranger"), *pool = thread_new(client);
	uint32_t at_stranger = share(manager, client, stranger, 0x10, 0x20);
	uint32_t at_manager = share(manager, client, manager, 0x10, 0x20);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	bc_transaction(stranger, at_stranger, 8, 0, NULL);
	flush(stranger);
	expect_eq(sys_poll(pool, POLLIN, -1), POLLIN);
	expect_eq(sys_poll(client, POLLIN, 0), 0);
	bc_transaction(manager, at_manager, 9, 0, NULL);
	flush(manager);
	expect_eq(sys_poll(client, POLLIN, -1), POLLIN);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	finish_call(manager, client, expect_txn(client, 9));
	finish_completed(client, manager, txn);
	finish_call(stranger, pool, expect_txn(pool, 8));
}

// A thread that has made no ioctl yet sees POLLIN, as its first read does not wait.
TEST(poll_first_call_of_a_thread)
{
	struct thread *manager = manager_new(), *fresh = thread_fresh(manager);
	expect_eq(sys_poll(fresh, POLLIN, 0), POLLIN);
	expect_eq(sys_poll(manager, POLLIN, 0), 0);
}

struct blocked {
	int fd;
	bool epoll;
};

static long step_wait(void *argument)
{
	struct blocked *b = argument;
	struct pollfd p = {.fd = b->fd, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN}, got = {0};
	if (!b->epoll)
		return poll(&p, 1, -1) < 0 ? -errno : p.revents;
	int set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, b->fd, &event))
		return -errno;
	int n = epoll_wait(set, &got, 1, -1);
	close(set);
	return n < 0 ? -errno : (long)got.events;
}

static void wait_begin(struct thread *t, bool epoll)
{
	struct blocked b = {process_fd(t), epoll};
	run_begin(t, step_wait, arena_copy(&b, sizeof(b)));
	await_asleep(t);
}

// A thread asleep in poll, or in epoll_wait, is woken by a call to its process.
static void woken_by_process_work(bool epoll)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	wait_begin(manager, epoll);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_eq(run_end(manager), POLLIN);
	finish_call(client, manager, expect_txn(manager, 7));
}

TEST(poll_is_woken_by_process_work) { woken_by_process_work(false); }
TEST(poll_epoll_is_woken_by_process_work) { woken_by_process_work(true); }

// And by the reply to its own call.
static void woken_by_thread_work(bool epoll)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	wait_begin(client, epoll);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, NULL);
	flush(manager);
	expect_eq(run_end(client), POLLIN);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_reply(client);
}

TEST(poll_is_woken_by_a_reply) { woken_by_thread_work(false); }
TEST(poll_epoll_is_woken_by_a_reply) { woken_by_thread_work(true); }

// And by a death, and by a reference that is gone.
TEST(poll_is_woken_by_a_death)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, handle, 1);
	flush(client);
	wait_begin(client, false);
	process_kill(server);
	expect_eq(run_end(client), POLLIN);
	expect_cookie(client, BR_DEAD_BINDER, 1);
}

TEST(poll_is_woken_by_a_release)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	wait_begin(server, true);
	bc_u32(client, BC_RELEASE, handle);
	bc_u32(client, BC_DECREFS, handle);
	flush(client);
	expect_eq(run_end(server), POLLIN);
	expect_node(server, BR_RELEASE, 0x10, 0x20);
	expect_node(server, BR_DECREFS, 0x10, 0x20);
}

// And by a one-way call that was held back until the buffer of the one before was freed.
TEST(poll_is_woken_by_a_queued_oneway)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(manager);
	bc_transaction(client, 0, 1, TF_ONE_WAY, NULL);
	bc_transaction(client, 0, 2, TF_ONE_WAY, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 1);
	wait_begin(manager, true);
	bc_free_buffer(other, txn);
	flush(other);
	expect_eq(run_end(manager), POLLIN);
	expect_txn(manager, 2);
}

// Two threads poll: both see the process's work, one reads it, the other has nothing.
TEST(poll_two_threads_see_one_call)
{
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_eq(sys_poll(manager, POLLIN, -1), POLLIN);
	expect_eq(sys_poll(second, POLLIN, -1), POLLIN);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_nothing(second);
	expect_eq(sys_poll(second, POLLIN, 0), 0);
	finish_call(client, manager, txn);
}

// An epoll set keeps reporting what has not been read.
static long step_epoll_twice(void *argument)
{
	int fd = (int)(intptr_t)argument, set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN}, got;
	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
		return -errno;
	int first = epoll_wait(set, &got, 1, -1), second = epoll_wait(set, &got, 1, 0);
	close(set);
	return first + second;
}

TEST(poll_epoll_is_level_triggered)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_eq(run(manager, step_epoll_twice, (void *)(intptr_t)process_fd(manager)), 2);
	finish_call(client, manager, expect_txn(manager, 7));
}

// ---- the device in an epoll set

static struct set_control {
	int set, operation, fd;
} *set_control(int set, int operation, int fd)
{
	struct set_control control = {set, operation, fd};
	return arena_copy(&control, sizeof(control));
}

static long step_set_new(void *unused)
{
	(void)unused;
	return epoll_create1(EPOLL_CLOEXEC);
}

static long step_set_control(void *argument)
{
	struct set_control *c = argument;
	struct epoll_event event = {.events = EPOLLIN};
	return epoll_ctl(c->set, c->operation, c->fd, &event) ? -errno : 0;
}

// The number of events that a set has now.
static long step_set_wait(void *argument)
{
	struct epoll_event got[8];
	int n = epoll_wait((int)(intptr_t)argument, got, 8, 0);
	return n < 0 ? -errno : n;
}

// Adds a device to a set, which is then edge-triggered.
static long step_set_add_edges(void *argument)
{
	struct set_control *c = argument;
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	return epoll_ctl(c->set, c->operation, c->fd, &event) ? -errno : 0;
}

// Waits for an event of a set.
static long step_set_await(void *argument)
{
	struct epoll_event got;
	int n = epoll_wait((int)(intptr_t)argument, &got, 1, -1);
	return n < 0 ? -errno : n;
}

// In an edge-triggered set each arrival of work is an event, whether or not the thread has read
// what came before.
TEST(poll_epoll_is_edge_triggered)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *second = process_new("second"), *third = process_new("third");
	int fd = process_fd(manager), set = run(manager, step_set_new, NULL);
	expect(set >= 0);
	expect_errno(run(manager, step_set_add_edges, set_control(set, EPOLL_CTL_ADD, fd)), 0);
	for (int i = 0; i < 3; i++) {
		bc_transaction(client, 0, 7, 0, NULL);
		flush(client);
		expect_eq(run(manager, step_set_await, (void *)(intptr_t)set), 1);
		finish_call(client, manager, expect_txn(manager, 7));
		expect_nothing(manager);
	}
	bc_transaction(second, 0, 8, 0, NULL);
	flush(second);
	expect_eq(run(manager, step_set_await, (void *)(intptr_t)set), 1);
	bc_transaction(third, 0, 9, 0, NULL);
	flush(third);
	expect_eq(run(manager, step_set_await, (void *)(intptr_t)set), 1);
	finish_call(second, manager, expect_txn(manager, 8));
	finish_call(third, manager, expect_txn(manager, 9));
	expect_errno(sys_close(manager, set), 0);
}

// Any thread takes the device out of a set, and none adds it twice.
TEST(poll_epoll_any_thread_takes_out)
{
	struct thread *manager = manager_new(), *other = thread_new(manager);
	struct thread *client = process_new("client");
	int fd = process_fd(manager), set = run(manager, step_set_new, NULL);
	expect(set >= 0);
	expect_errno(run(other, step_set_control, set_control(set, EPOLL_CTL_MOD, fd)), ENOENT);
	expect_errno(run(other, step_set_control, set_control(set, EPOLL_CTL_ADD, fd)), 0);
	expect_errno(run(manager, step_set_control, set_control(set, EPOLL_CTL_ADD, fd)), EEXIST);
	expect_errno(run(other, step_set_control, set_control(set, EPOLL_CTL_ADD, fd)), EEXIST);
	expect_errno(run(manager, step_set_control, set_control(set, EPOLL_CTL_MOD, fd)), 0);
	expect_errno(run(manager, step_set_control, set_control(set, EPOLL_CTL_DEL, fd)), 0);
	expect_errno(run(other, step_set_control, set_control(set, EPOLL_CTL_DEL, fd)), ENOENT);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	expect_eq(sys_poll(manager, POLLIN, -1), POLLIN);
	expect_eq(run(manager, step_set_wait, (void *)(intptr_t)set), 0);
	finish_call(client, manager, expect_txn(manager, 7));
	expect_errno(sys_close(manager, set), 0);
}

// A device that is closed leaves the set. A fresh thread finds it readable until then.
TEST(poll_epoll_forgets_a_closed_device)
{
	struct thread *t = process_bare("client");
	int set = run(t, step_set_new, NULL), fd = sys_open(t, device_path(), O_RDWR);
	expect(set >= 0 && fd >= 0);
	expect_errno(run(t, step_set_control, set_control(set, EPOLL_CTL_ADD, fd)), 0);
	expect_eq(run(t, step_set_wait, (void *)(intptr_t)set), 1);
	expect_errno(sys_close(t, fd), 0);
	expect_eq(run(t, step_set_wait, (void *)(intptr_t)set), 0);
	expect_errno(sys_close(t, set), 0);
}

// Threads that have polled leave no descriptor, whether they say that they end or not.
TEST(poll_leaves_no_descriptors)
{
	struct thread *manager = manager_new(), *warm = thread_new(manager);
	sys_poll(warm, POLLIN, 0);
	thread_end(warm);
	long before = open_fds(manager);
	for (int i = 0; i < 4; i++) {
		struct thread *t = thread_new(manager);
		sys_poll(t, POLLIN, 0);
		if (i % 2)
			expect_errno(sys_ioctl(t, BINDER_THREAD_EXIT, arena_alloc(4)), 0);
		thread_end(t);
	}
	expect_eq(open_fds(manager), before);
}
