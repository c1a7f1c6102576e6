//! The calling thread's level ([`Level`]), and the one that it takes over while it serves. It has
//! its own again when it has answered. Everything here is done in the thread's own right; what it
//! may not, it does not.
//!
//! Threads that the program starts meanwhile are ordinary ones: with a real-time priority comes
//! SCHED_RESET_ON_FORK, as with those that Android's kernels give. A thread that may not take the
//! flag back keeps it.
//!
//! **Invariant**: a thread is made less urgent only if it can come back.

use crate::thread::{self, Children};
use baton_state::level::{BEST_NICE, Level, Wanted};
use rustix::process::{Resource, geteuid, getrlimit};
use std::cell::Cell;
use std::sync::OnceLock;

/// CAP_SYS_NICE, in /proc/PID/status.
const CAP_SYS_NICE: u64 = 1 << 23;

thread_local! {
    /// The level, when [`thread::rank_changes`] was this.
    static OWN: Cell<(u32, Level)> = const { Cell::new((u32::MAX, Level::UNASKED)) };
    /// At which the thread may not be.
    static DENIED: Cell<Option<Level>> = const { Cell::new(None) };
    /// The nice value, when [`thread::rank_changes`] was this.
    static NICE: Cell<(u32, i32)> = const { Cell::new((u32::MAX, 0)) };
    /// Changes that are made here are not told of.
    static IS_AT_IT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread serves a caller at this nice value, of a node that asks for this, at
/// the level where it is, or has to.
pub fn is_served_here(nice: i32, node: Level) -> bool {
    wanted_elsewhere(Wanted { nice: Some(nice), node }).is_none()
}

fn is_to_change(wanted: Level, before: Level) -> bool {
    let is_below = before.rank().is_some() && wanted.priority() <= before.priority();
    !is_below && wanted != before && DENIED.get() != Some(wanted)
}

/// What a thread was before it was given a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    level: Level,
    children: Children,
}

/// At which a transaction is to be served by the calling thread, whether that may be there or not.
pub fn of_transaction(wanted: Option<Wanted>) -> Level {
    let own = own();
    let level = wanted.map_or(own, |wanted| wanted.level(own));
    let is_below = own.rank().is_some() && level.priority() <= own.priority();
    if is_below { own } else { level }
}

/// The calling thread is from now on at the level that is wanted, if it may be and was not. Then
/// what it was at before, for [`restore`].
pub fn adopt(wanted: Wanted) -> Option<Before> {
    let (wanted, before) = wanted_elsewhere(wanted)?;
    let is_real_time = wanted.rank().is_some();
    let children = if is_real_time { thread::children() } else { Children::Inherit };
    if !set(wanted, before) {
        DENIED.set(Some(wanted));
        return None;
    }
    OWN.set((thread::rank_changes(), wanted));
    Some(Before { level: before, children })
}

/// The level, if it is another one than that of the calling thread, which is the second.
fn wanted_elsewhere(wanted: Wanted) -> Option<(Level, Level)> {
    let known = own();
    // That is asked for anew only if it matters.
    if wanted.level(known) == known {
        return None;
    }
    let own = own_again();
    let level = wanted.level(own);
    is_to_change(level, own).then_some((level, own))
}

/// The level before [`adopt`].
pub fn restore(Before { level, children }: Before) {
    let was_real_time = OWN.get().1.rank().is_some();
    while_at_it(|| match level.rank() {
        rank if was_real_time => {
            _ = thread::set_rank(rank, children) || thread::set_rank(rank, Children::Ordinary);
        }
        _ => _ = set_nice(level.number()),
    });
    OWN.set((thread::rank_changes(), level));
}

fn set_nice(value: i16) -> bool {
    let set = rustix::process::setpriority_process(None, value.into()).is_ok();
    if set {
        NICE.set((thread::rank_changes(), value.into()));
    }
    set
}

/// The calling thread's nice value: as it was when it first asked, after the last change that was
/// told of, or as it was given to it here.
pub fn nice() -> i32 {
    let at = thread::rank_changes();
    match NICE.get() {
        (known_at, nice) if known_at == at => nice,
        _ => nice_again(),
    }
}

fn nice_again() -> i32 {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    NICE.set((thread::rank_changes(), nice));
    nice
}

/// Whether the calling thread is just being given a level here.
pub fn is_at_it() -> bool {
    IS_AT_IT.try_with(Cell::get).unwrap_or(false)
}

fn while_at_it<T>(body: impl FnOnce() -> T) -> T {
    IS_AT_IT.set(true);
    let result = body();
    IS_AT_IT.set(false);
    result
}

fn own() -> Level {
    match OWN.get() {
        (at, own) if at == thread::rank_changes() => own,
        _ => own_again(),
    }
}

fn own_again() -> Level {
    let own = Level::of_thread(thread::rank(), nice_again);
    OWN.set((thread::rank_changes(), own));
    own
}

fn set(wanted: Level, before: Level) -> bool {
    while_at_it(|| match wanted.rank() {
        Some(rank) => thread::set_rank(Some(rank), Children::Ordinary),
        None if wanted > before && !may_be_at(before) => false,
        None => {
            // As far as it may.
            let best = best_by_limit();
            let (wanted, before) = (wanted.number(), before.number());
            set_nice(wanted) || (wanted < best && best < before && set_nice(best))
        }
    })
}

/// The best nice value that the process may have by its limit.
fn best_by_limit() -> i16 {
    let limit = getrlimit(Resource::Nice).current.unwrap_or(u64::from(u8::MAX));
    (20 - limit.min(40) as i16).max(BEST_NICE as i16)
}

/// Whether a thread that is less urgent could become as urgent as this again.
fn may_be_at(level: Level) -> bool {
    static MAY_ALL: OnceLock<bool> = OnceLock::new();
    level.number() >= best_by_limit()
        || *MAY_ALL.get_or_init(|| geteuid().is_root() || has_capability())
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

    #[test]
    fn a_thread_that_takes_over_a_level_has_its_own_again() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        std::thread::spawn(move || {
            let own = nice();
            let of = |nice| Wanted { nice: Some(nice), node: Level::of_node(0x7f) };
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
