// Nodes, handles, strong and weak references.
#include <poll.h>

#include "harness.h"

enum { PTR = 0x1000, COOKIE = 0x2000 };

// Sends one object of the client to the manager in a call that stays open.
static const struct binder_transaction_data *
send_open(struct thread *client, struct thread *manager, const struct parcel *object)
{
	bc_transaction(client, 0, 7, 0, object);
	flush(client);
	return expect_txn(manager, 7);
}

static struct parcel *one_binder(uint64_t ptr, uint64_t cookie)
{
	struct parcel *p = parcel_new();
	put_binder(p, ptr, cookie);
	return p;
}

// The owner is told of the first reference: BR_INCREFS, then BR_ACQUIRE, both on the
// sending thread, before its BR_TRANSACTION_COMPLETE and reply.
TEST(references_first_is_told_on_the_sending_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(client);
	const struct binder_transaction_data *txn =
		send_open(client, manager, one_binder(PTR, COOKIE));
	expect_nothing(other);
	(void)txn; // its buffer holds the node
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_reply(client);
}

// A reference that came and went before the owner read of it is not told at all.
TEST(references_short_lived_is_not_told)
{
	differs("references-arrive-later");
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn =
		send_open(client, manager, one_binder(PTR, COOKIE));
	finish_call(client, manager, txn);
	expect_nothing(client);
	struct binder_node_debug_info *info = arena_alloc(sizeof(*info));
	expect_errno(sys_ioctl(client, BINDER_GET_NODE_DEBUG_INFO, info), 0);
	expect_eq(info->ptr, 0);
}

// A one-way call, which has no reply to wait for.
TEST(references_first_is_told_oneway)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_txn(manager, 7);
}

// The buffer holds the reference: freed, with nothing acquired, the owner gets
// BR_RELEASE and BR_DECREFS, on any of its threads.
TEST(references_buffer_holds_one)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(client);
	bc_transaction(client, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_nothing(other);
	bc_free_buffer(manager, txn);
	flush(manager);
	expect_node(other, BR_RELEASE, PTR, COOKIE);
	expect_node(other, BR_DECREFS, PTR, COOKIE);
	expect_nothing(other);
	expect_nothing(client);
}

// Until the owner has acknowledged, BR_RELEASE and BR_DECREFS wait.
TEST(references_release_waits_for_acknowledgement)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_free_buffer(manager, expect_txn(manager, 7));
	flush(manager);
	expect_nothing(client);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE);
	expect_node(client, BR_RELEASE, PTR, COOKIE);
	expect_nothing(client);
	bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE);
	expect_node(client, BR_DECREFS, PTR, COOKIE);
	expect_nothing(client);
}

// An acknowledgement of an unknown node, with a wrong cookie, or unasked is ignored.
TEST(references_wrong_acknowledgement)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE + 1);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR + 16, COOKIE);
	bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE + 1);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	flush(manager);
	expect_nothing(client);
	bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE);
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE);
	expect_node(client, BR_RELEASE, PTR, COOKIE);
	expect_node(client, BR_DECREFS, PTR, COOKIE);
}

// An acknowledgement of a node without other references queues work for a reader, even a
// refused acknowledgement: the read then returns nothing.
TEST(references_acknowledged_node_is_looked_at)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_node(client, BR_INCREFS, PTR, COOKIE);
	expect_node(client, BR_ACQUIRE, PTR, COOKIE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_free_buffer(manager, expect_txn(manager, 7));
	flush(manager);
	expect_nothing(client);
	bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE);
	for (int i = 0; i < 3; i++) {
		flush(client);
		// The end of the last reference may reach this process late.
		expect_eq(sys_poll(client, POLLIN, i ? 0 : -1), POLLIN);
		expect_nothing(client);
		expect_eq(sys_poll(client, POLLIN, 0), 0);
		bc_ptr_cookie(client, BC_INCREFS_DONE, PTR, COOKIE + (i & 1)); // unasked, or wrong
	}
	bc_ptr_cookie(client, BC_ACQUIRE_DONE, PTR, COOKIE);
	expect_node(client, BR_RELEASE, PTR, COOKIE);
	expect_node(client, BR_DECREFS, PTR, COOKIE);
	expect_nothing(client);
}

// A handle acquired outlives the buffer; its last BC_RELEASE and BC_DECREFS are told.
TEST(references_handle_holds_the_node)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, PTR, COOKIE);
	expect_nothing(server);
	ping(client, handle, server);
	bc_u32(client, BC_ACQUIRE, handle);
	bc_u32(client, BC_RELEASE, handle);
	flush(client);
	expect_nothing(server);
	bc_u32(client, BC_RELEASE, handle);
	flush(client);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_nothing(server);
	bc_u32(client, BC_DECREFS, handle);
	flush(client);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
	expect_nothing(server);
}

// Several processes hold a node: the owner is told once, and of the last only.
TEST(references_last_of_several_holders)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	struct thread *client = process_new("client");
	uint32_t kept = share(manager, server, manager, PTR, COOKIE);
	struct parcel *answer = parcel_new();
	put_handle(answer, kept);
	bc_transaction(client, 0, 2, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 2));
	bc_reply(manager, 0, answer);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	uint32_t handle = flat_at(client, reply, 0, BINDER_TYPE_HANDLE)->handle;
	bc_u32(client, BC_ACQUIRE, handle);
	bc_free_buffer(client, reply);
	flush(client);
	expect_nothing(server);
	bc_u32(manager, BC_RELEASE, kept);
	bc_u32(manager, BC_DECREFS, kept);
	flush(manager);
	expect_nothing(server);
	ping(client, handle, server);
	bc_u32(client, BC_RELEASE, handle);
	flush(client);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
}

// A holder's death releases what it held.
TEST(references_death_of_the_holder)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, PTR, COOKIE);
	ping(client, handle, server);
	process_kill(client);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
	expect_nothing(server);
}

// BR_RELEASE taken back: a new reference before the owner reads it leaves the node as
// it was, and the owner is told nothing.
TEST(references_release_taken_back)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_u32(manager, BC_RELEASE, handle);
	bc_u32(manager, BC_DECREFS, handle);
	flush(manager);
	bc_transaction(server, 0, 7, TF_ONE_WAY, one_binder(PTR, COOKIE));
	expect_br(server, BR_TRANSACTION_COMPLETE);
	expect_nothing(server);
	expect_txn(manager, 7);
}

// A node that lost all its references is new when it is sent again.
TEST(references_node_lives_again)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	for (uint64_t i = 0; i < 3; i++) {
		uint32_t handle = share(manager, server, manager, PTR, COOKIE + i);
		expect_eq(handle, 1);
		ping(manager, handle, server);
		bc_u32(manager, BC_RELEASE, handle);
		bc_u32(manager, BC_DECREFS, handle);
		flush(manager);
		expect_node(server, BR_RELEASE, PTR, COOKIE + i);
		expect_node(server, BR_DECREFS, PTR, COOKIE + i);
	}
}

// A known ptr with another cookie is refused as long as the node lives.
TEST(references_cookie_mismatch)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_transaction(server, 0, 7, 0, one_binder(PTR, COOKIE + 1));
	expect_br(server, BR_FAILED_REPLY);
	expect_nothing(server);
	ping(manager, handle, server);
}

// Handles are small and dense from 1; the lowest free number comes next.
TEST(references_handle_numbers)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	for (uint32_t i = 1; i <= 4; i++)
		expect_eq(share(manager, server, manager, PTR * i, i), i);
	expect_eq(share(manager, process_new("other"), manager, PTR, 1), 5);
	bc_u32(manager, BC_RELEASE, 2);
	bc_u32(manager, BC_DECREFS, 2);
	flush(manager);
	expect_node(server, BR_RELEASE, PTR * 2, 2);
	expect_node(server, BR_DECREFS, PTR * 2, 2);
	expect_eq(share(manager, server, manager, PTR * 9, 9), 2);
	expect_eq(share(manager, server, manager, PTR * 10, 10), 6);
}

// A node always has the same handle in a process.
TEST(references_one_handle_per_node)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	struct parcel *twice = parcel_new();
	put_binder(twice, PTR, COOKIE);
	put_binder(twice, PTR, COOKIE);
	const struct binder_transaction_data *txn = send_open(server, manager, twice);
	expect_eq(flat_at(manager, txn, 0, BINDER_TYPE_HANDLE)->handle, handle);
	expect_eq(flat_at(manager, txn, 1, BINDER_TYPE_HANDLE)->handle, handle);
	finish_call(server, manager, txn);
}

// A call on a handle that was never given, or was given up, gets BR_FAILED_REPLY.
TEST(references_unknown_handle)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_transaction(manager, handle + 1, 7, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	bc_u32(manager, BC_RELEASE, handle);
	bc_u32(manager, BC_DECREFS, handle);
	bc_transaction(manager, handle, 7, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	bc_transaction(manager, handle, 7, TF_ONE_WAY, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	expect_nothing(manager);
}

// Reference commands on an unknown handle, or below zero, are ignored.
TEST(references_unbalanced_commands)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_u32(manager, BC_ACQUIRE, handle + 5);
	bc_u32(manager, BC_INCREFS, handle + 5);
	bc_u32(manager, BC_RELEASE, handle + 5);
	bc_u32(manager, BC_DECREFS, handle + 5);
	bc_u32(manager, BC_DECREFS, handle);
	bc_u32(manager, BC_DECREFS, handle);
	bc_u32(manager, BC_DECREFS, handle);
	flush(manager);
	expect_nothing(server);
	ping(manager, handle, server);
	bc_u32(manager, BC_RELEASE, handle);
	bc_u32(manager, BC_RELEASE, handle);
	flush(manager);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
}

// A buffer's count that the program has given up as well is not taken twice.
TEST(references_count_of_a_buffer_given_up)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	struct parcel *object = parcel_new();
	put_binder(object, PTR, COOKIE);
	bc_transaction(server, 0, 7, TF_ONE_WAY, object);
	expect_node(server, BR_INCREFS, PTR, COOKIE);
	expect_node(server, BR_ACQUIRE, PTR, COOKIE);
	expect_br(server, BR_TRANSACTION_COMPLETE);
	bc_ptr_cookie(server, BC_INCREFS_DONE, PTR, COOKIE);
	bc_ptr_cookie(server, BC_ACQUIRE_DONE, PTR, COOKIE);
	flush(server);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	uint32_t handle = flat_at(manager, txn, 0, BINDER_TYPE_HANDLE)->handle;
	bc_u32(manager, BC_INCREFS, handle);
	bc_u32(manager, BC_RELEASE, handle);
	bc_free_buffer(manager, txn);
	bc_transaction(manager, handle, 8, TF_ONE_WAY, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	bc_u32(manager, BC_DECREFS, handle);
	flush(manager);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
}

// A weak handle: BR_INCREFS alone, and BR_DECREFS alone at its end.
TEST(references_weak_binder)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	struct parcel *weak = parcel_new();
	put_weak_binder(weak, PTR, COOKIE);
	bc_transaction(server, 0, 7, TF_ONE_WAY, weak);
	expect_node(server, BR_INCREFS, PTR, COOKIE);
	expect_br(server, BR_TRANSACTION_COMPLETE);
	bc_ptr_cookie(server, BC_INCREFS_DONE, PTR, COOKIE);
	expect_nothing(server);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(flat_at(manager, txn, 0, BINDER_TYPE_WEAK_HANDLE)->handle, 1);
	bc_u32(manager, BC_INCREFS, 1);
	bc_free_buffer(manager, txn);
	flush(manager);
	expect_nothing(server);
	bc_u32(manager, BC_DECREFS, 1);
	flush(manager);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
	expect_nothing(server);
}

// A weak handle cannot be called, nor made strong by BC_ACQUIRE, nor sent as a strong one.
TEST(references_weak_is_not_strong)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	struct thread *other = process_new("other");
	struct parcel *weak = parcel_new(), *strong = parcel_new();
	put_weak_binder(weak, PTR, COOKIE);
	bc_transaction(server, 0, 7, TF_ONE_WAY, weak);
	flush(server);
	expect_txn(manager, 7);
	bc_u32(manager, BC_INCREFS, 1);
	bc_u32(manager, BC_ACQUIRE, 1);
	flush(manager);
	bc_transaction(manager, 1, 8, TF_ONE_WAY, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	uint32_t theirs = share(manager, other, manager, 0x50, 0x51);
	put_handle(strong, 1);
	bc_transaction(manager, theirs, 9, TF_ONE_WAY, strong);
	expect_br(manager, BR_FAILED_REPLY);
	expect_node(server, BR_INCREFS, PTR, COOKIE);
	expect_br(server, BR_TRANSACTION_COMPLETE);
	expect_nothing(other);
}

// A strong handle released but for its weak count cannot be called, and BC_ACQUIRE does
// not bring it back.
TEST(references_acquire_after_release)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_u32(manager, BC_RELEASE, handle);
	flush(manager);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	bc_u32(manager, BC_ACQUIRE, handle);
	flush(manager);
	expect_nothing(server);
	bc_transaction(manager, handle, 7, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
}

// BC_DECREFS before BC_RELEASE: the handle lives until both are gone.
TEST(references_decrefs_before_release)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_u32(manager, BC_DECREFS, handle);
	flush(manager);
	expect_nothing(server);
	ping(manager, handle, server);
	bc_u32(manager, BC_RELEASE, handle);
	flush(manager);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
}

// A call in flight holds its target: the handle given up after the send is no matter.
TEST(references_call_holds_the_target)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	bc_transaction(manager, handle, 7, 0, NULL);
	bc_u32(manager, BC_RELEASE, handle);
	bc_u32(manager, BC_DECREFS, handle);
	flush(manager);
	const struct binder_transaction_data *txn = expect_txn(server, 7);
	expect_eq(txn->target.ptr, PTR);
	expect_nothing(server);
	bc_free_buffer(server, txn);
	bc_reply(server, 0, NULL);
	expect_br(server, BR_TRANSACTION_COMPLETE);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_reply(manager);
	expect_node(server, BR_RELEASE, PTR, COOKIE);
	expect_node(server, BR_DECREFS, PTR, COOKIE);
}
