// Verdicts, and the arena that a test shares with the processes it drives.
#include "harness.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driven.h"
#include "runner.h"
#include <stdlib.h>

enum { ARENA_BYTES = 64 << 20 };

// ---- judging

static struct site wait_site;
static char wait_text[160] = "nothing";
static int verdict_fd;

void waiting_at(struct site site) { wait_site = site; }

void waiting_for(const struct thread *t, const char *what)
{
	snprintf(wait_text, sizeof(wait_text), "%s: %s", t->name, what);
}

void verdict_close(void) { close(verdict_fd); }

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

void differs(const char *rule)
{
	const char *driver = getenv("BINDER");
	if (driver && !strcmp(driver, "baton"))
		skip("Baton differs: %s", rule);
}

void differs_interposed(const char *rule)
{
	if (!getenv("BINDER_MOUNTED"))
		differs(rule);
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
	fail_at(wait_site, "no end after %d s: waiting for %s", TEST_SECONDS, wait_text);
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
