// Two processes over one broker: `ping server SOCKET` and `ping client SOCKET`.
// Everything of baton.h is used once; the first thing that is not as it should be ends the program.
#include "baton.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static sem_t released;

enum { ECHO = 1, CALL_BACK, PIPE, REFUSE, COUNT, COME_HOME, HOLD, RELEASE, STOP };

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static baton_parcel *parcel_of(const void *data, size_t size) {
    baton_parcel *parcel = baton_parcel_new();
    CHECK(parcel != NULL);
    CHECK(baton_parcel_write(parcel, data, size) == 0);
    return parcel;
}

static void *serve(void *process) {
    CHECK(baton_serve(process) == -EBADF);
    return NULL;
}

// ---- the server -----------------------------------------------------------------------------

struct server {
    baton_process *process;
    unsigned count;
};

static int call_back(const baton_received *request, baton_parcel *reply) {
    baton_handle *handle;
    baton_received *answer;
    CHECK(baton_received_handle(request, 0, &handle) == 0);
    CHECK(baton_received_object(request, 0, &(baton_object *){NULL}) == -ENOENT);
    baton_parcel *question = parcel_of("nested", 6);
    CHECK(baton_call(handle, ECHO, question, &answer) == 0);
    CHECK(baton_parcel_write(reply, baton_received_data(answer), baton_received_size(answer)) == 0);
    baton_received_free(answer);
    baton_parcel_free(question);
    baton_handle_free(handle);
    return 0;
}

// Replies with the reading end of a pipe that it writes to and closes.
static int make_pipe(baton_parcel *reply) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "through", 7) == 7);
    CHECK(baton_parcel_write_fd(reply, ends[0]) == 0);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static int come_home(const baton_received *request, baton_parcel *reply) {
    baton_handle *handle;
    CHECK(baton_received_handle(request, 0, &handle) == 0);
    CHECK(baton_parcel_write_handle(reply, handle) == 0);
    baton_handle_free(handle);
    return 0;
}

static int answer(const baton_received *request, baton_parcel *reply, void *user) {
    struct server *server = user;
    unsigned count;
    unsigned pid, uid;
    CHECK(baton_received_sender(request, &pid, &uid) == 0);
    CHECK(uid == geteuid());
    switch (baton_received_code(request)) {
    case ECHO:
        CHECK(pid != 0 && pid != (unsigned)getpid());
        return baton_parcel_write(reply, baton_received_data(request), baton_received_size(request));
    case CALL_BACK:
        return call_back(request, reply);
    case PIPE:
        return make_pipe(reply);
    case REFUSE:
        return -EDOM;
    case COUNT:
        count = __atomic_add_fetch(&server->count, 1, __ATOMIC_SEQ_CST);
        return baton_parcel_write(reply, &count, sizeof count);
    case COME_HOME:
        return come_home(request, reply);
    case HOLD:
        return sem_wait(&released);
    case RELEASE:
        return sem_post(&released);
    case STOP:
        return baton_shut_down(server->process);
    default:
        return 1; // no errno: a bug of this handler
    }
}

static void run_server(const char *socket) {
    CHECK(sem_init(&released, 0, 0) == 0);
    struct server server = {0};
    baton_object *object;
    pthread_t thread;
    CHECK(baton_open("binder", socket, &server.process) == 0);
    CHECK(baton_add_object(server.process, answer, &server, &object) == 0);
    CHECK(baton_become_context_manager(object) == 0);
    CHECK(baton_become_context_manager(object) == -EBUSY);
    CHECK(baton_context_manager(server.process, &(baton_handle *){NULL}) == -EINVAL);
    CHECK(baton_find(server.process, "name", &(baton_handle *){NULL}) == -EINVAL);
    puts("ready");
    fflush(stdout);
    CHECK(pthread_create(&thread, NULL, serve, server.process) == 0);
    serve(server.process);
    pthread_join(thread, NULL);
    baton_object_free(object);
    baton_close(server.process);
}

// ---- the client -----------------------------------------------------------------------------

static pthread_t caller;

static int echo(const baton_received *request, baton_parcel *reply, void *user) {
    CHECK(user == &caller);
    CHECK(pthread_equal(pthread_self(), caller));
    return baton_parcel_write(reply, baton_received_data(request), baton_received_size(request));
}

static void mourn(void *pipe_end) {
    CHECK(write(*(int *)pipe_end, "x", 1) == 1);
}

static void check_time_out(baton_handle *manager) {
    baton_parcel *parcel = baton_parcel_new();
    baton_received *reply = NULL;
    baton_handle *handle;
    CHECK(baton_call_within(manager, HOLD, parcel, 1000000, &reply) == -ETIMEDOUT);
    CHECK(reply == NULL);
    CHECK(baton_call(manager, RELEASE, parcel, &reply) == 0);
    baton_received_free(reply);
    // An answer outlives the handle that it came by.
    CHECK(baton_handle_clone(manager, &handle) == 0);
    CHECK(baton_parcel_write(parcel, "word", 4) == 0);
    CHECK(baton_call_within(handle, ECHO, parcel, UINT64_MAX, &reply) == 0);
    baton_handle_free(handle);
    CHECK(baton_received_size(reply) == 4);
    CHECK(memcmp(baton_received_data(reply), "word", 4) == 0);
    baton_received_free(reply);
    baton_parcel_free(parcel);
}

static void check_options(baton_process *process) {
    baton_object *object = NULL;
    baton_object_options options = {.min_policy = SCHED_FIFO, .min_priority = 100};
    CHECK(baton_add_object_with(process, &options, echo, &caller, &object) == -EINVAL);
    CHECK(baton_add_object_with(process, NULL, echo, &caller, &object) == -EINVAL);
    CHECK(object == NULL);
    options = (baton_object_options){.min_policy = SCHED_OTHER, .min_priority = 5};
    CHECK(baton_add_object_with(process, &options, echo, &caller, &object) == 0);
    CHECK(baton_publish(object, NULL) == -EINVAL);
    CHECK(baton_find(process, NULL, &(baton_handle *){NULL}) == -EINVAL);
    baton_object_free(object);
    // A context without a manager has no names.
    baton_process *other;
    CHECK(baton_open("hwbinder", NULL, &other) == 0);
    CHECK(baton_add_object(other, echo, &caller, &object) == 0);
    CHECK(baton_publish(object, "name") == -ESRCH);
    CHECK(baton_find(other, "name", &(baton_handle *){NULL}) == -ESRCH);
    baton_object_free(object);
    baton_close(other);
}

// A service manager has the context vndbinder.
static void check_names(void) {
    baton_process *server, *client;
    baton_object *object;
    baton_handle *handle = NULL;
    CHECK(baton_open("vndbinder", NULL, &server) == 0);
    CHECK(baton_add_object(server, echo, &caller, &object) == 0);
    CHECK(baton_find(server, "name", &handle) == -ENOENT);
    CHECK(baton_publish(object, "name") == 0);
    CHECK(baton_find(server, "name", &handle) == -EINVAL);
    CHECK(handle == NULL);
    CHECK(baton_open("vndbinder", NULL, &client) == 0);
    CHECK(baton_find(client, "name", &handle) == 0);
    baton_handle_free(handle);
    baton_close(client);
    baton_object_free(object);
    baton_close(server);
}

static void check_errors(baton_process *process, baton_handle *manager) {
    baton_process *no_process;
    baton_received *reply = NULL;
    baton_parcel *empty = baton_parcel_new();
    CHECK(baton_open(NULL, NULL, &no_process) == -EINVAL);
    CHECK(baton_open("binder", "/nonexistent/socket", &no_process) == -ENOENT);
    CHECK(baton_open("binder", NULL, NULL) == -EINVAL);
    CHECK(baton_add_object(process, NULL, NULL, &(baton_object *){NULL}) == -EINVAL);
    CHECK(baton_call(NULL, ECHO, empty, &reply) == -EINVAL);
    CHECK(baton_call(manager, ECHO, NULL, &reply) == -EINVAL);
    CHECK(baton_call(manager, ECHO, empty, NULL) == -EINVAL);
    CHECK(baton_call(manager, REFUSE, empty, &reply) == -EDOM);
    CHECK(baton_call(manager, 1000, empty, &reply) == -EPROTO);
    CHECK(reply == NULL);
    CHECK(baton_serve(NULL) == -EINVAL);
    CHECK(baton_link_to_death(manager, NULL, NULL) == -EINVAL);
    CHECK(baton_parcel_write(empty, NULL, 1) == -EINVAL);
    CHECK(baton_parcel_write_fd(empty, -1) == -EBADF);
    CHECK(baton_parcel_write_fd(empty, 1000000) == -EBADF);
    CHECK(baton_received_data(NULL) == NULL);
    CHECK(baton_received_size(NULL) == 0);
    CHECK(baton_received_fd(NULL, 0) == -EINVAL);
    baton_close(NULL);
    baton_object_free(NULL);
    baton_handle_free(NULL);
    baton_parcel_free(NULL);
    baton_received_free(NULL);
    baton_parcel_free(empty);
}

// What belongs to one process is refused in another one's transactions.
static void check_owners(const char *socket, baton_handle *manager) {
    baton_process *other;
    baton_handle *theirs;
    baton_received *reply;
    baton_parcel *parcel = baton_parcel_new();
    CHECK(baton_open("binder", socket, &other) == 0);
    CHECK(baton_context_manager(other, &theirs) == 0);
    CHECK(baton_parcel_write_handle(parcel, manager) == 0);
    CHECK(baton_parcel_write_handle(parcel, theirs) == -EINVAL);
    CHECK(baton_call(theirs, ECHO, parcel, &reply) == -EINVAL);
    baton_close(other);
    CHECK(baton_call(theirs, ECHO, parcel, &reply) == -EINVAL);
    baton_parcel_free(parcel);
    parcel = baton_parcel_new();
    CHECK(baton_call(theirs, ECHO, parcel, &reply) == -EBADF);
    baton_parcel_free(parcel);
    baton_handle_free(theirs);
}

static void check_echo(baton_handle *manager, size_t size) {
    char *data = malloc(size + 1);
    baton_received *reply;
    memset(data, 'e', size);
    baton_parcel *parcel = parcel_of(data, size);
    CHECK(baton_call(manager, ECHO, parcel, &reply) == 0);
    CHECK(baton_received_size(reply) == size);
    CHECK(memcmp(baton_received_data(reply), data, size) == 0);
    CHECK(baton_received_code(reply) == 0);
    CHECK(baton_received_sender(reply, &(unsigned){0}, &(unsigned){0}) == -EINVAL);
    baton_received_free(reply);
    baton_parcel_free(parcel);
    free(data);
}

static void check_objects(baton_handle *manager, baton_object *object) {
    baton_received *reply;
    baton_object *home;
    baton_parcel *parcel = baton_parcel_new();
    CHECK(baton_parcel_write_object(parcel, object) == 0);
    CHECK(baton_call(manager, CALL_BACK, parcel, &reply) == 0);
    CHECK(baton_received_size(reply) == 6);
    CHECK(memcmp(baton_received_data(reply), "nested", 6) == 0);
    baton_received_free(reply);
    CHECK(baton_call(manager, COME_HOME, parcel, &reply) == 0);
    CHECK(baton_received_object(reply, 0, &home) == 0);
    CHECK(baton_received_object(reply, 1, &home) == -ENOENT);
    CHECK(baton_received_handle(reply, 0, &(baton_handle *){NULL}) == -ENOENT);
    baton_object_free(home);
    baton_received_free(reply);
    baton_parcel_free(parcel);
}

static sem_t ended;

static void note_end(void *user) {
    CHECK(user == &caller);
    CHECK(sem_post(&ended) == 0);
}

// An object that ends with the parcel that it was sent in.
static void check_end(baton_process *process, baton_handle *manager) {
    baton_object_options options = {.ended = note_end};
    baton_object *object;
    baton_received *reply;
    baton_parcel *parcel = baton_parcel_new();
    CHECK(sem_init(&ended, 0, 0) == 0);
    CHECK(baton_add_object_with(process, &options, echo, &caller, &object) == 0);
    CHECK(baton_parcel_write_object(parcel, object) == 0);
    baton_object_free(object);
    CHECK(baton_call(manager, CALL_BACK, parcel, &reply) == 0);
    baton_received_free(reply);
    CHECK(sem_trywait(&ended) == -1 && errno == EAGAIN);
    baton_parcel_free(parcel);
    CHECK(sem_wait(&ended) == 0);
}

static void check_descriptor(baton_handle *manager) {
    char text[16];
    baton_received *reply;
    baton_parcel *empty = baton_parcel_new();
    CHECK(baton_call(manager, PIPE, empty, &reply) == 0);
    int end = baton_received_fd(reply, 0);
    CHECK(end >= 0);
    CHECK(read(end, text, sizeof text) == 7 && memcmp(text, "through", 7) == 0);
    CHECK(read(end, text, sizeof text) == 0);
    close(end);
    baton_received_free(reply);
    baton_parcel_free(empty);
}

static void check_one_way(baton_handle *manager) {
    unsigned count;
    baton_received *reply;
    baton_parcel *empty = baton_parcel_new();
    for (int i = 0; i < 3; i++)
        CHECK(baton_one_way(manager, COUNT, empty) == 0);
    do {
        CHECK(baton_call(manager, COUNT, empty, &reply) == 0);
        CHECK(baton_received_size(reply) == sizeof count);
        memcpy(&count, baton_received_data(reply), sizeof count);
        baton_received_free(reply);
    } while (count < 4);
    baton_parcel_free(empty);
}

// A child does not have what its parent has opened, and can open its own.
static void check_fork(baton_process *process, baton_handle *manager, baton_object *object) {
    baton_parcel *parcel = baton_parcel_new();
    baton_received *reply;
    CHECK(baton_parcel_write_object(parcel, object) == 0);
    CHECK(baton_parcel_write_handle(parcel, manager) == 0);
    CHECK(baton_call(manager, ECHO, parcel, &reply) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        baton_parcel *empty = baton_parcel_new();
        baton_handle *handle;
        baton_object *other;
        baton_received *answer;
        alarm(120);
        CHECK(baton_call(manager, ECHO, empty, &answer) == -EBADF);
        CHECK(baton_call(manager, ECHO, parcel, &answer) == -EBADF);
        CHECK(baton_one_way(manager, COUNT, empty) == -EBADF);
        CHECK(baton_add_object(process, echo, &caller, &other) == -EBADF);
        CHECK(baton_become_context_manager(object) == -EBADF);
        CHECK(baton_context_manager(process, &handle) == -EBADF);
        CHECK(baton_handle_clone(manager, &handle) == -EBADF);
        CHECK(baton_link_to_death(manager, mourn, NULL) == -EBADF);
        CHECK(baton_serve(process) == -EBADF);
        CHECK(baton_received_handle(reply, 0, &handle) != 0);
        CHECK(baton_shut_down(process) == -EBADF);
        baton_parcel_free(parcel);
        baton_received_free(reply);
        baton_handle_free(manager);
        baton_object_free(object);
        baton_close(process);
        CHECK(baton_open("binder", NULL, &process) == 0);
        CHECK(baton_context_manager(process, &manager) == 0);
        CHECK(baton_call(manager, ECHO, empty, &answer) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    baton_received_free(reply);
    baton_parcel_free(parcel);
}

static void run_client(const char *socket) {
    baton_process *process;
    baton_handle *manager, *again;
    baton_object *object;
    pthread_t thread;
    int death[2];
    char byte;
    caller = pthread_self();
    // BATON_SOCKET names the same broker.
    CHECK(baton_open("no-such-context", NULL, &process) == -ENOENT);
    CHECK(baton_open("binder", NULL, &process) == 0);
    CHECK(baton_context_manager(process, &manager) == 0);
    CHECK(baton_handle_clone(manager, &again) == 0);
    CHECK(baton_add_object(process, echo, &caller, &object) == 0);
    check_errors(process, manager);
    check_owners(socket, manager);
    check_echo(manager, 0);
    check_echo(manager, 100000);
    check_objects(manager, object);
    check_descriptor(manager);
    check_one_way(manager);
    check_time_out(manager);
    check_options(process);
    check_names();

    CHECK(pipe(death) == 0);
    CHECK(baton_link_to_death(manager, mourn, &death[1]) == 0);
    CHECK(baton_link_to_death(again, mourn, &death[1]) == 0);
    CHECK(pthread_create(&thread, NULL, serve, process) == 0);
    check_end(process, manager);
    check_fork(process, manager, object);
    baton_parcel *empty = baton_parcel_new();
    baton_received *reply;
    CHECK(baton_one_way(manager, STOP, empty) == 0);
    CHECK(read(death[0], &byte, 1) == 1);
    CHECK(read(death[0], &byte, 1) == 1);
    CHECK(baton_call(manager, ECHO, empty, &reply) == -EPIPE);
    baton_parcel_free(empty);
    CHECK(baton_shut_down(process) == 0);
    pthread_join(thread, NULL);
    baton_handle_free(manager);
    baton_close(process);
    baton_handle_free(again);
    baton_object_free(object);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    if (strcmp(argv[1], "server") == 0)
        run_server(argv[2]);
    else
        run_client(argv[2]);
    return 0;
}
