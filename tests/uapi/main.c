// uapi-test: runs each test in a process of its own and reports.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"

enum { VERDICT_BYTES = 600 };

static struct test *first, **last = &first;

void test_register(struct test *test)
{
	*last = test;
	last = &test->next;
}

static struct test *find(const char *name)
{
	struct test *test = first;
	while (test && strcmp(test->name, name))
		test = test->next;
	return test;
}

// Reads all output of a test until it ends or exceeds its time.
static void collect(int fd, char *verdict)
{
	size_t n = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	while (n < VERDICT_BYTES - 1) {
		ssize_t got = poll(&p, 1, (TEST_SECONDS + 10) * 1000) > 0
				      ? read(fd, verdict + n, VERDICT_BYTES - 1 - n)
				      : 0;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	verdict[n] = 0;
}

// The test's processes may outlive it, and become this process's children.
static int end_processes(pid_t pid)
{
	int status = 0, other;
	pid_t ended;
	kill(-pid, SIGKILL);
	while ((ended = waitpid(-1, &other, 0)) > 0 || errno == EINTR)
		if (ended == pid)
			status = other;
	return status;
}

static void run_test(const struct test *test, char *verdict)
{
	int fds[2];
	if (pipe(fds)) {
		perror("uapi-test: pipe");
		_exit(2);
	}
	pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		test_main(test, fds[1]);
	}
	setpgid(pid, pid);
	close(fds[1]);
	collect(fds[0], verdict);
	close(fds[0]);
	int status = end_processes(pid);
	if (!*verdict)
		snprintf(verdict, VERDICT_BYTES, "not ok: %s:0: expected a verdict, came %s %d",
			 test->name, WIFSIGNALED(status) ? "signal" : "exit status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

enum outcome { PASSED, FAILED, SKIPPED };

static enum outcome report(const struct test *test)
{
	char verdict[VERDICT_BYTES];
	run_test(test, verdict);
	if (!strcmp(verdict, "ok")) {
		printf("ok %s\n", test->name);
		return PASSED;
	}
	if (!strncmp(verdict, "skip: ", 6)) {
		printf("skip %s: %s\n", test->name, verdict + 6);
		return SKIPPED;
	}
	const char *what = strncmp(verdict, "not ok: ", 8) ? verdict : verdict + 8;
	printf("not ok %s: %s\n", test->name, what);
	return FAILED;
}

static void help(void)
{
	puts("usage: uapi-test [--list | --help] [NAME]...\n"
	     "\n"
	     "Tests the Binder uapi of $BINDER_DEVICE (default /dev/binder): all tests, or\n"
	     "those named; a NAME that ends in * selects by prefix. No other process may be\n"
	     "the device's context manager. One line a test:\n"
	     "  ok NAME\n"
	     "  not ok NAME: FILE:LINE: what was expected, what came\n"
	     "  skip NAME: why\n"
	     "and a last line of counts. Exit status: 0, or 1 when a test failed, or 2.");
}

static bool selected(const struct test *test, char **names, int n_names)
{
	if (!n_names)
		return true;
	for (int i = 0; i < n_names; i++) {
		size_t length = strlen(names[i]);
		if (length && names[i][length - 1] == '*' &&
		    !strncmp(test->name, names[i], length - 1))
			return true;
		if (!strcmp(test->name, names[i]))
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	int n[3] = {0, 0, 0};
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "--help")) {
		help();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--hold")) // for the tests of exec: to be there
		return read(0, &(char){0}, 1) < 0;
	if (argc > 1 && !strcmp(argv[1], "--list")) {
		for (struct test *t = first; t; t = t->next)
			puts(t->name);
		return 0;
	}
	for (int i = 1; i < argc; i++)
		if (!strchr(argv[i], '*') && !find(argv[i])) {
			fprintf(stderr, "uapi-test: no test is named %s; --list has the names\n", argv[i]);
			return 2;
		}
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (struct test *t = first; t; t = t->next)
		if (selected(t, argv + 1, argc - 1))
			n[report(t)]++;
	printf("%d passed, %d failed, %d skipped\n", n[PASSED], n[FAILED], n[SKIPPED]);
	return n[FAILED] != 0;
}
