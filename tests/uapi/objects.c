// Objects in payloads: translation, scatter-gather buffers, malformed ones.
#include <string.h>

#include "harness.h"

enum { PTR = 0x1000, COOKIE = 0x2000 };

// A transaction has left nothing at the receiver: there is nothing to read, and room for
// the largest payload.
static void expect_untouched(struct thread *client, struct thread *manager)
{
	expect_nothing(client);
	expect_nothing(manager);
	bc_transaction(client, 0, 99, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	finish_call(client, manager, expect_txn(manager, 99));
}

// A BINDER arrives as a HANDLE with the sender's flags, zero high bits and zero cookie.
TEST(objects_binder_becomes_handle)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_u32(p, 0x11223344);
	put_u32(p, 0x55667788);
	put_binder_flags(p, PTR, COOKIE, 0x17f);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->offsets_size, 8);
	expect_eq(*(uint64_t *)peek(manager, txn->data.ptr.offsets, 8), 8);
	const struct flat_binder_object *o = flat_at(manager, txn, 0, BINDER_TYPE_HANDLE);
	expect_eq(o->binder, 1); // the handle, and nothing above its 32 bits
	expect_eq(o->cookie, 0);
	expect_eq(o->flags, 0x17f);
	expect_eq(*(uint32_t *)payload(manager, txn), 0x11223344);
	bc_free_buffer(manager, txn);
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
}

// Sent home, a HANDLE arrives as the BINDER with its ptr and cookie.
TEST(objects_handle_comes_home)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	struct parcel *p = parcel_new();
	put_handle(p, handle);
	bc_transaction(manager, handle, 7, 0, p);
	flush(manager);
	const struct binder_transaction_data *txn = expect_txn(server, 7);
	const struct flat_binder_object *o = flat_at(server, txn, 0, BINDER_TYPE_BINDER);
	expect_eq(o->binder, PTR);
	expect_eq(o->cookie, COOKIE);
	finish_call(manager, server, txn);
	expect_nothing(server);
}

// A WEAK_HANDLE comes home as a WEAK_BINDER.
TEST(objects_weak_handle_comes_home)
{
	struct thread *manager = manager_new(), *server = process_new("server");
	uint32_t handle = share(manager, server, manager, PTR, COOKIE);
	struct parcel *p = parcel_new();
	put_weak_handle(p, handle);
	bc_transaction(manager, handle, 7, 0, p);
	flush(manager);
	const struct binder_transaction_data *txn = expect_txn(server, 7);
	const struct flat_binder_object *o = flat_at(server, txn, 0, BINDER_TYPE_WEAK_BINDER);
	expect_eq(o->binder, PTR);
	expect_eq(o->cookie, COOKIE);
	finish_call(manager, server, txn);
}

// A HANDLE passed on to a third process is a handle of that process's own numbering.
TEST(objects_handle_passed_on)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	share(manager, server, manager, 0x10, 1);
	share(manager, server, manager, 0x20, 2);
	uint32_t at_manager = share(manager, server, manager, PTR, COOKIE);
	expect_eq(at_manager, 3);
	struct parcel *p = parcel_new();
	put_handle(p, at_manager);
	put_weak_handle(p, at_manager);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, p);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	const struct flat_binder_object *o = flat_at(client, reply, 0, BINDER_TYPE_HANDLE);
	expect_eq(o->binder, 1);
	expect_eq(o->cookie, 0);
	expect_eq(flat_at(client, reply, 1, BINDER_TYPE_WEAK_HANDLE)->handle, 1);
	bc_u32(client, BC_ACQUIRE, 1);
	bc_free_buffer(client, reply);
	flush(client);
	ping(client, 1, server);
}

// A BINDER in a reply becomes a handle as well; its owner is told on the replying thread.
TEST(objects_binder_in_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint32_t handle = share(manager, manager, client, PTR, COOKIE);
	expect_eq(handle, 1);
	ping(client, handle, manager);
}

// The manager's own handle 0 can be sent on, and arrives as handle 0.
TEST(objects_handle_zero_sent)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, PTR, COOKIE);
	struct parcel *p = parcel_new();
	put_handle(p, 0);
	bc_u32(client, BC_ACQUIRE, 0);
	bc_transaction(client, handle, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(server, 7);
	expect_eq(flat_at(server, txn, 0, BINDER_TYPE_HANDLE)->handle, 0);
	finish_call(client, server, txn);
}

// What precedes the objects in a real payload. The kernel takes a parent at offset 0 for
// no parent at all, so that it refuses the fix-up.
static void put_token(struct parcel *p)
{
	put_u32(p, 0x746f6b65);
	put_u32(p, 0x6e);
}

// Scatter-gather: a PTR's bytes are copied beside the payload and its address is right.
TEST(objects_sg_buffer)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	char *text = arena_copy("scatter and gather", 19);
	struct parcel *p = parcel_new();
	put_ptr(p, text, 19);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	const struct binder_buffer_object *o = object_at(manager, txn, 0);
	expect_eq(o->hdr.type, BINDER_TYPE_PTR);
	expect_eq(o->length, 19);
	expect(o->buffer >= process_map(manager) && o->buffer + 19 <= process_map(manager) + MAP_BYTES);
	expect_eq(o->buffer % 8, 0);
	expect(!strcmp(peek(manager, o->buffer, 19), text));
	finish_call(client, manager, txn);
}

// A child buffer's address is written into its parent at parent_offset.
TEST(objects_sg_parent_fixup)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint64_t first, second, third; } root = {1, 2, 3}, *sent = arena_copy(&root, 24);
	struct parcel *p = parcel_new();
	put_token(p);
	size_t parent = put_ptr(p, sent, sizeof(*sent));
	put_child(p, arena_copy("one", 4), 4, parent, 0);
	put_child(p, arena_copy("three", 6), 6, parent, 16);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	const struct binder_buffer_object *o = object_at(manager, txn, 0);
	const uint64_t *got = peek(manager, o->buffer, 24);
	const struct binder_buffer_object *one = object_at(manager, txn, 1);
	const struct binder_buffer_object *three = object_at(manager, txn, 2);
	expect_eq(got[0], one->buffer);
	expect_eq(got[1], 2);
	expect_eq(got[2], three->buffer);
	expect(!strcmp(peek(manager, got[0], 4), "one"));
	expect(!strcmp(peek(manager, got[2], 6), "three"));
	expect_eq(sent->first, 1);
	finish_call(client, manager, txn);
}

// Buffers nest: a grandchild is fixed up in its parent, which is a child itself.
TEST(objects_sg_grandchild)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	uint64_t zero[2] = {0, 0};
	struct parcel *p = parcel_new();
	put_token(p);
	size_t root = put_ptr(p, arena_copy(zero, 16), 16);
	size_t child = put_child(p, arena_copy(zero, 16), 16, root, 8);
	put_child(p, arena_copy("leaf", 5), 5, child, 0);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	const struct binder_buffer_object *o = object_at(manager, txn, 0);
	const uint64_t *at_root = peek(manager, o->buffer, 16);
	const uint64_t *at_child = peek(manager, at_root[1], 16);
	expect(!strcmp(peek(manager, at_child[0], 5), "leaf"));
	finish_call(client, manager, txn);
}

// BC_REPLY_SG carries buffers back.
TEST(objects_sg_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_ptr(p, arena_copy("reply", 6), 6);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, p);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	const struct binder_buffer_object *o = object_at(client, reply, 0);
	expect(!strcmp(peek(client, o->buffer, 6), "reply"));
}

// An empty buffer, and a null one of length zero, pass.
TEST(objects_sg_empty_buffer)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_ptr(p, arena_alloc(8), 0);
	put_ptr(p, NULL, 0);
	bc_transaction(client, 0, 7, 0, p);
	flush(client);
	finish_call(client, manager, expect_txn(manager, 7));
}

// ---- malformed payloads: BR_FAILED_REPLY for the sender, nothing for the target

static void unaligned_offset(struct parcel *p)
{
	put_u32(p, 0);
	put_binder(p, PTR, COOKIE);
	p->offsets[0] = 2;
}

static void offset_past_the_end(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	p->offsets[0] = 8;
}

static void offset_huge(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	p->offsets[0] = UINT64_MAX - 7;
}

static void offsets_overlap(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	put_binder(p, PTR + 16, COOKIE);
	p->offsets[1] = 16;
}

static void offsets_repeat(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	p->offsets[p->n_offsets++] = 0;
}

static void offsets_descend(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	put_binder(p, PTR + 16, COOKIE);
	p->offsets[0] = 24;
	p->offsets[1] = 0;
}

static void payload_shorter_than_object(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	p->data_bytes -= 8;
}

static void unknown_type(struct parcel *p)
{
	struct flat_binder_object o = {.hdr.type = B_PACK_CHARS('x', 'y', '*', B_TYPE_LARGE)};
	put_object(p, &o, sizeof(o));
}

static void type_zero(struct parcel *p)
{
	struct flat_binder_object o = {.hdr.type = 0};
	put_object(p, &o, sizeof(o));
}

static void unknown_handle(struct parcel *p)
{
	put_binder(p, PTR, COOKIE);
	put_handle(p, 55);
}

static void closed_descriptor(struct parcel *p)
{
	put_fd(p, 900);
}

static void ptr_outside_sg(struct parcel *p)
{
	put_ptr(p, arena_copy("text", 5), 5);
	p->sg = false;
}

static void buffers_too_small(struct parcel *p)
{
	put_ptr(p, arena_alloc(64), 64);
	p->buffers_bytes = 32;
}

static void buffers_unaligned(struct parcel *p)
{
	put_ptr(p, arena_alloc(64), 64);
	p->buffers_bytes = 65;
}

static void buffer_unreadable(struct parcel *p)
{
	put_ptr(p, (void *)8, 64);
}

static void parent_is_itself(struct parcel *p)
{
	put_token(p);
	put_child(p, arena_alloc(64), 64, 0, 0);
}

static void parent_comes_later(struct parcel *p)
{
	put_token(p);
	put_child(p, arena_alloc(64), 64, 1, 0);
	put_ptr(p, arena_alloc(64), 64);
}

static void parent_index_huge(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, UINT64_MAX, 0);
}

static void parent_is_no_buffer(struct parcel *p)
{
	put_token(p);
	put_binder(p, PTR, COOKIE);
	put_child(p, arena_alloc(64), 64, 0, 0);
}

static void parent_offset_past_the_end(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, 0, 60);
}

static void parent_offset_huge(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, 0, UINT64_MAX - 3);
}

static void parent_offsets_descend(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, 0, 32);
	put_child(p, arena_alloc(64), 64, 0, 0);
}

static void parent_offsets_overlap(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, 0, 8);
	put_child(p, arena_alloc(64), 64, 0, 12);
}

static void parent_after_its_sibling(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(64), 64);
	put_ptr(p, arena_alloc(64), 64);
	put_child(p, arena_alloc(64), 64, 1, 0);
	put_child(p, arena_alloc(64), 64, 0, 0);
}

static void fda_out_of_bounds(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(16), 16);
	put_fda(p, 5, 0, 0);
}

static void fda_offset_out_of_bounds(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(16), 16);
	put_fda(p, 2, 0, 12);
}

static void fda_offset_unaligned(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(16), 16);
	put_fda(p, 2, 0, 2);
}

static void fda_count_huge(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(16), 16);
	put_fda(p, UINT64_MAX / 4 + 2, 0, 0);
}

static void fda_parent_bad(struct parcel *p)
{
	put_token(p);
	put_ptr(p, arena_alloc(16), 16);
	put_fda(p, 1, 7, 0);
}

static void fda_descriptor_closed(struct parcel *p)
{
	int fds[4] = {900, 901, 902, 903};
	put_token(p);
	put_ptr(p, arena_copy(fds, 16), 16);
	put_fda(p, 4, 0, 0);
}

// Buffers whose sum passes 2^64.
static void sizes_overflow(struct parcel *p)
{
	put_ptr(p, arena_alloc(64), 64);
	p->buffers_bytes = UINT64_MAX - 7;
}

static void no_object_at_the_offset(struct parcel *p)
{
	for (int i = 0; i < 8; i++)
		put_u32(p, 0);
	p->offsets[p->n_offsets++] = 8;
}

struct malformed {
	const char *name;
	void (*build)(struct parcel *);
};

#define MALFORMED(build) {#build, build}

static const struct malformed malformed[] = {
	MALFORMED(unaligned_offset), MALFORMED(offset_past_the_end), MALFORMED(offset_huge),
	MALFORMED(offsets_overlap), MALFORMED(offsets_repeat), MALFORMED(offsets_descend),
	MALFORMED(payload_shorter_than_object), MALFORMED(unknown_type), MALFORMED(type_zero),
	MALFORMED(unknown_handle), MALFORMED(closed_descriptor), MALFORMED(ptr_outside_sg),
	MALFORMED(buffers_too_small), MALFORMED(buffers_unaligned), MALFORMED(buffer_unreadable),
	MALFORMED(parent_is_itself), MALFORMED(parent_comes_later), MALFORMED(parent_index_huge),
	MALFORMED(parent_is_no_buffer), MALFORMED(parent_offset_past_the_end),
	MALFORMED(parent_offset_huge), MALFORMED(parent_offsets_descend),
	MALFORMED(parent_offsets_overlap), MALFORMED(parent_after_its_sibling),
	MALFORMED(fda_out_of_bounds), MALFORMED(fda_offset_out_of_bounds),
	MALFORMED(fda_offset_unaligned), MALFORMED(fda_count_huge), MALFORMED(fda_parent_bad),
	MALFORMED(fda_descriptor_closed), MALFORMED(sizes_overflow),
	MALFORMED(no_object_at_the_offset),
};

static void expect_named(struct thread *t, const char *what, uint32_t command)
{
	const struct br *br = next_br(t);
	if (br->command != command)
		fail("%s: expected %s, came %s", what, br_name(command), br_name(br->command));
}

// The table above as requests.
static void send_malformed(struct thread *client, uint32_t flags)
{
	for (size_t i = 0; i < sizeof(malformed) / sizeof(*malformed); i++) {
		struct parcel *p = parcel_new();
		malformed[i].build(p);
		bc_transaction(client, 0, 7, flags, p);
		expect_named(client, malformed[i].name, BR_FAILED_REPLY);
	}
}

TEST(objects_malformed_requests)
{
	struct thread *manager = manager_new();
	struct thread *client = process_new("client"), *other = process_new("other");
	send_malformed(client, 0);
	expect_nothing(manager);
	expect_untouched(other, manager);
	ping(client, 0, manager);
}

// Each malformed payload, one-way.
TEST(objects_malformed_oneway)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	send_malformed(client, TF_ONE_WAY);
	expect_nothing(manager);
	expect_untouched(process_new("other"), manager);
}

// Each malformed payload as a reply: the caller gets BR_FAILED_REPLY.
TEST(objects_malformed_replies)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	for (size_t i = 0; i < sizeof(malformed) / sizeof(*malformed); i++) {
		struct parcel *p = parcel_new();
		malformed[i].build(p);
		bc_transaction(client, 0, 7, TF_ACCEPT_FDS, NULL);
		flush(client);
		bc_free_buffer(manager, expect_txn(manager, 7));
		bc_reply(manager, 0, p);
		expect_named(manager, malformed[i].name, BR_TRANSACTION_COMPLETE);
		expect_named(client, malformed[i].name, BR_TRANSACTION_COMPLETE);
		expect_named(client, malformed[i].name, BR_FAILED_REPLY);
	}
	bc_transaction(client, 0, 7, 0, parcel_bytes(MAP_BYTES));
	flush(client);
	finish_call(client, manager, expect_txn(manager, 7));
}

// A node is translated before its transaction fails: the reference comes and goes before
// the owner reads, so the owner gets no return.
TEST(objects_failed_send_of_a_node)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct parcel *p = parcel_new();
	put_binder(p, PTR, COOKIE);
	put_handle(p, 55);
	bc_transaction(client, 0, 7, 0, p);
	expect_br(client, BR_FAILED_REPLY);
	expect_nothing(client);
	expect_nothing(manager);
	expect_eq(share(manager, client, manager, PTR, COOKIE), 1);
}
