//! What the `broadcast` benchmark must hold.

use crate::broadcast::args::{Part, Plan};
use crate::broadcast::delay::{self, FEWEST, MOST};
use crate::broadcast::designs::Design;
use crate::broadcast::fan_out;
use crate::broadcast::local;
use crate::broadcast::order;
use crate::broadcast::results::{DELIVERIES, FAILURES, SITUATIONS};
use crate::broadcast::role::{Local, Method};
use crate::distribution::Spread;
use crate::report::{Bar, Ratio};
use crate::results::{MAX, P50, P99, P999, Results, Value, ratio};

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
        let most = Some(Bar::AtMost(1.5));
        ratios.push(ratio(
            format!("delay_{word}_100_over_10"),
            ours(MOST),
            ours(FEWEST),
            what,
            most,
        ));
        let others = [
            ("android", Design::Android, 10.0),
            ("thesis", Design::Thesis, 3.0),
            ("dbus", bus, 5.0),
        ];
        for (name, design, least) in others {
            let (over, bar) = (find(design, MOST), Some(Bar::AtLeast(least)));
            ratios.push(ratio(
                format!("delay_{word}_{name}_over_ours"),
                over,
                ours(MOST),
                what,
                bar,
            ));
        }
        ratios.push(ratio(format!("delay_{word}_over_wake_up"), ours(MOST), wake_up(), what, None));
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
    let us = |senders, what: Value| {
        let spread = Spread::of(what(find(senders)?).into_iter().map(|ns| ns / 1e3));
        let spread = spread.ok_or("no round")?;
        Ok((spread.median, Some(spread)))
    };
    let bar = Some(Bar::AtMost(1.0));
    vec![
        Ratio::new("local_sync_p99_us_1_sender", us(one, P99), bar),
        Ratio::new("local_sync_p99_us_10_senders", us(many, P99), bar),
        ratio("local_sync_p50_10_over_1", find(many), find(one), P50, Some(Bar::AtMost(1.5))),
    ]
}
