/*
 * What a program of `baton bench log` has in common with others: it is told the messages, one a line, says "ready",
 * and then does what it is told:
 *
 *   many RECORDS WRITERS CPU...     each writer writes so many records: how long that took, in ns
 *   singles RECORDS WRITERS CPU...  the same: what each record took, the reading of the clock included
 */
#ifndef BATON_BENCH_LOG_VOICE_H
#define BATON_BENCH_LOG_VOICE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TAG "vold"
#define N_MESSAGES 16
#define MOST_WRITERS 1024

/* Writes one record: the program's own. */
static void write_record(const char *message);

static char messages[N_MESSAGES][256];
static volatile int n_ready;

struct writer {
    pthread_t thread;
    int cpu, n_writers;
    size_t n_records;
    unsigned long long *times;
    unsigned long long start_ns, end_ns;
};

static unsigned long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void *play(void *argument) {
    struct writer *writer = (struct writer *)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(writer->cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (size_t number = 0; number < writer->n_records / 10; number++)
        write_record(messages[number % N_MESSAGES]);
    __atomic_add_fetch(&n_ready, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&n_ready, __ATOMIC_ACQUIRE) < writer->n_writers)
        sched_yield();
    writer->start_ns = now_ns();
    for (size_t number = 0; number < writer->n_records; number++) {
        unsigned long long before = writer->times ? now_ns() : 0;
        write_record(messages[number % N_MESSAGES]);
        if (writer->times)
            writer->times[number] = now_ns() - before;
    }
    writer->end_ns = now_ns();
    return NULL;
}

static void answer(const char *what, size_t n_records, int n_writers, char *cpus) {
    static struct writer writers[MOST_WRITERS];
    int singles = strcmp(what, "singles") == 0;
    unsigned long long start_ns = ~0ull, end_ns = 0;
    n_ready = 0;
    for (int index = 0; index < n_writers; index++) {
        struct writer *writer = &writers[index];
        writer->cpu = (int)strtol(cpus, &cpus, 10);
        writer->n_writers = n_writers;
        writer->n_records = n_records;
        writer->times = singles ? (unsigned long long *)calloc(n_records, sizeof *writer->times) : NULL;
        if (pthread_create(&writer->thread, NULL, play, writer) != 0)
            exit(1);
    }
    for (int index = 0; index < n_writers; index++) {
        struct writer *writer = &writers[index];
        pthread_join(writer->thread, NULL);
        start_ns = writer->start_ns < start_ns ? writer->start_ns : start_ns;
        end_ns = writer->end_ns > end_ns ? writer->end_ns : end_ns;
        for (size_t number = 0; singles && number < n_records; number++)
            printf("%llu ", writer->times[number]);
        free(writer->times);
    }
    if (!singles)
        printf("%llu", end_ns - start_ns);
    printf("\n");
    fflush(stdout);
}

static int serve(void) {
    char line[16384], what[16];
    for (int number = 0; number < N_MESSAGES; number++)
        if (!fgets(messages[number], sizeof messages[number], stdin))
            return 1;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        size_t n_records;
        int n_writers, read;
        if (sscanf(line, "%15s %zu %d%n", what, &n_records, &n_writers, &read) != 3 || n_writers > MOST_WRITERS)
            return 1;
        answer(what, n_records, n_writers, line + read);
    }
    return 0;
}

#endif
