// A service in C: adds an object to this process, publishes it under a name (the first argument), and
// serves it until a signal. Requests and replies are UTF-8.
#include <baton.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { GREET = 1 };

static int greet(const baton_received *request, baton_parcel *reply, void *user)
{
    (void)user;
    if (baton_received_code(request) != GREET)
        return -ENOSYS;
    baton_parcel_write(reply, "Hello, ", 7);
    baton_parcel_write(reply, baton_received_data(request), baton_received_size(request));
    return baton_parcel_write(reply, ", from C", 8);
}

static int fail(const char *what, int error)
{
    fprintf(stderr, "server: %s: %s\n", what, strerror(-error));
    return 1;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "greeter";
    baton_process *process;
    baton_object *greeter;
    int error = baton_open("binder", NULL, &process);
    if (error)
        return fail("cannot reach the broker", error);
    error = baton_add_object(process, greet, NULL, &greeter);
    if (error)
        return fail("cannot add an object", error);
    error = baton_publish(greeter, name);
    if (error)
        return fail("cannot publish it", error);
    printf("server: serving %s\n", name);
    fflush(stdout);
    return fail("ends", baton_serve(process));
}
