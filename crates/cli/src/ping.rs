//! `baton ping`: round trips to a service.

use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, call};
use crate::stdout::{show, show_json};
use crate::timeout::TimeoutArgs;
use baton::Parcel;
use clap::Args;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// The code that every object answers.
pub const PING: u32 = u32::from_be_bytes(*b"_PNG");

/// Options of `baton ping`.
#[derive(Args)]
pub struct PingArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// How many round trips to make; one more goes ahead, which opens the connection
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    limit: TimeoutArgs,
    /// Print {"name", "count", "min_us", "p50_us", "p99_us", "max_us"}
    #[arg(long)]
    json: bool,
    /// The service's name
    name: String,
}

/// Round trips in microseconds.
#[derive(Debug, Serialize)]
struct Pinged<'a> {
    name: &'a str,
    count: usize,
    min_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Makes round trips, and prints how long they took.
pub fn ping(args: &PingArgs, socket: &Path) -> Result<(), Failure> {
    let name = &args.name;
    let tried = format!("ping the service {name:?}");
    let longest = args.limit.timeout;
    let manager = Manager::find_within(&args.place.context, socket, longest, &tried)?;
    let service = manager.service(&tried, name)?;
    let trip = || call(&tried, &service, PING, &Parcel::new(), longest).map(drop);
    trip()?;
    let mut times_us = Vec::new();
    for _ in 0..args.count {
        let started = Instant::now();
        trip()?;
        times_us.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    let pinged = summary(name, &mut times_us);
    match (args.json, args.count) {
        (true, _) => show_json(&pinged),
        (false, 1) => show(&format!("Service {name}: alive ({:.1} us)\n", pinged.max_us)),
        (false, count) => show(&format!(
            "Service {name}: alive ({count} round trips: min {:.1} us, p50 {:.1} us, p99 {:.1} us, \
             max {:.1} us)\n",
            pinged.min_us, pinged.p50_us, pinged.p99_us, pinged.max_us
        )),
    }
}

/// The summary of at least one round trip. A percentile is the least time that so many percent of
/// all do not exceed.
fn summary<'a>(name: &'a str, times_us: &mut [f64]) -> Pinged<'a> {
    times_us.sort_by(f64::total_cmp);
    let count = times_us.len();
    let percentile = |percent: usize| times_us[(count * percent).div_ceil(100).max(1) - 1];
    Pinged {
        name,
        count,
        min_us: times_us[0],
        p50_us: percentile(50),
        p99_us: percentile(99),
        max_us: times_us[count - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        for (count, p50, p99) in
            [(1, 1.0, 1.0), (2, 1.0, 2.0), (100, 50.0, 99.0), (101, 51.0, 100.0)]
        {
            let mut times: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let Pinged { min_us, p50_us, p99_us, max_us, .. } = summary("a", &mut times);
            let found = (min_us, p50_us, p99_us, max_us);
            assert_eq!(found, (1.0, p50, p99, f64::from(count)), "{count}");
        }
    }
}
