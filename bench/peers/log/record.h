/* LTTng's description of a record: what ours has, but for process and thread, which are its context. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER baton_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./record.h"

#if !defined(BATON_BENCH_RECORD_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BATON_BENCH_RECORD_H
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    baton_bench, record,
    LTTNG_UST_TP_ARGS(int, priority, const char *, tag, const char *, message),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(unsigned char, priority, priority)
        lttng_ust_field_string(tag, tag)
        lttng_ust_field_string(message, message)
    )
)
#endif

#include <lttng/tracepoint-event.h>
