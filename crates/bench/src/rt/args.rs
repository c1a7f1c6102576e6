//! What the command line asks for.

use crate::form::{self, FormArgs};
use crate::rt::case::{Bound, SYSTEMS, inherits, name};
use crate::system::Peers;
use strum::VariantArray;

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with the least and greatest \
round beside it, but for the longest time of all. It needs real-time priorities: root, or \
RLIMIT_RTPRIO.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct RtArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// What to measure beside Baton: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_peers)]
    pub peers: Peers,
    /// Only these parts
    #[arg(
        long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Part::VARIANTS.to_vec()
    )]
    pub parts: Vec<Part>,
    /// Calls of each caller in a round [default: 2500, quick 300]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub calls: Option<u32>,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "5", value_parser = form::positive())]
    pub rounds: u32,
    /// Time from one call to the next, in microseconds [default: 2000, quick 1000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..))]
    pub period_us: Option<u64>,
    /// SCHED_FIFO priorities of callers; bars are of the first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [80, 20],
        value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priorities: Vec<u8>,
    /// Ordinary callers; bars are of the most and of none
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [0, 100])]
    pub callers: Vec<usize>,
    /// Who is bound to a processor, where a caller is alone; bars are of bound ones
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Bound::VARIANTS.to_vec())]
    pub bound: Vec<Bound>,
    /// Real-time callers at once; bars are of seven and one
    #[arg(
        long, value_name = "LIST", value_delimiter = ',',
        default_values_t = [1, 2, 3, 4, 5, 6, 7]
    )]
    pub real_time_callers: Vec<usize>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, VariantArray, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Part {
    /// One real-time caller among none and many.
    Calls,
    /// Several real-time callers.
    Scaling,
    /// Wake-ups, by cyclictest.
    WakeUps,
    /// A call while somebody in between keeps the processor.
    Inversion,
    /// What a call takes of the system.
    Steady,
    /// A real-time caller beside processes that want to hurt it.
    Misuse,
    /// One-way messages of a real-time sender.
    OneWay,
}

fn parse_peers(text: &str) -> Result<Peers, String> {
    let all = SYSTEMS.into_iter().filter(|&system| !inherits(system));
    form::parse_peers(text, all, name).map(Peers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::System;

    #[test]
    fn peers_by_name() {
        assert_eq!(parse_peers("none"), Ok(Peers(vec![])));
        assert_eq!(parse_peers("mqueue,unix"), Ok(Peers(vec![System::Mqueue, System::Unix])));
        assert_eq!(parse_peers("all").unwrap().0.len(), 4);
        for wrong in ["", "futex", "baton-typed"] {
            assert!(parse_peers(wrong).is_err(), "{wrong}");
        }
    }
}
