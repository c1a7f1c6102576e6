// The receive buffer: its size, its addresses, BC_FREE_BUFFER, and the mapping's rules.
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

static const struct binder_transaction_data *send_bytes(struct thread *client,
							struct thread *manager, size_t bytes)
{
	bc_transaction(client, 0, 7, TF_ONE_WAY, parcel_bytes(bytes));
	expect_br(client, BR_TRANSACTION_COMPLETE);
	return expect_txn(manager, 7);
}

// A payload lies inside the mapping, aligned, and as it was sent.
TEST(buffers_payload_is_in_the_mapping)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn = send_bytes(client, manager, 4099);
	uint64_t start = txn->data.ptr.buffer;
	expect(start >= process_map(manager) && start + 4099 <= process_map(manager) + MAP_BYTES);
	expect_eq(start % 8, 0);
	expect(!memcmp(payload(manager, txn), parcel_bytes(4099)->data, 4099));
}

// Offsets follow the payload, at the next multiple of 8.
TEST(buffers_offsets_follow_the_payload)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_handle(p, 0);
	put_u32(p, 1);
	bc_u32(client, BC_ACQUIRE, 0);
	bc_transaction(client, 0, 7, 0, p);
	read_begin(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->data_size, 28);
	expect_eq(txn->data.ptr.offsets, txn->data.ptr.buffer + 32);
	finish_call(client, manager, txn);
}

// A payload of length zero has a buffer of its own all the same, which can be freed.
TEST(buffers_empty_payload_has_a_buffer)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->data_size, 0);
	expect_eq(txn->offsets_size, 0);
	uint64_t at = txn->data.ptr.buffer, map = process_map(manager);
	expect(at >= map && at < map + MAP_BYTES);
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	at = reply->data.ptr.buffer, map = process_map(client);
	expect(at >= map && at < map + MAP_BYTES);
	bc_free_buffer(client, reply);
	flush(client);
}

// Two empty payloads at once have different addresses.
TEST(buffers_empty_payloads_differ)
{
	struct thread *manager = manager_new(), *pool = thread_new(manager);
	struct thread *one = process_new("one"), *two = process_new("two");
	bc_transaction(one, 0, 1, 0, NULL);
	flush(one);
	const struct binder_transaction_data *a = expect_txn(manager, 1);
	bc_transaction(two, 0, 2, 0, NULL);
	flush(two);
	const struct binder_transaction_data *b = expect_txn(pool, 2);
	expect(a->data.ptr.buffer != b->data.ptr.buffer);
	finish_call(two, pool, b);
	finish_call(one, manager, a);
}

// A payload as large as the mapping fits; a byte more does not.
TEST(buffers_whole_mapping)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAP_BYTES + 1));
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(manager);
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->data.ptr.buffer, process_map(manager));
	finish_call(client, manager, txn);
}

// Sizes near 2^64 are refused.
TEST(buffers_absurd_sizes)
{
	static const uint64_t sizes[] = {1ull << 31, 1ull << 32, 1ull << 40, ~0ull - 7, ~0ull};
	struct thread *manager = manager_new(), *client = process_new("client");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct parcel *p = parcel_bytes(8);
		p->data_bytes = sizes[i];
		bc_transaction(client, 0, 7, 0, p);
		expect_br(client, BR_FAILED_REPLY);
	}
	expect_nothing(manager);
	ping(client, 0, manager);
}

// A reply that is too large: the caller gets BR_FAILED_REPLY.
TEST(buffers_reply_too_large)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, parcel_bytes(MAP_BYTES + 8));
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_FAILED_REPLY);
	ping(client, 0, manager);
}

// Buffers held use up the space; freed, in any order, they make room again.
TEST(buffers_space_comes_back)
{
	enum { N = 8, BYTES = MAP_BYTES / N };
	struct thread *manager = manager_new(), *threads[N], *clients[N];
	const struct binder_transaction_data *txns[N];
	for (uint32_t i = 0; i < N; i++) {
		threads[i] = thread_new(manager);
		clients[i] = process_new("client");
		bc_transaction(clients[i], 0, i, 0, parcel_bytes(BYTES));
		flush(clients[i]);
		txns[i] = expect_txn(threads[i], i);
	}
	struct thread *late = process_new("late");
	bc_transaction(late, 0, 99, 0, NULL);
	expect_br(late, BR_FAILED_REPLY);
	for (uint32_t i = 0; i < N; i++)
		finish_call(clients[i * 3 % N], threads[i * 3 % N], txns[i * 3 % N]);
	bc_transaction(late, 0, 99, 0, parcel_bytes(MAP_BYTES));
	flush(late);
	finish_call(late, manager, expect_txn(manager, 99));
}

// A buffer freed twice, an address that is none, and one inside a buffer are ignored;
// the process goes on.
TEST(buffers_bad_free)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn = send_bytes(client, manager, 64);
	bc_u64(manager, BC_FREE_BUFFER, txn->data.ptr.buffer + 8);
	bc_u64(manager, BC_FREE_BUFFER, 0);
	bc_u64(manager, BC_FREE_BUFFER, 0x123456789);
	bc_u64(manager, BC_FREE_BUFFER, ~0ull);
	flush(manager);
	expect(!memcmp(payload(manager, txn), parcel_bytes(64)->data, 64));
	bc_free_buffer(manager, txn);
	bc_free_buffer(manager, txn);
	bc_free_buffer(manager, txn);
	flush(manager);
	expect_nothing(manager);
	ping(client, 0, manager);
}

// A buffer that was not delivered yet cannot be freed by guessing its address.
TEST(buffers_free_before_delivery)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	const struct binder_transaction_data *txn = send_bytes(client, manager, 64);
	uint64_t guess = txn->data.ptr.buffer;
	bc_free_buffer(manager, txn);
	flush(manager);
	bc_transaction(client, 0, 8, TF_ONE_WAY, parcel_bytes(64));
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_u64(manager, BC_FREE_BUFFER, guess);
	flush(manager);
	txn = expect_txn(manager, 8);
	expect_eq(txn->data.ptr.buffer, guess);
	expect(!memcmp(payload(manager, txn), parcel_bytes(64)->data, 64));
}

// BC_FREE_BUFFER may come from a thread that has nothing to do with the transaction.
TEST(buffers_freed_by_another_thread)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *other = thread_new(manager);
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	bc_free_buffer(other, expect_txn(manager, 7));
	flush(other);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_reply(client);
	bc_transaction(client, 0, 8, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	expect_txn(manager, 8);
}

// A payload is a copy: the sender's later writes do not show.
TEST(buffers_payload_is_a_copy)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_bytes(5000);
	bc_transaction(client, 0, 7, TF_ONE_WAY, p);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	memset(p->data, 0xee, 5000);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect(!memcmp(payload(manager, txn), parcel_bytes(5000)->data, 5000));
}

// TF_CLEAR_BUF: the payload is zeroed when its buffer is freed.
TEST(buffers_cleared_on_request)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *pool = thread_new(manager);
	// A neighbour in the same page keeps the page mapped.
	bc_transaction(client, 0, 1, 0, parcel_bytes(64));
	flush(client);
	expect_txn(manager, 1);
	struct thread *other = process_new("other");
	bc_transaction(other, 0, 7, TF_CLEAR_BUF, parcel_bytes(64));
	flush(other);
	const struct binder_transaction_data *txn = expect_txn(pool, 7);
	uint8_t zero[64] = {0};
	expect(memcmp(payload(pool, txn), zero, 64));
	bc_free_buffer(pool, txn);
	flush(pool);
	expect(!memcmp(payload(pool, txn), zero, 64));
}

// A writable mapping is refused with EPERM, and an accepted one cannot be made writable.
TEST(buffers_mapping_is_read_only)
{
	struct thread *t = process_with((struct process_options){.name = "process", .unmapped = true});
	int fd = process_fd(t);
	expect_errno(sys_mmap(t, fd, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE), EPERM);
	expect_errno(sys_mmap(t, fd, MAP_BYTES, PROT_WRITE, MAP_SHARED), EPERM);
	expect(sys_mmap(t, fd, MAP_BYTES, PROT_READ, MAP_PRIVATE) > 0);
}

static long step_mprotect(void *address)
{
	return mprotect(address, 4096, PROT_READ | PROT_WRITE) ? -errno : 0;
}

TEST(buffers_mapping_stays_read_only)
{
	struct thread *t = process_new("process");
	expect_errno(run(t, step_mprotect, (void *)(uintptr_t)process_map(t)), EACCES);
}

// A process maps the device once: the second time is EBUSY, whatever the size.
TEST(buffers_second_mapping_is_busy)
{
	struct thread *t = process_new("process");
	expect_errno(sys_mmap(t, process_fd(t), MAP_BYTES, PROT_READ, MAP_PRIVATE), EBUSY);
	expect_errno(sys_mmap(t, process_fd(t), 4096, PROT_READ, MAP_PRIVATE), EBUSY);
}

// A shared mapping is as good as a private one.
TEST(buffers_shared_mapping)
{
	struct thread *manager = manager_new();
	struct thread *t = process_with((struct process_options){.name = "process", .unmapped = true});
	expect(sys_mmap(t, process_fd(t), 65536, PROT_READ, MAP_SHARED) > 0);
	ping(t, 0, manager);
}

// The driver uses the first 4 MiB of a larger mapping.
TEST(buffers_mapping_is_capped)
{
	enum { MAX = 4 << 20 };
	struct thread *manager = manager_with((struct process_options){.name = "manager",
								       .map_bytes = 8 << 20});
	struct thread *client = process_new("client");
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAX + 8));
	expect_br(client, BR_FAILED_REPLY);
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAX));
	flush(client);
	finish_call(client, manager, expect_txn(manager, 7));
}

// A process that has not mapped the device can be sent nothing: BR_DEAD_REPLY.
TEST(buffers_unmapped_receiver)
{
	struct thread *manager = manager_with((struct process_options){.name = "manager",
								       .unmapped = true});
	struct thread *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	expect_br(client, BR_DEAD_REPLY);
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	expect_br(client, BR_DEAD_REPLY);
	expect_nothing(manager);
}

// A caller that has not mapped the device can send, but not get its reply.
TEST(buffers_unmapped_caller)
{
	struct thread *manager = manager_new();
	struct thread *client = process_with((struct process_options){.name = "client",
								      .unmapped = true});
	bc_transaction(client, 0, 7, TF_ONE_WAY, parcel_bytes(10));
	expect_br(client, BR_TRANSACTION_COMPLETE);
	bc_free_buffer(manager, expect_txn(manager, 7));
	flush(manager);
	bc_transaction(client, 0, 8, 0, parcel_bytes(10));
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 8));
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_DEAD_REPLY);
}

static long step_munmap(void *address)
{
	return munmap(address, MAP_BYTES) ? -errno : 0;
}

static long step_munmap_page(void *address) { return munmap(address, 4096) ? -errno : 0; }

// BR_DEAD_REPLY to a call and to a one-way transaction, for want of a process (ESRCH).
static void expect_unreachable(struct thread *client)
{
	for (int one_way = 0; one_way < 2; one_way++) {
		bc_transaction(client, 0, 7, one_way ? TF_ONE_WAY : 0, NULL);
		expect_br(client, BR_DEAD_REPLY);
		struct binder_extended_error error = extended_error(client);
		expect_eq(error.command, BR_DEAD_REPLY);
		expect_eq(error.param, -ESRCH);
	}
}

// A process that unmaps the device can be sent nothing any more, and does not get it back.
TEST(buffers_unmapped_again)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	ping(client, 0, manager);
	expect_errno(run(manager, step_munmap, (void *)(uintptr_t)process_map(manager)), 0);
	expect_unreachable(client);
	expect_nothing(manager);
	expect_errno(sys_mmap(manager, process_fd(manager), MAP_BYTES, PROT_READ, MAP_PRIVATE), EBUSY);
}

// Unmapping a page of it is enough.
TEST(buffers_unmapped_in_part)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	expect_errno(run(manager, step_munmap_page, (void *)(uintptr_t)process_map(manager)), 0);
	expect_unreachable(client);
}

// The last of many mapped devices of a process, kept by its mapping alone, ends when it is
// unmapped.
TEST(buffers_of_many_devices)
{
	struct thread *t = process_bare("client"), *other = process_new("other");
	int fd = -1;
	int64_t map = 0;
	for (int i = 0; i < 20; i++) {
		fd = sys_open(t, device_path(), O_RDWR);
		map = sys_mmap(t, fd, MAP_BYTES, PROT_READ, MAP_PRIVATE);
		expect(fd >= 0 && map > 0);
	}
	expect_errno(sys_ioctl_fd(t, fd, BINDER_SET_CONTEXT_MGR, arena_alloc(4)), 0);
	expect_errno(sys_close(t, fd), 0);
	expect_errno(sys_ioctl(other, BINDER_SET_CONTEXT_MGR, arena_alloc(4)), EBUSY);
	expect_errno(run(t, step_munmap, (void *)(uintptr_t)map), 0);
	expect_errno(become_manager(other), 0);
}

// Earlier buffers can still be freed afterwards.
TEST(buffers_freed_after_unmapping)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	struct binder_transaction_data got = *expect_txn(manager, 7);
	expect_errno(run(manager, step_munmap, (void *)(uintptr_t)process_map(manager)), 0);
	bc_free_buffer(manager, &got);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_REPLY);
}
