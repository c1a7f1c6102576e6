//! Calls that carry objects and descriptors, beside plain calls of the same processes.
//!
//! A system has a client, a server and, if it is Binder, the owner of a service that the server
//! knows. Whatever a case's calls have taken has been given back when its round ends, else the row
//! is missing: both ends count, and of Baton's systems the broker is asked, too.

use crate::case::Case;
use crate::form::{BenchError, progress};
use crate::object_client::SENT_BYTES;
use crate::order::{Chunk, Side};
use crate::pair::{ClientGroup, Endpoint, Pair, PairError, Place};
use crate::plan::{Counting, Plan};
use crate::processors::Placement::{self, Different, Same};
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{MEAN, P50, Results, Value};
use crate::service::Service;
use crate::system::System::{self, *};
use crate::testbed::Testbed;
use crate::throughput;
use baton_driver::observer::Observer;
use std::path::Path;
use std::time::{Duration, Instant};

/// Systems that are measured, if the run measures them at all.
const SYSTEMS: [System; 6] = [BatonTyped, BatonUapiLibc, BatonUapiTrap, KernelBinder, Unix, Capnp];
/// Systems of which many clients are measured.
const CROWDS: [System; 3] = [BatonTyped, BatonUapiLibc, KernelBinder];
const N_CLIENTS: usize = 8;
/// How long references may take to be given back to the broker.
const PATIENCE: Duration = Duration::from_secs(2);

fn chunk(n_calls: u32, case: Case, placement: Placement) -> Chunk {
    let n_calls = (n_calls / case.fewer()).max(1);
    let n_warm_up = (n_calls / 10).clamp(1, 500);
    Chunk { case, ..Chunk::new(placement, SENT_BYTES, n_warm_up, n_calls) }
}

fn crowd_chunk(n_calls: u32, case: Case) -> Chunk {
    let n_calls = (n_calls / 5).max(1);
    Chunk { case, ..Chunk::new(None, SENT_BYTES, (n_calls / 10).max(1), n_calls) }
}

fn measures(system: System, case: Case) -> bool {
    match system {
        Unix => case == Case::Descriptor,
        // Two-party RPC introduces nobody to a third process.
        Capnp => case <= Case::HandleHome,
        _ => true,
    }
}

fn key(system: System, case: Case, placement: Placement) -> RowKey {
    let bytes = (case != Case::LinkUnlink).then_some(SENT_BYTES);
    let title = format!("{}, {}", case.name(), Placement::title(Some(placement)));
    RowKey::new(system.name(), case.name()).bytes(bytes).at(placement).heading(title)
}

/// Of all its cases.
fn whole(system: System) -> RowKey {
    RowKey::new(system.name(), "objects")
}

fn crowd(system: System, case: Case) -> RowKey {
    let title = format!("{}, clients at once: {N_CLIENTS}", case.name());
    let key = RowKey::new(system.name(), case.name()).bytes(SENT_BYTES);
    key.with("clients", N_CLIENTS).heading(title)
}

/// The processes of one system.
struct Processes {
    pair: Pair,
    _owner: Option<Endpoint>,
}

impl Processes {
    fn start(system: System, place: Place<'_>) -> Result<Processes, PairError> {
        let pair = Pair::start(system, place)?;
        let owner = || Endpoint::start(system, Side::Owner, place, 1);
        Ok(Processes { pair, _owner: system.is_binder().then(owner).transpose()? })
    }
}

/// How many objects processes hold of each other, as the broker knows and their owners say, the
/// context manager's apart.
fn held(broker: &Path) -> Result<usize, String> {
    let observer = Observer::connect(broker).map_err(|error| error.to_string())?;
    let report = observer.report().map_err(|errno| format!("ask the broker: {errno}"))?;
    let mut held = 0;
    for context in &report.contexts {
        for process in &context.processes {
            // A server's first node is the context manager's, to which others get handle 0 when
            // they call.
            let manages = |node: u64| context.manager == Some(process.process) && node == 1;
            held += process.holdings.iter().filter(|&&(node, ..)| !manages(node)).count();
        }
    }
    Ok(held)
}

/// Measures, and sees that the broker knows of no more references afterwards.
fn with_nothing_left<T>(
    broker: &Path,
    measure: impl FnOnce() -> Result<T, PairError>,
) -> Result<T, String> {
    let before = held(broker)?;
    let measured = measure().map_err(|error| error.to_string())?;
    let start = Instant::now();
    loop {
        let more = held(broker)?.saturating_sub(before);
        if more == 0 {
            return Ok(measured);
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("at the end the broker knows of {more} handles more than before"));
        }
        std::thread::yield_now();
    }
}

fn has_crowds(plan: &Plan) -> bool {
    plan.is_timed() && plan.cases.contains(&Case::ObjectKnown)
}

/// Those of some systems that the plan measures in one of its cases.
fn wanted(plan: &Plan, systems: impl IntoIterator<Item = System>) -> Vec<System> {
    let mut wanted = plan.wanted(systems);
    wanted.retain(|&system| plan.cases.iter().any(|&case| measures(system, case)));
    wanted
}

pub fn measure(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    measure_calls(plan, found)?;
    if has_crowds(plan) { measure_crowds(plan, found) } else { Ok(()) }
}

fn measure_calls(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    let testbed = Testbed::start()?;
    let place = testbed.place(Service::Objects);
    let mut started = found
        .start(wanted(plan, SYSTEMS), |system| (whole(system), Processes::start(system, place)));
    let progress = progress(plan.cases.len() * plan.placements.len() * plan.rounds as usize);
    for &case in &plan.cases {
        for &placement in &plan.placements {
            progress.set_message(format!("{}, {}", case.name(), Placement::title(Some(placement))));
            let chunk = chunk(plan.n_calls, case, placement);
            for _ in 0..plan.rounds {
                for (system, processes) in &mut started {
                    let key = key(*system, case, placement);
                    if measures(*system, case) && !found.is_missing(&key) {
                        let measure = || processes.pair.measure(&chunk, &plan.processors);
                        found.add_times(key, with_nothing_left(place.broker, measure));
                    }
                }
                progress.inc(1);
            }
        }
    }
    Ok(())
}

fn measure_crowds(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    let testbed = Testbed::start()?;
    let place = testbed.place(Service::Objects);
    let mut groups = found.start(wanted(plan, CROWDS), |system| {
        (whole(system), ClientGroup::start(system, N_CLIENTS, place))
    });
    for case in [Case::Plain, Case::ObjectKnown] {
        let chunk = crowd_chunk(plan.n_calls, case);
        for _ in 0..plan.rounds {
            groups.retain_mut(|(system, group)| {
                let measure = || group.measure(N_CLIENTS, &chunk);
                let round = with_nothing_left(place.broker, measure);
                found.add(crowd(*system, case), round, throughput::add)
            });
        }
    }
    Ok(())
}

/// Each case over plain calls, of peers also over the typed API's, the kernel's driver also over
/// the same program on Baton, descriptors also over the socket's, and many clients with an object
/// over many without.
pub fn ratios(plan: &Plan, found: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let mut add = |name, keys: [RowKey; 2], value, bar: Option<Bar>| {
        ratios.extend(found.ratio_if_asked(name, keys.each_ref(), value, bar));
    };
    let timed = |bar: Option<Bar>| bar.filter(|_| plan.is_timed());
    let cases = |system| plan.cases.iter().copied().filter(move |&case| measures(system, case));
    for system in SYSTEMS.into_iter().filter(|&system| system != Unix) {
        for case in cases(system).filter(|&case| case != Case::Plain) {
            for &placement in &plan.placements {
                let word = ratio_name(system, case, placement);
                let over = |system, case| key(system, case, placement);
                let bar = timed(bar(system, case, placement));
                let plain = [over(system, case), over(system, Case::Plain)];
                add(word.clone() + "_over_plain", plain, P50, bar);
                if system.is_peer() {
                    let typed = [over(system, case), over(BatonTyped, case)];
                    add(word + "_over_typed", typed, P50, None);
                }
            }
        }
    }
    for case in cases(KernelBinder) {
        for &placement in &plan.placements {
            let keys = [KernelBinder, BatonUapiLibc].map(|system| key(system, case, placement));
            if let Some((name, value, bar)) = kernel_ratio(plan.counting, case, placement) {
                add(name + "_over_uapi_libc", keys, value, bar);
            }
        }
    }
    let has_descriptors = plan.cases.contains(&Case::Descriptor);
    for system in SYSTEMS.into_iter().filter(|system| has_descriptors && system.is_binder()) {
        for &placement in &plan.placements {
            let keys = [system, Unix].map(|system| key(system, Case::Descriptor, placement));
            let name = ratio_name(system, Case::Descriptor, placement) + "_over_unix";
            add(name, keys, P50, timed(is_ours(system).then_some(Bar::AtMost(1.2))));
        }
    }
    for system in CROWDS.into_iter().filter(|_| has_crowds(plan)) {
        let name = format!("{}_object_known_{N_CLIENTS}_clients_over_plain", ratio_word(system));
        let keys = [Case::ObjectKnown, Case::Plain].map(|case| crowd(system, case));
        let calls: Value = |rounds| rounds.values(throughput::CALLS);
        add(name, keys, calls, is_ours(system).then_some(Bar::AtLeast(0.5)));
    }
    ratios
}

/// The kernel's driver over Baton, of the same program: in instructions by their mean, so that work
/// which either puts off and does for many calls at once counts.
fn kernel_ratio(
    counting: Counting,
    case: Case,
    placement: Placement,
) -> Option<(String, Value, Option<Bar>)> {
    match (counting, placement) {
        (Counting::Time, _) => Some((ratio_name(KernelBinder, case, placement), P50, None)),
        (Counting::Instructions, Same) => {
            let name = format!("guest_instructions_kernel_binder_{}", case.name());
            Some((name, MEAN, instructions_bar(case)))
        }
        (Counting::Instructions, Different) => None,
    }
}

/// As ratios name it: the interposed program is that which calls the C library.
fn ratio_word(system: System) -> String {
    let key = system.key();
    match system {
        BatonUapiLibc => "uapi".to_owned(),
        _ => key.strip_prefix("baton_").unwrap_or(&key).to_owned(),
    }
}

fn ratio_name(system: System, case: Case, placement: Placement) -> String {
    let word = if placement == Same { "same" } else { "diff" };
    format!("{}_{}_{word}", ratio_word(system), case.name())
}

/// Whether there are bars of it.
fn is_ours(system: System) -> bool {
    matches!(system, BatonTyped | BatonUapiLibc)
}

/// How many times a plain call a case may take.
fn bar(system: System, case: Case, placement: Placement) -> Option<Bar> {
    use Case::*;
    let most = match (case, system, placement) {
        (ObjectKnown | ObjectInReply | HandleHome, BatonTyped, Same) => 1.5,
        (ObjectKnown | ObjectInReply | HandleHome, BatonUapiLibc, Same) => 1.3,
        (ObjectKnown | ObjectInReply | HandleHome, _, Different) => 2.5,
        (ObjectDropped, BatonTyped, Same) => 2.5,
        (ObjectDropped, BatonUapiLibc, Same) => 1.8,
        (ObjectNew, BatonTyped, Same) => 3.0,
        (ObjectNew, BatonUapiLibc, Same) => 1.7,
        (GetService, _, Same) => 2.0,
        _ => return None,
    };
    is_ours(system).then_some(Bar::AtMost(most))
}

/// How many times the instructions of a case on Baton the kernel's driver has to take.
fn instructions_bar(case: Case) -> Option<Bar> {
    match case {
        Case::Plain => None,
        Case::ObjectNew => Some(Bar::AtLeast(1.2)),
        _ => Some(Bar::AtLeast(1.5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray;

    fn all_cases() -> Plan {
        let (placements, cases) = (vec![Same, Different], Case::VARIANTS.iter().copied().collect());
        Plan { placements, cases, ..Plan::default() }
    }

    fn results(medians: &[(System, Case, Placement, u64)]) -> Results {
        let mut found = Results::default();
        for &(system, case, placement, median_ns) in medians {
            let times_ns = vec![median_ns; 3];
            found.add_times(key(system, case, placement), Ok::<_, String>(times_ns));
        }
        found
    }

    fn find(plan: &Plan, found: &Results, name: &str) -> Ratio {
        let ratios = ratios(plan, found);
        let mut named = ratios.iter().filter(|ratio| ratio.name == name);
        let found = named.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(named.next().is_none(), "{name} is there twice");
        found.clone()
    }

    #[test]
    fn every_bar_is_there_and_fails_unless_it_is_measured() {
        let (plan, found) = (all_cases(), results(&[]));
        let ratios = ratios(&plan, &found);
        assert!(ratios.iter().all(|ratio| ratio.bar.is_some() && ratio.holds == Some(false)));
        for (name, bar) in [
            ("typed_object_known_same_over_plain", 1.5),
            ("uapi_object_known_same_over_plain", 1.3),
            ("typed_object_known_diff_over_plain", 2.5),
            ("uapi_object_in_reply_same_over_plain", 1.3),
            ("uapi_handle_home_diff_over_plain", 2.5),
            ("typed_object_dropped_same_over_plain", 2.5),
            ("uapi_object_dropped_same_over_plain", 1.8),
            ("typed_object_new_same_over_plain", 3.0),
            ("uapi_object_new_same_over_plain", 1.7),
            ("typed_get_service_same_over_plain", 2.0),
            ("uapi_get_service_same_over_plain", 2.0),
            ("typed_descriptor_same_over_unix", 1.2),
            ("uapi_descriptor_diff_over_unix", 1.2),
            ("typed_object_known_8_clients_over_plain", 0.5),
            ("uapi_object_known_8_clients_over_plain", 0.5),
        ] {
            assert_eq!(find(&plan, &found, name).bar, Some(bar), "{name}");
        }
    }

    #[test]
    fn a_case_is_told_over_plain_calls_of_the_same_placement() {
        let found = results(&[
            (BatonTyped, Case::Plain, Same, 1000),
            (BatonTyped, Case::Plain, Different, 100),
            (BatonTyped, Case::ObjectKnown, Same, 1500),
            (BatonTyped, Case::ObjectKnown, Different, 260),
            (BatonTyped, Case::LinkUnlink, Same, 9000),
            (BatonTyped, Case::Descriptor, Same, 2400),
            (Unix, Case::Descriptor, Same, 2000),
        ]);
        for (name, value, holds) in [
            ("typed_object_known_same_over_plain", 1.5, Some(true)),
            ("typed_object_known_diff_over_plain", 2.6, Some(false)),
            ("typed_link_unlink_same_over_plain", 9.0, None),
            ("typed_descriptor_same_over_unix", 1.2, Some(true)),
        ] {
            let ratio = find(&all_cases(), &found, name);
            assert_eq!((ratio.value, ratio.holds), (Some(value), holds), "{name}");
        }
    }

    #[test]
    fn cases_that_were_not_asked_for_have_no_ratios() {
        let cases = [Case::Plain, Case::GetService].into();
        let ratios = ratios(&Plan { cases, ..all_cases() }, &results(&[]));
        let names: Vec<&str> = ratios.iter().map(|ratio| ratio.name.as_str()).collect();
        let expected = ["typed_get_service_same_over_plain", "uapi_get_service_same_over_plain"];
        assert_eq!(names, expected);
    }

    #[test]
    fn instructions_have_bars_over_the_kernel_alone() {
        let plan = Plan { counting: Counting::Instructions, ..all_cases() };
        let found = results(&[
            (BatonUapiLibc, Case::ObjectKnown, Same, 1000),
            (KernelBinder, Case::ObjectKnown, Same, 1500),
            (BatonUapiLibc, Case::ObjectNew, Same, 1000),
            (KernelBinder, Case::ObjectNew, Same, 1190),
        ]);
        let all = ratios(&plan, &found);
        let of_the_kernel = |ratio: &&Ratio| ratio.name.starts_with("guest_instructions_kernel");
        assert_eq!(all.iter().filter(|ratio| ratio.bar.is_some()).count(), 11);
        assert!(all.iter().filter(|ratio| ratio.bar.is_some()).all(|it| of_the_kernel(&it)));
        for (case, value, holds) in [
            ("plain", None, None),
            ("object_known", Some(1.5), Some(true)),
            ("object_new", Some(1.19), Some(false)),
            ("first_contact", None, Some(false)),
        ] {
            let name = format!("guest_instructions_kernel_binder_{case}_over_uapi_libc");
            let ratio = find(&plan, &found, &name);
            assert_eq!((ratio.value, ratio.holds), (value, holds), "{name}");
        }
        let excusing = Results::excusing([KernelBinder.name()].into_iter());
        assert!(ratios(&plan, &excusing).iter().all(|ratio| ratio.bar.is_none()));
    }

    #[test]
    fn many_clients_are_told_by_their_calls_a_second() {
        let mut found = results(&[]);
        for (case, duration_ns) in [(Case::Plain, 1000), (Case::ObjectKnown, 4000)] {
            let together = crate::pair::Together { times_ns: vec![vec![100; 4]], duration_ns };
            let round = Ok::<_, String>(together);
            found.add(crowd(BatonTyped, case), round, throughput::add);
        }
        let ratio = find(&all_cases(), &found, "typed_object_known_8_clients_over_plain");
        assert_eq!((ratio.value, ratio.holds), (Some(0.25), Some(false)));
    }

    #[test]
    fn a_first_contact_takes_fewer_rounds_of_calls() {
        for (n, case, n_calls) in [
            (1000, Case::ObjectNew, 1000),
            (1000, Case::FirstContact, 20),
            (2, Case::FirstContact, 1),
        ] {
            assert_eq!(chunk(n, case, Same).n_calls, n_calls);
        }
    }
}
