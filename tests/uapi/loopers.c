// Loopers: registration, BR_SPAWN_LOOPER, which thread gets the work.
#include <string.h>
#include <unistd.h>

#include "harness.h"

static void set_max_threads(struct thread *t, uint32_t n)
{
	expect_errno(sys_ioctl(t, BINDER_SET_MAX_THREADS, arena_copy(&n, sizeof(n))), 0);
}

static void call(struct thread *client, uint32_t code)
{
	bc_transaction(client, 0, code, 0, NULL);
	flush(client);

}

// With max_threads 0 no BR_SPAWN_LOOPER comes.
TEST(loopers_none_asked_for)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	set_max_threads(manager, 0);
	call(client, 7);
	finish_call(client, manager, expect_txn(manager, 7));
}

// With a thread to spare, a looper that takes the last one's work gets BR_SPAWN_LOOPER in
// the place of BR_NOOP, in the read that brings the transaction.
TEST(loopers_spawn_takes_the_place_of_noop)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	set_max_threads(manager, 1);
	call(client, 7);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	uint32_t *words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	expect_errno(write_read(manager, bwr), 0);
	expect_eq(words[0], BR_SPAWN_LOOPER);
	expect_eq(words[1], BR_TRANSACTION);
	expect_eq(bwr->read_consumed, 8 + sizeof(struct binder_transaction_data));
}

// One request at a time: no second BR_SPAWN_LOOPER before BC_REGISTER_LOOPER; and never
// more than max_threads in all.
static void spawn_up_to(uint32_t max)
{
	struct thread *manager = manager_new(), *busy = manager;
	struct thread *clients[4];
	set_max_threads(manager, max);
	for (uint32_t i = 0; i < 4; i++) {
		clients[i] = process_new("client");
		call(clients[i], i);
		if (i < max)
			expect_br(busy, BR_SPAWN_LOOPER);
		expect_txn(busy, i);
		if (i < max) {
			busy = thread_new(manager);
			bc(busy, BC_REGISTER_LOOPER);
		} else {
			busy = thread_new(manager);
			bc(busy, BC_ENTER_LOOPER);
		}
		flush(busy);
	}
}

TEST(loopers_spawn_up_to_one) { spawn_up_to(1); }
TEST(loopers_spawn_up_to_two) { spawn_up_to(2); }

TEST(loopers_one_spawn_at_a_time)
{
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client"), *other = process_new("other");
	set_max_threads(manager, 5);
	bc(second, BC_ENTER_LOOPER);
	flush(second);
	call(client, 1);
	expect_br(manager, BR_SPAWN_LOOPER);
	expect_txn(manager, 1);
	call(other, 2);
	finish_call(other, second, expect_txn(second, 2));
	struct thread *spawned = thread_new(manager);
	bc(spawned, BC_REGISTER_LOOPER);
	flush(spawned);
	call(other, 3);
	expect_br(second, BR_SPAWN_LOOPER);
	expect_txn(second, 3);
}

// While another looper waits for work there is no BR_SPAWN_LOOPER.
TEST(loopers_no_spawn_while_one_waits)
{
	differs("oldest-looper-first");
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client"), *other = process_new("other");
	set_max_threads(manager, 5);
	bc(second, BC_ENTER_LOOPER);
	read_begin(second);
	await_asleep(second);
	read_begin(manager);
	await_asleep(manager);
	// The last to wait is the first to be given work.
	call(client, 1);
	const struct binder_transaction_data *txn = expect_txn(manager, 1);
	call(other, 2);
	expect_br(second, BR_SPAWN_LOOPER);
	expect_txn(second, 2);
	finish_call(client, manager, txn);
}

// A thread that is no looper gets no BR_SPAWN_LOOPER, but it gets work.
TEST(loopers_other_threads_are_not_asked)
{
	struct thread *manager = process_new("manager"), *client = process_new("client");
	expect_errno(become_manager(manager), 0);
	set_max_threads(manager, 3);
	call(client, 7);
	finish_call(client, manager, expect_txn(manager, 7));
}

// BR_SPAWN_LOOPER comes with any read of a looper, as with BR_TRANSACTION_COMPLETE.
TEST(loopers_spawn_on_any_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc(client, BC_ENTER_LOOPER);
	set_max_threads(client, 1);
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	expect_br(client, BR_SPAWN_LOOPER);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(manager, 7);
}

// BC_REGISTER_LOOPER unasked counts for nothing: BR_SPAWN_LOOPER still comes.
TEST(loopers_register_unasked)
{
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client");
	set_max_threads(manager, 1);
	bc(second, BC_REGISTER_LOOPER);
	flush(second);
	call(client, 7);
	expect_br(manager, BR_SPAWN_LOOPER);
	expect_txn(manager, 7);
}

// BC_REGISTER_LOOPER after BC_ENTER_LOOPER, and the reverse, is a mistake that does not
// fail the call.
TEST(loopers_register_and_enter)
{
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client");
	bc(manager, BC_REGISTER_LOOPER);
	flush(manager);
	bc(second, BC_REGISTER_LOOPER);
	bc(second, BC_ENTER_LOOPER);
	bc(second, BC_ENTER_LOOPER);
	flush(second);
	call(client, 7);
	finish_call(client, manager, expect_txn(manager, 7));
}

// BC_EXIT_LOOPER, then BINDER_THREAD_EXIT: the thread is gone, another serves. A spawned
// looper that exits does not make room for another.
TEST(loopers_exit)
{
	struct thread *manager = manager_new(), *spawned = thread_new(manager);
	struct thread *client = process_new("client");
	set_max_threads(manager, 1);
	call(client, 1);
	expect_br(manager, BR_SPAWN_LOOPER);
	const struct binder_transaction_data *txn = expect_txn(manager, 1);
	bc(spawned, BC_REGISTER_LOOPER);
	flush(spawned);
	finish_call(client, manager, txn);
	bc(spawned, BC_EXIT_LOOPER);
	flush(spawned);
	expect_errno(sys_ioctl(spawned, BINDER_THREAD_EXIT, NULL), 0);
	call(client, 2);
	finish_call(client, manager, expect_txn(manager, 2));
}

// After BINDER_THREAD_EXIT the thread may come back as a new one.
TEST(loopers_thread_returns_after_exit)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	expect_errno(sys_ioctl(client, BINDER_THREAD_EXIT, NULL), 0);
	ping(client, 0, manager);
	expect_errno(sys_ioctl(manager, BINDER_THREAD_EXIT, NULL), 0);
	bc(manager, BC_ENTER_LOOPER);
	ping(client, 0, manager);
}

// A thread's first ioctl does not wait: a read with nothing to read has BR_NOOP alone.
TEST(loopers_first_call_of_a_thread_does_not_wait)
{
	struct thread *manager = manager_new(), *fresh = thread_fresh(manager);
	uint32_t enter = BC_ENTER_LOOPER;
	struct binder_write_read *bwr = write_read_new(&enter, sizeof(enter), 256);
	expect_errno(write_read(fresh, bwr), 0);
	expect_eq(bwr->write_consumed, sizeof(enter));
	expect_eq(bwr->read_consumed, 4);
	expect_eq(*(uint32_t *)(uintptr_t)bwr->read_buffer, BR_NOOP);
	expect_nothing(fresh);
}

// The last thread to wait gets the work.
TEST(loopers_last_to_wait_is_first_to_work)
{
	differs("oldest-looper-first");
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *pool[3];
	for (int i = 0; i < 3; i++) {
		pool[i] = thread_new(manager);
		bc(pool[i], BC_ENTER_LOOPER);
		read_begin(pool[i]);
		await_asleep(pool[i]);
	}
	call(client, 7);
	finish_call(client, pool[2], expect_txn(pool[2], 7));
	bc_transaction(client, 0, 8, TF_ONE_WAY, NULL);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(pool[1], 8);
}

// Work that found no thread waiting is taken by any that comes, in order.
TEST(loopers_queued_work_in_order)
{
	struct thread *manager = manager_new(), *clients[5];
	for (uint32_t i = 0; i < 5; i++)
		call(clients[i] = process_new("client"), i);
	for (uint32_t i = 0; i < 5; i++) {
		struct thread *t = i ? thread_new(manager) : manager;
		finish_call(clients[i], t, expect_txn(t, i));
	}
}

// A process's threads share its handles and nodes.
TEST(loopers_threads_share_handles)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	ping(thread_new(client), handle, thread_new(server));
}

// ---- a close while threads read

static long step_dup_and_close(void *fd)
{
	int copy = dup((int)(intptr_t)fd);
	return copy < 0 || close(copy) ? -errno : 0;
}

// Begins a read that waits, and returns its structure.
static struct binder_write_read *read_and_wait(struct thread *t)
{
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	sys_ioctl_begin(t, BINDER_WRITE_READ, bwr);
	await_asleep(t);
	return bwr;
}

// A close of any of its descriptors ends the reads of all threads: they return with BR_NOOP alone,
// and so does the next read of a thread that does not wait. All go on from there.
TEST(loopers_close_ends_reads)
{
	struct thread *manager = manager_new(), *idle = thread_new(manager);
	struct thread *client = process_new("client");
	for (int i = 0; i < 50; i++) {
		read_begin(manager);
		await_asleep(manager);
		call(client, 7);
		finish_call(client, manager, expect_txn(manager, 7));
	}
	struct binder_write_read *waits = read_and_wait(manager);
	void *fd = (void *)(intptr_t)process_fd(manager);
	expect_errno(run(idle, step_dup_and_close, fd), 0);
	expect_errno(run_end(manager), 0);
	expect_eq(waits->read_consumed, 4);
	struct binder_write_read *next = write_read_new(NULL, 0, 256);
	expect_errno(write_read(idle, next), 0);
	expect_eq(next->read_consumed, 4);
	expect_nothing(idle);
	ping(client, 0, manager);
	ping(client, 0, idle);
}

// A thread that awaits an answer returns as well, and gets the answer later.
TEST(loopers_close_ends_a_callers_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(client);
	for (int i = 0; i < 50; i++)
		ping(client, 0, manager);
	call(client, 7);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	struct binder_write_read *waits = read_and_wait(client);
	void *fd = (void *)(intptr_t)process_fd(client);
	expect_errno(run(other, step_dup_and_close, fd), 0);
	expect_errno(run_end(client), 0);
	expect_eq(waits->read_consumed, 8);
	expect_eq(((uint32_t *)(uintptr_t)waits->read_buffer)[1], BR_TRANSACTION_COMPLETE);
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_reply(client);
}

// The last descriptor goes while a thread reads: the read ends, and the next one finds no device.
TEST(loopers_last_close_ends_reads)
{
	struct thread *t = process_new("server"), *other = thread_new(t);
	struct binder_write_read *waits = read_and_wait(t);
	expect_errno(sys_close(other, process_fd(t)), 0);
	expect_errno(run_end(t), 0);
	expect_eq(waits->read_consumed, 4);
	expect_errno(write_read(t, write_read_new(NULL, 0, 256)), EBADF);
}
