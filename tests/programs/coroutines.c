// Coroutines on stacks of 4 KiB call a context manager, by system calls of their own or by the C
// library's.
//
//   coroutines [--libc] [--calls N]
//
// The threads have no alternate stack, one of their own, or one that their signal handler uses
// while a call waits. Each stack ends in a pattern that must stay as it is; the next coroutine's
// stack lies behind it.
//
// A server sends the signals to a thread that sleeps and waits for that server's answer. So a
// handler never interrupts the C library's allocator, whose lock its own calls may need.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "../uapi/binder_uapi.h"

enum {
	STACK_BYTES = 4096,
	PATTERN_BYTES = 256,
	COROUTINES = 4,
	THREADS = 6,
	SERVERS = 2,
	MAP_BYTES = 1 << 20,
	PATTERN = 0x5a,
	// A number says above this bit which thread sends it.
	CALLER_SHIFT = 48,
};
#define LEAVE UINT64_MAX

static bool uses_libc;
static uint64_t calls = 10000;

static _Noreturn void fail(const char *format, ...)
{
	va_list words;
	va_start(words, format);
	fputs("coroutines: ", stderr);
	vfprintf(stderr, format, words);
	fputc('\n', stderr);
	va_end(words);
	exit(1);
}

// A system call: returns a value or a negative errno. The function is as small as possible, because
// a coroutine's stack has no room for more.
static long own_call(long number, long first, long second, long third, long fourth, long fifth,
	long sixth)
{
#ifdef __x86_64__
	long result;
	register long r10 __asm__("r10") = fourth;
	register long r8 __asm__("r8") = fifth;
	register long r9 __asm__("r9") = sixth;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = first;
	register long x1 __asm__("x1") = second;
	register long x2 __asm__("x2") = third;
	register long x3 __asm__("x3") = fourth;
	register long x4 __asm__("x4") = fifth;
	register long x5 __asm__("x5") = sixth;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		: "memory");
	return x0;
#endif
}

static long device_ioctl(int fd, unsigned long request, void *argument)
{
	if (uses_libc) {
		int result = ioctl(fd, request, argument);
		return result < 0 ? -errno : result;
	}
	return own_call(SYS_ioctl, fd, request, (long)argument, 0, 0, 0);
}

static int open_device(void)
{
	int fd;
	if (uses_libc)
		fd = open("/dev/binder", O_RDWR | O_CLOEXEC);
	else
		fd = own_call(SYS_openat, AT_FDCWD, (long)"/dev/binder", O_RDWR | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		fail("open /dev/binder: %d", fd);
	if (mmap(NULL, MAP_BYTES, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		fail("mmap /dev/binder: %s", strerror(errno));
	return fd;
}

// One command without payload at most, then a transaction, then a buffer to free.
struct out {
	char bytes[160];
	uint32_t used;
};

static void add(struct out *out, uint32_t command, const void *payload)
{
	memcpy(out->bytes + out->used, &command, 4);
	memcpy(out->bytes + out->used + 4, payload, _IOC_SIZE(command));
	out->used += 4 + _IOC_SIZE(command);
}

static void send_number(struct out *out, uint32_t command, const uint64_t *number)
{
	struct binder_transaction_data transaction = {
		.data_size = sizeof *number,
		.data.ptr.buffer = (uintptr_t)number,
	};
	add(out, command, &transaction);
}

// Writes the pending commands, and reads until a transaction or a reply has come, if one is wanted.
static void exchange(int fd, struct out *out, struct binder_transaction_data *come)
{
	char in[256];
	bool has_come = !come;
	do {
		struct binder_write_read exchange = {
			.write_size = out->used,
			.write_buffer = (uintptr_t)out->bytes,
			.read_size = come ? sizeof in : 0,
			.read_buffer = (uintptr_t)in,
		};
		long result = device_ioctl(fd, BINDER_WRITE_READ, &exchange);
		out->used -= exchange.write_consumed;
		memmove(out->bytes, out->bytes + exchange.write_consumed, out->used);
		if (result < 0 && result != -EINTR)
			fail("BINDER_WRITE_READ: %ld", result);
		for (uint32_t at = 0; at < exchange.read_consumed;) {
			uint32_t command;
			memcpy(&command, in + at, 4);
			if (command == BR_TRANSACTION || command == BR_REPLY) {
				memcpy(come, in + at + 4, sizeof *come);
				has_come = true;
			} else if (command == BR_FAILED_REPLY || command == BR_DEAD_REPLY)
				fail("a call failed: %#x", command);
			at += 4 + _IOC_SIZE(command);
		}
	} while (!has_come || out->used);
}

static uint64_t number_of(const struct binder_transaction_data *transaction)
{
	if (transaction->data_size != sizeof(uint64_t))
		fail("%llu bytes have come", (unsigned long long)transaction->data_size);
	return *(const uint64_t *)(uintptr_t)transaction->data.ptr.buffer;
}

static uint64_t call(int fd, uint64_t number)
{
	struct out out = {.used = 0};
	struct binder_transaction_data come;
	send_number(&out, BC_TRANSACTION, &number);
	exchange(fd, &out, &come);
	number = number_of(&come);
	add(&out, BC_FREE_BUFFER, &come.data.ptr.buffer);
	exchange(fd, &out, NULL);
	return number;
}

struct thread {
	pthread_t thread;
	int fd;
	pid_t id;
	enum { NO_STACK, OWN_STACK, HANDLER_ON_STACK, N_KINDS } kind;
	uint64_t first;
	char *stacks;
	atomic_uint n_left;
	ucontext_t scheduler, coroutines[COROUTINES];
	unsigned running;
	char *alternate;
	size_t alternate_bytes;
};

static struct thread threads[THREADS];

// Whether a thread sleeps, and how often it has gone to sleep.
static bool sleeps(int id, unsigned long *times)
{
	char path[64], text[4096], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	close(fd);
	text[length < 0 ? 0 : length] = 0;
	const char *line = strstr(text, "State:\t");
	const char *switches = strstr(text, "\nvoluntary_ctxt_switches:\t");
	if (!line || !switches)
		fail("%s says nothing", path);
	sscanf(line, "State:\t%c", &state);
	sscanf(switches, "\nvoluntary_ctxt_switches:\t%lu", times);
	return state == 'S';
}

// Sends a signal to a thread that waits for the caller's answer, after it has slept for some looks.
static void interrupt(const struct thread *thread)
{
	unsigned long before = 0, times = 0;
	for (int looks = 0; looks < 8; before = times) {
		looks = sleeps(thread->id, &times) && times == before ? looks + 1 : 0;
		sched_yield();
	}
	syscall(SYS_tgkill, getpid(), thread->id, SIGUSR1);
}

static void *serve(void *argument)
{
	int fd = *(int *)argument;
	struct out out = {.used = 0};
	uint64_t number;
	add(&out, BC_ENTER_LOOPER, NULL);
	do {
		struct binder_transaction_data come;
		exchange(fd, &out, &come);
		number = number_of(&come);
		if (number != LEAVE && number % 16 == 0 &&
		    threads[number >> CALLER_SHIFT].kind == HANDLER_ON_STACK)
			interrupt(&threads[number >> CALLER_SHIFT]);
		add(&out, BC_FREE_BUFFER, &come.data.ptr.buffer);
		number++;
		send_number(&out, BC_REPLY, &number);
	} while (number != LEAVE + 1);
	add(&out, BC_EXIT_LOOPER, NULL);
	exchange(fd, &out, NULL);
	return NULL;
}

static _Thread_local struct thread *current;
// The handlers have a device of their own: a thread that waits for an answer at one device waits
// for nothing at another.
static int handlers_fd;
static atomic_ulong n_handled;

// A handler makes a call of its own. The interrupted frames lie above, on either stack.
static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	int here, saved = errno;
	struct thread *self = current;
	uintptr_t at = (uintptr_t)&here, low = (uintptr_t)self->alternate;
	if (at < low || at >= low + self->alternate_bytes)
		fail("a handler does not run on its thread's alternate stack");
	struct binder_version version = {0};
	if (device_ioctl(handlers_fd, BINDER_VERSION, &version) != 0 || version.protocol_version != 8)
		fail("a call of a handler failed");
	// And a call that waits.
	if (atomic_fetch_add(&n_handled, 1) % 4 == 0 && call(handlers_fd, 7) != 8)
		fail("a call of a handler was answered wrongly");
	errno = saved;
}

static void coroutine(void)
{
	struct thread *thread = current;
	uint64_t first = thread->first + ((uint64_t)thread->running << 32);
	for (uint64_t i = 0; i < calls / COROUTINES; i++) {
		uint64_t answer = call(thread->fd, first + i);
		if (answer != first + i + 1)
			fail("%#lx was answered with %#lx", (long)(first + i), (long)answer);
		unsigned own = thread->running, next = (own + 1) % COROUTINES;
		thread->running = next;
		swapcontext(&thread->coroutines[own], &thread->coroutines[next]);
	}
	thread->n_left--;
	// The next one goes on; it ends in the same round.
	unsigned next = (thread->running + 1) % COROUTINES;
	thread->running = next;
	setcontext(thread->n_left ? &thread->coroutines[next] : &thread->scheduler);
}

static void *run(void *argument)
{
	struct thread *thread = argument;
	current = thread;
	thread->id = gettid();
	if (thread->kind != NO_STACK) {
		// Room for two of the kernel's frames, two calls of a handler, and some.
		thread->alternate_bytes = 2 * sysconf(_SC_MINSIGSTKSZ) + 8192;
		thread->alternate = malloc(thread->alternate_bytes);
		stack_t stack = {.ss_sp = thread->alternate, .ss_size = thread->alternate_bytes};
		if (sigaltstack(&stack, NULL) < 0)
			fail("sigaltstack: %s", strerror(errno));
	}
	stack_t is;
	sigaltstack(NULL, &is);
	if (thread->alternate ? is.ss_sp != thread->alternate || is.ss_flags : !(is.ss_flags & SS_DISABLE))
		fail("the alternate stack is not what the program has set");
	thread->stacks = mmap(NULL, COROUTINES * STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	thread->n_left = COROUTINES;
	for (int i = 0; i < COROUTINES; i++) {
		ucontext_t *context = &thread->coroutines[i];
		getcontext(context);
		context->uc_stack.ss_sp = thread->stacks + i * STACK_BYTES;
		context->uc_stack.ss_size = STACK_BYTES;
		memset(context->uc_stack.ss_sp, PATTERN, PATTERN_BYTES);
		makecontext(context, coroutine, 0);
	}
	swapcontext(&thread->scheduler, &thread->coroutines[0]);
	for (int i = 0; i < COROUTINES; i++)
		for (int j = 0; j < PATTERN_BYTES; j++)
			if (thread->stacks[i * STACK_BYTES + j] != PATTERN)
				fail("something was written %d bytes below the stack's end", PATTERN_BYTES - j);
	return NULL;
}

int main(int count, char **words)
{
	for (int i = 1; i < count; i++) {
		if (!strcmp(words[i], "--libc"))
			uses_libc = true;
		else if (!strcmp(words[i], "--calls") && i + 1 < count)
			calls = strtoull(words[++i], NULL, 10);
		else
			fail("usage: coroutines [--libc] [--calls N]");
	}
	int manager = open_device(), client = open_device(), zero = 0;
	if (device_ioctl(manager, BINDER_SET_CONTEXT_MGR, &zero) != 0)
		fail("cannot become context manager");
	handlers_fd = open_device();
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGUSR1, &action, NULL);
	pthread_t servers[SERVERS];
	for (int i = 0; i < SERVERS; i++)
		pthread_create(&servers[i], NULL, serve, &manager);
	for (int i = 0; i < THREADS; i++) {
		threads[i].fd = client;
		threads[i].kind = i % N_KINDS;
		threads[i].first = (uint64_t)i << CALLER_SHIFT;
		pthread_create(&threads[i].thread, NULL, run, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i].thread, NULL);
	for (int i = 0; i < SERVERS; i++)
		if (call(client, LEAVE) != LEAVE + 1)
			fail("a server does not leave");
	for (int i = 0; i < SERVERS; i++)
		pthread_join(servers[i], NULL);
	printf("coroutines: %d threads, %lu calls each, %lu signals\n", THREADS, (unsigned long)calls, n_handled);
	return 0;
}
