//! What is measured, how often, and in which order.

use crate::rt::args::{Part, RtArgs};
use crate::rt::case::{Bound, Case, Inversion, Resource, SYSTEMS, inherits};
use crate::rt::misuse::{Aim, Harm, Misuse};
use crate::rt::one_way::{self, OneWay};
use crate::system::System;
use strum::VariantArray;

/// Ordinary senders that are few.
const FEW_SENDERS: usize = 20;

/// All of it, once a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub rounds: u32,
    /// Calls of each caller, and wake-ups, of a round.
    pub n_calls: u32,
    /// Time from one to the next, in microseconds.
    pub period_us: u64,
    pub cases: Vec<Case>,
    pub wake_ups: Vec<usize>,
    /// Calls while somebody keeps the processor.
    pub inversions: Vec<Inversion>,
    /// What of a steady call is counted.
    pub steady: Vec<Resource>,
    /// Messages of a real-time sender.
    pub one_ways: Vec<OneWay>,
    /// How often each inversion is measured in a round.
    pub n_inversions: u32,
    pub level: u8,
    /// The most ordinary callers.
    pub most_callers: usize,
}

impl Plan {
    pub fn new(args: &RtArgs) -> Plan {
        let quick = args.form.quick;
        let (n_calls, period_us, n_inversions) =
            if quick { (300, 1000, 3) } else { (2500, 2000, 10) };
        let has = |part| args.parts.contains(&part);
        let is_wanted = |system: &System| inherits(*system) || args.peers.0.contains(system);
        let systems = || SYSTEMS.into_iter().filter(is_wanted);
        let most = args.callers.iter().copied().max().unwrap_or(0);
        let mut cases = Vec::new();
        if has(Part::Calls) {
            cases.extend(callers(args, systems()));
        }
        if has(Part::Scaling) {
            cases.extend(args.real_time_callers.iter().map(|&real_time_callers| {
                let one = Case::one(System::BatonTyped, args.priorities[0], most);
                Case { real_time_callers, ..one }
            }));
        }
        if has(Part::Misuse) {
            let ours = SYSTEMS.into_iter().filter(|&system| inherits(system));
            cases.extend(ours.flat_map(|system| misuses(system, args.priorities[0])));
        }
        if quick {
            cases.retain(|case| is_of_a_bar(args, case));
        }
        cases.sort();
        cases.dedup();
        let mut wake_ups = args.callers.clone();
        wake_ups.retain(|&callers| has(Part::WakeUps) && (!quick || callers == most));
        let mut inversions: Vec<Inversion> = inversions(systems()).collect();
        // Of peers there is no bar.
        inversions
            .retain(|inversion| has(Part::Inversion) && (!quick || inherits(inversion.system)));
        let mut steady = Resource::ALL.to_vec();
        steady.retain(|_| has(Part::Steady));
        let one_ways = match has(Part::OneWay) {
            true => one_ways(args, is_wanted).collect(),
            false => Vec::new(),
        };
        let n_calls = args.calls.unwrap_or(n_calls);
        Plan {
            rounds: args.rounds,
            n_calls,
            period_us: args.period_us.unwrap_or(period_us),
            cases,
            wake_ups,
            inversions,
            steady,
            one_ways,
            n_inversions: n_calls.min(n_inversions),
            level: args.priorities[0],
            most_callers: most,
        }
    }

    /// All that is measured, in the order of a round.
    pub fn steps(&self) -> Vec<Step> {
        let cases = self.cases.iter().copied().map(Step::Calls);
        let wake_ups = self.wake_ups.iter().copied().map(Step::WakeUps);
        let inversions = self.inversions.iter().copied().map(Step::Inversion);
        let one_ways = self.one_ways.iter().copied().map(Step::OneWay);
        let steady = self.steady.iter().copied().map(Step::Steady);
        cases.chain(wake_ups).chain(inversions).chain(one_ways).chain(steady).collect()
    }
}

/// One measurement of a round.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Calls(Case),
    WakeUps(usize),
    Inversion(Inversion),
    OneWay(OneWay),
    Steady(Resource),
}

/// One caller at each priority, among each number of ordinary ones, bound and not. All but the
/// typed API are the same at any priority, and of peers only the message queue has a server that
/// can be better off bound.
fn callers(args: &RtArgs, systems: impl Iterator<Item = System>) -> Vec<Case> {
    let mut cases = Vec::new();
    for system in systems {
        let n_levels = if system == System::BatonTyped { args.priorities.len() } else { 1 };
        for &level in &args.priorities[..n_levels] {
            let bounds = args.bound.iter().filter(|&&bound| bound.fits(system));
            cases.extend(bounds.flat_map(|&bound| {
                args.callers
                    .iter()
                    .map(move |&callers| Case::one(system, level, callers).bound(bound))
            }));
        }
    }
    cases
}

/// A bound caller of this system with nobody beside it, with one who wants to hurt it, and with one
/// who wants to hurt somebody else.
fn misuses(system: System, level: u8) -> impl Iterator<Item = Case> {
    let alone = Case::one(system, level, 0).bound(Bound::Caller);
    let beside = move |misuse| {
        [Aim::Here, Aim::Elsewhere].map(|aim| Case { misuse: Some(Harm { misuse, aim }), ..alone })
    };
    [alone].into_iter().chain(Misuse::VARIANTS.iter().copied().flat_map(beside))
}

/// Bound callers: ours at the first priority, peers under load. Of those that are not bound, one
/// among the most others, and as many as there are to be.
fn is_of_a_bar(args: &RtArgs, case: &Case) -> bool {
    let most = args.callers.iter().max() == Some(&case.callers);
    let ends = [args.real_time_callers.iter().max(), args.real_time_callers.iter().min()];
    let counts = match case.bound {
        Bound::Nobody => {
            most && case.system == System::BatonTyped
                && ends.contains(&Some(&case.real_time_callers))
        }
        Bound::Caller | Bound::Both => most || case.system == System::BatonTyped,
    };
    counts && case.system != System::BatonUapiLibc && case.level.0 == args.priorities[0]
}

/// A sender at the first priority, by each system, among each number of ordinary ones and, if there
/// are many, a few.
fn one_ways(args: &RtArgs, is_wanted: impl Fn(&System) -> bool) -> impl Iterator<Item = OneWay> {
    let mut numbers = args.callers.clone();
    numbers
        .extend(args.callers.iter().any(|&senders| senders > FEW_SENDERS).then_some(FEW_SENDERS));
    numbers.sort_unstable();
    numbers.dedup();
    let level = args.priorities[0];
    let systems = one_way::SYSTEMS.into_iter().filter(is_wanted);
    systems.flat_map(move |system| {
        let numbers = numbers.clone().into_iter();
        numbers.map(move |senders| OneWay { system, level, senders })
    })
}

fn inversions(systems: impl Iterator<Item = System>) -> impl Iterator<Item = Inversion> {
    // A socket's server is one, whatever is said over it, and so is a looper, whatever it serves.
    let alike = [System::RsbinderRpc, System::BatonUapiLibc, System::KernelBinder];
    systems.filter(move |system| !alike.contains(system)).flat_map(|system| {
        let allowed = Inversion { system, allowed: true };
        let forbidden = inherits(system).then_some(Inversion { system, allowed: false });
        forbidden.into_iter().chain([allowed])
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

    fn has(plan: &Plan, system: System, level: u8, callers: usize, bound: Bound) -> bool {
        plan.cases.contains(&Case::one(system, level, callers).bound(bound))
    }

    #[test]
    fn everything_is_measured_once_a_round() {
        let plan = plan(&[]);
        assert_eq!((plan.n_calls, plan.period_us, plan.rounds), (2500, 2000, 5));
        // Six systems, one of them at two priorities, bound and not, with and without load; a queue
        // whose server is bound as well; six more callers, and four who want to hurt one of either
        // interface, or somebody else.
        assert_eq!(plan.cases.len(), 2 * (2 * (6 + 1) + 1) + 6 + 2 * 8);
        assert_eq!((plan.wake_ups.len(), plan.inversions.len()), (2, 4));
        for bound in [Bound::Nobody, Bound::Caller] {
            assert!(has(&plan, System::BatonTyped, 20, 100, bound));
            assert!(!has(&plan, System::Unix, 20, 100, bound));
        }
        for system in SYSTEMS {
            assert_eq!(
                has(&plan, system, 80, 0, Bound::Both),
                system == System::Mqueue,
                "{system:?}"
            );
        }
    }

    #[test]
    fn what_is_quick_keeps_what_bars_are_of() {
        let plan = plan(&["--quick"]);
        for callers in [0, 100] {
            assert!(has(&plan, System::BatonTyped, 80, callers, Bound::Caller));
        }
        for system in SYSTEMS {
            assert_eq!(
                has(&plan, system, 80, 100, Bound::Caller),
                system != System::BatonUapiLibc,
                "{system:?}"
            );
        }
        assert!(has(&plan, System::Mqueue, 80, 100, Bound::Both));
        let several = plan.cases.iter().filter(|case| case.bound == Bound::Nobody);
        let several: Vec<usize> = several.map(|case| case.real_time_callers).collect();
        assert_eq!((several, plan.cases.len()), (vec![1, 7], 9 + 8));
        assert_eq!((plan.inversions.len(), plan.steady.len()), (2, 2));
    }

    #[test]
    fn parts_and_peers() {
        let inversion = plan(&["--parts", "inversion", "--peers", "unix"]);
        assert!(inversion.cases.is_empty() && inversion.wake_ups.is_empty());
        let systems = inversion.inversions.iter().map(|inversion| inversion.system);
        assert_eq!(
            systems.collect::<Vec<_>>(),
            [System::BatonTyped, System::BatonTyped, System::Unix]
        );
        let misuse = plan(&["--parts", "misuse"]);
        assert_eq!((misuse.cases.len(), misuse.inversions.len(), misuse.steady.len()), (18, 0, 0));
        let one_way = plan(&["--parts", "one-way", "--peers", "unix,mqueue"]).one_ways;
        let senders: Vec<usize> = one_way.iter().map(|case| case.senders).take(3).collect();
        assert_eq!((senders, one_way.len()), (vec![0, 20, 100], 4 * 3));
        assert!(
            has(&misuse, System::BatonTyped, 80, 0, Bound::Caller),
            "what they are compared with"
        );
    }
}
