//! Calls that carry objects and descriptors, beside plain calls of the same processes.
//!
//! A system has a client, a server and, if it is Binder, the owner of a service that the server
//! knows. Whatever a case's calls have taken has been given back when its round ends, else the row
//! is missing: both ends count, and of Baton's systems the broker is asked, too.

use crate::case::Case;
use crate::chart::Chart;
use crate::form::BenchError;
use crate::object_client::SENT_BYTES;
use crate::order::Side;
use crate::pair::{Chunk, ClientGroup, Endpoint, Pair, PairError, Place, start_each};
use crate::processors::Placement::{self, Different, Same};
use crate::processors::Processors;
use crate::ratios::Counting;
use crate::report::{Bar, Keys, Ratio, Row, RowKey};
use crate::results::{MEAN, P50, Results};
use crate::service::{Service, patiently};
use crate::system::System::{self, *};
use crate::testbed::{Setting, Testbed};
use crate::throughput;
use crate::turns::each_step;
use baton_driver::observer::Observer;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Systems that are measured, if the run measures them at all.
const SYSTEMS: [System; 6] = [BatonTyped, BatonUapiLibc, BatonUapiTrap, KernelBinder, Unix, Capnp];
/// Systems of which many clients are measured.
const CROWDS: [System; 3] = [BatonTyped, BatonUapiLibc, KernelBinder];
const N_CLIENTS: usize = 8;
/// How long references may take to be given back to the broker.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: u32,
    pub n_calls: u32,
    /// Plain calls among them, which the others are told over.
    pub cases: BTreeSet<Case>,
    pub counting: Counting,
}

impl Plan {
    fn chunk(&self, case: Case, placement: Placement) -> Chunk {
        let n_calls = (self.n_calls / case.fewer()).max(1);
        let n_warm_up = (n_calls / 10).clamp(1, 500);
        Chunk { case, ..Chunk::new(placement, SENT_BYTES, n_warm_up, n_calls) }
    }

    fn crowd(&self, case: Case) -> Chunk {
        let n_calls = (self.n_calls / 5).max(1);
        Chunk { case, ..Chunk::new(None, SENT_BYTES, (n_calls / 10).max(1), n_calls) }
    }
}

/// What was measured.
pub struct ObjectResults {
    calls: Results,
    crowds: Results,
    placements: Vec<Placement>,
    cases: BTreeSet<Case>,
    counting: Counting,
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
    let look = || match held(broker)?.saturating_sub(before) {
        0 => Ok(()),
        more => Err(format!("at the end the broker knows of {more} handles more than before")),
    };
    patiently(PATIENCE, |_| true, look)?;
    Ok(measured)
}

pub fn measure(
    setting: &Setting,
    systems: &[System],
    plan: Plan,
) -> Result<ObjectResults, BenchError> {
    let is_wanted = |system: &System| {
        systems.contains(system) && plan.cases.iter().any(|&case| measures(*system, case))
    };
    let mut found = ObjectResults {
        calls: Results::default(),
        crowds: Results::default(),
        placements: setting.placements(),
        cases: plan.cases.clone(),
        counting: plan.counting,
    };
    // Few machines have one: a run that does not ask for it need not say so.
    if !systems.contains(&KernelBinder) {
        found.calls.excuse(KernelBinder.name());
    }
    let testbed = Testbed::start()?;
    let place = testbed.place(Service::Objects);
    let systems = SYSTEMS.into_iter().filter(is_wanted);
    let start = |system| Processes::start(system, place);
    let mut started = start_each(systems, &mut found.calls, whole, start);
    found.measure_calls(&mut started, place.broker, &plan, &setting.processors);
    drop(started);
    if found.has_crowds() {
        let testbed = Testbed::start()?;
        found.measure_crowds(CROWDS.into_iter().filter(is_wanted), &testbed, &plan);
    }
    Ok(found)
}

impl ObjectResults {
    fn measure_calls(
        &mut self,
        started: &mut BTreeMap<System, Processes>,
        broker: &Path,
        plan: &Plan,
        processors: &Processors,
    ) {
        let cases = plan.cases.iter().flat_map(|&case| {
            self.placements.clone().into_iter().map(move |placement| (case, placement))
        });
        let cases: Vec<(Case, Placement)> = cases.collect();
        let title = |(case, placement): &(Case, Placement)| {
            format!("{}, {}", case.name(), Placement::title(Some(*placement)))
        };
        each_step(plan.rounds, &cases, title, |&(case, placement)| {
            let chunk = plan.chunk(case, placement);
            for (&system, processes) in started.iter_mut().filter(|it| measures(*it.0, case)) {
                let measure = || processes.pair.measure(&chunk, processors);
                let measure = || with_nothing_left(broker, measure);
                self.calls.measure(key(system, case, placement), measure);
            }
        });
    }

    fn measure_crowds(
        &mut self,
        systems: impl Iterator<Item = System>,
        testbed: &Testbed,
        plan: &Plan,
    ) {
        let place = testbed.place(Service::Objects);
        let start = |system| ClientGroup::start(system, N_CLIENTS, place);
        let mut groups = start_each(systems, &mut self.crowds, whole, start);
        let title = |case: &Case| format!("{}, {N_CLIENTS} clients", case.name());
        each_step(plan.rounds, &[Case::Plain, Case::ObjectKnown], title, |&case| {
            let chunk = plan.crowd(case);
            groups.retain(|&system, group| {
                let measure = || group.measure(N_CLIENTS, &chunk);
                let round = with_nothing_left(place.broker, measure);
                self.crowds.add(crowd(system, case), round, throughput::add)
            });
        });
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.calls.rows(|_, _| Keys::new());
        rows.extend(throughput::rows(&self.crowds));
        rows
    }

    pub fn charts(&self) -> Vec<Chart> {
        self.calls.charts().into_iter().chain(self.crowds.charts()).collect()
    }

    fn is_timed(&self) -> bool {
        self.counting == Counting::Time
    }

    fn has_crowds(&self) -> bool {
        self.is_timed() && self.cases.contains(&Case::ObjectKnown)
    }

    /// Each case over plain calls, of peers also over the typed API's, the kernel's driver also
    /// over the same program on Baton, descriptors also over the socket's, and many clients with
    /// an object over many without.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let cases = |system| self.cases.iter().copied().filter(move |&case| measures(system, case));
        for system in SYSTEMS.into_iter().filter(|&system| system != Unix) {
            for case in cases(system).filter(|&case| case != Case::Plain) {
                for &placement in &self.placements {
                    let (of, word) =
                        (key(system, case, placement), ratio_name(system, case, placement));
                    let plain = key(system, Case::Plain, placement);
                    let bar = bar(system, case, placement).filter(|_| self.is_timed());
                    let name = word.clone() + "_over_plain";
                    ratios.extend(self.calls.ratio(name, [&of, &plain], P50, bar));
                    if system.is_peer() {
                        let typed = key(BatonTyped, case, placement);
                        let name = word + "_over_typed";
                        ratios.extend(self.calls.ratio(name, [&of, &typed], P50, None));
                    }
                }
            }
        }
        for case in cases(KernelBinder) {
            let placements = self.placements.iter();
            ratios.extend(placements.filter_map(|&placement| self.kernel_ratio(case, placement)));
        }
        let has_descriptors = self.cases.contains(&Case::Descriptor);
        for system in SYSTEMS.into_iter().filter(|system| has_descriptors && system.is_binder()) {
            for &placement in &self.placements {
                let of = |system| key(system, Case::Descriptor, placement);
                let name = ratio_name(system, Case::Descriptor, placement) + "_over_unix";
                let bar = (self.is_timed() && is_ours(system)).then_some(Bar::AtMost(1.2));
                ratios.extend(self.calls.ratio(name, [&of(system), &of(Unix)], P50, bar));
            }
        }
        if self.has_crowds() {
            ratios.extend(CROWDS.into_iter().filter_map(|system| self.crowd_ratio(system)));
        }
        ratios
    }

    /// The kernel's driver over Baton, of the same program: in instructions by their mean, so that
    /// work which either puts off and does for many calls at once counts.
    fn kernel_ratio(&self, case: Case, placement: Placement) -> Option<Ratio> {
        let (name, value, bar) = match (self.counting, placement) {
            (Counting::Time, _) => (ratio_name(KernelBinder, case, placement), P50, None),
            (Counting::Instructions, Same) => {
                let name = format!("guest_instructions_kernel_binder_{}", case.name());
                (name, MEAN, instructions_bar(case))
            }
            (Counting::Instructions, Different) => return None,
        };
        let [over, under] =
            [KernelBinder, BatonUapiLibc].map(|system| key(system, case, placement));
        self.calls.ratio(name + "_over_uapi_libc", [&over, &under], value, bar)
    }

    fn crowd_ratio(&self, system: System) -> Option<Ratio> {
        let (over, under) = (crowd(system, Case::ObjectKnown), crowd(system, Case::Plain));
        let name = format!("{}_object_known_{N_CLIENTS}_clients_over_plain", ratio_word(system));
        let bar = is_ours(system).then_some(Bar::AtLeast(0.5));
        self.crowds.ratio(name, [&over, &under], |rounds| rounds.values(throughput::CALLS), bar)
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

    fn results(medians: &[(System, Case, Placement, u64)]) -> ObjectResults {
        let mut calls = Results::default();
        for &(system, case, placement, median_ns) in medians {
            let times_ns = vec![median_ns; 3];
            calls.add_times(key(system, case, placement), Ok::<_, String>(times_ns));
        }
        ObjectResults {
            calls,
            crowds: Results::default(),
            placements: vec![Same, Different],
            cases: Case::VARIANTS.iter().copied().collect(),
            counting: Counting::Time,
        }
    }

    fn find(results: &ObjectResults, name: &str) -> Ratio {
        let ratios = results.ratios();
        let mut named = ratios.iter().filter(|ratio| ratio.name == name);
        let found = named.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(named.next().is_none(), "{name} is there twice");
        found.clone()
    }

    #[test]
    fn every_bar_is_there_and_fails_unless_it_is_measured() {
        let results = results(&[]);
        let ratios = results.ratios();
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
            assert_eq!(find(&results, name).bar, Some(bar), "{name}");
        }
    }

    #[test]
    fn a_case_is_told_over_plain_calls_of_the_same_placement() {
        let results = results(&[
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
            let ratio = find(&results, name);
            assert_eq!((ratio.value, ratio.holds), (Some(value), holds), "{name}");
        }
    }

    #[test]
    fn cases_that_were_not_asked_for_have_no_ratios() {
        let mut results = results(&[]);
        results.cases = [Case::Plain, Case::GetService].into();
        let ratios = results.ratios();
        let names: Vec<&str> = ratios.iter().map(|ratio| ratio.name.as_str()).collect();
        let expected = ["typed_get_service_same_over_plain", "uapi_get_service_same_over_plain"];
        assert_eq!(names, expected);
    }

    #[test]
    fn instructions_have_bars_over_the_kernel_alone() {
        let mut results = results(&[
            (BatonUapiLibc, Case::ObjectKnown, Same, 1000),
            (KernelBinder, Case::ObjectKnown, Same, 1500),
            (BatonUapiLibc, Case::ObjectNew, Same, 1000),
            (KernelBinder, Case::ObjectNew, Same, 1190),
        ]);
        results.counting = Counting::Instructions;
        let ratios = results.ratios();
        let of_the_kernel = |ratio: &&Ratio| ratio.name.starts_with("guest_instructions_kernel");
        assert_eq!(ratios.iter().filter(|ratio| ratio.bar.is_some()).count(), 11);
        assert!(ratios.iter().filter(|ratio| ratio.bar.is_some()).all(|it| of_the_kernel(&it)));
        for (case, value, holds) in [
            ("plain", None, None),
            ("object_known", Some(1.5), Some(true)),
            ("object_new", Some(1.19), Some(false)),
            ("first_contact", None, Some(false)),
        ] {
            let name = format!("guest_instructions_kernel_binder_{case}_over_uapi_libc");
            let ratio = find(&results, &name);
            assert_eq!((ratio.value, ratio.holds), (value, holds), "{name}");
        }
        results.calls.excuse(KernelBinder.name());
        assert!(results.ratios().iter().all(|ratio| ratio.bar.is_none()));
    }

    #[test]
    fn many_clients_are_told_by_their_calls_a_second() {
        let mut results = results(&[]);
        for (case, duration_ns) in [(Case::Plain, 1000), (Case::ObjectKnown, 4000)] {
            let together = crate::pair::Together { times_ns: vec![vec![100; 4]], duration_ns };
            let round = Ok::<_, String>(together);
            results.crowds.add(crowd(BatonTyped, case), round, throughput::add);
        }
        let ratio = find(&results, "typed_object_known_8_clients_over_plain");
        assert_eq!((ratio.value, ratio.holds), (Some(0.25), Some(false)));
    }

    #[test]
    fn a_first_contact_takes_fewer_rounds_of_calls() {
        let (cases, counting) = (BTreeSet::new(), Counting::Time);
        let plan = Plan { rounds: 1, n_calls: 1000, cases, counting };
        let n_calls = |case| plan.chunk(case, Same).n_calls;
        assert_eq!((n_calls(Case::ObjectNew), n_calls(Case::FirstContact)), (1000, 20));
        assert_eq!(Plan { n_calls: 2, ..plan }.chunk(Case::FirstContact, Same).n_calls, 1);
    }
}
