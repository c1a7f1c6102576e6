//! The size of an attack, and of a run.

use std::time::Duration;

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

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub scale: Scale,
    /// Time after which a missing reply counts as a hang.
    pub patience: Duration,
}

impl Run {
    /// Duration of an attack that would otherwise go on for ever.
    pub fn at_least(&self) -> Duration {
        self.scale.of(Duration::from_millis(1500), Duration::from_secs(20))
    }
}
