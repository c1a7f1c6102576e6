//! What Android's classes ask of the system: clocks, the log, properties, priorities

use baton_vm::natives::values::{NULL, VOID, boolean, rust, throw};
use baton_vm::stack::Value;
use baton_vm::vm::{Native, Thread, Thrown};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

const CLOCK: &str = "Landroid/os/SystemClock;";
const LOG: &str = "Landroid/util/Log;";
const EVENT_LOG: &str = "Landroid/util/EventLog;";
const PROCESS: &str = "Landroid/os/Process;";
const TRACE: &str = "Landroid/os/Trace;";
const PROPERTIES: &str = "Landroid/os/SystemProperties;";

/// Log.INFO: the least priority that is shown.
const INFO: i32 = 4;

pub const TABLE: &[Native] = &[
    (CLOCK, "uptimeMillis", "()J", |_, _| Ok(Value::Long(now_ns(ClockId::Monotonic) / 1_000_000))),
    (CLOCK, "elapsedRealtime", "()J", |_, _| {
        Ok(Value::Long(now_ns(ClockId::Boottime) / 1_000_000))
    }),
    (CLOCK, "elapsedRealtimeNanos", "()J", |_, _| Ok(Value::Long(now_ns(ClockId::Boottime)))),
    (CLOCK, "currentThreadTimeMillis", "()J", |_, _| {
        Ok(Value::Long(now_ns(ClockId::ThreadCPUTime) / 1_000_000))
    }),
    (CLOCK, "currentThreadTimeMicro", "()J", |_, _| {
        Ok(Value::Long(now_ns(ClockId::ThreadCPUTime) / 1000))
    }),
    (CLOCK, "currentTimeMicro", "()J", |_, _| Ok(Value::Long(now_ns(ClockId::Realtime) / 1000))),
    (LOG, "isLoggable", "(Ljava/lang/String;I)Z", |_, a| boolean(a.int(1) >= INFO)),
    (LOG, "println_native", "(IILjava/lang/String;Ljava/lang/String;)I", |t, a| {
        // Of the levels from 2 on; for the log of a terminal.
        let level = ["V", "D", "I", "W", "E", "A"].get((a.int(1) - 2) as usize).unwrap_or(&"?");
        let tag = if a.reference(2).is_null() { String::new() } else { rust(t, a.reference(2))? };
        let message = rust(t, a.reference(3))?;
        if a.int(1) >= INFO {
            message.lines().for_each(|line| eprintln!("{level}/{tag}: {line}"));
        }
        Ok(Value::Int(message.len() as i32))
    }),
    (EVENT_LOG, "writeEvent", "(II)I", |_, _| Ok(Value::Int(0))),
    (EVENT_LOG, "writeEvent", "(IJ)I", |_, _| Ok(Value::Int(0))),
    (EVENT_LOG, "writeEvent", "(ILjava/lang/String;)I", |_, _| Ok(Value::Int(0))),
    (EVENT_LOG, "writeEvent", "(I[Ljava/lang/Object;)I", |_, _| Ok(Value::Int(0))),
    (PROCESS, "getThreadPriority", "(I)I", |t, a| {
        let tid = thread(t, a.int(0))?;
        let nice = getpriority_process(tid);
        Ok(Value::Int(nice.map_err(|_| no_thread(t, a.int(0)))?))
    }),
    (PROCESS, "setThreadPriority", "(I)V", |t, a| set_priority(t, 0, a.int(0))),
    (PROCESS, "setThreadPriority", "(II)V", |t, a| set_priority(t, a.int(0), a.int(1))),
    (PROCESS, "setCanSelfBackground", "(Z)V", |_, _| VOID),
    (TRACE, "nativeGetEnabledTags", "()J", |_, _| Ok(Value::Long(0))),
    (TRACE, "nativeSetAppTracingAllowed", "(Z)V", |_, _| VOID),
    (TRACE, "nativeSetTracingEnabled", "(Z)V", |_, _| VOID),
    // There are no properties of a device.
    (PROPERTIES, "native_get", "(Ljava/lang/String;)Ljava/lang/String;", |t, _| {
        Ok(Value::Ref(baton_vm::natives::values::text(t, "")?))
    }),
    (
        PROPERTIES,
        "native_get",
        "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;",
        |_, a| if a.reference(1).is_null() { NULL } else { Ok(Value::Ref(a.reference(1))) },
    ),
    (PROPERTIES, "native_get_int", "(Ljava/lang/String;I)I", |_, a| Ok(Value::Int(a.int(1)))),
    (PROPERTIES, "native_get_long", "(Ljava/lang/String;J)J", |_, a| Ok(Value::Long(a.long(1)))),
    (PROPERTIES, "native_get_boolean", "(Ljava/lang/String;Z)Z", |_, a| Ok(Value::Int(a.int(1)))),
    (PROPERTIES, "native_add_change_callback", "()V", |_, _| VOID),
];

fn now_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// A thread of the system; none for the calling one.
fn thread(t: &Thread, tid: i32) -> Result<Option<Pid>, Thrown> {
    match tid {
        0 => Ok(None),
        tid => Pid::from_raw(tid).filter(|_| tid > 0).map(Some).ok_or_else(|| no_thread(t, tid)),
    }
}

fn no_thread(t: &Thread, tid: i32) -> Thrown {
    throw(t, "java/lang/IllegalArgumentException", &format!("No thread {tid}"))
}

fn set_priority(t: &Thread, tid: i32, nice: i32) -> Result<Value, Thrown> {
    let set = setpriority_process(thread(t, tid)?, nice);
    set.map_err(|errno| {
        let message = format!("no priority {nice} for this thread: {errno}");
        throw(t, "java/lang/SecurityException", &message)
    })?;
    VOID
}
