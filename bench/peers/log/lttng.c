/*
 * LTTng-UST in flight-recorder mode: a snapshot session, whose buffers overwrite the oldest.
 *
 * The first run of the program starts a session daemon, which ends with it, and sets the session up; then it
 * starts itself anew, so that the daemon is there when LTTng looks for it.
 */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "voice.h"
#include "record.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAYS "BATON_BENCH_LTTNG_PLAYS"

static void write_record(const char *message) {
    lttng_ust_tracepoint(baton_bench, record, 4, TAG, message);
}

static int start_daemon(const char *directory) {
    char log[4096], set_up[8192];
    snprintf(log, sizeof log, "%s/lttng.log", directory);
    pid_t daemon = fork();
    if (daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (!freopen(log, "w", stdout) || !freopen(log, "a", stderr) || !freopen("/dev/null", "r", stdin))
            _exit(1);
        execlp("lttng-sessiond", "lttng-sessiond", "--no-kernel", NULL);
        _exit(1);
    }
    /* It says when it can be spoken to by nothing but its answers. */
    snprintf(set_up, sizeof set_up,
             "exec </dev/null >>'%s' 2>&1; n=0\n"
             "until lttng --no-sessiond list; do n=$((n + 1)); [ $n -lt 100 ] || exit 1; sleep 0.1; done\n"
             "lttng --no-sessiond destroy baton-bench\n"
             "lttng --no-sessiond create baton-bench --snapshot --output='%s/trace' &&\n"
             "lttng --no-sessiond enable-event --userspace baton_bench:record &&\n"
             "lttng --no-sessiond add-context --userspace --type=vpid --type=vtid &&\n"
             "lttng --no-sessiond start\n",
             log, directory);
    return daemon > 0 && system(set_up) == 0 ? 0 : -1;
}

int main(int n_words, char **words) {
    if (getenv(PLAYS)) {
        if (!lttng_ust_tracepoint_enabled(baton_bench, record)) {
            printf("LTTng does not record\n");
            return 1;
        }
        return serve();
    }
    if (n_words != 2 || start_daemon(words[1]) != 0) {
        printf("LTTng's session cannot be set up: are lttng-tools installed?\n");
        return 1;
    }
    setenv(PLAYS, "1", 1);
    execv("/proc/self/exe", words);
    return 1;
}
