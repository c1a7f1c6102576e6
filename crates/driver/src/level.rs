//! At which level of urgency a transaction is served: the better one of its caller's nice value and
//! of the least that its node asks for, as the kernel's driver has it, or that the thread has where
//! the node asks for nothing. The thread has its own again when it has answered.
//!
//! ```text
//!   real-time priority p   -100 - p (SCHED_FIFO), -200 - p (SCHED_RR)
//!   nice value n           n
//! ```
//!
//! A level is a number, so that a thread that has the one that is wanted finds out by one
//! comparison. Everything here is done in the thread's own right; what it may not, it does not.
//!
//! Threads that the program starts meanwhile are ordinary ones: with a real-time priority comes
//! SCHED_RESET_ON_FORK, as with those that Android's kernels give. A thread that may not take the
//! flag back keeps it.
//!
//! **Invariant**: a thread is made less urgent only if it can come back.

use crate::thread::{self, Children};
use baton_abi::uapi::*;
use rustix::process::{Resource, geteuid, getrlimit};
use std::cell::Cell;
use std::sync::OnceLock;

/// A level: the smaller, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(i16);

const FIFO: i16 = -100;
const ROUND_ROBIN: i16 = -200;
const BEST_NICE: i32 = -20;
const WORST_NICE: i32 = 19;
/// The highest real-time priority.
const HIGHEST: u32 = 99;
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

impl Level {
    /// A nice value; what is out of range is the nearest one.
    pub fn nice(value: i32) -> Level {
        Level(value.clamp(BEST_NICE, WORST_NICE) as i16)
    }

    /// Of a node that asks for nothing: no worse than the thread's own.
    pub const UNASKED: Level = Level(i16::MAX);

    /// What a node asks for, by its `flat_binder_object.flags`. Where they are 0 it has been asked
    /// for nothing.
    pub fn of_node(flags: u32) -> Level {
        let value = flags & FLAT_BINDER_FLAG_PRIORITY_MASK;
        let policy =
            (flags & FLAT_BINDER_FLAG_SCHED_POLICY_MASK) >> FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        let priority = value.min(HIGHEST) as i16;
        match (policy as i32, priority) {
            (_, 0) => Level::UNASKED,
            (libc::SCHED_FIFO, _) => Level(FIFO - priority),
            (libc::SCHED_RR, _) => Level(ROUND_ROBIN - priority),
            // Of 8 bits with a sign. One below all is what the node leaves to its callers.
            _ => Level(i16::from(value as u8 as i8).max(BEST_NICE as i16)),
        }
    }

    /// At which a call of a caller at this nice value is served, by a thread at a level of its own.
    fn of_call(nice: i32, node: Level, own: Level) -> Level {
        Level::nice(nice).min(if node == Level::UNASKED { own } else { node })
    }

    /// As [`thread::Rank`].
    fn rank(self) -> Option<thread::Rank> {
        match self.0 {
            level if level <= ROUND_ROBIN => Some((libc::SCHED_RR, (ROUND_ROBIN - level).into())),
            level if level <= FIFO => Some((libc::SCHED_FIFO, (FIFO - level).into())),
            _ => None,
        }
    }

    /// As a program has it: a real-time priority, or else a nice value.
    pub fn parts(self) -> Result<u8, i8> {
        match self.rank() {
            Some((_, priority)) => Ok(priority as u8),
            None => Err(self.0.clamp(BEST_NICE as i16, WORST_NICE as i16) as i8),
        }
    }

    /// How it compares with a real-time thread's.
    fn priority(self) -> i32 {
        self.rank().map_or(0, |(_, priority)| priority)
    }
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

/// What a transaction is to be served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The caller's nice value; nobody waits for a one-way transaction.
    pub nice: Option<i32>,
    /// The least that its node asks for.
    pub node: Level,
}

impl Wanted {
    /// By a thread at a level of its own.
    fn level(self, own: Level) -> Level {
        match self.nice {
            Some(nice) => Level::of_call(nice, self.node, own),
            None => self.node.min(own),
        }
    }
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
        _ => _ = set_nice(level.0),
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
    let own = match thread::rank() {
        Some((libc::SCHED_FIFO, priority)) => Level(FIFO - priority as i16),
        // One of SCHED_DEADLINE stands above whatever is asked for.
        Some((policy, priority)) => {
            let highest = policy == libc::SCHED_DEADLINE;
            Level(ROUND_ROBIN - if highest { HIGHEST as i16 } else { priority as i16 })
        }
        None => Level(nice_again() as i16),
    };
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
            set_nice(wanted.0) || (wanted.0 < best && best < before.0 && set_nice(best))
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
    level.0 >= best_by_limit() || *MAY_ALL.get_or_init(|| geteuid().is_root() || has_capability())
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
    fn a_nodes_flags_say_the_least_that_it_asks_for() {
        const FIFO_POLICY: u32 = 1 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const RR_POLICY: u32 = 2 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const BATCH_POLICY: u32 = 3 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const OWN: i16 = 5;
        for (flags, caller, served) in [
            // Nothing asked for: the better one of the two.
            (0, 0, Level(0)),
            (0, 10, Level(OWN)),
            (0, -10, Level(-10)),
            (FLAT_BINDER_FLAG_ACCEPTS_FDS, 10, Level(OWN)),
            (FIFO_POLICY, 10, Level(OWN)),
            // What libraries ask for: the caller's.
            (0x7f, 10, Level(10)),
            (19, 10, Level(10)),
            (19, -10, Level(-10)),
            (0xfb, 10, Level(-5)),
            (0x80, 0, Level(-20)),
            // A caller that says what no caller has.
            (19, i32::MAX, Level(19)),
            (19, i32::MIN, Level(-20)),
            (FIFO_POLICY | 30, -20, Level(-130)),
            (FIFO_POLICY | 200, 0, Level(-199)),
            (RR_POLICY | 1, 0, Level(-201)),
            (BATCH_POLICY | 3, 5, Level(3)),
        ] {
            let level = Level::of_call(caller, Level::of_node(flags), Level(OWN));
            assert_eq!(level, served, "{flags:#x} {caller}");
        }
    }

    #[test]
    fn a_level_is_a_rank_or_none() {
        for (level, rank) in [
            (Level(-20), None),
            (Level(19), None),
            (Level(-130), Some((libc::SCHED_FIFO, 30))),
            (Level(-299), Some((libc::SCHED_RR, 99))),
        ] {
            assert_eq!(level.rank(), rank);
        }
    }

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
