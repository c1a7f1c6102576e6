//! The measured wake-ups and calls, as rows and ratios.

use crate::latency::{cyclictest, timer};
use crate::processors::Placement;
use crate::report::{Bar, Ratio, Row, RowKey};
use crate::results::{Found, P50, P99, Results, ratio};
use crate::service::STAMPED_BYTES;
use baton_rt::SchedPriority;

/// A call's two delays: until its handler's first instruction, and from its last one until the
/// client has the answer.
pub const LEGS: [&str; 2] = ["call", "return"];
const WAKE_UP: &str = "wake-up";
const TYPED: &str = "baton-typed";
/// What both ways to measure wake-ups may differ by.
const AGREEMENT: f64 = 1.25;

/// Kalkov 2018, table 4.3: with and without load, shortest, mean and longest in microseconds. A
/// Samsung Exynos 5250 with Linux 3.4.
const THESIS: [(&str, usize, [u64; 3]); 5] = [
    ("thesis-standard", 0, [37, 186, 7407]),
    ("thesis-rt", 0, [27, 77, 118]),
    ("thesis-rt", 1, [23, 108, 219]),
    ("thesis-rt-locked", 0, [17, 31, 58]),
    ("thesis-rt-locked", 1, [16, 34, 63]),
];
const SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, table 4.3";

/// Rows, and why others are missing.
#[derive(Default)]
pub struct LatencyResults {
    /// Of all threads that were measured; `None` for ordinary ones.
    pub priority: Option<SchedPriority>,
    pub found: Results,
}

fn key(system: &'static str, case: &'static str, priority: SchedPriority, load: usize) -> RowKey {
    RowKey::new(system, case).with("priority", priority.to_string()).with("load", load)
}

impl LatencyResults {
    /// Delays of a thread at a place, beside `load` ordinary threads.
    pub fn wake_up(&self, system: &'static str, load: usize, cpu: Option<usize>) -> RowKey {
        let place = cpu.map_or("unbound".to_owned(), |cpu| format!("processor {cpu}"));
        let key = key(system, WAKE_UP, self.priority.unwrap_or_default(), load);
        let key = key.heading(format!("how late threads wake up, {place}, load {load}"));
        cpu.into_iter().fold(key, |key, cpu| key.with("cpu", cpu))
    }

    /// One of [`LEGS`].
    pub fn call(&self, leg: &'static str, load: usize, placement: Option<Placement>) -> RowKey {
        let key = key(TYPED, leg, self.priority.unwrap_or_default(), load).label(leg);
        let processors = Placement::title(placement);
        let title = format!("T_CALL (call) and T_RET (return), {processors}, load {load}");
        key.at(placement).bytes(STAMPED_BYTES).heading(title)
    }

    /// Adds the thesis's figures.
    pub fn quote(&mut self) {
        for (system, load, figures_us) in THESIS {
            let key = key(system, WAKE_UP, SchedPriority::fifo(80), load);
            let key = key.heading(format!("how late threads wake up, unbound, load {load}"));
            let figures = figures_us.map(|time_us| Some((time_us * 1000) as f64));
            self.found.quote(key, SOURCE, figures);
        }
    }

    /// Rows with the quartiles of all rounds together.
    pub fn rows(&self) -> Vec<Row> {
        self.found
            .rows(|_, rounds| vec![("quartiles_ns", rounds.times.curve(&[0.25, 0.75]).into())])
    }

    /// Whether cyclictest says the same, and what the load does.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let wake_ups = || self.found.measured().filter(|(key, _)| key.case == WAKE_UP);
        let of_load = |(key, _): (&RowKey, _)| key.more[1].1.as_u64().map(|load| load as usize);
        let mut loads: Vec<usize> = wake_ups().filter_map(of_load).collect();
        loads.sort_unstable();
        loads.dedup();
        // Wherever the first of the threads was.
        let first = |system: &'static str, load| -> Found<'_> {
            let is_it = |(key, _): &(&RowKey, _)| key.system == system && key.more[1].1 == load;
            let missing = || self.found.find(&self.wake_up(system, load, None));
            wake_ups().find(is_it).map_or_else(missing, |(_, rounds)| Ok(rounds))
        };
        for &load in loads.iter().filter(|_| self.found.has_label(cyclictest::NAME)) {
            // Under load both differ from round to round by more than from each other.
            let bar = (load == 0).then_some(Bar::AtMost(AGREEMENT));
            let loaded = if load == 0 { "" } else { "_loaded" };
            let (ours, theirs) = (first(timer::NAME, load), first(cyclictest::NAME, load));
            let over = |name: &str, over: &Found<'_>, under: &Found<'_>| {
                ratio(format!("{name}{loaded}"), over.clone(), under.clone(), P50, bar)
            };
            ratios.push(over("wake_up_over_cyclictest", &ours, &theirs));
            ratios.push(over("cyclictest_over_wake_up", &theirs, &ours));
        }
        if let [_, load] = loads[..] {
            let wake_up = |load| first(timer::NAME, load);
            let loaded = |name: &str| format!("{name}_loaded_p99_over_idle");
            ratios.push(ratio(loaded("wake_up"), wake_up(load), wake_up(0), P99, None));
            for leg in LEGS {
                let of = |load| self.found.find(&self.call(leg, load, Some(Placement::Different)));
                ratios.push(ratio(loaded(leg), of(load), of(0), P99, None));
            }
        }
        ratios
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> LatencyResults {
        let mut results =
            LatencyResults { priority: Some(SchedPriority::fifo(80)), ..LatencyResults::default() };
        for (system, load, delay_ns) in
            [(timer::NAME, 0, 1_000), (timer::NAME, 4, 3_000), (cyclictest::NAME, 0, 2_000)]
        {
            let key = results.wake_up(system, load, None);
            results.found.add_times(key, Ok::<_, String>(vec![delay_ns; 10]));
        }
        results.found.ok(RowKey::new(cyclictest::NAME, WAKE_UP), Err::<(), _>("has ended"));
        for leg in LEGS {
            let key = results.call(leg, 0, Some(Placement::Different));
            results.found.add_times(key, Ok::<_, String>(vec![5_000; 10]));
        }
        results.quote();
        results
    }

    #[test]
    fn a_row_for_each_distribution_and_figure_of_the_thesis() {
        let rows = results().rows();
        let find = |system: &str, case: &str| {
            rows.iter().find(|row| (row.key.system, row.key.case) == (system, case)).unwrap()
        };
        let wake_up = serde_json::to_value(find(timer::NAME, WAKE_UP)).unwrap();
        assert_eq!((&wake_up["priority"], &wake_up["load"]), (&"fifo:80".into(), &0.into()));
        assert_eq!(wake_up["quartiles_ns"], serde_json::json!([1_000, 1_000]));
        assert_eq!(find("baton-typed", "call").figures.as_ref().unwrap().p50_ns, 5_000.0);
        let thesis = serde_json::to_value(find("thesis-rt-locked", WAKE_UP)).unwrap();
        assert_eq!((&thesis["mean_ns"], &thesis["max_ns"]), (&31_000.0.into(), &58_000.into()));
        assert!(rows.iter().any(|row| row.why() == Some("has ended")));
    }

    #[test]
    fn agreement_has_a_bar_where_nothing_else_runs() {
        let ratios = results().ratios();
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("wake_up_over_cyclictest").value, Some(0.5));
        assert_eq!(ratio("wake_up_over_cyclictest").holds, Some(true));
        assert_eq!(ratio("cyclictest_over_wake_up").holds, Some(false));
        assert_eq!(ratio("wake_up_over_cyclictest_loaded").holds, None);
        let why = ratio("wake_up_over_cyclictest_loaded").why.as_deref();
        assert_eq!(why, Some("cyclictest: has ended"));
        assert_eq!(ratio("wake_up_loaded_p99_over_idle").value, Some(3.0));
        assert!(ratio("call_loaded_p99_over_idle").why.is_some());
    }
}
