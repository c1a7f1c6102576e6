//! android.os.MessageQueue: how a Looper sleeps until somebody wakes it

use baton_vm::natives::handles::Handles;
use baton_vm::natives::values::{Outcome, VOID, boolean, throw};
use baton_vm::stack::{Args, Value};
use baton_vm::vm::{Native, Thread, Thrown};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const QUEUE: &str = "Landroid/os/MessageQueue;";

/// Where a Looper sleeps.
#[derive(Debug, Default)]
struct Waiter {
    is_woken: Mutex<bool>,
    woken: Condvar,
    is_idle: AtomicBool,
}

static QUEUES: Handles<Waiter> = Handles::new();

pub const TABLE: &[Native] = &[
    (QUEUE, "nativeInit", "()I", |_, _| Ok(Value::Int(QUEUES.add(Arc::default()) as i32))),
    (QUEUE, "nativeDestroy", "(I)V", |_, a| {
        QUEUES.remove(a.int(0).into());
        VOID
    }),
    (QUEUE, "nativePollOnce", "(II)V", poll_once),
    (QUEUE, "nativeWake", "(I)V", |t, a| {
        let waiter = waiter(t, a)?;
        *waiter.is_woken.lock().expect("no holder panics") = true;
        waiter.woken.notify_one();
        VOID
    }),
    (QUEUE, "nativeIsIdling", "(I)Z", |t, a| boolean(waiter(t, a)?.is_idle.load(Relaxed))),
];

fn waiter(t: &Thread, a: Args) -> Result<Arc<Waiter>, Thrown> {
    QUEUES.get(a.int(0).into()).ok_or_else(|| {
        throw(t, "java/lang/IllegalStateException", "the message queue has been destroyed")
    })
}

/// Sleeps so many milliseconds, without an end if they are negative; wakes early if somebody wakes
/// the queue.
fn poll_once(t: &Thread, a: Args) -> Outcome {
    let waiter = waiter(t, a)?;
    let timeout = u64::try_from(a.int(1)).ok().map(Duration::from_millis);
    t.safe(|| {
        waiter.is_idle.store(true, Relaxed);
        let is_woken = waiter.is_woken.lock().expect("no holder panics");
        let mut is_woken = match timeout {
            None => waiter.woken.wait_while(is_woken, |it| !*it).expect("no holder panics"),
            Some(timeout) => {
                let waited = waiter.woken.wait_timeout_while(is_woken, timeout, |it| !*it);
                waited.expect("no holder panics").0
            }
        };
        *is_woken = false;
        drop(is_woken);
        waiter.is_idle.store(false, Relaxed);
    });
    VOID
}
