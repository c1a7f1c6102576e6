//! How large an attack is.

/// How large an attack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// As large as it takes to see a defect: a few seconds.
    Short,
    /// As large as this machine's limits allow: a minute or so.
    Long,
}

impl Scale {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Short => "short",
            Scale::Long => "long",
        }
    }

    /// One of two numbers.
    pub fn of<T>(self, short: T, long: T) -> T {
        match self {
            Scale::Short => short,
            Scale::Long => long,
        }
    }
}
