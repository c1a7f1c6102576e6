// Driven processes and threads, and the system calls that they make for a test.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driven.h"

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

// A thread's first ioctl never waits. The harness makes it, so that only the test about it meets
// it.
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
		verdict_close();
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
	waiting_at(site);
	if (!t->reading)
		waiting_for(t, "a step to end");
	if (recv(t->channel, &result, sizeof(result), 0) != sizeof(result))
		fail_at(site, "%s: process died", t->name);
	t->busy = t->reading = false;
	return result;
}

bool has_ended(struct thread *t)
{
	char first;
	return recv(t->channel, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

long run(struct thread *t, step function, void *argument)
{
	run_begin(t, function, argument);
	return run_end(t);
}

// Reads a file of the thread in /proc; "" if the thread has ended.
static void read_task(const struct thread *t, const char *name, char *text, size_t bytes)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", t->process->pid, t->tid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, bytes - 1);
	text[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		close(fd);
}

// A driver in user space may first wait for its daemon's reply, by recvmsg. No other code here ever
// sleeps there.
static bool is_asleep(const struct thread *t)
{
	char text[512];
	read_task(t, "stat", text, sizeof(text));
	const char *paren = strrchr(text, ')');
	if (!paren || paren[2] != 'S')
		return false;
	read_task(t, "syscall", text, sizeof(text));
	return atol(text) != SYS_recvmsg;
}

void await_asleep(struct thread *t)
{
	struct pollfd ended = {.fd = t->channel, .events = POLLIN};
	waiting_for(t, "to sleep");
	while (!(t->started && is_asleep(t)))
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
	int64_t map = sys_mmap(t, (int)fd, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE);
	if (map < 0)
		fail("%s: mmap of %zu bytes: %s", o.name, bytes, strerror((int)-map));
	t->process->map = (uint64_t)map;
	return t;
}

struct thread *process_new(const char *name)
{
	return process_with((struct process_options){.name = name});
}

// The slot of a manager that was killed is freed some time after its end.
static long take_context(struct thread *t, unsigned long request, void *argument)
{
	for (int i = 0; i < 500; i++) {
		long result = sys_ioctl(t, request, argument);
		if (result != -EBUSY)
			return result;
		poll(NULL, 0, 10);
	}
	return -EBUSY;
}

long become_manager(struct thread *t)
{
	return take_context(t, BINDER_SET_CONTEXT_MGR, arena_alloc(sizeof(int)));
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

struct thread *manager_ext(uint64_t ptr, uint64_t cookie, uint32_t flags)
{
	struct flat_binder_object o = {.hdr.type = BINDER_TYPE_BINDER, .flags = flags,
				       .binder = ptr, .cookie = cookie};
	struct thread *t = process_new("manager");
	expect_errno(take_context(t, BINDER_SET_CONTEXT_MGR_EXT, arena_copy(&o, sizeof(o))), 0);
	bc(t, BC_ENTER_LOOPER);
	flush(t);
	return t;
}

pid_t process_pid(const struct thread *t) { return t->process->pid; }
pid_t thread_tid(const struct thread *t) { return t->tid; }
int process_fd(const struct thread *t) { return t->process->fd; }
uint64_t process_map(const struct thread *t) { return t->process->map; }

static void reap(struct thread *t)
{
	waiting_for(t, "the process to end");
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

struct binder_extended_error extended_error(struct thread *t)
{
	struct binder_extended_error *error = arena_alloc(sizeof(*error));
	expect_errno(sys_ioctl(t, BINDER_GET_EXTENDED_ERROR, error), 0);
	return *error;
}

long sys_close(struct thread *t, int fd)
{
	return run(t, step_close, (void *)(intptr_t)fd);
}

int64_t sys_mmap(struct thread *t, int fd, size_t bytes, int protection, int flags)
{
	struct mapping m = {fd, bytes, protection, flags, 0}, *shared = arena_copy(&m, sizeof(m));
	long result = run(t, step_mmap, shared);
	return result < 0 ? result : (int64_t)shared->address;
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
	long n = -1; // the directory itself
	const struct dirent *entry;
	while ((entry = readdir(dir))) {
		char target[16] = "";
		ssize_t bytes = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		// Descriptors that a driver in user space opens for itself are not the program's.
		n += bytes > 0 && strncmp(target, "/memfd:baton-", 13) != 0;
	}
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
