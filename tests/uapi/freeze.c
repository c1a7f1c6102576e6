// Freezing a process, pending one-way calls, and freeze notifications.
#include <string.h>

#include "harness.h"

static long freeze(struct thread *by, struct thread *whom, bool enable, uint32_t timeout_ms)
{
	struct binder_freeze_info info = {(uint32_t)process_pid(whom), enable, timeout_ms};
	return sys_ioctl(by, BINDER_FREEZE, arena_copy(&info, sizeof(info)));
}

static struct binder_frozen_status_info frozen_info(struct thread *by, struct thread *whom)
{
	struct binder_frozen_status_info info = {.pid = (uint32_t)process_pid(whom)}, *shared;
	shared = arena_copy(&info, sizeof(info));
	expect_errno(sys_ioctl(by, BINDER_GET_FROZEN_INFO, shared), 0);
	return *shared;
}

struct processes {
	struct thread *manager, *server, *client, *system;
	uint32_t handle;
};

static struct processes processes(void)
{
	struct processes c = {manager_new(), process_new("server"), process_new("client"),
			 process_new("system"), 0};
	c.handle = share(c.manager, c.server, c.client, 0x10, 0x20);
	expect_nothing(c.server);
	return c;
}

// Newer kernels say BR_TRANSACTION_PENDING_FROZEN of a one-way call to a frozen process.
static void send_to_frozen(struct processes *c, uint32_t code, uint32_t flags, size_t bytes)
{
	bc_transaction(c->client, c->handle, code, TF_ONE_WAY | flags, parcel_bytes(bytes));
	const struct br *br = next_br(c->client);
	if (br->command != BR_TRANSACTION_COMPLETE && br->command != BR_TRANSACTION_PENDING_FROZEN)
		fail("expected BR_TRANSACTION_COMPLETE or BR_TRANSACTION_PENDING_FROZEN, came %s",
		     br_name(br->command));
}

// A call to a frozen process gets BR_FROZEN_REPLY; thawed, it is served again.
TEST(freeze_sync_call)
{
	struct processes c = processes();
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	bc_transaction(c.client, c.handle, 7, 0, NULL);
	expect_br(c.client, BR_FROZEN_REPLY);
	struct binder_extended_error error = extended_error(c.client);
	expect_eq(error.command, BR_FROZEN_REPLY);
	expect_eq(error.param, 0);
	expect_nothing(c.client);
	expect_nothing(c.server);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	ping(c.client, c.handle, c.server);
}

// A process that calls while it counts as frozen cannot be called back.
TEST(freeze_call_back)
{
	struct processes c = processes();
	struct parcel *object = parcel_new();
	put_binder(object, 0x30, 0x40);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	bc_transaction(c.server, 0, 7, 0, object);
	read_begin(c.server);
	const struct binder_transaction_data *txn = expect_txn(c.manager, 7);
	uint32_t back = flat_at(c.manager, txn, 0, BINDER_TYPE_HANDLE)->handle;
	bc_transaction(c.manager, back, 8, 0, NULL);
	expect_br(c.manager, BR_FROZEN_REPLY);
	expect(frozen_info(c.system, c.server).sync_recv & 1);
	bc_reply(c.manager, 0, NULL);
	expect_br(c.manager, BR_TRANSACTION_COMPLETE);
	expect_node(c.server, BR_INCREFS, 0x30, 0x40);
	expect_node(c.server, BR_ACQUIRE, 0x30, 0x40);
	expect_br(c.server, BR_TRANSACTION_COMPLETE);
	expect_reply(c.server);
}

// A one-way call to a frozen process is taken and delivered after the thaw.
TEST(freeze_oneway_is_kept)
{
	struct processes c = processes();
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	send_to_frozen(&c, 1, 0, 8);
	send_to_frozen(&c, 2, 0, 8);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	bc_free_buffer(c.server, expect_txn(c.server, 1));
	flush(c.server);
	bc_free_buffer(c.server, expect_txn(c.server, 2));
	flush(c.server);
}

// GET_FROZEN_INFO says what has come since the freeze; a new freeze starts anew.
TEST(freeze_info)
{
	differs("taken-in-later");
	struct processes c = processes();
	struct binder_frozen_status_info info = frozen_info(c.system, c.server);
	expect_eq(info.sync_recv, 0);
	expect_eq(info.async_recv, 0);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	info = frozen_info(c.system, c.server);
	expect_eq(info.sync_recv, 0);
	expect_eq(info.async_recv, 0);
	bc_transaction(c.client, c.handle, 7, 0, NULL);
	expect_br(c.client, BR_FROZEN_REPLY);
	info = frozen_info(c.system, c.server);
	expect_eq(info.sync_recv, 1);
	expect_eq(info.async_recv, 0);
	send_to_frozen(&c, 1, 0, 8);
	info = frozen_info(c.system, c.server);
	expect_eq(info.sync_recv, 1 | 2); // 2: a transaction is pending
	expect_eq(info.async_recv, 1);
	bc_free_buffer(c.server, expect_txn(c.server, 1));
	flush(c.server);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	info = frozen_info(c.system, c.server);
	expect_eq(info.sync_recv, 0);
	expect_eq(info.async_recv, 0);
}

// A process that serves a call, or has one unread, cannot be frozen: EAGAIN.
TEST(freeze_with_calls_outstanding)
{
	struct processes c = processes();
	bc_transaction(c.client, c.handle, 7, 0, NULL);
	flush(c.client);
	expect_errno(freeze(c.system, c.server, true, 0), EAGAIN);
	const struct binder_transaction_data *txn = expect_txn(c.server, 7);
	expect_errno(freeze(c.system, c.server, true, 1), EAGAIN);
	expect_eq(frozen_info(c.system, c.server).sync_recv, 2);
	finish_call(c.client, c.server, txn);
	ping(c.client, c.handle, c.server);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
}

// A process that awaits a reply cannot be frozen either.
TEST(freeze_while_awaiting_a_reply)
{
	struct processes c = processes();
	bc_transaction(c.server, 0, 7, 0, NULL);
	flush(c.server);
	const struct binder_transaction_data *txn = expect_txn(c.manager, 7);
	expect_errno(freeze(c.system, c.server, true, 0), EAGAIN);
	finish_call(c.server, c.manager, txn);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
}

// With a timeout the freeze waits for the calls to end; new ones are turned away meanwhile.
TEST(freeze_waits_for_calls)
{
	struct processes c = processes();
	struct thread *other = thread_new(c.client);
	struct binder_freeze_info info = {(uint32_t)process_pid(c.server), 1, 15000};
	bc_transaction(c.client, c.handle, 7, 0, NULL);
	flush(c.client);
	const struct binder_transaction_data *txn = expect_txn(c.server, 7);
	sys_ioctl_begin(c.system, BINDER_FREEZE, arena_copy(&info, sizeof(info)));
	await_asleep(c.system);
	bc_transaction(other, c.handle, 8, 0, NULL);
	expect_br(other, BR_FROZEN_REPLY);
	finish_call(c.client, c.server, txn);
	expect_errno(run_end(c.system), 0);
	// The call that was turned away meanwhile is not forgotten.
	expect_eq(frozen_info(c.system, c.server).sync_recv & 1, 1);
	bc_transaction(other, c.handle, 9, 0, NULL);
	expect_br(other, BR_FROZEN_REPLY);
}

// An unread one-way call counts as outstanding; one that is read, and its buffer still
// held, does not.
TEST(freeze_with_oneway_unread)
{
	struct processes c = processes();
	bc_transaction(c.client, c.handle, 7, TF_ONE_WAY, NULL);
	expect_br(c.client, BR_TRANSACTION_COMPLETE);
	expect_errno(freeze(c.system, c.server, true, 0), EAGAIN);
	expect_txn(c.server, 7);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
}

// A pid that has not the device open is EINVAL, for both ioctls.
TEST(freeze_unknown_process)
{
	struct thread *system = process_new("system"), *stranger = process_bare("stranger");
	struct binder_frozen_status_info info = {.pid = (uint32_t)process_pid(stranger)};
	expect_errno(freeze(system, stranger, true, 0), EINVAL);
	expect_errno(freeze(system, stranger, false, 0), EINVAL);
	expect_errno(sys_ioctl(system, BINDER_GET_FROZEN_INFO, arena_copy(&info, sizeof(info))),
		     EINVAL);
}

// Freezing a frozen process and thawing a process that is not frozen succeed.
TEST(freeze_twice)
{
	struct processes c = processes();
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	ping(c.client, c.handle, c.server);
}

// A process can freeze itself.
TEST(freeze_oneself)
{
	struct processes c = processes();
	expect_errno(freeze(c.server, c.server, true, 0), 0);
	bc_transaction(c.client, c.handle, 7, 0, NULL);
	expect_br(c.client, BR_FROZEN_REPLY);
	expect_errno(freeze(c.server, c.server, false, 0), 0);
	ping(c.client, c.handle, c.server);
}

// A frozen process's death is a death.
TEST(freeze_death_while_frozen)
{
	struct processes c = processes();
	bc_handle_cookie(c.client, BC_REQUEST_DEATH_NOTIFICATION, c.handle, 1);
	flush(c.client);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	send_to_frozen(&c, 1, 0, 8);
	process_kill(c.server);
	expect_cookie(c.client, BR_DEAD_BINDER, 1);
}

// TF_UPDATE_TXN to a frozen process: of the calls that wait behind the first, one of the
// same code and flags takes the place of the one before.
TEST(freeze_update_txn)
{
	struct processes c = processes();
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	send_to_frozen(&c, 1, TF_UPDATE_TXN, 8);
	send_to_frozen(&c, 1, TF_UPDATE_TXN, 16);
	send_to_frozen(&c, 2, TF_UPDATE_TXN, 24);
	send_to_frozen(&c, 1, TF_UPDATE_TXN, 32);
	send_to_frozen(&c, 1, 0, 40);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	static const struct { uint32_t code; size_t bytes; } want[] = {
		{1, 8}, {2, 24}, {1, 32}, {1, 40},
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		const struct binder_transaction_data *txn = expect_txn(c.server, want[i].code);
		expect_eq(txn->data_size, want[i].bytes);
		bc_free_buffer(c.server, txn);
		flush(c.server);
	}
	expect_nothing(c.server);
}

// An update frees the buffer of the transaction that it replaces: any number of them fit.
TEST(freeze_update_txn_frees_the_old)
{
	enum { BYTES = MAP_BYTES / 8 };
	struct processes c = processes();
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	for (int i = 0; i < 20; i++)
		send_to_frozen(&c, 1, TF_UPDATE_TXN, BYTES);
}

// Without a freeze TF_UPDATE_TXN replaces nothing.
TEST(freeze_update_txn_needs_a_freeze)
{
	struct processes c = processes();
	for (uint32_t i = 1; i <= 3; i++)
		send_to_frozen(&c, 1, TF_UPDATE_TXN, i);
	for (uint32_t i = 1; i <= 3; i++) {
		const struct binder_transaction_data *txn = expect_txn(c.server, 1);
		expect_eq(txn->data_size, i);
		bc_free_buffer(c.server, txn);
		flush(c.server);
	}
}

// ---- notifications

static void request(struct thread *t, uint32_t handle, uint64_t cookie)
{
	struct { uint32_t command; struct binder_handle_cookie body; }
		__attribute__((packed)) command = {BC_REQUEST_FREEZE_NOTIFICATION, {handle, cookie}};
	struct binder_write_read *bwr = write_read_new(&command, sizeof(command), 0);
	long result = write_read(t, bwr);
	if (result == -EINVAL && bwr->write_consumed == 0)
		skip("the driver has no freeze notifications");
	expect_errno(result, 0);
}

static void expect_frozen(struct thread *t, uint64_t cookie, bool frozen)
{
	const struct br *br = expect_br(t, BR_FROZEN_BINDER);
	expect_eq(br->frozen.cookie, cookie);
	expect_eq(br->frozen.is_frozen, frozen);
	bc_u64(t, BC_FREEZE_NOTIFICATION_DONE, cookie);
	flush(t);
}

// A request is answered with the present state, and each change after it is told.
TEST(freeze_notification)
{
	struct processes c = processes();
	request(c.client, c.handle, 0xf1);
	expect_frozen(c.client, 0xf1, false);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	expect_frozen(c.client, 0xf1, true);
	expect_errno(freeze(c.system, c.server, false, 0), 0);
	expect_frozen(c.client, 0xf1, false);
	expect_nothing(c.client);
}

// A change during the handling of another waits for BC_FREEZE_NOTIFICATION_DONE.
TEST(freeze_notification_waits_for_done)
{
	struct processes c = processes();
	request(c.client, c.handle, 0xf1);
	expect_eq(expect_br(c.client, BR_FROZEN_BINDER)->frozen.is_frozen, 0);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	expect_nothing(c.client);
	bc_u64(c.client, BC_FREEZE_NOTIFICATION_DONE, 0xf1);
	flush(c.client);
	expect_frozen(c.client, 0xf1, true);
}

// A read ends with a notice, because of which the program may make a call.
TEST(freeze_notification_ends_the_read)
{
	struct processes c = processes();
	uint32_t second = share(c.manager, c.server, c.client, 0x30, 0x40);
	request(c.client, c.handle, 0xf1);
	request(c.client, second, 0xf2);
	struct binder_write_read *bwr = write_read_new(NULL, 0, 256);
	expect_errno(write_read(c.client, bwr), 0);
	expect_eq(bwr->read_consumed, 4 + 4 + sizeof(struct frozen_state_info));
	expect_frozen(c.client, 0xf2, false);
	expect_nothing(c.client);
}

// Cleared: BR_CLEAR_FREEZE_NOTIFICATION_DONE, and no change is told any more.
TEST(freeze_notification_cleared)
{
	struct processes c = processes();
	request(c.client, c.handle, 0xf1);
	expect_frozen(c.client, 0xf1, false);
	bc_handle_cookie(c.client, BC_CLEAR_FREEZE_NOTIFICATION, c.handle, 0xf1);
	expect_cookie(c.client, BR_CLEAR_FREEZE_NOTIFICATION_DONE, 0xf1);
	expect_errno(freeze(c.system, c.server, true, 0), 0);
	expect_nothing(c.client);
}
