//! What the `broadcast` benchmark must hold.

use crate::broadcast::args::{Part, Plan};
use crate::broadcast::delay::{self, FEWEST, MOST};
use crate::broadcast::designs::Design;
use crate::broadcast::fan_out;
use crate::broadcast::local;
use crate::broadcast::order;
use crate::broadcast::results::{DELIVERIES, FAILURES, SITUATIONS};
use crate::broadcast::role::{Local, Method};
use crate::report::{Bar, Ratio};
use crate::results::{MAX, P50, P99, P999, Results, Value, median_in, ratio};

/// Every ratio of the parts that were to be measured.
pub fn of(found: &Results, plan: &Plan) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for part in &plan.parts {
        match part {
            Part::Delay => ratios.extend(of_delay(found, plan.bus)),
            Part::Order => ratios.extend(of_order(found, plan.n_situations)),
            Part::Local => ratios.extend(of_local(found)),
            Part::FanOut => ratios.push(of_fan_out(found, plan.bus)),
        }
    }
    ratios
}

/// The worst delay among many ordinary senders.
fn of_delay(found: &Results, bus: Design) -> Vec<Ratio> {
    let find = |design, senders| found.find(&delay::key(design, senders));
    let ours = |senders| find(Design::Ours, senders);
    let wake_up = || found.find(&delay::wake_up(MOST));
    let mut ratios = Vec::new();
    for (word, what) in [("p999", P999), ("max", MAX)] {
        let of = |name: &str, over, under, bar: Option<Bar>| {
            ratio(format!("delay_{word}_{name}"), over, under, what, bar)
        };
        let (at_most, at_least) = (|bar| Some(Bar::AtMost(bar)), |bar| Some(Bar::AtLeast(bar)));
        let over_ours =
            |name, design, least| of(name, find(design, MOST), ours(MOST), at_least(least));
        ratios.extend([
            of("100_over_10", ours(MOST), ours(FEWEST), at_most(1.5)),
            over_ours("android_over_ours", Design::Android, 10.0),
            over_ours("thesis_over_ours", Design::Thesis, 3.0),
            over_ours("dbus_over_ours", bus, 5.0),
            of("over_wake_up", ours(MOST), wake_up(), None),
        ]);
    }
    ratios
}

fn of_order(found: &Results, n_situations: u32) -> [Ratio; 2] {
    let total = |name| found.find(&order::key()).map(|it| (it.values(name).iter().sum(), None));
    [
        Ratio::new("order_failures", total(FAILURES), Some(Bar::AtMost(0.0))),
        Ratio::new("order_situations", total(SITUATIONS), Some(Bar::AtLeast(n_situations.into()))),
    ]
}

/// Deliveries a second.
fn of_fan_out(found: &Results, bus: Design) -> Ratio {
    let rate: Value = |rounds| rounds.values(DELIVERIES);
    let find = |design| found.find(&fan_out::key(design));
    let bar = Some(Bar::AtLeast(3.0));
    ratio("fan_out_over_dbus", find(Design::Ours), find(bus), rate, bar)
}

/// A synchronous delivery.
fn of_local(found: &Results) -> Vec<Ratio> {
    let find = |senders| found.find(&Local { method: Method::Synchronous, senders }.key());
    let [one, many] = local::SENDERS;
    let p99_us = |senders| median_in(1e3, find(senders), P99);
    let bar = Some(Bar::AtMost(1.0));
    vec![
        Ratio::new("local_sync_p99_us_1_sender", p99_us(one), bar),
        Ratio::new("local_sync_p99_us_10_senders", p99_us(many), bar),
        ratio("local_sync_p50_10_over_1", find(many), find(one), P50, Some(Bar::AtMost(1.5))),
    ]
}
