//! The options of `baton bench broadcast`, and the plan that they make.

use crate::broadcast::delay::{FEWEST, MOST, SENDERS};
use crate::broadcast::designs::Design;
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
    /// Ordinary senders in the part `delay`, for every design; bars are of 10 and 100
    /// [default: 10,25,50,75,100; quick: what bars are of]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub senders: Option<Vec<u16>>,
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
    /// Delays, each of a design among so many ordinary senders.
    pub delays: Vec<(Design, usize)>,
    /// Numbers of ordinary senders, ascending.
    pub senders: Vec<usize>,
    /// The bus of D-Bus that is measured.
    pub bus: Design,
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
        let bus = Design::bus();
        let mut senders: Vec<usize> = match &self.senders {
            Some(senders) => senders.iter().copied().map(usize::from).collect(),
            None if is_quick => vec![FEWEST, MOST],
            None => SENDERS.into(),
        };
        senders.sort_unstable();
        senders.dedup();
        let designs = Design::SERVICES.into_iter().chain([bus]);
        let of = |senders| designs.clone().map(move |design| (design, senders));
        let mut delays: Vec<(Design, usize)> = senders.iter().copied().flat_map(of).collect();
        let is_whole = !is_quick || self.senders.is_some();
        delays.retain(|&delay| is_whole || is_of_a_bar(delay));
        Plan {
            parts: self.parts.clone(),
            delays,
            senders,
            bus,
            rounds: self.rounds.unwrap_or(rounds),
            n_intents: self.intents.unwrap_or(n_intents),
            period_us,
            n_situations: self.situations.unwrap_or(n_situations),
        }
    }
}

/// Ours among the fewest and the most, and among the most those that it is compared with.
fn is_of_a_bar((design, senders): (Design, usize)) -> bool {
    match design {
        Design::Ours => [FEWEST, MOST].contains(&senders),
        Design::AndroidForeground => false,
        _ => senders == MOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: BroadcastArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, clap::Error> {
        Words::try_parse_from([&["broadcast"], words].concat()).map(|words| words.args.plan())
    }

    #[test]
    fn every_design_is_measured_among_every_number_of_senders() {
        assert_eq!(plan(&[]).unwrap().delays.len(), 5 * 5);
        let few = plan(&["--quick", "--senders", "7,2,7"]).unwrap();
        assert_eq!((few.senders, few.delays.len()), (vec![2, 7], 2 * 5));
        for wrong in ["0", "1001", "", "many"] {
            assert!(plan(&["--senders", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_quick_keeps_what_bars_are_of() {
        let plan = plan(&["--quick"]).unwrap();
        assert_eq!((&plan.senders, plan.delays.len()), (&vec![FEWEST, MOST], 5));
        for design in [Design::Ours, Design::Thesis, Design::Android, plan.bus] {
            assert!(plan.delays.contains(&(design, MOST)));
        }
        assert!(plan.delays.contains(&(Design::Ours, FEWEST)));
    }
}
