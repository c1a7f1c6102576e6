//! The size of an attack.

/// The size of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Large enough to reveal a defect: a few seconds.
    Short,
    /// As large as this machine's limits allow: about a minute.
    Long,
}

impl Scale {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Short => "short",
            Scale::Long => "long",
        }
    }

    /// Chooses a value for this scale.
    pub fn of<T>(self, short: T, long: T) -> T {
        match self {
            Scale::Short => short,
            Scale::Long => long,
        }
    }
}
