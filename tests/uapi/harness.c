// Harness: driven processes, command buffers, parcels. See harness.h.
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"

enum {
	ARENA_BYTES = 64 << 20,
	WRITE_BYTES = 1 << 16,
	READ_BYTES = 4096,
	MAX_THREADS = 24, // of one process
	PARCEL_BYTES = 1 << 14,
	PARCEL_OFFSETS = 256,
};

// ---- judging

static struct site waiting_site;
static char waiting_for[160] = "nothing";
static int verdict_fd;

static void verdict(const char *text)
{
	if (write(verdict_fd, text, strlen(text)) < 0)
		_exit(3);
}

void fail_at(struct site site, const char *format, ...)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "not ok: %s:%d: ", site.file, site.line);
	va_list args;
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - n, format, args);
	va_end(args);
	verdict(text);
	_exit(1);
}

void skip(const char *format, ...)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "skip: ");
	va_list args;
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - n, format, args);
	va_end(args);
	verdict(text);
	_exit(0);
}

static void on_alarm(int signal)
{
	(void)signal;
	fail_at(waiting_site, "no end after %d s: waiting for %s", TEST_SECONDS, waiting_for);
}

void expect_eq_at(struct site site, const char *what, long long got, long long want)
{
	if (got != want)
		fail_at(site, "%s: expected %lld (%#llx), came %lld (%#llx)", what, want,
			(unsigned long long)want, got, (unsigned long long)got);
}

static const char *errno_name(long error)
{
	return error ? strerrorname_np((int)error) : "success";
}

void expect_errno_at(struct site site, const char *what, long got, int want)
{
	long error = got < 0 ? -got : 0;
	if (error != want)
		fail_at(site, "%s: expected %s, came %s", what, errno_name(want), errno_name(error));
}

// ---- arena

static uint8_t *arena;
static size_t arena_used;

void *arena_alloc(size_t bytes)
{
	void *p = arena + arena_used;
	arena_used += (bytes + 15) & ~(size_t)15;
	if (arena_used > ARENA_BYTES)
		fail("the arena is full");
	return p;
}

void *arena_copy(const void *from, size_t bytes)
{
	return memcpy(arena_alloc(bytes), from, bytes);
}

void test_main(const struct test *test, int fd)
{
	verdict_fd = fd;
	arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		fail("no arena: %s", strerror(errno));
	signal(SIGALRM, on_alarm);
	signal(SIGPIPE, SIG_IGN);
	alarm(TEST_SECONDS);
	test->run();
	verdict("ok");
	_exit(0);
}

// ---- driven threads

struct channel {
	int script, driven;
};

struct process {
	char name[24];
	pid_t pid;
	int fd;
	uint64_t map;
	struct channel channels[MAX_THREADS];
	size_t n_threads;
};

struct thread {
	struct process *process;
	char name[48];
	int channel;
	pid_t tid;
	bool busy, reading;
	volatile bool started; // set by the driven thread as the step begins
	uint8_t *out;
	size_t out_bytes;
	uint8_t *in;
	size_t in_at, in_end, in_bytes;
	struct binder_write_read *bwr;
	struct br br;
};

struct order {
	step function;
	void *argument;
	struct thread *thread;
};

static void *drive(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct order order;
	while (recv(fd, &order, sizeof(order), 0) == sizeof(order)) {
		order.thread->started = true;
		long result = order.function(order.argument);
		if (send(fd, &result, sizeof(result), 0) < 0)
			break;
		if (!order.function)
			break;
	}
	return NULL;
}

static long step_tid(void *unused)
{
	(void)unused;
	return syscall(SYS_gettid);
}

static struct thread *thread_at(struct process *process)
{
	struct thread *t = arena_alloc(sizeof(*t));
	t->process = process;
	t->channel = process->channels[process->n_threads].script;
	if (process->n_threads)
		snprintf(t->name, sizeof(t->name), "%.20s/%zu", process->name, process->n_threads);
	else
		snprintf(t->name, sizeof(t->name), "%.20s", process->name);
	process->n_threads++;
	t->out = arena_alloc(WRITE_BYTES);
	t->in = arena_alloc(READ_BYTES);
	t->in_bytes = READ_BYTES;
	t->bwr = arena_alloc(sizeof(*t->bwr));
	return t;
}

// A thread's first ioctl never waits; the harness makes it, so that no test meets it
// but the one that is about it.
static void first_ioctl(struct thread *t)
{
	expect_errno(sys_ioctl(t, BINDER_VERSION, arena_alloc(sizeof(struct binder_version))), 0);
}

static struct thread *process_fork(const char *name)
{
	struct process *p = arena_alloc(sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->fd = -1;
	for (int i = 0; i < MAX_THREADS; i++) {
		int pair[2];
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
			fail("socketpair: %s", strerror(errno));
		p->channels[i] = (struct channel){pair[0], pair[1]};
	}
	pid_t pid = fork(); // the arena is shared: only the script writes p->pid
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0) {
		signal(SIGALRM, SIG_DFL);
		close(verdict_fd);
		for (int i = 0; i < MAX_THREADS; i++)
			close(p->channels[i].script);
		drive((void *)(intptr_t)p->channels[0].driven);
		_exit(0);
	}
	for (int i = 0; i < MAX_THREADS; i++)
		close(p->channels[i].driven);
	p->pid = pid;
	struct thread *t = thread_at(p);
	t->tid = pid;
	return t;
}

void run_begin(struct thread *t, step function, void *argument)
{
	if (t->busy)
		fail("%s: a step has not ended", t->name);
	t->started = false;
	struct order order = {function, argument, t};
	if (send(t->channel, &order, sizeof(order), 0) != sizeof(order))
		fail("%s: process gone: %s", t->name, strerror(errno));
	t->busy = true;
}

long run_end_at(struct site site, struct thread *t)
{
	long result;
	waiting_site = site;
	if (!t->reading)
		snprintf(waiting_for, sizeof(waiting_for), "%s: a step to end", t->name);
	if (recv(t->channel, &result, sizeof(result), 0) != sizeof(result))
		fail_at(site, "%s: process died", t->name);
	t->busy = t->reading = false;
	return result;
}

long run(struct thread *t, step function, void *argument)
{
	run_begin(t, function, argument);
	return run_end(t);
}

static char thread_state(const struct thread *t)
{
	char path[64], text[512];
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", t->process->pid, t->tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 'X';
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	const char *paren = strrchr(text, ')');
	return paren ? paren[2] : 'X';
}

void await_asleep(struct thread *t)
{
	struct pollfd ended = {.fd = t->channel, .events = POLLIN};
	snprintf(waiting_for, sizeof(waiting_for), "%s: to sleep", t->name);
	while (!(t->started && thread_state(t) == 'S'))
		if (poll(&ended, 1, 2) != 0)
			return;
}

static long step_thread(void *argument)
{
	pthread_t id;
	return -pthread_create(&id, NULL, drive, argument);
}

struct thread *thread_fresh(struct thread *sibling)
{
	struct process *p = sibling->process;
	if (p->n_threads == MAX_THREADS)
		fail("%s: too many threads", p->name);
	int driven = p->channels[p->n_threads].driven;
	expect_errno(run(sibling, step_thread, (void *)(intptr_t)driven), 0);
	struct thread *t = thread_at(p);
	t->tid = (pid_t)run(t, step_tid, NULL);
	return t;
}

struct thread *thread_new(struct thread *sibling)
{
	struct thread *t = thread_fresh(sibling);
	first_ioctl(t);
	return t;
}

struct mapping {
	int fd;
	size_t bytes;
	int protection, flags;
	uint64_t address;
};

static long step_mmap(void *argument)
{
	struct mapping *m = argument;
	void *p = mmap(NULL, m->bytes, m->protection, m->flags, m->fd, 0);
	m->address = (uintptr_t)p;
	return p == MAP_FAILED ? -errno : 0;
}

const char *device_path(void)
{
	const char *path = getenv("BINDER_DEVICE");
	return path ? path : "/dev/binder";
}

struct thread *process_bare(const char *name)
{
	return process_fork(name);
}

struct thread *process_with(struct process_options o)
{
	struct thread *t = process_fork(o.name);
	const char *path = o.device ? o.device : device_path();
	long fd = sys_open(t, path, O_RDWR | O_CLOEXEC | o.open_flags);
	if (fd < 0)
		fail("%s: open %s: %s", o.name, path, strerror((int)-fd));
	t->process->fd = (int)fd;
	first_ioctl(t);
	if (o.unmapped)
		return t;
	size_t bytes = o.map_bytes ? o.map_bytes : MAP_BYTES;
	long map = sys_mmap(t, (int)fd, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE);
	if (map < 0)
		fail("%s: mmap of %zu bytes: %s", o.name, bytes, strerror((int)-map));
	t->process->map = (uint64_t)map;
	return t;
}

struct thread *process_new(const char *name)
{
	return process_with((struct process_options){.name = name});
}

long become_manager(struct thread *t)
{
	int zero = 0, *argument = arena_copy(&zero, sizeof(zero));
	for (int i = 0; i < 500; i++) {
		long result = sys_ioctl(t, BINDER_SET_CONTEXT_MGR, argument);
		if (result != -EBUSY)
			return result;
		poll(NULL, 0, 10);
	}
	return -EBUSY;
}

struct thread *manager_with(struct process_options o)
{
	struct thread *t = process_with(o);
	expect_errno(become_manager(t), 0);
	bc(t, BC_ENTER_LOOPER);
	flush(t);
	return t;
}

struct thread *manager_new(void)
{
	return manager_with((struct process_options){.name = "manager"});
}

pid_t process_pid(const struct thread *t) { return t->process->pid; }
pid_t thread_tid(const struct thread *t) { return t->tid; }
int process_fd(const struct thread *t) { return t->process->fd; }
uint64_t process_map(const struct thread *t) { return t->process->map; }

static void reap(struct thread *t)
{
	snprintf(waiting_for, sizeof(waiting_for), "%s: the process to end", t->name);
	if (waitpid(t->process->pid, NULL, 0) < 0)
		fail("waitpid: %s", strerror(errno));
}

void process_kill(struct thread *t)
{
	kill(t->process->pid, SIGKILL);
	reap(t);
}

static long step_exit(void *unused)
{
	(void)unused;
	_exit(0);
}

void process_exit(struct thread *t)
{
	run_begin(t, step_exit, NULL);
	reap(t);
}

static long step_thread_end(void *unused)
{
	(void)unused;
	pthread_exit(NULL);
}

void thread_end(struct thread *t)
{
	char path[64];
	run_begin(t, step_thread_end, NULL);
	snprintf(path, sizeof(path), "/proc/%d/task/%d", t->process->pid, t->tid);
	while (access(path, F_OK) == 0)
		poll(NULL, 0, 2);
}

// ---- system calls of a thread

struct call {
	int fd;
	unsigned long request;
	long value;
	void *argument;
	size_t bytes;
};

static long step_ioctl(void *argument)
{
	struct call *c = argument;
	long result = ioctl(c->fd, c->request, c->argument);
	return result < 0 ? -errno : result;
}

long sys_ioctl_fd(struct thread *t, int fd, unsigned long request, void *argument)
{
	struct call c = {.fd = fd, .request = request, .argument = argument};
	return run(t, step_ioctl, arena_copy(&c, sizeof(c)));
}

void sys_ioctl_begin(struct thread *t, unsigned long request, void *argument)
{
	struct call c = {.fd = t->process->fd, .request = request, .argument = argument};
	run_begin(t, step_ioctl, arena_copy(&c, sizeof(c)));
}

long sys_ioctl(struct thread *t, unsigned long request, void *argument)
{
	return sys_ioctl_fd(t, t->process->fd, request, argument);
}

static long step_open(void *argument)
{
	struct call *c = argument;
	int fd = open(c->argument, (int)c->value);
	return fd < 0 ? -errno : fd;
}

long sys_open(struct thread *t, const char *path, int flags)
{
	struct call c = {.value = flags, .argument = arena_copy(path, strlen(path) + 1)};
	return run(t, step_open, arena_copy(&c, sizeof(c)));
}

static long step_close(void *argument)
{
	return close((int)(intptr_t)argument) ? -errno : 0;
}

long sys_close(struct thread *t, int fd)
{
	return run(t, step_close, (void *)(intptr_t)fd);
}

long sys_mmap(struct thread *t, int fd, size_t bytes, int protection, int flags)
{
	struct mapping m = {fd, bytes, protection, flags, 0}, *shared = arena_copy(&m, sizeof(m));
	long result = run(t, step_mmap, shared);
	return result < 0 ? result : (long)shared->address;
}

static long step_poll(void *argument)
{
	struct call *c = argument;
	struct pollfd p = {.fd = c->fd, .events = (short)c->request};
	return poll(&p, 1, (int)c->value) < 0 ? -errno : p.revents;
}

long sys_poll(struct thread *t, short events, int timeout_ms)
{
	struct call c = {.fd = t->process->fd, .request = (unsigned short)events, .value = timeout_ms};
	return run(t, step_poll, arena_copy(&c, sizeof(c)));
}

static long step_pipe(void *argument)
{
	return pipe2(argument, O_CLOEXEC) ? -errno : 0;
}

long sys_pipe(struct thread *t, int fds[2])
{
	int *shared = arena_alloc(2 * sizeof(int));
	long result = run(t, step_pipe, shared);
	memcpy(fds, shared, 2 * sizeof(int));
	return result;
}

static long step_read(void *argument)
{
	struct call *c = argument;
	long n = read(c->fd, c->argument, c->bytes);
	return n < 0 ? -errno : n;
}

long sys_read(struct thread *t, int fd, void *buffer, size_t bytes)
{
	struct call c = {.fd = fd, .argument = arena_alloc(bytes), .bytes = bytes};
	long n = run(t, step_read, arena_copy(&c, sizeof(c)));
	if (n > 0)
		memcpy(buffer, c.argument, (size_t)n);
	return n;
}

static long step_write(void *argument)
{
	struct call *c = argument;
	long n = write(c->fd, c->argument, c->bytes);
	return n < 0 ? -errno : n;
}

long sys_write(struct thread *t, int fd, const void *buffer, size_t bytes)
{
	struct call c = {.fd = fd, .argument = arena_copy(buffer, bytes), .bytes = bytes};
	return run(t, step_write, arena_copy(&c, sizeof(c)));
}

static long step_fcntl(void *argument)
{
	struct call *c = argument;
	int result = fcntl(c->fd, (int)c->request, c->value);
	return result < 0 ? -errno : result;
}

long sys_fcntl(struct thread *t, int fd, int command, long value)
{
	struct call c = {.fd = fd, .request = (unsigned long)command, .value = value};
	return run(t, step_fcntl, arena_copy(&c, sizeof(c)));
}

void set_nonblocking(struct thread *t, bool on)
{
	expect_errno(sys_fcntl(t, t->process->fd, F_SETFL, O_RDWR | (on ? O_NONBLOCK : 0)), 0);
}

static long step_open_fds(void *unused)
{
	(void)unused;
	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return -errno;
	long n = -3; // ".", "..", the directory itself
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

long open_fds(struct thread *t)
{
	return run(t, step_open_fds, NULL);
}

struct peek {
	uint64_t address;
	void *to;
	size_t bytes;
};

static long step_peek(void *argument)
{
	struct peek *p = argument;
	memcpy(p->to, (const void *)(uintptr_t)p->address, p->bytes);
	return 0;
}

void *peek(struct thread *t, uint64_t address, size_t bytes)
{
	struct peek p = {address, arena_alloc(bytes), bytes};
	run(t, step_peek, arena_copy(&p, sizeof(p)));
	return p.to;
}

// ---- BINDER_WRITE_READ

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

// The gathered commands move into a call; the write buffer starts anew, since the
// call may still read the old one.
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
	snprintf(waiting_for, sizeof(waiting_for), "%s: %s", t->name, wanted);
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

// ---- parcels

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
	p->buffers_bytes += (o.length + 7) & ~(size_t)7;
	return put_object(p, &o, sizeof(o));
}

size_t put_ptr(struct parcel *p, const void *buffer, size_t bytes)
{
	return put_buffer(p, (struct binder_buffer_object){.buffer = (uintptr_t)buffer,
							   .length = bytes});
}

size_t put_child(struct parcel *p, const void *buffer, size_t bytes, size_t parent,
		 size_t parent_offset)
{
	return put_buffer(p, (struct binder_buffer_object){.buffer = (uintptr_t)buffer,
							   .length = bytes,
							   .flags = BINDER_BUFFER_FLAG_HAS_PARENT,
							   .parent = parent,
							   .parent_offset = parent_offset});
}

size_t put_fda(struct parcel *p, size_t n_fds, size_t parent, size_t parent_offset)
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
	struct binder_transaction_data txn = {.flags = flags};
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

// Reads up to BR_TRANSACTION_COMPLETE, and acknowledges the references told before it:
// none where the owner knows of one already.
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
