//! Java's monitors: `synchronized`, `Object.wait` and `notify`, and the identity hash, which has
//! its place in the lock word.
//!
//! A thread that finds another one's thin lock inflates it, and waits at the monitor. Waits are
//! [`Thread::safe`]: a collection does not wait for them, and the caller keeps the object.

use crate::exception;
use crate::monitors::{Activity, MOST_ENTRIES, Monitor, State, Word};
use crate::object::Ref;
use crate::vm::{Thread, Thrown};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Waits as `run` does, with an activity that others see.
fn waiting<T>(t: &Thread, activity: Activity, run: impl FnOnce() -> T) -> T {
    t.state.activity.store(activity as u8, Ordering::Relaxed);
    let result = t.safe(run);
    t.state.activity.store(Activity::Running as u8, Ordering::Relaxed);
    result
}

fn exchange(word: &AtomicU32, old: Word, new: Word) -> bool {
    // Acquire and release: what the last owner wrote is seen by the next one.
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    word.compare_exchange(old.encode(), new.encode(), order.0, order.1).is_ok()
}

fn load(object: Ref) -> Word {
    Word::decode(object.lock_word().load(Ordering::Acquire))
}

/// Gives an object a monitor if its word is still `from`.
fn inflate(t: &Thread, object: Ref, from: Word) -> Option<Arc<Monitor>> {
    let state = match from {
        Word::Free => State::default(),
        Word::Thin { owner, entries } => State { owner, entries: entries + 1, ..State::default() },
        Word::Hashed(hash) => State { hash: Some(hash), ..State::default() },
        Word::Inflated(number) => return Some(t.vm.monitors.get(number)),
    };
    let number = t.vm.monitors.add(object, state);
    if exchange(object.lock_word(), from, Word::Inflated(number)) {
        return Some(t.vm.monitors.get(number));
    }
    t.vm.monitors.remove(number);
    None
}

/// The monitor of an object, which gets one if it has none.
fn monitor(t: &Thread, object: Ref) -> Arc<Monitor> {
    loop {
        if let Some(monitor) = inflate(t, object, load(object)) {
            return monitor;
        }
    }
}

/// Enters an object's monitor. The caller keeps the object, which is not null.
#[inline]
pub fn enter(t: &Thread, object: Ref) {
    let owner = t.state.id;
    if !exchange(object.lock_word(), Word::Free, Word::Thin { owner, entries: 0 }) {
        enter_again(t, object);
    }
}

#[cold]
fn enter_again(t: &Thread, object: Ref) {
    let id = t.state.id;
    loop {
        let word = load(object);
        match word {
            Word::Free => {
                if exchange(object.lock_word(), word, Word::Thin { owner: id, entries: 0 }) {
                    return;
                }
            }
            Word::Thin { owner, entries } if owner == id && entries < MOST_ENTRIES => {
                let again = Word::Thin { owner, entries: entries + 1 };
                if exchange(object.lock_word(), word, again) {
                    return;
                }
            }
            _ => {
                let Some(monitor) = inflate(t, object, word) else { continue };
                if !monitor.try_acquire(id) {
                    waiting(t, Activity::Blocked, || monitor.acquire(id, 1));
                }
                return;
            }
        }
    }
}

fn not_owner(t: &Thread) -> Thrown {
    exception::throw(
        t,
        "Ljava/lang/IllegalMonitorStateException;",
        "object not locked by thread before this operation",
    )
}

/// Leaves an object's monitor.
///
/// # Errors
/// IllegalMonitorStateException if the thread does not own it.
pub fn exit(t: &Thread, object: Ref) -> Result<(), Thrown> {
    loop {
        let word = load(object);
        let next = match word {
            Word::Thin { owner, entries } if owner == t.state.id => match entries {
                0 => Word::Free,
                _ => Word::Thin { owner, entries: entries - 1 },
            },
            Word::Inflated(number) => {
                let monitor = t.vm.monitors.get(number);
                let mut state = monitor.lock();
                if state.owner != t.state.id {
                    // The exception's object may need a collection, which waits for all threads.
                    drop(state);
                    return Err(not_owner(t));
                }
                match state.entries {
                    1 => drop(monitor.release(state)),
                    _ => state.entries -= 1,
                }
                return Ok(());
            }
            _ => return Err(not_owner(t)),
        };
        if exchange(object.lock_word(), word, next) {
            return Ok(());
        }
    }
}

/// Whether the thread owns an object's monitor.
pub fn holds_lock(t: &Thread, object: Ref) -> bool {
    match load(object) {
        Word::Thin { owner, .. } => owner == t.state.id,
        Word::Inflated(number) => t.vm.monitors.get(number).lock().owner == t.state.id,
        Word::Free | Word::Hashed(_) => false,
    }
}

/// The point in time after a Java delay; `None` if it is too far away to matter.
pub(crate) fn deadline(millis: i64, nanos: i32) -> Option<Instant> {
    let delay = Duration::from_millis(millis as u64) + Duration::from_nanos(nanos as u64);
    Instant::now().checked_add(delay)
}

/// `Object.wait`. No limit if both numbers are 0.
///
/// # Errors
/// IllegalArgumentException, IllegalMonitorStateException or InterruptedException.
pub fn wait(t: &Thread, object: Ref, millis: i64, nanos: i32) -> Result<(), Thrown> {
    if millis < 0 || !(0..1_000_000).contains(&nanos) {
        return Err(exception::throw(
            t,
            "Ljava/lang/IllegalArgumentException;",
            "timeout out of range",
        ));
    }
    if !holds_lock(t, object) {
        return Err(not_owner(t));
    }
    let parker = &t.state.parker;
    if parker.take_interrupt() {
        return Err(interrupted(t));
    }
    let forever = millis == 0 && nanos == 0;
    let deadline = if forever { None } else { deadline(millis, nanos) };
    let monitor = monitor(t, object);
    parker.prepare();
    let mut state = monitor.lock();
    state.waiting.push_back(parker.clone());
    let entries = monitor.release(state);
    let activity = if forever { Activity::Wait } else { Activity::TimedWait };
    waiting(t, activity, || {
        parker.park(deadline);
        let mut state = monitor.lock();
        // Absent if a notification has taken it out.
        if let Some(at) = state.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, parker)) {
            state.waiting.remove(at);
        }
    });
    waiting(t, Activity::Blocked, || monitor.acquire(t.state.id, entries));
    // A thread that was notified stays interrupted: the notification must not get lost.
    if !parker.is_notified() && parker.take_interrupt() {
        return Err(interrupted(t));
    }
    Ok(())
}

fn interrupted(t: &Thread) -> Thrown {
    exception::throw_plain(t, "Ljava/lang/InterruptedException;")
}

/// `Object.notify`: wakes the thread that has waited longest, or `notifyAll`: wakes all.
///
/// # Errors
/// IllegalMonitorStateException if the thread does not own the monitor.
pub fn notify(t: &Thread, object: Ref, all: bool) -> Result<(), Thrown> {
    match load(object) {
        // A thin lock has no waiting threads.
        Word::Thin { owner, .. } if owner == t.state.id => Ok(()),
        Word::Inflated(number) => {
            let monitor = t.vm.monitors.get(number);
            let mut state = monitor.lock();
            if state.owner != t.state.id {
                // As in `exit`.
                drop(state);
                return Err(not_owner(t));
            }
            let count = if all { state.waiting.len() } else { state.waiting.len().min(1) };
            state.waiting.drain(..count).for_each(|parker| parker.notify());
            Ok(())
        }
        _ => Err(not_owner(t)),
    }
}

/// `Thread.sleep`.
///
/// # Errors
/// IllegalArgumentException or InterruptedException.
pub fn sleep(t: &Thread, millis: i64, nanos: i32) -> Result<(), Thrown> {
    if millis < 0 || !(0..1_000_000).contains(&nanos) {
        return Err(exception::throw(
            t,
            "Ljava/lang/IllegalArgumentException;",
            "timeout out of range",
        ));
    }
    let parker = &t.state.parker;
    parker.prepare();
    let deadline = deadline(millis, nanos);
    waiting(t, Activity::TimedWait, || parker.park(deadline));
    if parker.take_interrupt() { Err(interrupted(t)) } else { Ok(()) }
}

/// `System.identityHashCode` of an object that is not null.
pub fn identity_hash(t: &Thread, object: Ref) -> i32 {
    loop {
        let word = load(object);
        let hash = match word {
            Word::Hashed(hash) => hash,
            Word::Free => {
                let hash = new_hash();
                if !exchange(object.lock_word(), word, Word::Hashed(hash)) {
                    continue;
                }
                hash
            }
            _ => {
                let Some(monitor) = inflate(t, object, word) else { continue };
                *monitor.lock().hash.get_or_insert_with(new_hash)
            }
        };
        return hash as i32;
    }
}

/// A hash that looks random: a multiplicative generator over a counter. 28 bits.
fn new_hash() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b1) >> 4
}
