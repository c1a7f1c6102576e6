// A library to preload that behaves like other allocators beside the interposer, which is loaded
// first. It ends the process if the interposer enters it again.
//
// - As in jemalloc, the allocator looks for a file and returns memory to the system while it holds
//   its lock.
// - As in tcmalloc, the functions of the C library that it replaces make their system calls by
//   `syscall`.
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static _Thread_local int is_inside __attribute__((tls_model("initial-exec")));
static _Thread_local int depth __attribute__((tls_model("initial-exec")));

static void fail(const char *line, size_t bytes)
{
	if (write(STDERR_FILENO, line, bytes) < 0)
		_exit(98);
	_exit(99);
}
#define FAIL(line) fail(line, sizeof(line) - 1)

static void enter(void)
{
	char buffer[8];

	if (is_inside)
		FAIL("allocator: it was entered again\n");
	is_inside = 1;
	if (readlink("/etc/no-such-allocator.conf", buffer, sizeof(buffer)) >= 0)
		FAIL("allocator: there is such a file\n");
	int fd = open("/proc/no-such-file", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED || mprotect(map, 4096, PROT_NONE) || munmap(map, 4096))
		FAIL("allocator: no memory\n");
	is_inside = 0;
}

void *malloc(size_t bytes)
{
	enter();
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	enter();
	return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	enter();
	return __libc_realloc(old, bytes);
}

void free(void *memory)
{
	enter();
	__libc_free(memory);
}

// Makes a system call, and ends the process if that leads back here.
static long by_number(long number, long a, long b, long c, long d, long e, long f)
{
	if (depth)
		FAIL("allocator: a system call came back\n");
	depth = 1;
	long result = syscall(number, a, b, c, d, e, f);
	depth = 0;
	return result;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return (void *)by_number(SYS_mmap, (long)address, (long)bytes, protection, flags, fd,
				 offset);
}

int munmap(void *address, size_t bytes)
{
	return (int)by_number(SYS_munmap, (long)address, (long)bytes, 0, 0, 0, 0);
}

int open(const char *path, int flags, ...)
{
	va_list rest;

	va_start(rest, flags);
	int mode = va_arg(rest, int);
	va_end(rest);
	return (int)by_number(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

int dup(int fd) { return (int)by_number(SYS_dup, fd, 0, 0, 0, 0, 0); }

int dup3(int fd, int to, int flags) { return (int)by_number(SYS_dup3, fd, to, flags, 0, 0, 0); }

int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;

	va_start(rest, request);
	long argument = va_arg(rest, long);
	va_end(rest);
	return (int)by_number(SYS_ioctl, fd, (long)request, argument, 0, 0, 0);
}

int fcntl(int fd, int command, ...)
{
	va_list rest;

	va_start(rest, command);
	long argument = va_arg(rest, long);
	va_end(rest);
	return (int)by_number(SYS_fcntl, fd, command, argument, 0, 0, 0);
}
