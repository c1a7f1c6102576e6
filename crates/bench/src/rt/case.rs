//! What is measured, and the row that tells of it.

use crate::report::RowKey;
use crate::rt::misuse::Harm;
use crate::system::System;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use strum::{IntoStaticStr, VariantArray};

/// Systems by which real-time calls are made, ours first.
pub const SYSTEMS: [System; 6] = [
    System::BatonTyped,
    System::BatonUapiLibc,
    System::KernelBinder,
    System::Unix,
    System::Mqueue,
    System::RsbinderRpc,
];
/// Message queues whose server is bound, too.
const MQUEUE_BOUND: &str = "mqueue-bound";
/// Calls that may not bring their priority.
const WITHOUT: &str = "baton-typed-without";

/// A system's name in rows.
pub fn name(system: System) -> &'static str {
    if system == System::BatonUapiLibc { "baton-uapi" } else { system.name() }
}

/// Whether the server has a thread at the caller's own priority, once it has come.
pub fn inherits(system: System) -> bool {
    matches!(system, System::BatonTyped | System::BatonUapiLibc)
}

/// Real-time calls: how many callers make them, at which priority (the more urgent first), among
/// how many ordinary callers, who is bound to a processor, what somebody else does to hurt them,
/// and how they call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub real_time_callers: usize,
    pub level: Reverse<u8>,
    pub callers: usize,
    pub bound: Bound,
    pub misuse: Option<Harm>,
    pub system: System,
}

/// Who is bound to a processor, both to the same.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    clap::ValueEnum,
    IntoStaticStr,
    VariantArray,
    strum::Display,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Bound {
    /// Neither side.
    Nobody,
    /// Real-time callers, by themselves; the server knows nothing of it.
    Caller,
    /// Real-time callers, and the server's process by its own doing.
    Both,
}

/// A part of a call's way: T_CALL, T_RET, or the whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Leg {
    #[strum(serialize = "t-call")]
    Call,
    #[strum(serialize = "t-return")]
    Return,
    #[strum(serialize = "call")]
    Whole,
}

impl Leg {
    pub const ALL: [Leg; 3] = [Leg::Call, Leg::Return, Leg::Whole];
}

impl Bound {
    /// Whether a system is measured so: Baton's looper goes by itself where its caller is bound,
    /// and a process that serves everybody is rather not bound, unless one thread is all that it
    /// has.
    pub fn fits(self, system: System) -> bool {
        self != Bound::Both || system == System::Mqueue
    }
}

impl Case {
    /// One real-time caller, with nobody bound.
    pub fn one(system: System, level: u8, callers: usize) -> Case {
        let (level, bound) = (Reverse(level), Bound::Nobody);
        Case { real_time_callers: 1, level, callers, bound, misuse: None, system }
    }

    pub fn bound(self, bound: Bound) -> Case {
        Case { bound, ..self }
    }

    /// The row of a leg.
    pub fn key(&self, leg: Leg) -> RowKey {
        let is_bound = (self.system, self.bound) == (System::Mqueue, Bound::Both);
        let label = if is_bound { MQUEUE_BOUND } else { name(self.system) };
        self.key_of(name(self.system), leg.into()).heading(self.title(leg)).label(label)
    }

    /// A row of somebody else's times of this case.
    pub fn key_of(&self, system: &'static str, case: &'static str) -> RowKey {
        let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, .. } = self;
        let bound: &str = bound.into();
        let key = RowKey::new(system, case)
            .with("real_time_callers", real_time_callers)
            .with("priority", SchedPriority::fifo(level).to_string())
            .with("callers", callers)
            .with("bound", bound);
        misuse.into_iter().fold(key, |key, harm| key.with("misuse", harm.name()))
    }

    /// The title of a leg's table and chart.
    pub fn title(&self, leg: Leg) -> String {
        let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, .. } = self;
        let leg = match leg {
            Leg::Call => "T_CALL, until the handler runs",
            Leg::Return => "T_RET, from the handler back",
            Leg::Whole => "the whole call",
        };
        let bound = if bound == Bound::Nobody { "" } else { ", on one processor" };
        let among = match misuse {
            Some(harm) => format!("beside misuse: {}", harm.name()),
            None => format!("among {callers} ordinary callers"),
        };
        format!("{real_time_callers} at fifo:{level}{bound} {among}: {leg}")
    }
}

/// A call while somebody in between keeps the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inversion {
    pub system: System,
    /// Whether the caller's priority may come with the call.
    pub allowed: bool,
}

impl Inversion {
    /// Its row, with the priority of the thread that serves a caller of this one.
    pub fn key(self, level: u8) -> RowKey {
        let served_at = match self.system {
            System::Mqueue => SchedPriority::fifo(level),
            system if inherits(system) && self.allowed => SchedPriority::fifo(level),
            _ => SchedPriority::default(),
        };
        let title = "a call on a processor that somebody less urgent keeps for 50 ms";
        let key = RowKey::new(name(self.system), "inversion").heading(title);
        let label = if self.allowed { key.label } else { WITHOUT };
        key.with("served_at", served_at.to_string()).label(label)
    }
}

/// What is counted of calls once their looper is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Resource {
    #[strum(serialize = "allocations")]
    Allocations,
    #[strum(serialize = "system-calls")]
    SystemCalls,
}

impl Resource {
    pub const ALL: [Resource; 2] = [Resource::Allocations, Resource::SystemCalls];

    /// What is counted under this name is not a time, and so no row.
    pub(crate) fn key(self) -> RowKey {
        RowKey::new(System::BatonTyped.name(), self.into()).label(self.into())
    }
}
