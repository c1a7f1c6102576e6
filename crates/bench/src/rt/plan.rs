//! What is measured, how often, and in which order.

use crate::rt::found::{Case, Inversion};
use crate::rt::way::Way;
use crate::rt::{Part, RtArgs};
use std::cmp::Reverse;

/// All of it, once a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rounds.
    pub rounds: u32,
    /// Calls of each caller, and wake-ups, of a round.
    pub n_calls: u32,
    /// Time from one to the next, in microseconds.
    pub period_us: u64,
    /// Calls.
    pub cases: Vec<Case>,
    /// Ordinary callers beside cyclictest.
    pub wake_ups: Vec<usize>,
    /// Calls while somebody keeps the processor.
    pub inversions: Vec<Inversion>,
    /// How often each is played in a round.
    pub n_inversions: u32,
    /// The first of the callers' priorities.
    pub level: u8,
}

impl Plan {
    /// As the command line has it.
    pub fn new(args: &RtArgs) -> Plan {
        let quick = args.form.quick;
        let (n_calls, period_us, n_inversions) =
            if quick { (400, 1000, 4) } else { (2500, 2000, 10) };
        let has = |part| args.parts.contains(&part);
        let ways =
            || Way::ALL.into_iter().filter(|way| !way.is_peer() || args.peers.0.contains(way));
        let most = args.callers.iter().copied().max().unwrap_or(0);
        let mut cases = Vec::new();
        if has(Part::Calls) {
            cases.extend(callers(args, ways()));
        }
        if has(Part::Scaling) {
            cases.extend(args.real_time_callers.iter().map(|&real_time_callers| {
                let level = Reverse(args.priorities[0]);
                Case { real_time_callers, level, callers: most, way: Way::BatonTyped }
            }));
        }
        if quick {
            cases.retain(|case| is_of_a_bar(args, case));
        }
        cases.sort();
        cases.dedup();
        let mut wake_ups = args.callers.clone();
        wake_ups.retain(|&callers| has(Part::WakeUps) && (!quick || callers == most));
        let inversions = has(Part::Inversion).then(|| inversions(ways()));
        let n_calls = args.calls.unwrap_or(n_calls);
        Plan {
            rounds: args.rounds,
            n_calls,
            period_us: args.period_us.unwrap_or(period_us),
            cases,
            wake_ups,
            inversions: inversions.into_iter().flatten().collect(),
            n_inversions: n_calls.min(n_inversions),
            level: args.priorities[0],
        }
    }

    /// How much there is to do.
    pub fn n_steps(&self) -> usize {
        let of_round = self.cases.len() + self.wake_ups.len() + self.inversions.len();
        self.rounds as usize * of_round
    }
}

/// One caller at each priority, among each number of ordinary ones. A peer is the same at any priority.
fn callers(args: &RtArgs, ways: impl Iterator<Item = Way>) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in ways {
        let n_levels = if way.is_peer() { 1 } else { args.priorities.len() };
        for &level in &args.priorities[..n_levels] {
            let case =
                |&callers| Case { real_time_callers: 1, level: Reverse(level), callers, way };
            cases.extend(args.callers.iter().map(case));
        }
    }
    cases
}

/// Ours at the first priority, peers under load, one caller and as many as there are to be.
fn is_of_a_bar(args: &RtArgs, case: &Case) -> bool {
    let most = args.callers.iter().max() == Some(&case.callers);
    let ends = [args.real_time_callers.iter().max(), args.real_time_callers.iter().min()];
    case.level.0 == args.priorities[0]
        && (most || !case.way.is_peer())
        && (case.real_time_callers == 1 || ends.contains(&Some(&case.real_time_callers)))
}

fn inversions(ways: impl Iterator<Item = Way>) -> impl Iterator<Item = Inversion> {
    // A socket's server is one, whatever is said over it.
    ways.filter(|&way| way != Way::RsbinderRpc).flat_map(|way| {
        let allowed = Inversion { way, allowed: true };
        let forbidden = way.inherits().then_some(Inversion { way, allowed: false });
        [Some(allowed), forbidden].into_iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: RtArgs,
    }

    fn plan(words: &[&str]) -> Plan {
        Plan::new(&Words::parse_from([&["rt"], words].concat()).args)
    }

    fn has(plan: &Plan, way: Way, level: u8, callers: usize, real_time_callers: usize) -> bool {
        plan.cases.contains(&Case { real_time_callers, level: Reverse(level), callers, way })
    }

    #[test]
    fn everything_is_measured_once_a_round() {
        let plan = plan(&[]);
        assert_eq!((plan.n_calls, plan.period_us, plan.rounds), (2500, 2000, 5));
        // Four ways, one of them at two priorities, with and without load; and six more callers.
        assert_eq!(plan.cases.len(), 2 * (4 + 1) + 6);
        assert_eq!((plan.wake_ups.len(), plan.inversions.len()), (2, 4));
        assert!(has(&plan, Way::BatonTyped, 20, 100, 1) && !has(&plan, Way::Unix, 20, 100, 1));
    }

    #[test]
    fn what_is_quick_keeps_what_bars_are_of() {
        let plan = plan(&["--quick"]);
        for callers in [0, 100] {
            assert!(has(&plan, Way::BatonTyped, 80, callers, 1));
        }
        for way in Way::ALL {
            assert!(has(&plan, way, 80, 100, 1), "{way:?}");
        }
        assert!(has(&plan, Way::BatonTyped, 80, 100, 7));
        assert_eq!(plan.cases.len(), 6);
    }

    #[test]
    fn parts_and_peers() {
        let plan = plan(&["--parts", "inversion", "--peers", "unix"]);
        assert!(plan.cases.is_empty() && plan.wake_ups.is_empty());
        let ways: Vec<Way> = plan.inversions.iter().map(|inversion| inversion.way).collect();
        assert_eq!(ways, [Way::BatonTyped, Way::BatonTyped, Way::Unix]);
    }
}
