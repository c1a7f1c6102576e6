/* A service from a shared object, for the test beside. */
#include <baton_service.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int start(void **state)
{
    *state = calloc(1, sizeof(unsigned));
    return *state ? 0 : ENOMEM;
}

static int recurse(volatile int *above, int depth)
{
    volatile int here[256];
    here[0] = *above + depth;
    return depth ? recurse(here, depth - 1) + here[0] : here[0];
}

static int handle(void *state, struct baton_call *call)
{
    unsigned *count = state;
    int zero = 0;

    switch (call->code) {
    case 1: /* how often this was asked */
        ++*count;
        call->reply(call, count, sizeof *count);
        return 0;
    case 2: /* what another service says, twice */
        if (call->call(call, "one", 1, call->data, call->bytes))
            return EIO;
        call->reply(call, call->answer, call->answer_bytes);
        call->reply(call, call->answer, call->answer_bytes);
        return 0;
    case 3:
        return call->call(call, "nobody", 1, NULL, 0);
    case 4:
        return recurse(&zero, 1 << 24);
    default:
        return EBADMSG;
    }
}

const struct baton_service baton_service = {
    BATON_SERVICE_VERSION, 0, "weather", "baton.IWeather", start, handle, free,
};
