//! What the `rpc` benchmark must hold, and what else it says by a stable name.

use crate::processors::Placement::{self, Different, Same};
use crate::report::{Bar, Ratio};
use crate::results::Results;
use crate::system::System;
use std::collections::{BTreeMap, BTreeSet};

/// One case of one system: a row, if it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub placement: Placement,
    /// Bytes there, and the same back.
    pub payload_bytes: usize,
    pub system: System,
}

/// What the clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Time.
    #[default]
    Time,
    Instructions,
}

/// What was measured of calls, one at a time.
#[derive(Debug, Default)]
pub struct CallResults {
    pub calls: Results<Case>,
    /// Payloads that a system cannot carry, and why.
    pub too_large: BTreeMap<(System, usize), &'static str>,
    /// Systems whose absence is nobody's fault: bars are not of them.
    pub excused: BTreeSet<System>,
    pub counting: Counting,
}

/// The bytes that ratios are of, unless they say otherwise: an `int`, as a status or a handle is.
pub const SMALL_BYTES: usize = 4;
/// A request of some fields, as most are.
pub const COMMON_BYTES: usize = 124;
/// A large payload: the least that is worth a loan.
pub const LARGE_BYTES: usize = 65536;
pub const HUGE_BYTES: usize = 1 << 20;

struct Definition {
    name: String,
    over: Case,
    under: Case,
    bar: Option<Bar>,
}

fn definition(name: &str, over: Case, under: Case, bar: Option<Bar>) -> Definition {
    Definition { name: name.to_owned(), over, under, bar }
}

fn small(system: System, placement: Placement) -> Case {
    Case { placement, payload_bytes: SMALL_BYTES, system }
}

/// What holds of instructions, the kernel's included. They are of one processor.
fn of_instructions() -> Vec<Definition> {
    let of = |system| small(system, Same);
    let (typed, bar) = (of(System::BatonTyped), Some(Bar::AtMost(1.15)));
    let kernel = of(System::KernelBinder);
    let libc = of(System::BatonUapiLibc);
    vec![
        definition("guest_instructions_over_futex", typed, of(System::Futex), bar),
        definition("guest_instructions_kernel_binder_over_typed", kernel, typed, None),
        definition("guest_instructions_kernel_binder_over_uapi_libc", kernel, libc, None),
    ]
}

fn of_times() -> Vec<Definition> {
    use System::*;
    let typed = |placement| small(BatonTyped, placement);
    let common = Case { payload_bytes: COMMON_BYTES, ..typed(Same) };
    let (libc, trap) = (small(BatonUapiLibc, Same), small(BatonUapiTrap, Same));
    let (futex, unix) = (small(Futex, Same), small(Unix, Same));
    let twice = Some(Bar::AtLeast(2.0));
    let (spin, unix_apart) = (small(FutexSpin, Different), small(Unix, Different));
    let mut all = vec![
        definition("typed_same_over_futex", typed(Same), futex, Some(Bar::AtMost(1.2))),
        definition("unix_same_over_uapi_libc", unix, libc, Some(Bar::AtLeast(1.0))),
        definition("typed_diff_over_spin", typed(Different), spin, Some(Bar::AtMost(2.0))),
        definition("unix_diff_over_typed", unix_apart, typed(Different), Some(Bar::AtLeast(10.0))),
        definition("typed_124_over_4", common, typed(Same), Some(Bar::AtMost(1.1))),
        definition("uapi_libc_same_over_futex", libc, futex, None),
        definition("uapi_trap_same_over_futex", trap, futex, None),
    ];
    let kernel_124 = Case { system: KernelBinder, ..common };
    all.extend(of_loans());
    all.extend([
        definition("kernel_binder_same_over_typed", small(KernelBinder, Same), typed(Same), twice),
        definition("kernel_binder_124_same_over_typed", kernel_124, common, None),
        definition("kernel_binder_same_over_uapi_libc", small(KernelBinder, Same), libc, None),
    ]);
    for &peer in System::ALL.iter().filter(|system| system.is_peer()) {
        for (placement, word) in [(Same, "same"), (Different, "diff")] {
            let name = format!("{}_{word}_over_typed", peer.key());
            if peer.runs(placement) && all.iter().all(|other| other.name != name) {
                all.push(definition(&name, small(peer, placement), typed(placement), None));
            }
        }
    }
    all
}

/// One memcpy of the payload and a call of four bytes.
fn of_loans() -> impl Iterator<Item = Definition> {
    let bar = Some(Bar::AtMost(1.3));
    let cases = [
        ("loan_64k_over_floor", Same, LARGE_BYTES, bar),
        ("loan_64k_diff_over_floor", Different, LARGE_BYTES, bar),
        ("loan_1m_over_floor", Same, HUGE_BYTES, None),
        ("loan_1m_diff_over_floor", Different, HUGE_BYTES, None),
    ];
    cases.into_iter().map(|(name, placement, payload_bytes, bar)| {
        let case = |system| Case { placement, payload_bytes, system };
        definition(name, case(System::BatonLoan), case(System::Memcpy), bar)
    })
}

impl CallResults {
    /// Every ratio that has a bar, and those of systems that were to be measured: medians over
    /// medians.
    pub fn ratios(&self) -> Vec<Ratio> {
        let definitions = match self.counting {
            Counting::Time => of_times(),
            Counting::Instructions => of_instructions(),
        };
        definitions.into_iter().filter_map(|definition| self.ratio(definition)).collect()
    }

    fn ratio(&self, Definition { name, over, under, bar }: Definition) -> Option<Ratio> {
        let cases = [over, under];
        let bar = bar.filter(|_| cases.iter().all(|case| !self.excused.contains(&case.system)));
        let asked = |case: &Case| {
            let measured = self.calls.measured.keys().any(|known| known.system == case.system);
            measured || self.calls.missing.contains_key(case.system.name())
        };
        let told = bar.is_some() || cases.iter().all(asked);
        let find = |case: &Case| self.calls.find(case, case.system.name());
        told.then(|| Ratio::of(name, find(&over), find(&under), bar))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(medians: &[(System, Placement, usize, u64)]) -> CallResults {
        let mut results = CallResults::default();
        for &(system, placement, payload_bytes, median_ns) in medians {
            let distribution = results
                .calls
                .measured
                .entry(Case { placement, payload_bytes, system })
                .or_default();
            for time_ns in [median_ns - 1, median_ns, median_ns + 1] {
                distribution.add_round(&[time_ns]);
            }
        }
        results
    }

    fn find(results: &CallResults, name: &str) -> Ratio {
        results.ratios().into_iter().find(|ratio| ratio.name == name).unwrap()
    }

    #[test]
    fn every_name_is_there_once() {
        let mut results = CallResults::default();
        let missing = System::ALL.iter().map(|system| (system.name(), "asleep".to_owned()));
        results.calls.missing.extend(missing);
        let ratios = results.ratios();
        for name in [
            "typed_same_over_futex",
            "unix_same_over_uapi_libc",
            "typed_diff_over_spin",
            "unix_diff_over_typed",
            "typed_124_over_4",
            "loan_64k_over_floor",
            "loan_64k_diff_over_floor",
            "loan_1m_over_floor",
            "loan_1m_diff_over_floor",
            "uapi_libc_same_over_futex",
            "uapi_trap_same_over_futex",
            "futex_same_over_typed",
            "futex_spin_diff_over_typed",
            "rsbinder_rpc_same_over_typed",
            "kernel_binder_same_over_typed",
            "kernel_binder_124_same_over_typed",
            "kernel_binder_same_over_uapi_libc",
        ] {
            assert_eq!(ratios.iter().filter(|ratio| ratio.name == name).count(), 1, "{name}");
        }
        assert!(ratios.iter().all(|ratio| ratio.value.is_none() && ratio.why.is_some()));
    }

    #[test]
    fn bars() {
        let (typed, futex) = (System::BatonTyped, System::Futex);
        for (typed_ns, holds) in [(1200, true), (1210, false)] {
            let results = results(&[(typed, Same, 4, typed_ns), (futex, Same, 4, 1000)]);
            let ratio = find(&results, "typed_same_over_futex");
            assert_eq!((ratio.value, ratio.holds), (Some(typed_ns as f64 / 1000.0), Some(holds)));
        }
        let (unix, libc) = (System::Unix, System::BatonUapiLibc);
        for (unix_ns, holds) in [(1000, true), (990, false)] {
            let results = results(&[(unix, Same, 4, unix_ns), (libc, Same, 4, 1000)]);
            assert_eq!(find(&results, "unix_same_over_uapi_libc").holds, Some(holds));
        }
    }

    #[test]
    fn what_was_not_asked_for_is_no_ratio() {
        let results = results(&[(System::BatonTyped, Same, 4, 1000)]);
        // But for bars, which do not hold by not being measured.
        assert!(results.ratios().iter().all(|ratio| ratio.bar.is_some()));
        assert!(results.ratios().iter().any(|ratio| ratio.holds == Some(false)));
    }

    #[test]
    fn the_kernels_binder_has_a_bar_unless_it_is_excused() {
        let (typed, kernel) = (System::BatonTyped, System::KernelBinder);
        let name = "kernel_binder_same_over_typed";
        for (kernel_ns, holds) in [(2000, true), (1990, false)] {
            let results = results(&[(typed, Same, 4, 1000), (kernel, Same, 4, kernel_ns)]);
            assert_eq!(find(&results, name).holds, Some(holds));
        }
        let mut results = results(&[(typed, Same, 4, 1000)]);
        results.calls.missing.insert(kernel.name(), "no device".into());
        assert_eq!(find(&results, name).holds, Some(false));
        results.excused.insert(kernel);
        assert_eq!(find(&results, name).holds, None);
    }

    #[test]
    fn instructions_have_ratios_of_their_own() {
        let (typed, futex) = (System::BatonTyped, System::Futex);
        for (typed_count, holds) in [(1150, true), (1160, false)] {
            let mut results = results(&[(typed, Same, 4, typed_count), (futex, Same, 4, 1000)]);
            results.counting = Counting::Instructions;
            assert_eq!(find(&results, "guest_instructions_over_futex").holds, Some(holds));
            assert!(results.ratios().iter().all(|ratio| ratio.name != "typed_same_over_futex"));
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut results = results(&[(System::BatonTyped, Same, 4, 1000)]);
        results.calls.missing.insert("futex", "asleep".into());
        let ratio = find(&results, "typed_same_over_futex");
        assert_eq!(ratio.why.as_deref(), Some("futex: asleep"));
        assert_eq!(ratio.holds, Some(false));
    }
}
