// A client in C: finds a service by its name (the first argument) and calls it.
#include <baton.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { GREET = 1 };

static int fail(const char *what, int error)
{
    fprintf(stderr, "client: %s: %s\n", what, strerror(-error));
    return 1;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "greeter";
    const char *who = count > 2 ? arguments[2] : "world";
    baton_process *process;
    baton_handle *greeter;
    baton_received *reply;
    int error = baton_open("binder", NULL, &process);
    if (error)
        return fail("cannot reach the broker", error);
    error = baton_find(process, name, &greeter);
    if (error == -ENOENT) {
        fprintf(stderr, "client: there is no service %s\n", name);
        return 1;
    }
    if (error)
        return fail("cannot find the service", error);
    baton_parcel *request = baton_parcel_new();
    baton_parcel_write(request, who, strlen(who));
    error = baton_call(greeter, GREET, request, &reply);
    if (error)
        return fail("cannot call it", error);
    printf("%.*s\n", (int)baton_received_size(reply), (const char *)baton_received_data(reply));
    baton_received_free(reply);
    baton_parcel_free(request);
    baton_handle_free(greeter);
    baton_close(process);
    return 0;
}
