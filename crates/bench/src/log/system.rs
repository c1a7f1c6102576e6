//! What is measured: ours, and what it is compared with.

use baton_log::moment::Source;

/// Most turns of a system in a round.
pub const MOST_TURNS: usize = 8;

/// How the paper's scheme gets the time, of which it makes no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gets {
    /// By the C library, which asks the kernel's page.
    FromThePage,
    FromTheKernel,
}

/// A way to write a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Ours, with stamps of this source.
    Baton(Source),
    /// What no log can go below.
    Floor(Source),
    Paper(Gets),
    Datagram,
    Pipe,
    Null,
    /// LTTng-UST, whose buffers overwrite the oldest.
    Lttng,
    /// spdlog, whose queue overwrites the oldest.
    Spdlog,
    /// tracing-appender, which drops what its queue has no room for.
    TracingAppender,
}

use System::*;

/// All of them, in the order in which they are measured: those that are compared follow each other.
/// Beside each its name, and how many times slower it is than ours, in round figures: its rounds
/// have as many times fewer records.
pub const SYSTEMS: [(System, &str, usize); 14] = [
    (Baton(Source::Counter), "baton-counter", 1),
    (Floor(Source::Counter), "floor-counter", 1),
    (Baton(Source::Vdso), "baton-vdso", 1),
    (Floor(Source::Vdso), "floor-vdso", 1),
    (Paper(Gets::FromThePage), "paper-vdso", 4),
    (Baton(Source::SystemCall), "baton-system-call", 4),
    (Floor(Source::SystemCall), "floor-system-call", 4),
    (Paper(Gets::FromTheKernel), "paper-system-call", 4),
    (Null, "null-writev", 4),
    (Pipe, "pipe-writev", 10),
    (Datagram, "datagram", 20),
    (Lttng, "lttng-ust", 10),
    (Spdlog, "spdlog-async", 10),
    (TracingAppender, "tracing-appender", 10),
];

impl System {
    fn row(self) -> (System, &'static str, usize) {
        SYSTEMS.into_iter().find(|row| row.0 == self).expect("each system has a row")
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn slowness(self) -> usize {
        self.row().2
    }

    /// The program that has it; `None` for what is here, and stays when no peers are wanted.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Lttng => Some("baton-bench-log-lttng"),
            Spdlog => Some("baton-bench-log-spdlog"),
            TracingAppender => Some("baton-bench-log-tracing"),
            _ => None,
        }
    }

    /// In how many turns it writes a round's records. Those that are compared by tens of
    /// nanoseconds alternate: what else the machine does in a round then meets all of them.
    pub fn n_turns(self) -> usize {
        if matches!(self, Baton(_) | Floor(_) | Paper(_)) { MOST_TURNS } else { 1 }
    }
}
