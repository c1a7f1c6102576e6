//! Pid namespaces: a process has a pid of its own in each one that sees it.

/// The pid namespace in which a process lives, as far as the broker can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// The broker's own.
    #[default]
    Brokers,
    /// One below the broker's.
    Other {
        /// The kernel's number of the namespace.
        number: u64,
        /// The process's pid there.
        pid: u32,
    },
    /// One that the broker cannot look into.
    Unknown,
}

/// Number of the broker's namespace; the kernel numbers none so.
pub(super) const BROKERS: u64 = 0;

impl PidNamespace {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            PidNamespace::Brokers => Some(BROKERS),
            PidNamespace::Other { number, .. } => Some(number),
            PidNamespace::Unknown => None,
        }
    }
}
