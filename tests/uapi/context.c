// The context manager, handle 0, and the ioctls that only the manager may make.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static long set_manager(struct thread *t)
{
	return sys_ioctl(t, BINDER_SET_CONTEXT_MGR, arena_alloc(sizeof(int)));
}

// A context has one manager: a second one, and the first once more, get EBUSY.
TEST(context_second_manager_is_busy)
{
	struct thread *manager = manager_new();
	struct thread *other = process_new("other");
	expect_errno(set_manager(other), EBUSY);
	expect_errno(set_manager(manager), EBUSY);
	ping(other, 0, manager);
}

static long step_seteuid(void *user)
{
	return seteuid((uid_t)(uintptr_t)user) ? -errno : 0;
}

// Once a user has been manager, another user cannot be, even with the slot free.
TEST(context_manager_keeps_its_user)
{
	differs("uid-at-open");
	if (geteuid())
		skip("needs root to change the user");
	process_kill(manager_new());
	struct thread *other = process_new("other");
	struct thread *again = process_new("again");
	expect_errno(run(other, step_seteuid, (void *)12345), 0);
	expect_errno(become_manager(again), 0);
	process_kill(again);
	long result = -EBUSY;
	for (int i = 0; i < 500 && result == -EBUSY; i++) {
		sys_poll(other, 0, 10);
		result = set_manager(other);
	}
	expect_errno(result, EPERM);
}

// Transactions on handle 0 reach the manager with ptr and cookie 0.
TEST(context_manager_node_is_null)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->target.ptr, 0);
	expect_eq(txn->cookie, 0);
	expect_eq(txn->flags, 0);
	finish_call(client, manager, txn);
}

// SET_CONTEXT_MGR_EXT takes the node's flags, ptr and cookie; these come with each call.
TEST(context_ext_sets_ptr_and_cookie)
{
	struct thread *manager = manager_ext(0x1110, 0x2220, 0), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->target.ptr, 0x1110);
	expect_eq(txn->cookie, 0x2220);
	finish_call(client, manager, txn);
}

// A manager that asks for security contexts gets BR_TRANSACTION_SEC_CTX, the string
// zero-terminated inside the mapping.
TEST(context_security_context)
{
	struct thread *manager = manager_ext(0, 0, FLAT_BINDER_FLAG_TXN_SECURITY_CTX);
	struct thread *client = process_new("client");
	bc_transaction(client, 0, 7, 0, parcel_bytes(20));
	set_nonblocking(client, true);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	flush(client);
	long result = write_read(client, bwr);
	uint32_t *read = (uint32_t *)(uintptr_t)bwr->read_buffer;
	if (result == 0 && bwr->read_consumed == 8 && read[1] == BR_FAILED_REPLY)
		skip("no security module gives processes a context");
	set_nonblocking(client, false);
	const struct br *br = expect_br(manager, BR_TRANSACTION_SEC_CTX);
	expect_eq(br->txn.code, 7);
	expect_eq(br->txn.data_size, 20);
	uint64_t secctx = br->secctx.secctx;
	expect(secctx != 0);
	expect(secctx >= process_map(manager) && secctx < process_map(manager) + MAP_BYTES);
	uint64_t left = process_map(manager) + MAP_BYTES - secctx;
	const char *text = peek(manager, secctx, left < 256 ? left : 256);
	expect(strlen(text) > 0);
	expect(!memcmp(payload(manager, &br->txn), parcel_bytes(20)->data, 20));
	finish_call(client, manager, arena_copy(&br->txn, sizeof(br->txn)));
}

// A manager that did not ask for a security context gets plain BR_TRANSACTION.
TEST(context_no_security_context_unasked)
{
	struct thread *manager = manager_ext(0, 0, FLAT_BINDER_FLAG_ACCEPTS_FDS);
	struct thread *client = process_new("client");
	ping(client, 0, manager);
}

// A manager's slot is freed some time after its death, and a call meanwhile may be taken
// in; either way it ends in BR_DEAD_REPLY.
static uint32_t await_no_manager(struct thread *client)
{
	bc_transaction(client, 0, 7, 0, NULL);
	const struct br *br = next_br(client);
	if (br->command == BR_TRANSACTION_COMPLETE)
		br = next_br(client);
	return br->command;
}

// With no manager a call on handle 0 gets BR_DEAD_REPLY; the ioctl succeeds.
TEST(context_no_manager_is_dead_reply)
{
	struct thread *waiter = process_new("waiter"), *client = process_new("client");
	expect_errno(become_manager(waiter), 0);
	ping(client, 0, waiter);
	process_kill(waiter);
	expect_eq(await_no_manager(client), BR_DEAD_REPLY);
	expect_nothing(client);
}

// Reference commands on handle 0 succeed with no manager, and do nothing.
TEST(context_references_without_manager)
{
	struct thread *waiter = process_new("waiter"), *client = process_new("client");
	expect_errno(become_manager(waiter), 0);
	process_kill(waiter);
	expect_eq(await_no_manager(client), BR_DEAD_REPLY);
	bc_u32(client, BC_INCREFS, 0);
	bc_u32(client, BC_ACQUIRE, 0);
	bc_u32(client, BC_RELEASE, 0);
	bc_u32(client, BC_DECREFS, 0);
	flush(client);
	expect_nothing(client);
}

// Handle 0 can be acquired without having been received; the manager is told nothing.
TEST(context_handle_zero_needs_no_grant)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_u32(client, BC_INCREFS, 0);
	bc_u32(client, BC_ACQUIRE, 0);
	flush(client);
	expect_nothing(manager);
	ping(client, 0, manager);
	bc_u32(client, BC_RELEASE, 0);
	bc_u32(client, BC_DECREFS, 0);
	flush(client);
	expect_nothing(manager);
	ping(client, 0, manager);
}

// After the manager's death a new one can come, and handle 0 of a process that had
// no reference to the old node is the new manager.
TEST(context_new_manager_after_death)
{
	struct thread *old = manager_new(), *client = process_new("client");
	ping(client, 0, old);
	process_kill(old);
	struct thread *manager = manager_new();
	struct thread *late = process_new("late");
	ping(late, 0, manager);
	ping(client, 0, manager);
}

// A process that holds a reference to the dead manager's node has the number 0 taken:
// its calls on handle 0 get through to the new manager none the less.
TEST(context_new_manager_while_old_is_held)
{
	struct thread *old = manager_new(), *client = process_new("client");
	bc_u32(client, BC_ACQUIRE, 0);
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, 0, 0xdead);
	flush(client);
	ping(client, 0, old);
	process_kill(old);
	expect_cookie(client, BR_DEAD_BINDER, 0xdead);
	bc_u64(client, BC_DEAD_BINDER_DONE, 0xdead);
	flush(client);
	struct thread *manager = manager_new();
	ping(client, 0, manager);
}

// The manager cannot call itself through handle 0.
TEST(context_manager_cannot_call_itself)
{
	struct thread *manager = manager_new();
	bc_transaction(manager, 0, 7, 0, NULL);
	expect_br(manager, BR_FAILED_REPLY);
	expect_nothing(manager);
}

static const char *other_device(void)
{
	const char *slash = strrchr(device_path(), '/');
	size_t n = slash ? (size_t)(slash + 1 - device_path()) : 0;
	char *path = arena_alloc(n + 16);
	memcpy(path, device_path(), n);
	strcpy(path + n, "hwbinder");
	return path;
}

// Each device is a context of its own: its own manager, its own handles.
TEST(context_devices_are_isolated)
{
	if (access(other_device(), F_OK))
		skip("no %s", other_device());
	struct thread *manager = manager_new();
	struct thread *hw = manager_with((struct process_options){.name = "hw",
								  .device = other_device()});
	struct thread *client = process_new("client");
	struct thread *hwclient = process_with((struct process_options){.name = "hwclient",
									.device = other_device()});
	ping(hwclient, 0, hw);
	ping(client, 0, manager);
	expect_nothing(hw);
	uint32_t handle = share(manager, client, manager, 0x10, 0x20);
	bc_transaction(hwclient, handle, 7, 0, NULL);
	expect_br(hwclient, BR_FAILED_REPLY);
	process_kill(hw);
	ping(client, 0, manager);
}

static struct binder_node_info_for_ref *node_info(uint32_t handle)
{
	struct binder_node_info_for_ref info = {.handle = handle};
	return arena_copy(&info, sizeof(info));
}

// GET_NODE_INFO_FOR_REF is for the manager alone.
TEST(context_node_info_is_for_the_manager)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	ping(client, 0, manager);
	expect_errno(sys_ioctl(client, BINDER_GET_NODE_INFO_FOR_REF, node_info(0)), EPERM);
}

// GET_NODE_INFO_FOR_REF: the strong count is that of processes that hold the node.
TEST(context_node_info_counts_holders)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, manager, 0x10, 0x20);
	struct binder_node_info_for_ref *info = node_info(handle);
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info), 0);
	expect_eq(info->strong_count, 1);
	expect_eq(info->weak_count, 0);
	bc_u32(manager, BC_ACQUIRE, handle);
	flush(manager);
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info = node_info(handle)), 0);
	expect_eq(info->strong_count, 1);

	struct parcel *answer = parcel_new();
	put_handle(answer, handle);
	bc_transaction(client, 0, 2, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 2));
	bc_reply(manager, 0, answer);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info = node_info(handle)), 0);
	expect_eq(info->strong_count, 2);
	bc_free_buffer(client, reply);
	flush(client);
	// A count may follow a release after a while: Baton's broker hears of it by a message.
	do
		expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info = node_info(handle)), 0);
	while (info->strong_count == 2);
	expect_eq(info->strong_count, 1);
}

// The node of a process that has ended is counted as long as it is held.
TEST(context_node_info_of_the_dead)
{
	struct thread *manager = manager_new(), *owner = process_new("owner");
	struct binder_node_info_for_ref *info;
	uint32_t handle = share(manager, owner, manager, 0x10, 0x20);
	process_exit(owner);
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info = node_info(handle)), 0);
	expect_eq(info->strong_count, 1);
	expect_eq(info->weak_count, 0);
}

// GET_NODE_INFO_FOR_REF refuses unknown handles and fields that must be zero.
TEST(context_node_info_bad_arguments)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, 0x10, 0x20);
	struct binder_node_info_for_ref *info = node_info(handle + 1);
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info), EINVAL);
	info = node_info(handle);
	info->strong_count = 1;
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info), EINVAL);
	info = node_info(handle);
	info->reserved2 = 1;
	expect_errno(sys_ioctl(manager, BINDER_GET_NODE_INFO_FOR_REF, info), EINVAL);
}

static struct binder_node_debug_info debug_info(struct thread *t, uint64_t after)
{
	struct binder_node_debug_info info = {.ptr = after}, *shared = arena_copy(&info, sizeof(info));
	expect_errno(sys_ioctl(t, BINDER_GET_NODE_DEBUG_INFO, shared), 0);
	return *shared;
}

// GET_NODE_DEBUG_INFO walks the process's own nodes by rising ptr, and ends with 0.
TEST(context_node_debug_info)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	expect_eq(debug_info(server, 0).ptr, 0);
	share(manager, server, manager, 0x30, 0x31);
	share(manager, server, manager, 0x10, 0x11);
	struct binder_node_debug_info info = debug_info(server, 0);
	expect_eq(info.ptr, 0x10);
	expect_eq(info.cookie, 0x11);
	expect_eq(info.has_strong_ref, 1);
	expect_eq(info.has_weak_ref, 1);
	info = debug_info(server, info.ptr);
	expect_eq(info.ptr, 0x30);
	expect_eq(info.cookie, 0x31);
	info = debug_info(server, info.ptr);
	expect_eq(info.ptr, 0);
}
