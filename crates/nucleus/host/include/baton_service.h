/*
 * A service for `baton host`, from a shared object: it defines
 *
 *     const struct baton_service baton_service = { BATON_SERVICE_VERSION, "name", ... };
 *
 * and is built with `cc -shared -fPIC`. Its functions are called one at a time, not always by the same thread of
 * the system, on a stack of 256 KiB unless the host was told otherwise. While one of them runs no other service of
 * the host does, so they must not block; struct baton_call.call does not. A stack that overflows ends this
 * service alone; what else would end a process ends the host.
 */
#ifndef BATON_SERVICE_H
#define BATON_SERVICE_H

#include <stddef.h>
#include <stdint.h>

#define BATON_SERVICE_VERSION 1

/*
 * Of baton_service.flags: the service calls none but services of its own host that stay as well. Calls from outside
 * are then answered by the thread that brings them, which is much faster; other calls of its own fail with EPERM.
 */
#define BATON_SERVICE_STAYS 1u

/* A call, for as long as `handle` runs. */
struct baton_call {
    /* What is asked. */
    uint32_t code;
    /* The caller's effective user and process; the process is 0 of a one-way transaction. */
    uint32_t sender_uid;
    uint32_t sender_pid;
    /* The bytes. */
    const void *data;
    size_t bytes;
    /* What the last `call` was answered, until the next one. */
    const void *answer;
    size_t answer_bytes;

    /* Appends bytes to the reply. */
    void (*reply)(struct baton_call *call, const void *data, size_t bytes);

    /*
     * Calls another service by name: of this host, or one that the service manager knows. 0 or an errno:
     * ENOENT, there is none; EPIPE, it is dead; EDEADLK, it waits for this very call; else the call's own.
     */
    int (*call)(struct baton_call *call, const char *name, uint32_t code, const void *data,
                size_t bytes);
};

/* A service. */
struct baton_service {
    /* BATON_SERVICE_VERSION. */
    uint32_t version;
    /* BATON_SERVICE_STAYS, or 0. */
    uint32_t flags;
    /* Under which name it is registered, unless the command line gives another. */
    const char *name;
    /* The descriptor of its interface, or NULL. */
    const char *interface;
    /* Begins: 0, or an errno, with which the host does not start. May be NULL: then `state` is. */
    int (*start)(void **state);
    /* Answers a call: 0 and the bytes of `reply`, or an errno, which becomes a failed reply. */
    int (*handle)(void *state, struct baton_call *call);
    /* Ends, with the host. May be NULL. */
    void (*end)(void *state);
};

#endif
