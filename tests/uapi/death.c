// Deaths: notifications, and calls whose other party is gone.
#include <poll.h>
#include <sys/mman.h>

#include "harness.h"

enum { COOKIE = 0xdead0001 };

struct trio {
	struct thread *manager, *server, *client;
	uint32_t handle;
};

static struct trio trio(void)
{
	struct trio t = {.manager = manager_new(), .server = process_new("server"),
			 .client = process_new("client")};
	t.handle = share(t.manager, t.server, t.client, 0x10, 0x20);
	return t;
}

static void request(struct thread *t, uint32_t handle, uint64_t cookie)
{
	bc_handle_cookie(t, BC_REQUEST_DEATH_NOTIFICATION, handle, cookie);
	flush(t);
}

static void clear(struct thread *t, uint32_t handle, uint64_t cookie)
{
	bc_handle_cookie(t, BC_CLEAR_DEATH_NOTIFICATION, handle, cookie);
	flush(t);
}

static void done(struct thread *t, uint64_t cookie)
{
	bc_u64(t, BC_DEAD_BINDER_DONE, cookie);
	flush(t);
}

// The owner's death comes as BR_DEAD_BINDER with the cookie, once.
TEST(death_is_told)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	expect_nothing(t.client);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE);
	expect_nothing(t.client);
}

// A reader that is blocked is woken; a looper is as good as any thread.
TEST(death_wakes_a_blocked_reader)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	bc(t.client, BC_ENTER_LOOPER);
	read_begin(t.client);
	await_asleep(t.client);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
}

// The death goes to the process, and any thread may read it.
TEST(death_goes_to_the_process)
{
	struct trio t = trio();
	struct thread *other = thread_new(t.client);
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(other, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE);
	expect_nothing(t.client);
	expect_nothing(other);
}

// A process that exits dies as one that is killed.
TEST(death_by_exit)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	process_exit(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
}

static long step_munmap(void *address)
{
	return munmap(address, MAP_BYTES) ? -errno : 0;
}

// The device's last descriptor and its mapping gone, the process lives on but its nodes
// are dead; the mapping alone keeps them.
TEST(death_by_close)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	expect_errno(sys_close(t.server, process_fd(t.server)), 0);
	expect_nothing(t.client);
	expect_errno(run(t.server, step_munmap, (void *)(uintptr_t)process_map(t.server)), 0);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
}

// Several processes and several nodes: each request is told for itself.
TEST(death_of_several_nodes)
{
	struct trio t = trio();
	uint32_t second = share(t.manager, t.server, t.client, 0x30, 0x40);
	uint32_t at_manager = share(t.manager, t.server, t.manager, 0x10, 0x20);
	request(t.client, t.handle, 1);
	request(t.client, second, 2);
	request(t.manager, at_manager, 3);
	process_kill(t.server);
	uint64_t seen = 0;
	for (int i = 0; i < 2; i++)
		seen |= 1ull << expect_br(t.client, BR_DEAD_BINDER)->cookie;
	expect_eq(seen, 1 << 1 | 1 << 2);
	expect_cookie(t.manager, BR_DEAD_BINDER, 3);
}

// BR_DEAD_BINDER ends its read.
TEST(death_ends_the_read)
{
	struct trio t = trio();
	uint32_t second = share(t.manager, t.server, t.client, 0x30, 0x40);
	request(t.client, t.handle, 1);
	request(t.client, second, 2);
	process_kill(t.server);
	expect_br(t.client, BR_DEAD_BINDER);
	expect_drained(t.client);
	expect_br(t.client, BR_DEAD_BINDER);
	expect_drained(t.client);
}

// Asking for the death of a dead node fires at once.
TEST(death_requested_of_a_dead_node)
{
	struct trio t = trio();
	uint32_t watched = share(t.manager, t.server, t.manager, 0x10, 0x20);
	request(t.manager, watched, 1);
	process_kill(t.server);
	expect_cookie(t.manager, BR_DEAD_BINDER, 1);
	request(t.client, t.handle, COOKIE);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE);
	clear(t.client, t.handle, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
	expect_nothing(t.client);
}

// Even where a looper asks for the death of a dead node, its process is told.
TEST(death_requested_of_a_dead_node_by_a_looper)
{
	struct trio t = trio();
	struct thread *other = thread_new(t.client);
	request(t.client, t.handle, 1);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, 1);
	done(t.client, 1);
	clear(t.client, t.handle, 1);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, 1);
	bc(t.client, BC_ENTER_LOOPER);
	request(t.client, t.handle, 2);
	expect_cookie(other, BR_DEAD_BINDER, 2);
}

// Cleared before the death: BR_CLEAR_DEATH_NOTIFICATION_DONE, and no BR_DEAD_BINDER.
TEST(death_cleared_before)
{
	struct trio t = trio();
	struct thread *witness = process_new("witness");
	uint32_t seen = share(t.manager, t.server, witness, 0x10, 0x20);
	request(witness, seen, 1);
	request(t.client, t.handle, COOKIE);
	clear(t.client, t.handle, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
	expect_nothing(t.client);
	process_kill(t.server);
	expect_cookie(witness, BR_DEAD_BINDER, 1);
	expect_nothing(t.client);
}

// A looper that clears reads the acknowledgement itself.
TEST(death_clear_is_told_to_the_looper)
{
	struct trio t = trio();
	struct thread *other = thread_new(t.client);
	bc(t.client, BC_ENTER_LOOPER);
	request(t.client, t.handle, COOKIE);
	clear(t.client, t.handle, COOKIE);
	expect_nothing(other);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
}

// Cleared while BR_DEAD_BINDER is being handled: BR_CLEAR_DEATH_NOTIFICATION_DONE comes
// after BC_DEAD_BINDER_DONE.
TEST(death_cleared_while_handled)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	clear(t.client, t.handle, COOKIE);
	expect_nothing(t.client);
	done(t.client, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
	expect_nothing(t.client);
}

// Cleared after the death but before BR_DEAD_BINDER is read: both come, the
// acknowledgement again after BC_DEAD_BINDER_DONE.
TEST(death_cleared_before_it_is_read)
{
	struct trio t = trio();
	struct thread *witness = process_new("witness");
	uint32_t seen = share(t.manager, t.server, witness, 0x10, 0x20);
	// Killed owners tell their watchers in an unknown order: two witnesses settle it.
	uint32_t at_manager = share(t.manager, t.server, t.manager, 0x10, 0x20);
	request(witness, seen, 1);
	request(t.client, t.handle, COOKIE);
	request(t.manager, at_manager, 2);
	process_kill(t.server);
	expect_cookie(witness, BR_DEAD_BINDER, 1);
	expect_cookie(t.manager, BR_DEAD_BINDER, 2);
	expect_eq(sys_poll(t.client, POLLIN, -1), POLLIN);
	clear(t.client, t.handle, COOKIE);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	expect_nothing(t.client);
	done(t.client, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
	expect_nothing(t.client);
}

// Cleared after all is done: the acknowledgement comes at once.
TEST(death_cleared_after)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE);
	expect_nothing(t.client);
	clear(t.client, t.handle, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
}

// A second request for the same handle is ignored: the first cookie stands.
TEST(death_requested_twice)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	request(t.client, t.handle, COOKIE + 1);
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE);
	expect_nothing(t.client);
}

// Requested, cleared, and requested again: the new cookie counts.
TEST(death_requested_again_after_clear)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	clear(t.client, t.handle, COOKIE);
	request(t.client, t.handle, COOKIE + 1);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE + 1);
}

// Clearing a notification that was not requested, with a wrong cookie, or on an unknown
// handle does nothing; nor does BC_DEAD_BINDER_DONE with an unknown cookie.
TEST(death_mistaken_commands)
{
	struct trio t = trio();
	clear(t.client, t.handle, COOKIE);
	request(t.client, t.handle + 7, COOKIE);
	clear(t.client, t.handle + 7, COOKIE);
	done(t.client, COOKIE);
	expect_nothing(t.client);
	request(t.client, t.handle, COOKIE);
	clear(t.client, t.handle, COOKIE + 1);
	expect_nothing(t.client);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	done(t.client, COOKIE + 1);
	clear(t.client, t.handle, COOKIE);
	expect_nothing(t.client);
	done(t.client, COOKIE);
	expect_cookie(t.client, BR_CLEAR_DEATH_NOTIFICATION_DONE, COOKIE);
}

// A weak reference is enough to be told.
TEST(death_through_a_weak_reference)
{
	struct trio t = trio();
	bc_u32(t.client, BC_RELEASE, t.handle);
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
}

// With the last reference goes the request.
TEST(death_request_goes_with_the_reference)
{
	struct trio t = trio();
	struct thread *witness = process_new("witness");
	request(witness, share(t.manager, t.server, witness, 0x10, 0x20), 1);
	request(t.client, t.handle, COOKIE);
	bc_u32(t.client, BC_RELEASE, t.handle);
	bc_u32(t.client, BC_DECREFS, t.handle);
	flush(t.client);
	process_kill(t.server);
	expect_cookie(witness, BR_DEAD_BINDER, 1);
	expect_nothing(t.client);
}

// The manager's death is told through handle 0.
TEST(death_of_the_manager)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_u32(client, BC_INCREFS, 0);
	request(client, 0, COOKIE);
	process_kill(manager);
	expect_cookie(client, BR_DEAD_BINDER, COOKIE);
}

// A call to a dead node gets BR_DEAD_REPLY and nothing else, one-way or not.
TEST(death_call_to_a_dead_node)
{
	struct trio t = trio();
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	expect_br(t.client, BR_DEAD_REPLY);
	bc_transaction(t.client, t.handle, 7, TF_ONE_WAY, NULL);
	expect_br(t.client, BR_DEAD_REPLY);
	expect_nothing(t.client);
}

// A dead node's handle can be passed on: it is a dead handle there too.
TEST(death_handle_passed_on)
{
	struct trio t = trio();
	struct parcel *p = parcel_new();
	request(t.client, t.handle, COOKIE);
	process_kill(t.server);
	expect_cookie(t.client, BR_DEAD_BINDER, COOKIE);
	put_handle(p, t.handle);
	bc_transaction(t.client, 0, 7, 0, p);
	flush(t.client);
	const struct binder_transaction_data *txn = expect_txn(t.manager, 7);
	uint32_t theirs = flat_at(t.manager, txn, 0, BINDER_TYPE_HANDLE)->handle;
	bc_u32(t.manager, BC_INCREFS, theirs);
	request(t.manager, theirs, 5);
	finish_call(t.client, t.manager, txn);
	expect_cookie(t.manager, BR_DEAD_BINDER, 5);
}

// The server dies with the call in its hands: BR_TRANSACTION_COMPLETE, BR_DEAD_REPLY.
TEST(death_during_the_call)
{
	struct trio t = trio();
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	read_begin(t.client);
	expect_txn(t.server, 7);
	process_kill(t.server);
	expect_br(t.client, BR_TRANSACTION_COMPLETE);
	expect_br(t.client, BR_DEAD_REPLY);
	expect_nothing(t.client);
	ping(t.client, 0, t.manager);
}

// The server dies before it has read the call.
TEST(death_before_the_call_is_read)
{
	struct trio t = trio();
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	flush(t.client);
	process_kill(t.server);
	expect_br(t.client, BR_TRANSACTION_COMPLETE);
	expect_br(t.client, BR_DEAD_REPLY);
	ping(t.client, 0, t.manager);
}

// The server's thread ends by BINDER_THREAD_EXIT mid call; its process lives on.
TEST(death_of_the_serving_thread)
{
	struct trio t = trio();
	struct thread *pool = thread_new(t.server);
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	flush(t.client);
	expect_txn(pool, 7);
	expect_errno(sys_ioctl(pool, BINDER_THREAD_EXIT, NULL), 0);
	expect_br(t.client, BR_TRANSACTION_COMPLETE);
	expect_br(t.client, BR_DEAD_REPLY);
	ping(t.client, t.handle, t.server);
}

// A thread that ends without BINDER_THREAD_EXIT leaves its caller waiting: only the
// process's end answers.
TEST(death_of_a_thread_unannounced)
{
	struct trio t = trio();
	struct thread *pool = thread_new(t.server);
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	flush(t.client);
	expect_txn(pool, 7);
	thread_end(pool);
	expect_nothing(t.client);
	process_kill(t.server);
	expect_br(t.client, BR_TRANSACTION_COMPLETE);
	expect_br(t.client, BR_DEAD_REPLY);
}

// The caller dies: the server's reply goes nowhere, with BR_TRANSACTION_COMPLETE.
TEST(death_of_the_caller)
{
	struct trio t = trio();
	struct thread *witness = process_new("witness");
	request(witness, share(t.manager, t.client, witness, 0x70, 0x80), 1);
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	flush(t.client);
	const struct binder_transaction_data *txn = expect_txn(t.server, 7);
	process_kill(t.client);
	expect_cookie(witness, BR_DEAD_BINDER, 1);
	bc_free_buffer(t.server, txn);
	bc_reply(t.server, 0, parcel_bytes(100));
	expect_br(t.server, BR_TRANSACTION_COMPLETE);
	uint32_t theirs = share(t.manager, t.server, witness, 0x90, 0xa0);
	const struct br *br;
	// The dead client's references to the server's node are released meanwhile.
	bc_transaction(witness, theirs, 8, 0, NULL);
	flush(witness);
	while ((br = next_br(t.server))->command != BR_TRANSACTION)
		expect(br->command == BR_RELEASE || br->command == BR_DECREFS);
	finish_call(witness, t.server, arena_copy(&br->txn, sizeof(br->txn)));
}

// The caller dies before the server has read the call: the call is still delivered.
TEST(death_of_the_caller_before_the_call_is_read)
{
	struct trio t = trio();
	struct thread *witness = process_new("witness");
	request(witness, share(t.manager, t.client, witness, 0x70, 0x80), 1);
	bc_transaction(t.client, t.handle, 7, 0, NULL);
	flush(t.client);
	process_kill(t.client);
	expect_cookie(witness, BR_DEAD_BINDER, 1);
	const struct binder_transaction_data *txn = expect_txn(t.server, 7);
	expect_eq(txn->sender_pid, 0);
	bc_free_buffer(t.server, txn);
	bc_reply(t.server, 0, NULL);
	expect_br(t.server, BR_TRANSACTION_COMPLETE);
}

// In a chain A -> B -> C the last one dies: B gets BR_DEAD_REPLY and can still answer A.
TEST(death_at_the_end_of_a_chain)
{
	struct thread *b = manager_new(), *a = process_new("a"), *c = process_new("c");
	uint32_t handle = share(b, c, b, 0x10, 0x20);
	bc_transaction(a, 0, 1, 0, NULL);
	flush(a);
	const struct binder_transaction_data *txn = expect_txn(b, 1);
	bc_transaction(b, handle, 2, 0, NULL);
	read_begin(b);
	expect_txn(c, 2);
	process_kill(c);
	expect_br(b, BR_TRANSACTION_COMPLETE);
	expect_br(b, BR_DEAD_REPLY);
	finish_call(a, b, txn);
}

// In a chain A -> B -> C the middle one dies: C's reply is dropped, and A gets
// BR_DEAD_REPLY by then.
TEST(death_in_the_middle_of_a_chain)
{
	struct thread *manager = manager_new(), *a = process_new("a");
	struct thread *b = process_new("b"), *c = process_new("c");
	uint32_t b_at_a = share(manager, b, a, 0x10, 0x20), c_at_b = share(manager, c, b, 0x30, 0x40);
	struct thread *pool = thread_new(a);
	request(pool, b_at_a, 9);
	bc_transaction(a, b_at_a, 1, 0, NULL);
	flush(a);
	expect_txn(b, 1);
	bc_transaction(b, c_at_b, 2, 0, NULL);
	flush(b);
	const struct binder_transaction_data *txn = expect_txn(c, 2);
	process_kill(b);
	expect_cookie(pool, BR_DEAD_BINDER, 9);
	bc_free_buffer(c, txn);
	bc_reply(c, 0, NULL);
	expect_br(c, BR_TRANSACTION_COMPLETE);
	expect_br(a, BR_TRANSACTION_COMPLETE);
	expect_br(a, BR_DEAD_REPLY);
}
