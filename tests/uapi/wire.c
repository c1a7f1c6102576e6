// BINDER_WRITE_READ: the command writer, the typed reader, the names of return commands.
#include <stdio.h>
#include <string.h>

#include "driven.h"

long write_read(struct thread *t, struct binder_write_read *bwr)
{
	return sys_ioctl(t, BINDER_WRITE_READ, bwr);
}

struct binder_write_read *write_read_new(const void *write, size_t write_bytes, size_t read_bytes)
{
	struct binder_write_read *bwr = arena_alloc(sizeof(*bwr));
	if (write_bytes)
		bwr->write_buffer = (uintptr_t)arena_copy(write, write_bytes);
	bwr->write_size = write_bytes;
	if (read_bytes)
		bwr->read_buffer = (uintptr_t)arena_alloc(read_bytes);
	bwr->read_size = read_bytes;
	return bwr;
}

void bc_bytes(struct thread *t, const void *bytes, size_t n)
{
	if (t->out_bytes + n > WRITE_BYTES)
		fail("%s: the write buffer is full", t->name);
	memcpy(t->out + t->out_bytes, bytes, n);
	t->out_bytes += n;
}

void bc(struct thread *t, uint32_t command)
{
	bc_bytes(t, &command, sizeof(command));
}

void bc_u32(struct thread *t, uint32_t command, uint32_t value)
{
	bc(t, command);
	bc_bytes(t, &value, sizeof(value));
}

void bc_u64(struct thread *t, uint32_t command, uint64_t value)
{
	bc(t, command);
	bc_bytes(t, &value, sizeof(value));
}

void bc_ptr_cookie(struct thread *t, uint32_t command, uint64_t ptr, uint64_t cookie)
{
	bc_u64(t, command, ptr);
	bc_bytes(t, &cookie, sizeof(cookie));
}

void bc_handle_cookie(struct thread *t, uint32_t command, uint32_t handle, uint64_t cookie)
{
	bc_u32(t, command, handle);
	bc_bytes(t, &cookie, sizeof(cookie));
}

// Moves the gathered commands into a call. The write buffer starts anew, since the call may still
// read the old one.
static void fill_call(struct thread *t, size_t read_bytes)
{
	memset(t->bwr, 0, sizeof(*t->bwr));
	t->bwr->write_size = t->out_bytes;
	if (t->out_bytes)
		t->bwr->write_buffer = (uintptr_t)arena_copy(t->out, t->out_bytes);
	t->out_bytes = 0;
	t->bwr->read_size = read_bytes;
	t->bwr->read_buffer = (uintptr_t)t->in;
}

void flush_at(struct site site, struct thread *t)
{
	if (!t->out_bytes)
		return;
	fill_call(t, 0);
	expect_errno_at(site, "BINDER_WRITE_READ", write_read(t, t->bwr), 0);
	expect_eq_at(site, "write_consumed", (long long)t->bwr->write_consumed,
		     (long long)t->bwr->write_size);
}

void set_read_bytes(struct thread *t, size_t bytes)
{
	t->in_bytes = bytes < READ_BYTES ? bytes : READ_BYTES;
}

bool has_unread(const struct thread *t) { return t->in_at < t->in_end; }

static void begin_read(struct site site, struct thread *t)
{
	if (has_unread(t))
		fail_at(site, "%s: unread %s", t->name, br_name(*(uint32_t *)(t->in + t->in_at)));
	fill_call(t, t->in_bytes);
	sys_ioctl_begin(t, BINDER_WRITE_READ, t->bwr);
	t->reading = true;
}

void read_begin(struct thread *t) { begin_read(HERE, t); }

static void take_read(struct site site, struct thread *t)
{
	uint32_t first;
	expect_errno_at(site, t->name, run_end_at(site, t), 0);
	expect_eq_at(site, "write_consumed", (long long)t->bwr->write_consumed,
		     (long long)t->bwr->write_size);
	t->in_at = 0;
	t->in_end = t->bwr->read_consumed;
	if (t->in_end < sizeof(first))
		fail_at(site, "%s: a blocking read answered %zu bytes", t->name, t->in_end);
	memcpy(&first, t->in, sizeof(first));
	if (first == BR_NOOP)
		t->in_at = sizeof(first);
	else if (first != BR_SPAWN_LOOPER)
		fail_at(site, "%s: a read begins with %s, not with BR_NOOP", t->name, br_name(first));
}

const struct br *next_br_at(struct site site, struct thread *t, const char *wanted)
{
	waiting_for(t, wanted);
	while (!has_unread(t)) {
		if (!t->busy)
			begin_read(site, t);
		take_read(site, t);
	}
	uint32_t command;
	memcpy(&command, t->in + t->in_at, sizeof(command));
	size_t body = _IOC_SIZE(command), at = t->in_at + sizeof(command);
	if (body > sizeof(t->br) || at + body > t->in_end)
		fail_at(site, "%s: %s is cut off at the end of the read", t->name, br_name(command));
	memset(&t->br, 0, sizeof(t->br));
	t->br.command = command;
	memcpy((uint8_t *)&t->br + offsetof(struct br, txn), t->in + at, body);
	t->in_at = at + body;
	return &t->br;
}

const struct br *expect_br_at(struct site site, struct thread *t, uint32_t command)
{
	const struct br *br = next_br_at(site, t, br_name(command));
	if (br->command != command)
		fail_at(site, "%s: expected %s, came %s", t->name, br_name(command),
			br_name(br->command));
	return br;
}

void expect_node_at(struct site site, struct thread *t, uint32_t command, uint64_t ptr,
		    uint64_t cookie)
{
	const struct br *br = expect_br_at(site, t, command);
	expect_eq_at(site, "ptr", (long long)br->node.ptr, (long long)ptr);
	expect_eq_at(site, "cookie", (long long)br->node.cookie, (long long)cookie);
}

void expect_cookie_at(struct site site, struct thread *t, uint32_t command, uint64_t cookie)
{
	const struct br *br = expect_br_at(site, t, command);
	expect_eq_at(site, "cookie", (long long)br->cookie, (long long)cookie);
}

const struct binder_transaction_data *expect_txn_at(struct site site, struct thread *t,
						    uint32_t code)
{
	const struct br *br = expect_br_at(site, t, BR_TRANSACTION);
	expect_eq_at(site, "code", br->txn.code, code);
	return arena_copy(&br->txn, sizeof(br->txn));
}

const struct binder_transaction_data *expect_reply_at(struct site site, struct thread *t)
{
	const struct br *br = expect_br_at(site, t, BR_REPLY);
	return arena_copy(&br->txn, sizeof(br->txn));
}

void expect_drained_at(struct site site, struct thread *t)
{
	if (has_unread(t))
		fail_at(site, "%s: expected nothing more in this read, came %s", t->name,
			br_name(*(uint32_t *)(t->in + t->in_at)));
}

void expect_nothing_at(struct site site, struct thread *t)
{
	flush_at(site, t);
	expect_drained_at(site, t);
	set_nonblocking(t, true);
	fill_call(t, t->in_bytes);
	long result = write_read(t, t->bwr);
	set_nonblocking(t, false);
	if (result == 0) {
		uint32_t at[2] = {0, 0};
		memcpy(at, t->in, t->bwr->read_consumed >= 8 ? 8 : 4);
		fail_at(site, "%s: expected nothing to read, came %s %s", t->name, br_name(at[0]),
			t->bwr->read_consumed >= 8 ? br_name(at[1]) : "");
	}
	expect_errno_at(site, "a read with nothing to read", result, EAGAIN);
	expect_eq_at(site, "read_consumed", (long long)t->bwr->read_consumed, 0);
}

// ---- names

struct name {
	uint32_t command;
	const char *name;
};

static const char *name_of(const struct name *names, size_t n, uint32_t command)
{
	static char unknown[2][24];
	static int turn;
	for (size_t i = 0; i < n; i++)
		if (names[i].command == command)
			return names[i].name;
	turn ^= 1;
	snprintf(unknown[turn], sizeof(unknown[turn]), "command %#x", command);
	return unknown[turn];
}

#define NAME(command) {(uint32_t)command, #command}

const char *br_name(uint32_t command)
{
	static const struct name names[] = {
		NAME(BR_ERROR), NAME(BR_OK), NAME(BR_TRANSACTION_SEC_CTX), NAME(BR_TRANSACTION),
		NAME(BR_REPLY), NAME(BR_ACQUIRE_RESULT), NAME(BR_DEAD_REPLY),
		NAME(BR_TRANSACTION_COMPLETE), NAME(BR_INCREFS), NAME(BR_ACQUIRE),
		NAME(BR_RELEASE), NAME(BR_DECREFS), NAME(BR_ATTEMPT_ACQUIRE), NAME(BR_NOOP),
		NAME(BR_SPAWN_LOOPER), NAME(BR_FINISHED), NAME(BR_DEAD_BINDER),
		NAME(BR_CLEAR_DEATH_NOTIFICATION_DONE), NAME(BR_FAILED_REPLY),
		NAME(BR_FROZEN_REPLY), NAME(BR_ONEWAY_SPAM_SUSPECT),
		NAME(BR_TRANSACTION_PENDING_FROZEN), NAME(BR_FROZEN_BINDER),
		NAME(BR_CLEAR_FREEZE_NOTIFICATION_DONE),
	};
	return name_of(names, sizeof(names) / sizeof(*names), command);
}
