// A Binder program without a library: an echo service that is the context manager, its clients, and
// a client of no good will. The same source is a static program, which opens the device of a
// mounted binderfs, and a dynamic one, which `baton run` interposes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/android/binder.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAP_BYTES = 1 << 20, ECHO = 1, DESCRIPTOR = 2, PAYLOAD_BYTES = 64, N_THREADS = 4 };

// How a thread is scheduled.
struct scheduling {
	int32_t policy;
	int32_t priority;
	int32_t nice;
};

// The payload of a reply: who has called, as the service sees it, the request's payload, and how
// the service is scheduled.
struct echo {
	int32_t pid;
	uint32_t euid;
	uint8_t bytes[PAYLOAD_BYTES];
	struct scheduling scheduling;
};

static const char *device;
// This process, as the service sees it.
static int32_t seen_pid;
static uint32_t seen_euid;

#define die(...) (fprintf(stderr, "client: " __VA_ARGS__), fputc('\n', stderr), exit(1))

static int open_device(int flags)
{
	int fd = open(device, O_RDWR | O_CLOEXEC | flags);
	if (fd < 0)
		die("open %s: %s", device, strerror(errno));
	struct binder_version version;
	if (ioctl(fd, BINDER_VERSION, &version) || version.protocol_version != 8)
		die("BINDER_VERSION: %s", strerror(errno));
	return fd;
}

static void *map_device(int fd)
{
	void *map = mmap(NULL, MAP_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return map;
}

static int exchange(int fd, void *write, size_t write_bytes, void *read, size_t *read_bytes)
{
	struct binder_write_read bwr = {
		.write_size = write_bytes,
		.write_buffer = (uintptr_t)write,
		.read_size = read ? *read_bytes : 0,
		.read_buffer = (uintptr_t)read,
	};
	int result;
	do
		result = ioctl(fd, BINDER_WRITE_READ, &bwr);
	while (result < 0 && errno == EINTR);
	if (read)
		*read_bytes = bwr.read_consumed;
	return result;
}

struct __attribute__((packed)) free_and_send {
	uint32_t free;
	uint64_t buffer;
	uint32_t send;
	struct binder_transaction_data data;
};

// The next transaction or reply among returns. A service does not care about replies that fail: its
// callers may be killed.
static bool find(const uint8_t *at, const uint8_t *end, uint32_t wanted,
		 struct binder_transaction_data *found)
{
	while (at < end) {
		uint32_t command;
		memcpy(&command, at, 4);
		if (command == wanted) {
			memcpy(found, at + 4, sizeof(*found));
			return true;
		}
		if (wanted == BR_REPLY &&
		    (command == BR_DEAD_REPLY || command == BR_FAILED_REPLY))
			die("a call failed");
		at += 4 + _IOC_SIZE(command);
	}
	return false;
}

static struct scheduling scheduling_of(int32_t tid)
{
	struct sched_param parameters;
	int policy = sched_getscheduler(tid);
	if (policy < 0 || sched_getparam(tid, &parameters))
		die("the scheduling of %d: %s", tid, strerror(errno));
	return (struct scheduling){policy & ~SCHED_RESET_ON_FORK, parameters.sched_priority,
				   getpriority(PRIO_PROCESS, tid)};
}

// A message of one descriptor, and where its object lies.
struct descriptor {
	struct binder_fd_object object;
	uint64_t offset;
};

static void describe(struct descriptor *descriptor, int fd, struct binder_transaction_data *data)
{
	*descriptor = (struct descriptor){.object = {.hdr.type = BINDER_TYPE_FD, .fd = fd}};
	data->data_size = sizeof(descriptor->object);
	data->offsets_size = sizeof(descriptor->offset);
	data->data.ptr.buffer = (uintptr_t)&descriptor->object;
	data->data.ptr.offsets = (uintptr_t)&descriptor->offset;
}

static void *serve_loop(void *argument)
{
	int fd = *(int *)argument;
	uint32_t enter = BC_ENTER_LOOPER;
	struct echo reply;
	struct free_and_send answer;
	struct descriptor descriptor;
	int received = -1;
	void *commands = &enter;
	size_t write_bytes = sizeof(enter);
	for (;;) {
		uint8_t read[512];
		size_t n = sizeof(read);
		struct binder_transaction_data call;
		if (exchange(fd, commands, write_bytes, read, &n))
			die("serve: %s", strerror(errno));
		write_bytes = 0;
		if (received >= 0)
			close(received);
		received = -1;
		if (!find(read, read + n, BR_TRANSACTION, &call))
			continue;
		reply = (struct echo){.pid = call.sender_pid,
				      .euid = call.sender_euid,
				      .scheduling = scheduling_of(0)};
		size_t bytes = call.data_size < PAYLOAD_BYTES ? call.data_size : PAYLOAD_BYTES;
		memcpy(reply.bytes, (void *)(uintptr_t)call.data.ptr.buffer, bytes);
		answer = (struct free_and_send){
			.free = BC_FREE_BUFFER,
			.buffer = call.data.ptr.buffer,
			.send = BC_REPLY,
			.data = {.data_size = sizeof(reply),
				 .data.ptr.buffer = (uintptr_t)&reply},
		};
		if (call.code == DESCRIPTOR) {
			// Writes to the descriptor, and sends it back.
			const struct binder_fd_object *object =
				(void *)(uintptr_t)call.data.ptr.buffer;
			received = object->fd;
			// A client that is killed leaves no reader.
			if (write(received, "s", 1) != 1 && errno != EPIPE)
				die("descriptor %d: %s", received, strerror(errno));
			describe(&descriptor, received, &answer.data);
		}
		commands = &answer;
		write_bytes = call.flags & TF_ONE_WAY ? offsetof(struct free_and_send, send)
						      : sizeof(answer);
	}
	return NULL;
}

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

static void serve(void)
{
	static int fd;
	fd = open_device(0);
	map_device(fd);
	// The least urgent minimum: the service has its caller's nice value.
	struct flat_binder_object manager = {.hdr.type = BINDER_TYPE_BINDER,
					     .flags = FLAT_BINDER_FLAG_ACCEPTS_FDS | 19};
	if (ioctl(fd, BINDER_SET_CONTEXT_MGR_EXT, &manager))
		die("BINDER_SET_CONTEXT_MGR_EXT: %s", strerror(errno));
	signal(SIGPIPE, SIG_IGN);
	// The first process of a container does not end by signals otherwise.
	signal(SIGTERM, end);
	// A looper can be set aside for each real-time caller if there are others.
	pthread_t thread;
	for (int i = 1; i < N_THREADS; i++)
		if (pthread_create(&thread, NULL, serve_loop, &fd))
			die("no thread");
	puts("ready");
	fflush(stdout);
	serve_loop(&fd);
}

// Sends the service PAYLOAD_BYTES to echo, and returns the reply.
static struct binder_transaction_data echo_of(int fd, const uint8_t *payload)
{
	struct __attribute__((packed)) {
		uint32_t command;
		struct binder_transaction_data data;
	} send = {BC_TRANSACTION,
		  {.code = ECHO,
		   .data_size = PAYLOAD_BYTES,
		   .data.ptr.buffer = (uintptr_t)payload}};
	struct binder_transaction_data reply;
	uint8_t read[512];
	size_t n = sizeof(read), write_bytes = sizeof(send);
	for (;; n = sizeof(read), write_bytes = 0) {
		if (exchange(fd, &send, write_bytes, read, &n))
			die("call: %s", strerror(errno));
		if (find(read, read + n, BR_REPLY, &reply))
			break;
	}
	return reply;
}

static void free_buffer(int fd, uint64_t buffer)
{
	struct __attribute__((packed)) {
		uint32_t command;
		uint64_t buffer;
	} release = {BC_FREE_BUFFER, buffer};
	if (exchange(fd, &release, sizeof(release), NULL, NULL))
		die("BC_FREE_BUFFER: %s", strerror(errno));
}

// Calls, and returns how the service is scheduled that answers.
static struct scheduling call(int fd, uint32_t number)
{
	uint8_t payload[PAYLOAD_BYTES];
	for (int i = 0; i < PAYLOAD_BYTES; i++)
		payload[i] = number + i;
	struct binder_transaction_data reply = echo_of(fd, payload);
	struct echo *echo = (void *)(uintptr_t)reply.data.ptr.buffer;
	if (reply.data_size != sizeof(*echo) || memcmp(echo->bytes, payload, sizeof(payload)))
		die("another payload came back");
	if (echo->pid != seen_pid || echo->euid != seen_euid)
		die("the service saw process %d of user %u", echo->pid, echo->euid);
	struct scheduling scheduling = echo->scheduling;
	free_buffer(fd, reply.data.ptr.buffer);
	return scheduling;
}

struct caller {
	int fd;
	uint32_t calls;
};

static void *calls(void *argument)
{
	struct caller *caller = argument;
	for (uint32_t i = 0; !caller->calls || i < caller->calls; i++)
		call(caller->fd, i);
	return NULL;
}

// 0 calls: without end.
static void call_from_threads(uint32_t n)
{
	struct caller caller = {open_device(0), n};
	map_device(caller.fd);
	pthread_t threads[N_THREADS];
	for (int i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, calls, &caller))
			die("no thread");
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
}

// Opens, maps and closes the device, with and without an ioctl.
static void open_and_close(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int fd = i % 2 ? open(device, O_RDWR | O_CLOEXEC) : open_device(0);
		if (fd < 0)
			die("open %s: %s", device, strerror(errno));
		munmap(map_device(fd), MAP_BYTES);
		close(fd);
	}
}

// Opens the device until the server gives no more, which is after `least` opens or later. Has all
// of them until it is killed.
static void hoard(uint32_t least)
{
	uint32_t n = 0;
	int fd, last = -1;
	for (; (fd = open(device, O_RDWR | O_CLOEXEC)) >= 0; n++)
		last = fd;
	if (errno != EMFILE || n < least)
		die("%u opens, and then: %s", n, strerror(errno));
	// The server may still be closing a device.
	close(last);
	while (open(device, O_RDWR | O_CLOEXEC) < 0)
		if (errno != EMFILE || sched_yield())
			die("open %s: %s", device, strerror(errno));
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

// Says how long an open, a map and a close take, of so many in turn.
static void time_opens(uint32_t n)
{
	double *took = calloc(n + 1, sizeof(*took));
	if (!took || n == 0)
		die("no opens to measure");
	for (uint32_t i = 0; i < n; i++) {
		double began = now_us();
		int fd = open(device, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			die("open %s: %s", device, strerror(errno));
		munmap(map_device(fd), MAP_BYTES);
		close(fd);
		took[i] = now_us() - began;
	}
	qsort(took, n, sizeof(*took), compare);
	printf("%u opens: p50 %.0f us, p99 %.0f us, min %.0f us\n", n, took[n / 2],
	       took[n - 1 - n / 100], took[0]);
	free(took);
}

// So many processes open the device at once, and have it open together.
static void open_at_once(uint32_t n)
{
	int begin[2], opened[2], end[2];
	char byte;
	if (pipe(begin) || pipe(opened) || pipe(end))
		die("pipe: %s", strerror(errno));
	for (uint32_t i = 0; i < n; i++) {
		pid_t child = fork();
		if (child < 0)
			die("fork: %s", strerror(errno));
		if (child > 0)
			continue;
		close(begin[1]);
		close(end[1]);
		if (read(begin[0], &byte, 1))
			die("not to begin");
		map_device(open_device(0));
		if (write(opened[1], "o", 1) != 1 || read(end[0], &byte, 1))
			die("not to end");
		exit(0);
	}
	close(opened[1]);
	close(begin[1]);
	for (uint32_t i = 0; i < n; i++)
		if (read(opened[0], &byte, 1) != 1)
			die("%u of %u processes have opened %s", i, n, device);
	close(end[1]);
	int status;
	while (wait(&status) > 0)
		if (status)
			die("a process ended with %d", status);
}

static void on_signal(int signal) { (void)signal; }

// Sends the end of a pipe, which the service writes to and sends back.
static void send_descriptors(uint32_t n)
{
	int fd = open_device(0);
	map_device(fd);
	// Signals come at any moment.
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = {{0, 300}, {0, 300}}, never = {};
	setitimer(ITIMER_REAL, &often, NULL);
	for (uint32_t i = 0; i < n; i++) {
		int ends[2];
		if (pipe(ends))
			die("pipe: %s", strerror(errno));
		struct __attribute__((packed)) {
			uint32_t command;
			struct binder_transaction_data data;
		} send = {BC_TRANSACTION, {.code = DESCRIPTOR, .flags = TF_ACCEPT_FDS}};
		struct descriptor descriptor;
		describe(&descriptor, ends[1], &send.data);
		struct binder_transaction_data reply;
		uint8_t read_buffer[512];
		size_t bytes = sizeof(read_buffer), write_bytes = sizeof(send);
		for (;; bytes = sizeof(read_buffer), write_bytes = 0) {
			if (exchange(fd, &send, write_bytes, read_buffer, &bytes))
				die("call: %s", strerror(errno));
			if (find(read_buffer, read_buffer + bytes, BR_REPLY, &reply))
				break;
		}
		const struct binder_fd_object *object = (void *)(uintptr_t)reply.data.ptr.buffer;
		int received = object->fd;
		close(ends[1]);
		char letters[2];
		if (fcntl(received, F_GETFD) != FD_CLOEXEC || write(received, "c", 1) != 1)
			die("descriptor %d: %s", received, strerror(errno));
		if (read(ends[0], letters, 1) != 1 || read(ends[0], letters + 1, 1) != 1 ||
		    memcmp(letters, "sc", 2))
			die("another pipe");
		close(received);
		close(ends[0]);
		struct __attribute__((packed)) {
			uint32_t command;
			uint64_t buffer;
		} release = {BC_FREE_BUFFER, reply.data.ptr.buffer};
		if (exchange(fd, &release, sizeof(release), NULL, NULL))
			die("BC_FREE_BUFFER: %s", strerror(errno));
	}
	setitimer(ITIMER_REAL, &never, NULL);
	// Nothing is left of them.
	int next = dup(fd);
	if (next != fd + 1)
		die("descriptors are left: the next is %d", next);
}

// Calls as one user after the other, by the device that the first has opened.
static void change_user(uint32_t other)
{
	struct caller caller = {open_device(0), 10};
	map_device(caller.fd);
	uint32_t first = geteuid(), users[] = {first, other, first, other, other, first};
	for (int i = 0; i < 6; i++) {
		if (seteuid(users[i]))
			die("seteuid: %s", strerror(errno));
		seen_euid = users[i];
		calls(&caller);
		pthread_t thread;
		if (pthread_create(&thread, NULL, calls, &caller))
			die("no thread");
		pthread_join(thread, NULL);
	}
}

// Opens the device as one user, and ends. A child that has the device changes its own user when
// it is told so, and calls.
static void leave_device(uint32_t first, uint32_t second, int go)
{
	if (setresuid(first, first, second))
		die("setresuid: %s", strerror(errno));
	seen_pid = getpid();
	seen_euid = first;
	int fd = open_device(0);
	map_device(fd);
	call(fd, 0);
	char byte;
	pid_t child = fork();
	if (child < 0)
		die("fork: %s", strerror(errno));
	if (child == 0) {
		if (read(go, &byte, 1) != 1 || seteuid(second))
			die("seteuid: %s", strerror(errno));
		call(fd, 1);
	}
	exit(0);
}

// A device whose opener has ended calls as the opener's user, also while a process of root has the
// opener's pid.
static void reuse_pid(uint32_t other)
{
	int go[2], status;
	if (pipe(go) || prctl(PR_SET_CHILD_SUBREAPER, 1))
		die("no pipe, or no children of children: %s", strerror(errno));
	pid_t opener = fork();
	if (opener == 0)
		leave_device(other, other + 1, go[0]);
	if (waitpid(opener, &status, 0) != opener || status)
		die("the opener ended with %d", status);
	// struct clone_args: exit_signal, set_tid, set_tid_size.
	uint64_t arguments[11] = {[4] = SIGCHLD, [8] = (uintptr_t)&opener, [9] = 1};
	pid_t root = syscall(SYS_clone3, arguments, sizeof(arguments));
	if (root == 0)
		for (;;)
			pause();
	if (root != opener || write(go[1], "g", 1) != 1)
		die("no process with the pid %d: %s", opener, strerror(errno));
	pid_t child = wait(&status);
	kill(root, SIGKILL);
	if (child == root || status)
		die("the opener's child ended with %d", status);
}

// The service has the caller's nice value, and its own again for the next caller.
static void be_nice(int nice)
{
	int fd = open_device(0);
	map_device(fd);
	int before = getpriority(PRIO_PROCESS, 0);
	int values[] = {before, nice, nice, before};
	for (int i = 0; i < 4; i++) {
		if (setpriority(PRIO_PROCESS, 0, values[i]))
			die("setpriority: %s", strerror(errno));
		struct scheduling served = call(fd, i);
		if (served.policy != SCHED_OTHER || served.nice != values[i])
			die("served at policy %d, nice value %d, in place of %d", served.policy,
			    served.nice, values[i]);
	}
}

// The service has the real-time priority of its caller, and so has the server's thread that reads
// requests, if that is given.
static void be_real_time(int priority, int32_t reader)
{
	int fd = open_device(0);
	map_device(fd);
	struct sched_param parameters = {.sched_priority = priority};
	if (sched_setscheduler(0, SCHED_FIFO, &parameters))
		die("sched_setscheduler: %s", strerror(errno));
	// The first calls look for a looper.
	struct scheduling served;
	for (int i = 0; i < 1000; i++) {
		served = call(fd, i);
		if (served.policy == SCHED_FIFO)
			break;
	}
	for (int i = 0; i < 10; i++)
		served = call(fd, i);
	if (served.policy != SCHED_FIFO || served.priority != priority)
		die("served at policy %d, priority %d", served.policy, served.priority);
	struct scheduling reads = reader ? scheduling_of(reader) : served;
	if (reads.policy != SCHED_FIFO || reads.priority != priority)
		die("read at policy %d, priority %d", reads.policy, reads.priority);
}

// A wait that ends by a signal, and by epoll when there is nothing.
static void interrupted(void)
{
	int fd = open_device(0);
	map_device(fd);
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGALRM, &action, NULL);
	uint8_t read[256];
	uint32_t enter = BC_ENTER_LOOPER;
	struct binder_write_read bwr = {.write_size = sizeof(enter),
					.write_buffer = (uintptr_t)&enter,
					.read_size = sizeof(read),
					.read_buffer = (uintptr_t)read};
	alarm(1);
	if (!ioctl(fd, BINDER_WRITE_READ, &bwr) || errno != EINTR)
		die("a signal did not end the wait: %s", strerror(errno));
	if (bwr.write_consumed != sizeof(enter) || bwr.read_consumed)
		die("the ended wait took %llu bytes", bwr.write_consumed);
	int set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) || epoll_wait(set, &event, 1, 0) != 0)
		die("readable without work");
}

// One of two opens of the device: its first map, and another one of an odd size.
struct opened {
	int fd;
	uint8_t *map;
	uint8_t *other;
	size_t other_bytes;
};

static struct opened open_twice_mapped(size_t other_bytes)
{
	struct opened opened = {.fd = open_device(0), .other_bytes = other_bytes};
	opened.map = map_device(opened.fd);
	// The first map is the one that counts. A mounted device finds it by an ioctl, and of two maps
	// then by their addresses: a shorter one may lie in a hole above.
	struct binder_version version;
	if (other_bytes < MAP_BYTES && ioctl(opened.fd, BINDER_VERSION, &version))
		die("BINDER_VERSION: %s", strerror(errno));
	opened.other = mmap(NULL, other_bytes, PROT_READ, MAP_SHARED, opened.fd, 0);
	if (opened.other == MAP_FAILED)
		die("a second map: %s", strerror(errno));
	return opened;
}

// Whether all maps show the reply of a call with this letter, which is then freed.
static void look_at_reply(const struct opened *opened, uint8_t letter)
{
	uint8_t payload[PAYLOAD_BYTES];
	memset(payload, letter, sizeof(payload));
	struct binder_transaction_data reply = echo_of(opened->fd, payload);
	size_t at = reply.data.ptr.buffer - (uintptr_t)opened->map;
	size_t end = at + sizeof(struct echo);
	const struct echo *echo = (void *)(opened->map + at);
	const struct echo *other = (void *)(opened->other + at);
	if (memcmp(echo->bytes, payload, sizeof(payload)))
		die("a map shows another payload than %c: %c", letter, echo->bytes[0]);
	if (end <= opened->other_bytes &&
	    memcmp(other->bytes, payload, sizeof(payload)))
		die("another map shows another payload than %c: %c", letter, other->bytes[0]);
	free_buffer(opened->fd, reply.data.ptr.buffer);
}

// Maps show what has come, whatever becomes of the kernel's pages, and of the maps, meanwhile.
static void look_at_pages(uint32_t n)
{
	struct opened opened[] = {open_twice_mapped(5000), open_twice_mapped((4 << 20) + 1)};
	for (uint32_t i = 0; i < n; i++) {
		for (int j = 0; j < 2; j++)
			look_at_reply(&opened[j], 'A' + i % 26 + 32 * j);
		struct opened *changed = &opened[i / 2 % 2];
		switch (i % 5) {
		case 0:
			// The kernel may drop pages that no process has mapped.
			madvise(changed->map, MAP_BYTES, MADV_DONTNEED);
			madvise(changed->other, changed->other_bytes, MADV_DONTNEED);
			posix_fadvise(changed->fd, 0, 0, POSIX_FADV_DONTNEED);
			break;
		case 1:
			madvise(changed->map, MAP_BYTES, MADV_PAGEOUT);
			break;
		case 2:
			if (mmap(changed->map, MAP_BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED,
				 changed->fd, 0) != changed->map)
				die("mapped again: %s", strerror(errno));
			break;
		case 3:
			munmap(changed->other, changed->other_bytes);
			changed->other_bytes = changed->other_bytes * 3 % (4 << 20) + 1;
			changed->other = mmap(NULL, changed->other_bytes, PROT_READ, MAP_PRIVATE,
					      changed->fd, 0);
			if (changed->other == MAP_FAILED)
				die("a second map: %s", strerror(errno));
			break;
		}
	}
}

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

// Requests of all numbers and sizes, commands and objects of any bytes, addresses of any kind.
static void misuse(uint64_t seed)
{
	state = seed | 1;
	int fd = open_device(O_NONBLOCK);
	uint8_t *map = map_device(fd), *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
						     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	mprotect(page + 8192, 4096, PROT_READ);
	uint64_t addresses[] = {(uintptr_t)page, (uintptr_t)page + 4000, (uintptr_t)page + 4096,
				(uintptr_t)page + 8192, (uintptr_t)map, 0, 1, ~0ull, 1ull << 60,
				0xffff800000000000};
	enum { N_ADDRESSES = sizeof(addresses) / sizeof(*addresses) };
	uint32_t commands[] = {BC_TRANSACTION, BC_REPLY, BC_TRANSACTION_SG, BC_REPLY_SG,
			       BC_FREE_BUFFER, BC_INCREFS, BC_ACQUIRE, BC_RELEASE, BC_DECREFS,
			       BC_ENTER_LOOPER, BC_REQUEST_DEATH_NOTIFICATION, 0, ~0u};
	uint32_t kinds[] = {BINDER_TYPE_BINDER, BINDER_TYPE_HANDLE, BINDER_TYPE_FD,
			    BINDER_TYPE_FDA, BINDER_TYPE_PTR, 0};
	for (int i = 0; i < 2000; i++) {
		uint64_t sizes[] = {0, 4, 8, 24, 40, 64, 4000, 1 << 20, 5 << 20, ~0ull};
		if (draw(4) == 0) {
			uint32_t request = draw(2) ? _IOC(draw(4), 'b', draw(20), draw(300))
						   : (uint32_t)draw(1ull << 32);
			// Those that the kernel's file layer answers are none of Binder's.
			if (_IOC_TYPE(request) == 'b')
				ioctl(fd, request, addresses[draw(N_ADDRESSES)]);
			continue;
		}
		uint64_t *objects = (void *)page;
		for (int j = 0; j < 64; j++)
			objects[j] = draw(3) ? addresses[draw(N_ADDRESSES)] : draw(80);
		for (int j = 0; j < 8; j++)
			*(uint32_t *)(page + 8 * draw(12)) = kinds[draw(6)];
		struct __attribute__((packed)) {
			uint32_t command;
			struct binder_transaction_data_sg data;
		} *write = (void *)(page + 2048);
		for (int j = 0; j < 4; j++)
			write[j] = (typeof(*write)){
				commands[draw(13)],
				{{.target.handle = draw(3),
				  .flags = draw(2) ? TF_ONE_WAY : draw(64),
				  .data_size = sizes[draw(10)],
				  .offsets_size = sizes[draw(10)],
				  .data.ptr = {draw(2) ? (uintptr_t)page : addresses[draw(N_ADDRESSES)],
					       (uintptr_t)page + 8 * draw(40)}},
				 sizes[draw(10)]}};
		struct binder_write_read *bwr = (void *)(page + 4096 - sizeof(*bwr));
		*bwr = (struct binder_write_read){
			.write_size = draw(3) ? 4 * sizeof(*write) : sizes[draw(10)],
			.write_consumed = draw(8) ? 0 : draw(200),
			.write_buffer = draw(4) ? (uintptr_t)write : addresses[draw(N_ADDRESSES)],
			.read_size = sizes[draw(10)],
			.read_consumed = draw(8) ? 0 : draw(200),
			.read_buffer = draw(2) ? (uintptr_t)page : addresses[draw(N_ADDRESSES)],
		};
		ioctl(fd, BINDER_WRITE_READ, bwr);
	}
}

// Reads until that fails; returns the error.
static void *read_on(void *fd)
{
	uint32_t enter = BC_ENTER_LOOPER;
	size_t write_bytes = sizeof(enter);
	uint8_t read[256];
	for (size_t n = sizeof(read);; n = sizeof(read), write_bytes = 0)
		if (exchange(*(int *)fd, &enter, write_bytes, read, &n))
			return (void *)(intptr_t)errno;
}

// Waits in an ioctl and in a poll until the server of the mount is killed.
static void outlive(void)
{
	int fd = open_device(0), polled = open_device(0);
	map_device(fd);
	pthread_t reader;
	if (pthread_create(&reader, NULL, read_on, &fd))
		die("no thread");
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = 0};
	if (epoll_ctl(set, EPOLL_CTL_ADD, polled, &event))
		die("epoll_ctl: %s", strerror(errno));
	puts("ready");
	fflush(stdout);
	int n;
	do
		n = epoll_wait(set, &event, 1, -1);
	while (n < 0 && errno == EINTR);
	if (n != 1 || !(event.events & EPOLLHUP))
		die("epoll_wait: %d, events %#x", n, event.events);
	void *error;
	pthread_join(reader, &error);
	if ((intptr_t)error != EBADF)
		die("a read ended: %s", strerror((intptr_t)error));
	struct binder_version version;
	if (ioctl(polled, BINDER_VERSION, &version) != -1 || errno != EBADF)
		die("BINDER_VERSION: %s", strerror(errno));
	close(open_device(0));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		die("usage: client DEVICE serve | call N [EUID [PID]] | interrupted | "
		    "misuse SEED | runs-as EUID | change-user EUID | reuse-pid EUID | nice VALUE | "
		    "real-time PRIORITY [READER] | descriptors N | pages N | opens N | "
		    "time-opens N | at-once N | hoard LEAST | outlive");
	device = argv[1];
	const char *role = argv[2];
	uint64_t number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	seen_euid = argc > 4 ? strtoull(argv[4], NULL, 10) : geteuid();
	seen_pid = argc > 5 ? strtoull(argv[5], NULL, 10) : (uint64_t)getpid();
	if (!strcmp(role, "runs-as"))
		return geteuid() == number ? 0 : 1;
	if (!strcmp(role, "serve"))
		serve();
	else if (!strcmp(role, "call"))
		call_from_threads(number);
	else if (!strcmp(role, "opens"))
		open_and_close(number);
	else if (!strcmp(role, "time-opens"))
		time_opens(number);
	else if (!strcmp(role, "at-once"))
		open_at_once(number);
	else if (!strcmp(role, "hoard"))
		hoard(number);
	else if (!strcmp(role, "outlive"))
		outlive();
	else if (!strcmp(role, "interrupted"))
		interrupted();
	else if (!strcmp(role, "misuse"))
		misuse(number);
	else if (!strcmp(role, "change-user"))
		change_user(number);
	else if (!strcmp(role, "reuse-pid"))
		reuse_pid(number);
	else if (!strcmp(role, "descriptors"))
		send_descriptors(number);
	else if (!strcmp(role, "pages"))
		look_at_pages(number);
	else if (!strcmp(role, "nice"))
		be_nice(number);
	else if (!strcmp(role, "real-time")) {
		int32_t reader = argc > 4 ? seen_euid : 0;
		seen_euid = geteuid();
		be_real_time(number, reader);
	}
	else
		die("no such role: %s", role);
	return 0;
}
