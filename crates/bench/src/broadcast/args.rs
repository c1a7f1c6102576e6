//! The options of `baton bench broadcast`, and the plan that they make.

use crate::form::{self, FormArgs};
use strum::VariantArray;

/// The arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with the least and greatest round beside it, but for the longest time of all. It needs real-time \
priorities: root, or RLIMIT_RTPRIO.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct BroadcastArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// Only these parts
    #[arg(
        long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Part::VARIANTS.to_vec()
    )]
    pub parts: Vec<Part>,
    /// Rounds [default: 5, quick 3]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub rounds: Option<u32>,
    /// Real-time intents in a round [default: 2500, quick 300]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub intents: Option<u32>,
    /// Race situations in the part `order` [default: 1000000, quick 10000]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub situations: Option<u32>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, VariantArray, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Part {
    /// A real-time sender among ordinary ones.
    Delay,
    /// Real-time senders at random priorities.
    Order,
    /// Within a process.
    Local,
    /// Many receivers.
    FanOut,
}

/// The parts that a run measures, and their numbers of rounds and intents.
#[derive(Clone, Debug)]
pub struct Plan {
    pub parts: Vec<Part>,
    pub is_quick: bool,
    pub rounds: u32,
    /// Real-time intents of a round.
    pub n_intents: u32,
    /// Time from one to the next, in microseconds.
    pub period_us: u64,
    pub n_situations: u32,
}

impl BroadcastArgs {
    pub(crate) fn plan(&self) -> Plan {
        let is_quick = self.form.quick;
        let (rounds, n_intents, period_us, n_situations) =
            if is_quick { (3, 300, 1000, 10_000) } else { (5, 2500, 2000, 1_000_000) };
        Plan {
            parts: self.parts.clone(),
            is_quick,
            rounds: self.rounds.unwrap_or(rounds),
            n_intents: self.intents.unwrap_or(n_intents),
            period_us,
            n_situations: self.situations.unwrap_or(n_situations),
        }
    }
}
