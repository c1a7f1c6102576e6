//! java.lang.Thread

use super::values::{VOID, boolean, non_null, rust};
use crate::object::Ref;
use crate::safepoint::ThreadState;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use crate::{exception, monitor, thread};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const THREAD: &str = "Ljava/lang/Thread;";

pub(super) const TABLE: &[Native] = &[
    (THREAD, "currentThread", "()Ljava/lang/Thread;", |t, _| Ok(Value::Ref(t.state.java()))),
    // Nobody but a debugger wants to know of a thread that has not started.
    (THREAD, "hookThreadCreated", "(Ljava/lang/Thread;)V", |_, _| VOID),
    (THREAD, "internalStart", "(Ljava/lang/Thread;)V", |t, a| {
        thread::start(t, a.reference(0))?;
        VOID
    }),
    (THREAD, "internalYield", "()V", |t, _| {
        t.safe(std::thread::yield_now);
        VOID
    }),
    (THREAD, "internalSleep", "(JI)V", |t, a| {
        monitor::sleep(t, a.long(0), a.int(2))?;
        VOID
    }),
    (THREAD, "internalHoldsLock", "(Ljava/lang/Object;)Z", |t, a| {
        boolean(monitor::holds_lock(t, non_null(t, a.reference(0), "object")?))
    }),
    (THREAD, "internalInterrupt", "(Ljava/lang/Thread;)V", |t, a| {
        if let Some(state) = state(t, a) {
            state.parker.interrupt();
        }
        VOID
    }),
    (THREAD, "internalInterrupted", "()Z", |t, _| boolean(t.state.parker.take_interrupt())),
    (THREAD, "internalIsInterrupted", "(Ljava/lang/Thread;)Z", |t, a| {
        boolean(state(t, a).is_some_and(|state| state.parker.is_interrupted()))
    }),
    (THREAD, "internalGetState", "(Ljava/lang/Thread;)I", |t, a| {
        let activity = state(t, a).map_or(0, |state| state.activity.load(Relaxed));
        Ok(Value::Int(i32::from(activity)))
    }),
    (THREAD, "internalSetName", "(Ljava/lang/Thread;Ljava/lang/String;)V", |t, a| {
        if let Some(state) = state(t, a) {
            thread::name(state.tid(), &rust(t, a.reference(1))?);
        }
        VOID
    }),
    (THREAD, "internalSetPriority", "(Ljava/lang/Thread;I)V", |t, a| {
        if let Some(state) = state(t, a) {
            thread::set_priority(state.tid(), a.int(1));
        }
        VOID
    }),
    (
        THREAD,
        "internalGetStackTrace",
        "(Ljava/lang/Thread;)[Ljava/lang/StackTraceElement;",
        stack_trace,
    ),
];

/// The running thread of the java.lang.Thread that is the first argument.
fn state(t: &Thread, a: Args) -> Option<Arc<ThreadState>> {
    let java: Ref = a.reference(0);
    t.vm.threads.all().into_iter().find(|state| !java.is_null() && state.java() == java)
}

fn stack_trace(t: &Thread, a: Args) -> Result<Value, Thrown> {
    let Some(of) = state(t, a) else {
        return Ok(Value::Ref(super::throwable::elements(t, &[])?));
    };
    let trace = if Arc::ptr_eq(&of, &t.state) {
        exception::trace(&of.stack)
    } else {
        t.safe(|| {
            let _stopped = t.vm.threads.stop(&t.state);
            exception::trace(&of.stack)
        })
    };
    Ok(Value::Ref(super::throwable::elements(t, &trace)?))
}
