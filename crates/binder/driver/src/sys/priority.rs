//! The calling thread's priority, and the one that it takes over while it serves. It has its own
//! again when it has answered. Everything here is done in the thread's own right; a change that the
//! thread has no right to is left undone.
//!
//! Threads that the program starts meanwhile are ordinary ones: with a real-time priority comes
//! SCHED_RESET_ON_FORK, as with those that Android's kernels give. A thread that may not take the
//! flag back keeps it.
//!
//! **Invariant**: a thread is made less urgent only if it can come back.

use crate::sys::thread::{self, Children};
use baton_abi::sched_priority::SchedPriority;
use baton_shm::schedule::{self, Attributes};
use baton_state::priority::RequestedPriority;
use baton_state::work::Tid;
use rustix::process::{Resource, geteuid, getrlimit};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most urgent nice value.
const BEST_NICE: i32 = -20;
/// CAP_SYS_NICE, in /proc/PID/status.
const CAP_SYS_NICE: u64 = 1 << 23;

/// A priority that is to be asked for.
const UNKNOWN: (u32, SchedPriority) = (u32::MAX, SchedPriority::LEAST);

thread_local! {
    /// The priority, when [`thread::priority_changes`] was this.
    static OWN: Cell<(u32, SchedPriority)> = const { Cell::new(UNKNOWN) };
    /// A priority that the thread has no right to.
    static DENIED: Cell<Option<SchedPriority>> = const { Cell::new(None) };
    /// The nice value, when [`thread::priority_changes`] was this.
    static NICE: Cell<(u32, i32)> = const { Cell::new((u32::MAX, 0)) };
    /// Changes that are made here are not told of.
    static IS_AT_IT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread serves a caller at this nice value, of a node that asks for this
/// minimum, at the priority that it has, or has to.
pub fn is_served_here(nice: i32, minimum: Option<SchedPriority>) -> bool {
    wanted_elsewhere(RequestedPriority { nice: Some(nice), minimum }).is_none()
}

fn is_to_change(wanted: SchedPriority, before: SchedPriority) -> bool {
    let is_below = before.is_real_time() && !wanted.is_above(before);
    !is_below && wanted != before && DENIED.get() != Some(wanted)
}

/// The priority of a thread before it was given another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    priority: SchedPriority,
    children: Children,
}

/// The priority at which the calling thread is to serve a transaction, whether it has the right to
/// that or not; without a transaction its own.
pub fn of_transaction(wanted: Option<RequestedPriority>) -> SchedPriority {
    let own = own();
    let priority = wanted.map_or(own, |wanted| wanted.priority(own));
    let is_below = own.is_real_time() && !priority.is_above(own);
    if is_below { own } else { priority }
}

/// Gives the calling thread the priority that is wanted. The priority that it had is returned for
/// [`restore`]; `None` if nothing has changed.
pub fn adopt(wanted: RequestedPriority) -> Option<Before> {
    let (wanted, before) = wanted_elsewhere(wanted)?;
    let children = if wanted.is_real_time() { thread::children() } else { Children::Inherit };
    if !set(wanted, before) {
        DENIED.set(Some(wanted));
        return None;
    }
    OWN.set((thread::priority_changes(), wanted));
    Some(Before { priority: before, children })
}

/// The priority that is wanted, and the calling thread's own, if they differ.
fn wanted_elsewhere(wanted: RequestedPriority) -> Option<(SchedPriority, SchedPriority)> {
    let known = own();
    // That is asked for anew only if it matters.
    if wanted.priority(known) == known {
        return None;
    }
    let own = own_again();
    let priority = wanted.priority(own);
    is_to_change(priority, own).then_some((priority, own))
}

/// Gives the calling thread the priority that it had before [`adopt`].
pub fn restore(Before { priority, children }: Before) {
    if priority.is_real_time() && thread::real_time_priority_again().is_none() {
        // The broker, which had given it the priority before, has taken it back meanwhile.
        return OWN.set(UNKNOWN);
    }
    // It is asked for if the thread has been raised since.
    let was_real_time = own().is_real_time();
    let set = |children| {
        let real_time = Some(priority).filter(|priority| priority.is_real_time());
        thread::set_real_time_priority(real_time, children)
    };
    while_at_it(|| match priority.nice_value() {
        Some(nice) if !was_real_time => _ = set_nice(nice),
        _ => _ = set(children) || set(Children::Ordinary),
    });
    OWN.set((thread::priority_changes(), priority));
}

/// Gives a thread of this process a real-time priority, in the process's own right. The policy and
/// the priority that it had are returned for [`end_raise`]; `None` if nothing has changed, because
/// it is as urgent already, has ended, or may not be as urgent.
pub fn raise(tid: Tid, wanted: SchedPriority) -> Option<(i32, i32)> {
    let Attributes { policy, priority, .. } = schedule::attributes(tid).ok()?;
    if real_time(policy, priority).is_some_and(|own| !wanted.is_above(own)) {
        return None;
    }
    let raised = wanted.policy() as i32 | libc::SCHED_RESET_ON_FORK;
    schedule::set(tid, raised, wanted.sched_priority()).ok()?;
    Some((policy, priority))
}

/// The real-time priority of a thread with this policy and priority, as the kernel reports them.
fn real_time(policy: i32, priority: i32) -> Option<SchedPriority> {
    SchedPriority::of_real_time(policy & !libc::SCHED_RESET_ON_FORK, priority)
}

/// Gives the calling thread the policy and the priority back that it had before [`raise`].
pub fn end_raise((policy, priority): (i32, i32)) {
    let at = thread::priority_changes();
    // A thread that may not take the flag back keeps it.
    let ended = schedule::set(0, policy, priority)
        .or_else(|_| schedule::set(0, policy | libc::SCHED_RESET_ON_FORK, priority));
    if ended.is_err() {
        return ask_again();
    }
    // It may have asked for its priority while it was raised. Nice values are not concerned.
    let real_time = real_time(policy, priority);
    thread::know_priority(at, real_time);
    OWN.set((at, real_time.unwrap_or_else(|| SchedPriority::nice(nice()))));
}

/// The calling thread asks for its priority when it needs that next: another thread has changed it.
pub fn ask_again() {
    thread::forget_priority();
    OWN.set(UNKNOWN);
}

fn set_nice(value: i32) -> bool {
    let set = schedule::set_nice(0, value).is_ok();
    if set {
        NICE.set((thread::priority_changes(), value));
    }
    set
}

/// The calling thread's nice value: as it was when it first asked, after the last change that was
/// told of, or as it was given to it here.
pub fn nice() -> i32 {
    let at = thread::priority_changes();
    match NICE.get() {
        (known_at, nice) if known_at == at => nice,
        _ => nice_again(),
    }
}

fn nice_again() -> i32 {
    let nice = schedule::nice(0).unwrap_or(0);
    NICE.set((thread::priority_changes(), nice));
    nice
}

/// Whether the calling thread is just being given a priority here.
pub fn is_at_it() -> bool {
    IS_AT_IT.try_with(Cell::get).unwrap_or(false)
}

fn while_at_it<T>(body: impl FnOnce() -> T) -> T {
    IS_AT_IT.set(true);
    let result = body();
    IS_AT_IT.set(false);
    result
}

fn own() -> SchedPriority {
    match OWN.get() {
        (at, own) if at == thread::priority_changes() => own,
        _ => own_again(),
    }
}

fn own_again() -> SchedPriority {
    let own = thread::real_time_priority().unwrap_or_else(|| SchedPriority::nice(nice_again()));
    OWN.set((thread::priority_changes(), own));
    own
}

fn set(wanted: SchedPriority, before: SchedPriority) -> bool {
    while_at_it(|| match wanted.nice_value() {
        None => thread::set_real_time_priority(Some(wanted), Children::Ordinary),
        Some(_) if wanted < before && !may_be_at(before) => false,
        Some(nice) => {
            // As far as it may.
            let best_nice = best_nice_by_limit();
            let best = SchedPriority::nice(best_nice);
            set_nice(nice) || (best < wanted && before < best && set_nice(best_nice))
        }
    })
}

/// The best nice value that the process may have by its limit.
fn best_nice_by_limit() -> i32 {
    let limit = getrlimit(Resource::Nice).current.unwrap_or(u64::from(u8::MAX));
    (20 - limit.min(40) as i32).max(BEST_NICE)
}

/// Whether a thread that is less urgent could become as urgent as this again.
fn may_be_at(priority: SchedPriority) -> bool {
    /// The user of the last answer of [`has_capability`], and the answer, which no other user has;
    /// 0 for none.
    static CAPABLE: AtomicU64 = AtomicU64::new(0);
    #[cfg(simulated)]
    if baton_shm::simulation::is_simulated() {
        return true;
    }
    let user = geteuid();
    priority <= SchedPriority::nice(best_nice_by_limit()) || user.is_root() || {
        let answer =
            |is_capable: bool| u64::from(user.as_raw()) << 2 | u64::from(is_capable) << 1 | 1;
        // Relaxed: nothing else is published by it.
        let known = CAPABLE.load(Ordering::Relaxed);
        if ![true, false].map(answer).contains(&known) {
            CAPABLE.store(answer(has_capability()), Ordering::Relaxed);
        }
        CAPABLE.load(Ordering::Relaxed) == answer(true)
    }
}

fn has_capability() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    effective.is_some_and(|all| all & CAP_SYS_NICE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real-time threads take a right that most users lack, so the thread lowers a nice value.
    #[test]
    fn a_thread_that_becomes_ordinary_asks_for_its_priority_again() {
        std::thread::spawn(|| {
            let before = own();
            let nice = before.nice_value().expect("an ordinary thread") + 3;
            schedule::set_nice(0, nice).unwrap();
            thread::become_ordinary();
            assert_eq!(own(), SchedPriority::nice(nice.min(19)));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_was_raised_does_not_take_that_for_its_own_priority() {
        std::thread::spawn(|| {
            let (ordinary, fifo) = (own(), SchedPriority::of_real_time(libc::SCHED_FIFO, 3));
            let Some(before) = raise(thread::tid(), fifo.expect("a priority")) else {
                return eprintln!("skipped: real-time priorities need CAP_SYS_NICE");
            };
            // As after any change that the thread hears of: it asks again.
            thread::priorities_changed();
            assert_eq!(Some(own()), fifo);
            end_raise(before);
            assert_eq!((own(), thread::is_real_time()), (ordinary, false));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_raised_while_it_has_a_priority_of_others_has_its_own_again() {
        std::thread::spawn(|| {
            let fifo = |level| SchedPriority::of_real_time(libc::SCHED_FIFO, level).unwrap();
            let ordinary = own();
            let wanted = RequestedPriority { nice: None, minimum: Some(fifo(2)) };
            let Some(before) = adopt(wanted) else {
                return eprintln!("skipped: real-time priorities need CAP_SYS_NICE");
            };
            end_raise(raise(thread::tid(), fifo(3)).expect("more urgent"));
            restore(before);
            assert_eq!(own_again(), ordinary);
        })
        .join()
        .unwrap();
    }

    /// The broker relieves a looper while that serves a more urgent transaction.
    #[test]
    fn a_priority_that_was_taken_back_meanwhile_does_not_come_back() {
        std::thread::spawn(|| {
            let fifo = |level| SchedPriority::of_real_time(libc::SCHED_FIFO, level).unwrap();
            let ordinary = own();
            let Some(given) = raise(thread::tid(), fifo(2)) else {
                return eprintln!("skipped: real-time priorities need CAP_SYS_NICE");
            };
            thread::priorities_changed();
            let wanted = RequestedPriority { nice: None, minimum: Some(fifo(3)) };
            let before = adopt(wanted).expect("more urgent");
            schedule::set(0, given.0, given.1).unwrap();
            restore(before);
            assert_eq!(own(), ordinary);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_takes_over_a_priority_has_its_own_again() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        std::thread::spawn(move || {
            let own = nice();
            let of =
                |nice| RequestedPriority { nice: Some(nice), minimum: Some(SchedPriority::LEAST) };
            assert_eq!(adopt(of(own)), None);
            if let Some(before) = adopt(of(own + 3)) {
                assert_eq!(nice(), own + 3);
                assert_eq!(adopt(of(own + 3)), None);
                restore(before);
            }
            assert_eq!(nice(), own);
        })
        .join()
        .unwrap();
    }
}
