// One-way transactions.
#include <string.h>

#include "harness.h"

static void send_oneway(struct thread *client, uint32_t handle, uint32_t code, size_t bytes)
{
	bc_transaction(client, handle, code, TF_ONE_WAY, parcel_bytes(bytes));
	expect_br(client, BR_TRANSACTION_COMPLETE);
}

// The sender has its BR_TRANSACTION_COMPLETE at once, and no reply ever.
TEST(oneway_completes_at_once)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_oneway(client, 0, 7, 100);
	expect_nothing(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->flags, TF_ONE_WAY);
	expect_eq(txn->data_size, 100);
	bc_free_buffer(manager, txn);
	flush(manager);
	expect_nothing(manager);
	expect_nothing(client);
}

// A one-way call cannot be replied to: a reply is BR_FAILED_REPLY.
TEST(oneway_has_no_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_oneway(client, 0, 7, 0);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	expect_nothing(client);
}

// A node's one-way calls come in order, one at a time: the next one when the buffer of
// the one before is freed.
TEST(oneway_one_at_a_time_in_order)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *pool = thread_new(manager);
	for (uint32_t i = 0; i < 20; i++)
		send_oneway(client, 0, i, i);
	for (uint32_t i = 0; i < 20; i++) {
		struct thread *t = i % 3 ? manager : pool;
		const struct binder_transaction_data *txn = expect_txn(t, i);
		expect_eq(txn->data_size, i);
		expect_nothing(pool);
		bc_free_buffer(manager, txn);
		flush(manager);
	}
	expect_nothing(manager);
}

// The order is the node's: calls of several senders are served as they were sent.
TEST(oneway_order_of_two_senders)
{
	struct thread *manager = manager_new();
	struct thread *one = process_new("one"), *two = process_new("two");
	// Two processes that have called before.
	ping(one, 0, manager);
	ping(two, 0, manager);
	for (uint32_t i = 0; i < 6; i++)
		send_oneway(i % 2 ? one : two, 0, i, 0);
	for (uint32_t i = 0; i < 6; i++) {
		bc_free_buffer(manager, expect_txn(manager, i));
		flush(manager);
	}
}

// A waiting one-way call holds up neither other nodes of the process nor sync calls.
TEST(oneway_other_nodes_are_not_blocked)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t a = share(manager, server, client, 0x10, 1);
	uint32_t b = share(manager, server, client, 0x20, 2);
	send_oneway(client, a, 1, 0);
	send_oneway(client, a, 2, 0);
	send_oneway(client, b, 3, 0);
	const struct binder_transaction_data *first = expect_txn(server, 1);
	bc_free_buffer(server, expect_txn(server, 3));
	flush(server);
	ping(client, a, server);
	expect_nothing(server);
	bc_free_buffer(server, first);
	expect_txn(server, 2);
}

// A sync call to the node overtakes its waiting one-way calls.
TEST(oneway_sync_overtakes)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_oneway(client, 0, 1, 0);
	send_oneway(client, 0, 2, 0);
	const struct binder_transaction_data *first = expect_txn(manager, 1);
	ping(client, 0, manager);
	bc_free_buffer(manager, first);
	flush(manager);
	expect_txn(manager, 2);
}

// A buffer freed by another thread lets the next one-way call go.
TEST(oneway_freed_by_another_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(manager);
	send_oneway(client, 0, 1, 0);
	send_oneway(client, 0, 2, 0);
	const struct binder_transaction_data *first = expect_txn(manager, 1);
	expect_nothing(manager);
	bc_free_buffer(other, first);
	flush(other);
	expect_txn(manager, 2);
}

// A looper that waits is woken by a free of another thread.
TEST(oneway_free_wakes_a_looper)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(manager);
	send_oneway(client, 0, 1, 0);
	send_oneway(client, 0, 2, 0);
	const struct binder_transaction_data *first = expect_txn(manager, 1);
	read_begin(manager);
	await_asleep(manager);
	bc_free_buffer(other, first);
	flush(other);
	expect_txn(manager, 2);
}

// One-way payloads may take half of the buffer: one of exactly half fits, one more byte
// does not.
TEST(oneway_half_of_the_buffer)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 1, TF_ONE_WAY, parcel_bytes(MAP_BYTES / 2 + 8));
	expect_br(client, BR_FAILED_REPLY);
	send_oneway(client, 0, 2, MAP_BYTES / 2);
	bc_transaction(client, 0, 3, TF_ONE_WAY, parcel_bytes(8));
	expect_br(client, BR_FAILED_REPLY);
	bc_free_buffer(manager, expect_txn(manager, 2));
	flush(manager);
	send_oneway(client, 0, 4, MAP_BYTES / 2);
	expect_txn(manager, 4);
}

// A full one-way half leaves the rest to sync calls, and back again.
TEST(oneway_full_half_leaves_sync_alone)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_oneway(client, 0, 1, MAP_BYTES / 2);
	bc_transaction(client, 0, 2, 0, parcel_bytes(MAP_BYTES / 2));
	flush(client);
	const struct binder_transaction_data *one = expect_txn(manager, 1);
	finish_call(client, manager, expect_txn(manager, 2));
	bc_free_buffer(manager, one);
	flush(manager);
	bc_transaction(client, 0, 3, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	finish_call(client, manager, expect_txn(manager, 3));
}

enum { SPAM_BYTES = 8192 };

// Sends until the one-way half is full. Answers the number of suspicions; *first is that
// of the transaction that drew the first one, counted from 1.
static int spam(struct thread *client, int *first)
{
	int suspects = 0;
	*first = 0;
	for (int sent = 1; sent < 1000; sent++) {
		bc_transaction(client, 0, 7, TF_ONE_WAY, parcel_bytes(SPAM_BYTES));
		const struct br *br = next_br(client);
		if (br->command == BR_FAILED_REPLY) {
			expect_eq(sent, MAP_BYTES / 2 / SPAM_BYTES + 1);
			return suspects;
		}
		if (br->command == BR_ONEWAY_SPAM_SUSPECT)
			*first = suspects++ ? *first : sent;
		else
			expect_eq(br->command, BR_TRANSACTION_COMPLETE);
	}
	fail("expected the one-way half to fill up, came no end");
}

static void enable_spam_detection(struct thread *t)
{
	uint32_t on = 1;
	expect_errno(sys_ioctl(t, BINDER_ENABLE_ONEWAY_SPAM_DETECTION, arena_copy(&on, 4)), 0);
}

// A sender that asked for it and fills the receiver's half gets BR_ONEWAY_SPAM_SUSPECT
// once, in place of one BR_TRANSACTION_COMPLETE: when less than a tenth of the buffer is
// left for one-way calls.
TEST(oneway_spam_suspect)
{
	manager_new();
	struct thread *client = process_new("client");
	int first;
	enable_spam_detection(client);
	expect_eq(spam(client, &first), 1);
	expect_eq(first, (MAP_BYTES / 2 - MAP_BYTES / 10) / SPAM_BYTES + 1);
}

// Without asking there is no BR_ONEWAY_SPAM_SUSPECT.
TEST(oneway_spam_detection_is_off)
{
	manager_new();
	int first;
	expect_eq(spam(process_new("client"), &first), 0);
}

// The sender's choice counts, the receiver's does not.
TEST(oneway_spam_detection_is_the_senders)
{
	int first;
	enable_spam_detection(manager_new());
	expect_eq(spam(process_new("client"), &first), 0);
}

// One-way calls to a process that dies are gone; the sender is not told.
TEST(oneway_receiver_dies)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, handle, 1);
	send_oneway(client, handle, 1, 8);
	send_oneway(client, handle, 2, 8);
	process_kill(server);
	expect_cookie(client, BR_DEAD_BINDER, 1);
	expect_nothing(client);
	bc_transaction(client, handle, 3, TF_ONE_WAY, NULL);
	expect_br(client, BR_DEAD_REPLY);
}

// One-way calls whose sender dies are delivered, in order.
TEST(oneway_sender_dies)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_oneway(client, 0, 1, 8);
	send_oneway(client, 0, 2, 8);
	process_kill(client);
	bc_free_buffer(manager, expect_txn(manager, 1));
	flush(manager);
	bc_free_buffer(manager, expect_txn(manager, 2));
	flush(manager);
	expect_nothing(manager);
}

// One write buffer with several one-way calls: a BR_TRANSACTION_COMPLETE for each, in
// one read.
TEST(oneway_several_in_one_write)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	for (uint32_t i = 0; i < 3; i++)
		bc_transaction(client, 0, i, TF_ONE_WAY, NULL);
	for (uint32_t i = 0; i < 3; i++)
		expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_nothing(client);
	for (uint32_t i = 0; i < 3; i++) {
		bc_free_buffer(manager, expect_txn(manager, i));
		flush(manager);
	}
}
