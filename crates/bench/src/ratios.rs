//! What the `rpc` benchmark must hold, and what else it says by a stable name.

use crate::payload::{COMMON_BYTES, HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::processors::Placement::{self, Different, Same};
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results};
use crate::system::System::{self, *};

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
    pub calls: Results,
    pub counting: Counting,
}

/// A name, the row over, the row under, and the bar.
type Definition = (String, RowKey, RowKey, Option<Bar>);

/// The row of one system's calls.
pub fn call(system: System, placement: Placement, payload_bytes: usize) -> RowKey {
    let (name, case) = system.row();
    RowKey::new(name, case).bytes(payload_bytes).at(placement).label(system.name())
}

fn small(system: System, placement: Placement) -> RowKey {
    call(system, placement, SMALL_BYTES)
}

/// What holds of instructions, the kernel's included. They are of one processor.
fn of_instructions() -> Vec<Definition> {
    let of = |system| small(system, Same);
    let kernel_over = |name: &str, under| (name.to_owned(), of(KernelBinder), of(under), None);
    let name = "guest_instructions_over_futex".to_owned();
    vec![
        (name, of(BatonTyped), of(Futex), Some(Bar::AtMost(1.15))),
        kernel_over("guest_instructions_kernel_binder_over_typed", BatonTyped),
        kernel_over("guest_instructions_kernel_binder_over_uapi_libc", BatonUapiLibc),
    ]
}

fn of_times() -> Vec<Definition> {
    let (same, apart) = (|system| small(system, Same), |system| small(system, Different));
    let common = |system| call(system, Same, COMMON_BYTES);
    let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
    let (typed, typed_apart) = (same(BatonTyped), apart(BatonTyped));
    let (libc, kernel) = (same(BatonUapiLibc), same(KernelBinder));
    // One memcpy of the payload and a call of four bytes.
    let loan = |placement, bytes| call(BatonLoan, placement, bytes);
    let floor = |placement, bytes| call(Memcpy, placement, bytes);
    let (large, huge) = (LARGE_BYTES, HUGE_BYTES);
    let definitions = [
        ("typed_same_over_futex", typed.clone(), same(Futex), at_most(1.2)),
        ("unix_same_over_uapi_libc", same(Unix), libc.clone(), at_least(1.0)),
        ("typed_diff_over_spin", typed_apart.clone(), apart(FutexSpin), at_most(2.0)),
        ("unix_diff_over_typed", apart(Unix), typed_apart, at_least(10.0)),
        ("typed_124_over_4", common(BatonTyped), typed.clone(), at_most(1.1)),
        ("uapi_libc_same_over_futex", libc.clone(), same(Futex), None),
        ("uapi_trap_same_over_futex", same(BatonUapiTrap), same(Futex), None),
        ("mounted_same_over_pipe", same(BatonMounted), same(Pipe), None),
        ("mounted_stored_same_over_pipe", same(BatonMountedStored), same(Pipe), None),
        ("mounted_stored_same_over_mounted", same(BatonMountedStored), same(BatonMounted), None),
        ("mounted_same_over_uapi_trap", same(BatonMounted), same(BatonUapiTrap), None),
        ("loan_64k_over_floor", loan(Same, large), floor(Same, large), at_most(1.3)),
        ("loan_64k_diff_over_floor", loan(Different, large), floor(Different, large), at_most(1.3)),
        ("loan_1m_over_floor", loan(Same, huge), floor(Same, huge), None),
        ("loan_1m_diff_over_floor", loan(Different, huge), floor(Different, huge), None),
        ("kernel_binder_same_over_typed", kernel.clone(), typed, at_least(2.0)),
        ("kernel_binder_124_same_over_typed", common(KernelBinder), common(BatonTyped), None),
        ("kernel_binder_same_over_uapi_libc", kernel, libc, None),
    ];
    let named = |(name, over, under, bar): (&str, _, _, _)| (name.to_owned(), over, under, bar);
    let mut all = definitions.map(named).to_vec();
    for peer in System::called().filter(|system| system.is_peer()) {
        for (placement, word) in [(Same, "same"), (Different, "diff")] {
            let name = format!("{}_{word}_over_typed", peer.key());
            if peer.runs(placement) && all.iter().all(|other| other.0 != name) {
                all.push((name, small(peer, placement), small(BatonTyped, placement), None));
            }
        }
    }
    all
}

impl CallResults {
    /// Every ratio that has a bar, and those of systems that were to be measured: medians over
    /// medians.
    pub fn ratios(&self) -> Vec<Ratio> {
        let definitions = match self.counting {
            Counting::Time => of_times(),
            Counting::Instructions => of_instructions(),
        };
        let ratio = |(name, over, under, bar)| self.calls.ratio(name, [&over, &under], P50, bar);
        definitions.into_iter().filter_map(ratio).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(medians: &[(System, Placement, usize, u64)]) -> CallResults {
        let mut results = CallResults::default();
        for &(system, placement, payload_bytes, median_ns) in medians {
            for time_ns in [median_ns - 1, median_ns, median_ns + 1] {
                let key = call(system, placement, payload_bytes);
                results.calls.add_times(key, Ok::<_, String>(vec![time_ns]));
            }
        }
        results
    }

    fn miss(results: &mut CallResults, system: System, why: &str) {
        let (name, case) = system.row();
        results.calls.ok(RowKey::new(name, case).label(system.name()), Err::<(), _>(why));
    }

    fn find(results: &CallResults, name: &str) -> Ratio {
        results.ratios().into_iter().find(|ratio| ratio.name == name).unwrap()
    }

    #[test]
    fn every_name_is_there_once() {
        let mut results = CallResults::default();
        System::called().for_each(|system| miss(&mut results, system, "asleep"));
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
        for (typed_ns, holds) in [(1200, true), (1210, false)] {
            let results = results(&[(BatonTyped, Same, 4, typed_ns), (Futex, Same, 4, 1000)]);
            let ratio = find(&results, "typed_same_over_futex");
            assert_eq!((ratio.value, ratio.holds), (Some(typed_ns as f64 / 1000.0), Some(holds)));
        }
        for (unix_ns, holds) in [(1000, true), (990, false)] {
            let results = results(&[(Unix, Same, 4, unix_ns), (BatonUapiLibc, Same, 4, 1000)]);
            assert_eq!(find(&results, "unix_same_over_uapi_libc").holds, Some(holds));
        }
    }

    #[test]
    fn what_was_not_asked_for_is_no_ratio() {
        let results = results(&[(BatonTyped, Same, 4, 1000)]);
        // But for bars, which do not hold by not being measured.
        assert!(results.ratios().iter().all(|ratio| ratio.bar.is_some()));
        assert!(results.ratios().iter().any(|ratio| ratio.holds == Some(false)));
    }

    #[test]
    fn the_kernels_binder_has_a_bar_unless_it_is_excused() {
        let name = "kernel_binder_same_over_typed";
        for (kernel_ns, holds) in [(2000, true), (1990, false)] {
            let results =
                results(&[(BatonTyped, Same, 4, 1000), (KernelBinder, Same, 4, kernel_ns)]);
            assert_eq!(find(&results, name).holds, Some(holds));
        }
        let mut results = results(&[(BatonTyped, Same, 4, 1000)]);
        miss(&mut results, KernelBinder, "no device");
        assert_eq!(find(&results, name).holds, Some(false));
        results.calls.excuse(KernelBinder.name());
        assert_eq!(find(&results, name).holds, None);
    }

    #[test]
    fn instructions_have_ratios_of_their_own() {
        for (typed_count, holds) in [(1150, true), (1160, false)] {
            let mut results =
                results(&[(BatonTyped, Same, 4, typed_count), (Futex, Same, 4, 1000)]);
            results.counting = Counting::Instructions;
            assert_eq!(find(&results, "guest_instructions_over_futex").holds, Some(holds));
            assert!(results.ratios().iter().all(|ratio| ratio.name != "typed_same_over_futex"));
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut results = results(&[(BatonTyped, Same, 4, 1000)]);
        miss(&mut results, Futex, "asleep");
        let ratio = find(&results, "typed_same_over_futex");
        assert_eq!(ratio.why.as_deref(), Some("futex: asleep"));
        assert_eq!(ratio.holds, Some(false));
    }
}
