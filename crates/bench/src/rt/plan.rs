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
    /// In the order of a round.
    pub steps: Vec<Step>,
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
        let mut steps: Vec<Step> = cases.into_iter().map(Step::Calls).collect();
        if has(Part::WakeUps) {
            let wanted = args.callers.iter().filter(|&&callers| !quick || callers == most);
            steps.extend(wanted.copied().map(Step::WakeUps));
        }
        if has(Part::Inversion) {
            // Of peers there is no bar.
            let wanted = inversions(systems()).filter(|it| !quick || inherits(it.system));
            steps.extend(wanted.map(Step::Inversion));
        }
        if has(Part::OneWay) {
            steps.extend(one_ways(args, is_wanted).map(Step::OneWay));
        }
        if has(Part::Steady) {
            steps.extend(Resource::ALL.map(Step::Steady));
        }
        let n_calls = args.calls.unwrap_or(n_calls);
        Plan {
            rounds: args.rounds,
            n_calls,
            period_us: args.period_us.unwrap_or(period_us),
            steps,
            n_inversions: n_calls.min(n_inversions),
            level: args.priorities[0],
            most_callers: most,
        }
    }
}

/// One measurement of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Calls(Case),
    /// Wake-ups beside so many ordinary callers.
    WakeUps(usize),
    /// Calls while somebody keeps the processor.
    Inversion(Inversion),
    /// Messages of a real-time sender.
    OneWay(OneWay),
    /// What of a steady call is counted.
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
        plan.steps.contains(&Step::Calls(Case::one(system, level, callers).bound(bound)))
    }

    fn cases(plan: &Plan) -> Vec<Case> {
        let case = |step: &Step| if let Step::Calls(case) = step { Some(*case) } else { None };
        plan.steps.iter().filter_map(case).collect()
    }

    /// Steps of calls, of wake-ups, of inversions, of one-way messages and of steady calls.
    fn n_steps(plan: &Plan) -> [usize; 5] {
        let mut n_steps = [0; 5];
        for step in &plan.steps {
            n_steps[match step {
                Step::Calls(_) => 0,
                Step::WakeUps(_) => 1,
                Step::Inversion(_) => 2,
                Step::OneWay(_) => 3,
                Step::Steady(_) => 4,
            }] += 1;
        }
        n_steps
    }

    #[test]
    fn everything_is_measured_once_a_round() {
        let plan = plan(&[]);
        assert_eq!((plan.n_calls, plan.period_us, plan.rounds), (2500, 2000, 5));
        // Six systems, one of them at two priorities, bound and not, with and without load; a queue
        // whose server is bound as well; six more callers, and four who want to hurt one of either
        // interface, or somebody else.
        let n_cases = 2 * (2 * (6 + 1) + 1) + 6 + 2 * 8;
        assert_eq!(n_steps(&plan), [n_cases, 2, 4, 5 * 3, 2]);
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
        let several = cases(&plan).into_iter().filter(|case| case.bound == Bound::Nobody);
        let several: Vec<usize> = several.map(|case| case.real_time_callers).collect();
        assert_eq!((several, n_steps(&plan)), (vec![1, 7], [9 + 8, 1, 2, 5 * 3, 2]));
    }

    #[test]
    fn parts_and_peers() {
        let inversion = plan(&["--parts", "inversion", "--peers", "unix"]);
        let of = |system, allowed| Step::Inversion(Inversion { system, allowed });
        let (typed, unix) = (System::BatonTyped, System::Unix);
        assert_eq!(inversion.steps, [of(typed, false), of(typed, true), of(unix, true)]);
        let misuse = plan(&["--parts", "misuse"]);
        assert_eq!(n_steps(&misuse), [18, 0, 0, 0, 0]);
        let one_way = plan(&["--parts", "one-way", "--peers", "unix,mqueue"]);
        assert_eq!(n_steps(&one_way), [0, 0, 0, 4 * 3, 0]);
        let of = |senders| Step::OneWay(OneWay { system: typed, level: 80, senders });
        assert_eq!(one_way.steps[..3], [0, 20, 100].map(of));
        assert!(
            has(&misuse, System::BatonTyped, 80, 0, Bound::Caller),
            "what they are compared with"
        );
    }
}
