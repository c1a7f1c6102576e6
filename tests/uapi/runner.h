// Between the runner and a test's own process.
#ifndef RUNNER_H
#define RUNNER_H

#include "harness.h"

enum { TEST_SECONDS = 20 };

// Runs the test in this process, which ends; the verdict goes to fd.
_Noreturn void test_main(const struct test *, int fd);

#endif
