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

impl System {
    /// All of them, in the order in which they are measured: those that are compared follow each
    /// other.
    pub const ALL: [System; 14] = [
        Baton(Source::Counter),
        Floor(Source::Counter),
        Baton(Source::Vdso),
        Floor(Source::Vdso),
        Paper(Gets::FromThePage),
        Baton(Source::SystemCall),
        Floor(Source::SystemCall),
        Paper(Gets::FromTheKernel),
        Null,
        Pipe,
        Datagram,
        Lttng,
        Spdlog,
        TracingAppender,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Baton(Source::Counter) => "baton-counter",
            Baton(Source::Vdso) => "baton-vdso",
            Baton(Source::SystemCall) => "baton-system-call",
            Floor(Source::Counter) => "floor-counter",
            Floor(Source::Vdso) => "floor-vdso",
            Floor(Source::SystemCall) => "floor-system-call",
            Paper(Gets::FromThePage) => "paper-vdso",
            Paper(Gets::FromTheKernel) => "paper-system-call",
            Datagram => "datagram",
            Pipe => "pipe-writev",
            Null => "null-writev",
            Lttng => "lttng-ust",
            Spdlog => "spdlog-async",
            TracingAppender => "tracing-appender",
        }
    }

    /// The program that has it, and what that needs; `None` for what is here.
    pub fn program(self) -> Option<(&'static str, &'static str)> {
        const ADVICE: &str = "`bench/peers/log/build` builds it";
        match self {
            Lttng => Some(("baton-bench-log-lttng", ADVICE)),
            Spdlog => Some(("baton-bench-log-spdlog", ADVICE)),
            TracingAppender => Some(("baton-bench-log-tracing", ADVICE)),
            _ => None,
        }
    }

    /// Whether it is left out when no peers are wanted.
    pub fn is_peer(self) -> bool {
        self.program().is_some()
    }

    /// How many times slower it is than ours, in round figures: its rounds have as many times fewer
    /// records.
    pub fn slowness(self) -> usize {
        match self {
            Baton(Source::SystemCall) | Floor(Source::SystemCall) | Paper(_) | Null => 4,
            Lttng | Spdlog | TracingAppender | Pipe => 10,
            Datagram => 20,
            Baton(_) | Floor(_) => 1,
        }
    }

    /// In how many turns it writes a round's records. Those that are compared by tens of
    /// nanoseconds alternate: what else the machine does in a round then meets all of them.
    pub fn n_turns(self) -> usize {
        match self {
            Baton(_) | Floor(_) | Paper(_) => MOST_TURNS,
            Null | Pipe | Datagram | Lttng | Spdlog | TracingAppender => 1,
        }
    }
}
