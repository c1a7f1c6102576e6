// Calls, replies and calls within calls.
#include <string.h>

#include "harness.h"

// Code that the transaction carries along; distinct per hop.
enum { OUT = 100, BACK = 200 };

// A plain call: payload, code and flags arrive, and so does the reply's.
TEST(nested_plain_call)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *sent = parcel_bytes(1000), *answer = parcel_bytes(333);
	bc_transaction(client, 0, 7, TF_ACCEPT_FDS | TF_STATUS_CODE, sent);
	read_begin(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->flags, TF_ACCEPT_FDS | TF_STATUS_CODE);
	expect_eq(txn->data_size, 1000);
	expect_eq(txn->offsets_size, 0);
	expect(!memcmp(payload(manager, txn), sent->data, 1000));
	bc_free_buffer(manager, txn);
	bc_reply(manager, TF_STATUS_CODE, answer);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	expect_eq(reply->flags, TF_STATUS_CODE);
	expect_eq(reply->target.ptr, 0);
	expect_eq(reply->cookie, 0);
	expect_eq(reply->data_size, 333);
	expect(!memcmp(payload(client, reply), answer->data, 333));
}

// A call's BR_TRANSACTION_COMPLETE is held back until its reply: one read has both.
TEST(nested_complete_and_reply_in_one_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	flush(manager);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	uint32_t *words = (uint32_t *)(uintptr_t)bwr->read_buffer;
	expect_errno(write_read(client, bwr), 0);
	expect_eq(words[0], BR_NOOP);
	expect_eq(words[1], BR_TRANSACTION_COMPLETE);
	expect_eq(words[2], BR_REPLY);
	expect_eq(bwr->read_consumed, 12 + sizeof(struct binder_transaction_data));
}

// Before the reply a non-blocking read has nothing, not even BR_TRANSACTION_COMPLETE.
TEST(nested_complete_is_deferred)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_nothing(client);
	finish_call(client, manager, txn);
}

// The replier's BR_TRANSACTION_COMPLETE comes at once, with no call to come.
TEST(nested_reply_completes_at_once)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, NULL);
	flush(manager);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_nothing(manager);
}

// The caller reads the header of the reply as the replier wrote it.
TEST(nested_reply_has_its_own_code)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply_with(manager, 77, 0, NULL);
	flush(manager);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_eq(expect_reply(client)->code, 77);
}

// BC_REPLY with no call to answer gets BR_FAILED_REPLY and disturbs nothing.
TEST(nested_reply_to_nothing)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	expect_nothing(manager);
	ping(client, 0, manager);
}

// Only the thread that took a call can reply to it.
TEST(nested_reply_from_another_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *second = thread_new(manager);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	bc_reply(second, 0, NULL);
	expect_br(second, BR_FAILED_REPLY);
	finish_call(client, manager, txn);
}

// A failing reply: the server gets BR_TRANSACTION_COMPLETE, the caller BR_FAILED_REPLY.
TEST(nested_failing_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *bad = parcel_new();
	put_handle(bad, 77);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, bad);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_nothing(manager);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(client);
	ping(client, 0, manager);
}

// A thread that awaits a reply cannot start another call.
TEST(nested_second_call_while_awaiting_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_transaction(client, 0, 8, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	const struct br *br = next_br(client);
	expect_eq(br->command, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
	(void)txn;
}

static uint32_t send_object(struct thread *client, struct thread *manager, uint32_t code,
			    const struct binder_transaction_data **txn)
{
	struct parcel *object = parcel_new();
	put_binder(object, 0xa0, 0xa1);
	bc_transaction(client, 0, code, 0, object);
	read_begin(client);
	*txn = expect_txn(manager, code);
	return flat_at(manager, *txn, 0, BINDER_TYPE_HANDLE)->handle;
}

// A call back on the object in a request reaches the thread that waits for the reply:
// its process has no looper. The reference commands come first in that read.
TEST(nested_call_back_to_waiting_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn;
	uint32_t handle = send_object(client, manager, OUT, &txn);
	bc_transaction(manager, handle, BACK, 0, NULL);
	read_begin(manager);
	expect_node(client, BR_INCREFS, 0xa0, 0xa1);
	expect_node(client, BR_ACQUIRE, 0xa0, 0xa1);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *back = expect_txn(client, BACK);
	expect_eq(back->target.ptr, 0xa0);
	expect_eq(back->cookie, 0xa1);
	finish_call(manager, client, back);
	finish_completed(client, manager, txn);
}

// A handle that is given up during a call within a call is free once that call was taken.
TEST(nested_handle_given_up_during_inner_call)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn;
	uint32_t handle = send_object(client, manager, OUT, &txn);
	struct parcel *lent = parcel_new(), *another = parcel_new();
	put_binder(lent, 0xb0, 0xb1);
	put_binder(another, 0xc0, 0xc1);
	bc_transaction(manager, handle, BACK, 0, lent);
	flush(manager);
	expect_node(client, BR_INCREFS, 0xa0, 0xa1);
	expect_node(client, BR_ACQUIRE, 0xa0, 0xa1);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *back = expect_txn(client, BACK);
	uint32_t theirs = flat_at(client, back, 0, BINDER_TYPE_HANDLE)->handle;
	bc_transaction(client, theirs, OUT + 1, 0, NULL);
	flush(client);
	expect_node(manager, BR_INCREFS, 0xb0, 0xb1);
	expect_node(manager, BR_ACQUIRE, 0xb0, 0xb1);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_eq(expect_txn(manager, OUT + 1)->target.ptr, 0xb0);
	bc_free_buffer(client, back);
	flush(client);
	bc_reply(manager, 0, another);
	flush(manager);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	expect_eq(flat_at(client, reply, 0, BINDER_TYPE_HANDLE)->handle, theirs);
}

// A call through a third process: A -> B -> C -> A comes to A's waiting thread.
TEST(nested_call_back_through_third_process)
{
	struct thread *b = manager_new(), *a = process_new("a"), *c = process_new("c");
	uint32_t c_at_b = share(b, c, b, 0xc0, 0xc1);
	const struct binder_transaction_data *from_a, *from_b;
	uint32_t a_at_b = send_object(a, b, OUT, &from_a);
	struct parcel *object = parcel_new();
	put_handle(object, a_at_b);
	bc_transaction(b, c_at_b, OUT + 1, 0, object);
	read_begin(b);
	from_b = expect_txn(c, OUT + 1);
	uint32_t a_at_c = flat_at(c, from_b, 0, BINDER_TYPE_HANDLE)->handle;
	bc_transaction(c, a_at_c, BACK, 0, NULL);
	read_begin(c);
	expect_node(a, BR_INCREFS, 0xa0, 0xa1);
	expect_node(a, BR_ACQUIRE, 0xa0, 0xa1);
	expect_br(a, BR_TRANSACTION_COMPLETE);
	finish_call(c, a, expect_txn(a, BACK));
	finish_call(b, c, from_b);
	finish_completed(a, b, from_a);
}

// A call from a process that is no part of the chain does not go to the waiting thread.
TEST(nested_stranger_does_not_reach_waiting_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *stranger = process_new("stranger"), *pool = thread_new(client);
	uint32_t handle = share(manager, client, stranger, 0x10, 0x20);
	bc_transaction(client, 0, OUT, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, OUT);
	bc_transaction(stranger, handle, OUT + 1, 0, NULL);
	flush(stranger);
	expect_nothing(client);
	finish_call(stranger, pool, expect_txn(pool, OUT + 1));
	finish_call(client, manager, txn);
}

// A one-way call within the chain goes to the process, not to the waiting thread.
TEST(nested_oneway_does_not_reach_waiting_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *pool = thread_new(client);
	const struct binder_transaction_data *txn;
	uint32_t handle = share(manager, client, manager, 0x10, 0x20);
	bc_transaction(client, 0, OUT, 0, NULL);
	flush(client);
	txn = expect_txn(manager, OUT);
	bc_transaction(manager, handle, BACK, TF_ONE_WAY, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_nothing(client);
	bc_free_buffer(pool, expect_txn(pool, BACK));
	flush(pool);
	finish_call(client, manager, txn);
}

// With the target's thread waiting and others free, the call back takes the waiting one.
TEST(nested_call_back_prefers_waiting_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *pool = thread_new(client);
	uint32_t handle = share(manager, client, manager, 0x10, 0x20);
	bc(pool, BC_ENTER_LOOPER);
	read_begin(pool);
	await_asleep(pool);
	bc_transaction(client, 0, OUT, 0, NULL);
	read_begin(client);
	const struct binder_transaction_data *txn = expect_txn(manager, OUT);
	bc_transaction(manager, handle, BACK, 0, NULL);
	read_begin(manager);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	finish_call(manager, client, expect_txn(client, BACK));
	finish_completed(client, manager, txn);
}

// Two processes call each other twenty deep, each time on the waiting thread; then the
// replies unwind in order.
TEST(nested_recursion_twenty_deep)
{
	enum { DEPTH = 20 };
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t handle = share(manager, client, manager, 0xa0, 0xa1);
	const struct binder_transaction_data *requests[DEPTH];
	for (uint32_t i = 0; i < DEPTH; i++) {
		struct thread *from = i % 2 ? manager : client, *to = i % 2 ? client : manager;
		bc_transaction(from, i % 2 ? handle : 0, i, 0, parcel_bytes(i));
		read_begin(from);
		if (i > 0)
			expect_br(to, BR_TRANSACTION_COMPLETE);
		requests[i] = expect_txn(to, i);
		expect_eq(requests[i]->data_size, i);
	}
	for (uint32_t i = DEPTH; i-- > 0;) {
		struct thread *from = i % 2 ? manager : client, *to = i % 2 ? client : manager;
		bc_free_buffer(to, requests[i]);
		bc_reply(to, 0, parcel_bytes(i + 1));
		expect_br(to, BR_TRANSACTION_COMPLETE);
		if (i == DEPTH - 1)
			expect_br(from, BR_TRANSACTION_COMPLETE);
		const struct binder_transaction_data *reply = expect_reply(from);
		expect_eq(reply->data_size, i + 1);
		bc_free_buffer(from, reply);
		flush(from);
	}
	ping(client, 0, manager);
}

// A process may call its own object by sending itself through the manager: the object
// comes home as BINDER, so that no handle to oneself exists.
TEST(nested_handle_to_oneself_is_a_binder)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t handle = share(manager, client, manager, 0x10, 0x20);
	struct parcel *answer = parcel_new();
	put_handle(answer, handle);
	bc_transaction(client, 0, OUT, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, OUT));
	bc_reply(manager, 0, answer);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	const struct flat_binder_object *home = flat_at(client, reply, 0, BINDER_TYPE_BINDER);
	expect_eq(home->binder, 0x10);
	expect_eq(home->cookie, 0x20);
}

// A one-way call made while serving a call completes at once, before the reply.
TEST(nested_oneway_inside_a_call)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, manager, 0x10, 0x20);
	bc_transaction(client, 0, OUT, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, OUT);
	bc_transaction(manager, handle, BACK, TF_ONE_WAY, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_txn(server, BACK);
	finish_call(client, manager, txn);
}

// A one-way call's BR_TRANSACTION_COMPLETE and the one of a call behind it in the same
// buffer: the first is read at once, the second with the reply.
TEST(nested_oneway_then_call)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 1, TF_ONE_WAY, NULL);
	bc_transaction(client, 0, 2, 0, NULL);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct br *br = has_unread(client) ? next_br(client) : NULL;
	bc_free_buffer(manager, expect_txn(manager, 1));
	const struct binder_transaction_data *txn = expect_txn(manager, 2);
	if (!br) {
		finish_call(client, manager, txn);
		fail("expected both in one read");
	}
	expect_eq(br->command, BR_TRANSACTION_COMPLETE);
	finish_completed(client, manager, txn);
}

// Two clients' calls are served by two threads at once, and each reply finds its caller.
TEST(nested_two_calls_at_once)
{
	struct thread *manager = manager_new(), *second = thread_new(manager);
	struct thread *client = process_new("client"), *other = process_new("other");
	bc_transaction(client, 0, 1, 0, NULL);
	flush(client);
	const struct binder_transaction_data *one = expect_txn(manager, 1);
	bc_transaction(other, 0, 2, 0, NULL);
	flush(other);
	finish_call(other, second, expect_txn(second, 2));
	finish_call(client, manager, one);
}
