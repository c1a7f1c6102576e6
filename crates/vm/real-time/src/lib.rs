//! Real time for Java programs: the native methods of `baton.rt`, over [`baton_rt`].
//!
//! A setting belongs to the Java thread that has made it, as baton_rt's guards do. It ends with
//! `close`, with the thread, and at the latest with the process, however that ends.
//!
//! The Java classes are in `java/baton/rt`.
#![forbid(unsafe_code)]

use baton_rt::{Error, Frequency, Guard, Options, SchedPriority, schedule};
use baton_vm::natives::values::{Outcome, VOID, throw};
use baton_vm::stack::{Args, Value};
use baton_vm::vm::{Native, Thread, Thrown};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

const REAL_TIME: &str = "Lbaton/rt/RealTime;";
const SETTING: &str = "Lbaton/rt/Setting;";
const ILLEGAL_ARGUMENT: &str = "java/lang/IllegalArgumentException";
const ILLEGAL_STATE: &str = "java/lang/IllegalStateException";

/// The kinds of settings, as Setting.java numbers them.
const PRIORITY: i32 = 0;
const FREQUENCY: i32 = 1;
const MEMORY: i32 = 2;
const OOM: i32 = 3;

static PLACES: OnceLock<Options> = OnceLock::new();
static NEXT: AtomicI64 = AtomicI64::new(1);

thread_local! {
    /// The settings of this thread, by their numbers.
    static HELD: RefCell<FxHashMap<i64, Guard>> = RefCell::default();
}

const TABLE: &[Native] = &[
    (REAL_TIME, "setPriority", "(I)V", |t, a| {
        let wanted = match a.int(0) {
            0 => SchedPriority::nice(rustix::process::getpriority_process(None).unwrap_or(0)),
            priority => fifo(t, priority)?,
        };
        schedule::set_priority(wanted, None).map_err(|error| refused(t, &error))?;
        note_priority(t);
        VOID
    }),
    (SETTING, "hold", "(II)J", hold),
    (SETTING, "release", "(J)Z", |t, a| {
        // Dropped after the borrow has ended.
        let guard = HELD.with_borrow_mut(|held| held.remove(&a.long(0)));
        let is_own = guard.is_some();
        t.safe(|| drop(guard));
        note_priority(t);
        Ok(Value::Int(is_own.into()))
    }),
];

/// The native methods. `options` name the places of the machine's files and the guardian; a process
/// has one VM, and the first call says where.
pub fn natives(options: Options) -> Vec<Native> {
    PLACES.get_or_init(|| options);
    TABLE.to_vec()
}

fn hold(t: &Thread, a: Args) -> Outcome {
    let value = a.int(1);
    let places = PLACES.get().expect("the natives were registered").clone();
    let options = match a.int(0) {
        PRIORITY => places.priority(fifo(t, value)?),
        FREQUENCY => places.frequency(match u32::try_from(value) {
            Ok(0) => Frequency::Max,
            Ok(khz) => Frequency::Khz(khz),
            Err(_) => return Err(throw(t, ILLEGAL_ARGUMENT, &format!("{value} kHz"))),
        }),
        MEMORY => places.lock_memory(usize::try_from(value).unwrap_or(0)),
        OOM => places.oom_protect(),
        kind => return Err(throw(t, ILLEGAL_ARGUMENT, &format!("a setting of kind {kind}"))),
    };
    let guard = t.safe(|| options.hold()).map_err(|error| refused(t, &error))?;
    note_priority(t);
    let number = NEXT.fetch_add(1, Relaxed);
    HELD.with_borrow_mut(|held| held.insert(number, guard));
    Ok(Value::Long(number))
}

fn fifo(t: &Thread, priority: i32) -> Result<SchedPriority, Thrown> {
    match u8::try_from(priority) {
        Ok(level @ 1..=99) => Ok(SchedPriority::fifo(level)),
        _ => Err(throw(t, ILLEGAL_ARGUMENT, &format!("a real-time priority of {priority}"))),
    }
}

/// Tells the VM whether the calling thread is a real-time one now.
fn note_priority(t: &Thread) {
    if let Ok(priority) = schedule::current_priority() {
        t.state.set_real_time(priority.is_real_time());
    }
}

/// Throws what an error means, with the advice that there is.
fn refused(t: &Thread, error: &Error) -> Thrown {
    let class = match error {
        Error::Denied { .. } => "java/lang/SecurityException",
        Error::Unable { .. } => ILLEGAL_ARGUMENT,
        _ => ILLEGAL_STATE,
    };
    let advice = error.advice().map_or_else(String::new, |advice| format!("; {advice}"));
    throw(t, class, &format!("{error}{advice}"))
}
