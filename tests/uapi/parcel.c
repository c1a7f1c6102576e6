// Parcels, and conversations with which many tests begin.
#include <string.h>

#include "driven.h"

enum {
	PARCEL_BYTES = 1 << 14,
	PARCEL_OFFSETS = 256,
};

struct parcel *parcel_new(void)
{
	struct parcel *p = arena_alloc(sizeof(*p));
	p->data = arena_alloc(PARCEL_BYTES);
	p->offsets = arena_alloc(PARCEL_OFFSETS * sizeof(*p->offsets));
	return p;
}

struct parcel *parcel_bytes(size_t bytes)
{
	struct parcel *p = arena_alloc(sizeof(*p));
	p->data = arena_alloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		p->data[i] = (uint8_t)(i * 7 + (i >> 8));
	p->data_bytes = bytes;
	return p;
}

static void put_bytes(struct parcel *p, const void *bytes, size_t n)
{
	if (p->data_bytes + n > PARCEL_BYTES)
		fail("the parcel is full");
	memcpy(p->data + p->data_bytes, bytes, n);
	p->data_bytes += n;
}

void put_u32(struct parcel *p, uint32_t value) { put_bytes(p, &value, sizeof(value)); }

size_t put_object(struct parcel *p, const void *object, size_t bytes)
{
	p->offsets[p->n_offsets] = p->data_bytes;
	put_bytes(p, object, bytes);
	return p->n_offsets++;
}

static size_t put_flat(struct parcel *p, uint32_t type, uint64_t binder, uint64_t cookie,
		       uint32_t flags)
{
	struct flat_binder_object o = {.hdr.type = type, .flags = flags, .binder = binder,
				       .cookie = cookie};
	return put_object(p, &o, sizeof(o));
}

size_t put_binder_flags(struct parcel *p, uint64_t ptr, uint64_t cookie, uint32_t flags)
{
	return put_flat(p, BINDER_TYPE_BINDER, ptr, cookie, flags);
}

size_t put_binder(struct parcel *p, uint64_t ptr, uint64_t cookie)
{
	return put_binder_flags(p, ptr, cookie, 0);
}

size_t put_weak_binder(struct parcel *p, uint64_t ptr, uint64_t cookie)
{
	return put_flat(p, BINDER_TYPE_WEAK_BINDER, ptr, cookie, 0);
}

size_t put_handle(struct parcel *p, uint32_t handle)
{
	return put_flat(p, BINDER_TYPE_HANDLE, handle, 0, 0);
}

size_t put_weak_handle(struct parcel *p, uint32_t handle)
{
	return put_flat(p, BINDER_TYPE_WEAK_HANDLE, handle, 0, 0);
}

size_t put_fd(struct parcel *p, int fd)
{
	return put_flat(p, BINDER_TYPE_FD, (uint32_t)fd, 0, 0);
}

static size_t put_buffer(struct parcel *p, struct binder_buffer_object o)
{
	o.hdr.type = BINDER_TYPE_PTR;
	p->sg = true;
	p->buffers_bytes += (o.length + 7) & ~(uint64_t)7;
	return put_object(p, &o, sizeof(o));
}

size_t put_ptr(struct parcel *p, const void *buffer, size_t bytes)
{
	return put_buffer(p, (struct binder_buffer_object){.buffer = (uintptr_t)buffer,
							   .length = bytes});
}

size_t put_child(struct parcel *p, const void *buffer, size_t bytes, uint64_t parent,
		 uint64_t parent_offset)
{
	return put_buffer(p, (struct binder_buffer_object){.buffer = (uintptr_t)buffer,
							   .length = bytes,
							   .flags = BINDER_BUFFER_FLAG_HAS_PARENT,
							   .parent = parent,
							   .parent_offset = parent_offset});
}

size_t put_fda(struct parcel *p, uint64_t n_fds, uint64_t parent, uint64_t parent_offset)
{
	struct binder_fd_array_object o = {.hdr.type = BINDER_TYPE_FDA, .num_fds = n_fds,
					   .parent = parent, .parent_offset = parent_offset};
	p->sg = true;
	return put_object(p, &o, sizeof(o));
}

static void bc_payload(struct thread *t, uint32_t plain, uint32_t sg,
		       struct binder_transaction_data txn, const struct parcel *p)
{
	if (p) {
		txn.data_size = p->data_bytes;
		txn.offsets_size = p->n_offsets * sizeof(binder_size_t);
		txn.data.ptr.buffer = (uintptr_t)p->data;
		txn.data.ptr.offsets = (uintptr_t)p->offsets;
	}
	bc(t, p && p->sg ? sg : plain);
	bc_bytes(t, &txn, sizeof(txn));
	if (p && p->sg)
		bc_bytes(t, &p->buffers_bytes, sizeof(binder_size_t));
}

void bc_transaction(struct thread *t, uint32_t handle, uint32_t code, uint32_t flags,
		    const struct parcel *p)
{
	struct binder_transaction_data txn = {.target.handle = handle, .code = code, .flags = flags};
	bc_payload(t, BC_TRANSACTION, BC_TRANSACTION_SG, txn, p);
}

void bc_reply(struct thread *t, uint32_t flags, const struct parcel *p)
{
	bc_reply_with(t, 0, flags, p);
}

void bc_reply_with(struct thread *t, uint32_t code, uint32_t flags, const struct parcel *p)
{
	struct binder_transaction_data txn = {.code = code, .flags = flags};
	bc_payload(t, BC_REPLY, BC_REPLY_SG, txn, p);
}

void bc_free_buffer(struct thread *t, const struct binder_transaction_data *txn)
{
	bc_u64(t, BC_FREE_BUFFER, txn->data.ptr.buffer);
}

void *payload(struct thread *t, const struct binder_transaction_data *txn)
{
	return peek(t, txn->data.ptr.buffer, txn->data_size);
}

void *object_at_site(struct site site, struct thread *t, const struct binder_transaction_data *txn,
		     size_t index)
{
	size_t n = txn->offsets_size / sizeof(binder_size_t);
	if (index >= n)
		fail_at(site, "%s: expected object %zu, came %zu objects", t->name, index, n);
	const binder_size_t *offsets = peek(t, txn->data.ptr.offsets, txn->offsets_size);
	size_t left = txn->data_size - offsets[index];
	size_t bytes = sizeof(struct binder_buffer_object);
	return peek(t, txn->data.ptr.buffer + offsets[index], left < bytes ? left : bytes);
}

const struct flat_binder_object *flat_at_site(struct site site, struct thread *t,
					      const struct binder_transaction_data *txn,
					      size_t index, uint32_t type)
{
	const struct flat_binder_object *o = object_at_site(site, t, txn, index);
	expect_eq_at(site, "object type", o->hdr.type, type);
	return o;
}

// ---- conversations

static void answer_call(struct site site, struct thread *server,
			const struct binder_transaction_data *request)
{
	bc_free_buffer(server, request);
	bc_reply(server, 0, NULL);
	expect_br_at(site, server, BR_TRANSACTION_COMPLETE);
}

void finish_call_at(struct site site, struct thread *client, struct thread *server,
		    const struct binder_transaction_data *request)
{
	answer_call(site, server, request);
	expect_br_at(site, client, BR_TRANSACTION_COMPLETE);
	bc_free_buffer(client, expect_reply_at(site, client));
	flush_at(site, client);
}

void finish_completed_at(struct site site, struct thread *client, struct thread *server,
			 const struct binder_transaction_data *request)
{
	answer_call(site, server, request);
	bc_free_buffer(client, expect_reply_at(site, client));
	flush_at(site, client);
}

void ping_at(struct site site, struct thread *client, uint32_t handle, struct thread *server)
{
	enum { PING = 0x5f504e47 };
	bc_transaction(client, handle, PING, 0, NULL);
	flush_at(site, client);
	finish_call_at(site, client, server, expect_txn_at(site, server, PING));
}

// Reads up to BR_TRANSACTION_COMPLETE, and acknowledges the references before it. There are none if
// the owner already knows of one.
static void complete_as_owner(struct site site, struct thread *owner, uint64_t ptr, uint64_t cookie)
{
	const struct br *br;
	while ((br = next_br_at(site, owner, "BR_TRANSACTION_COMPLETE"))->command !=
	       BR_TRANSACTION_COMPLETE) {
		if (br->command != BR_INCREFS && br->command != BR_ACQUIRE)
			fail_at(site, "%s: expected BR_TRANSACTION_COMPLETE, came %s", owner->name,
				br_name(br->command));
		expect_eq_at(site, "ptr", (long long)br->node.ptr, (long long)ptr);
		expect_eq_at(site, "cookie", (long long)br->node.cookie, (long long)cookie);
		bc_ptr_cookie(owner, br->command == BR_INCREFS ? BC_INCREFS_DONE : BC_ACQUIRE_DONE,
			      ptr, cookie);
	}
}

// Acquires the handle in a request or reply and frees the buffer.
static uint32_t keep_handle(struct site site, struct thread *t,
			    const struct binder_transaction_data *txn)
{
	uint32_t handle = flat_at_site(site, t, txn, 0, BINDER_TYPE_HANDLE)->handle;
	bc_u32(t, BC_INCREFS, handle);
	bc_u32(t, BC_ACQUIRE, handle);
	bc_free_buffer(t, txn);
	return handle;
}

static uint32_t give_to_manager(struct site site, struct thread *manager, struct thread *from,
				const struct parcel *object, uint64_t ptr, uint64_t cookie)
{
	bc_transaction(from, 0, 1, 0, object);
	flush_at(site, from);
	uint32_t handle = keep_handle(site, manager, expect_txn_at(site, manager, 1));
	bc_reply(manager, 0, NULL);
	expect_br_at(site, manager, BR_TRANSACTION_COMPLETE);
	complete_as_owner(site, from, ptr, cookie);
	bc_free_buffer(from, expect_reply_at(site, from));
	flush_at(site, from);
	return handle;
}

static uint32_t ask_manager(struct site site, struct thread *manager, struct thread *to,
			    const struct parcel *answer, uint64_t ptr, uint64_t cookie)
{
	bc_transaction(to, 0, 2, 0, NULL);
	flush_at(site, to);
	bc_free_buffer(manager, expect_txn_at(site, manager, 2));
	bc_reply(manager, 0, answer);
	complete_as_owner(site, manager, ptr, cookie);
	flush_at(site, manager);
	expect_br_at(site, to, BR_TRANSACTION_COMPLETE);
	uint32_t handle = keep_handle(site, to, expect_reply_at(site, to));
	flush_at(site, to);
	return handle;
}

uint32_t share_flags_at(struct site site, struct thread *manager, struct thread *from,
			struct thread *to, uint64_t ptr, uint64_t cookie, uint32_t flags)
{
	struct parcel *object = parcel_new();
	put_binder_flags(object, ptr, cookie, flags);
	if (from == manager)
		return ask_manager(site, manager, to, object, ptr, cookie);
	uint32_t handle = give_to_manager(site, manager, from, object, ptr, cookie);
	if (to == manager)
		return handle;
	struct parcel *answer = parcel_new();
	put_handle(answer, handle);
	uint32_t theirs = ask_manager(site, manager, to, answer, 0, 0);
	bc_u32(manager, BC_RELEASE, handle);
	bc_u32(manager, BC_DECREFS, handle);
	flush_at(site, manager);
	return theirs;
}
