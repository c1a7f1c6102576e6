//! The order of real-time intents at random priorities (Kalkov 2018, 7.3.4): one that is invoked
//! after a more urgent one arrives after it.
//!
//! From the outside, an intent is invoked after another one if its sender began after the other's
//! was told that it is accepted. The two are a race situation if the other had not arrived by then.

use crate::arrivals;
use crate::broadcast::client::{self, intent};
use crate::broadcast::designs::Design;
use crate::broadcast::processes::Processes;
use crate::broadcast::role::Role;
use crate::child::{await_begin, forever, tell};
use crate::report::RowKey;
use crate::rt::caller;
use crate::service::{now_ns, sleep_until};
use baton_rt::SchedPriority;
use baton_rt::schedule::set_priority;
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::BroadcastError;
use baton_services::broadcast::priority::EXTRA_PRIORITY;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// As in the thesis: senders, their priority, and the time from one intent of each to the next.
const N_SENDERS: u32 = 10;
const LEVEL: u8 = 99;
const PERIOD_NS: u64 = 5_000_000;
/// Refused intents are sent again after this pause.
const PAUSE: Duration = Duration::from_millis(1);
/// Intents of each sender, of one set of processes.
const N_INTENTS: u32 = 1000;
/// Race situations of that: there are ten times as many, unless something is wrong.
pub const LEAST_SITUATIONS: u32 = 500;

/// An intent, as its sender knows it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sent {
    level: u8,
    began_ns: u64,
    accepted_ns: u64,
}

/// The race situations of a batch, and the failures among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Pairs of which the less urgent one was invoked while the other one was under way.
    pub situations: u64,
    /// Those of which the less urgent one arrived first.
    pub failures: u64,
}

pub fn key() -> RowKey {
    RowKey::new("baton", "order")
        .with("priority", SchedPriority::fifo(LEVEL).to_string())
        .with("senders", N_SENDERS)
        .heading(format!("{N_SENDERS} senders at fifo:{LEVEL}, intents at random priorities"))
}

/// Counts situations, of intents with the times of their arrivals.
pub fn count(intents: &[(Sent, u64)]) -> Count {
    let mut by_begin = intents.to_vec();
    by_begin.sort_by_key(|(sent, _)| sent.began_ns);
    let mut count = Count::default();
    let mut under_way: Vec<(Sent, u64)> = Vec::new();
    for (low, low_arrived_ns) in by_begin {
        under_way.retain(|(_, arrived_ns)| *arrived_ns > low.began_ns);
        for (high, high_arrived_ns) in &under_way {
            if high.level > low.level && high.accepted_ns <= low.began_ns {
                count.situations += 1;
                count.failures += u64::from(low_arrived_ns < *high_arrived_ns);
            }
        }
        under_way.push((low, low_arrived_ns));
    }
    count
}

/// Has intents race: what came of it, and the time of each.
pub fn measure(seed: u64) -> io::Result<(Count, Vec<u64>)> {
    let mut processes = Processes::new(Design::Ours)?;
    processes.start(Role::Service)?;
    let receiver = processes.start(Role::Receiver(N_SENDERS * N_INTENTS))?;
    let racers = processes.start(Role::Racers { n_intents: N_INTENTS, seed })?;
    let sent: Vec<Sent> = processes.get(racers).ask("send", Duration::ZERO)?;
    let times_ns: Vec<u64> = processes.get(receiver).ask("report", Duration::ZERO)?;
    let arrived =
        sent.iter().zip(&times_ns).map(|(sent, time_ns)| (*sent, sent.began_ns + time_ns));
    Ok((count(&arrived.collect::<Vec<_>>()), times_ns))
}

/// Real-time senders, which all send at the same times.
pub fn race(broker: &Path, n_intents: u32, seed: u64) -> io::Result<()> {
    caller::stay_in_memory();
    let manager = client::join(broker)?;
    let begin_ns = AtomicU64::new(0);
    let wait = || {
        let told = await_begin();
        begin_ns.store(now_ns() + PERIOD_NS, Ordering::Relaxed);
        told
    };
    let senders = vec![(); N_SENDERS as usize];
    let sent = caller::together(
        senders,
        |()| prepare(&manager),
        wait,
        |(), number| {
            let begin_ns = begin_ns.load(Ordering::Relaxed);
            let mut random = ChaCha8Rng::seed_from_u64(seed << 32 | u64::from(number));
            let send = |at: u32| {
                sleep_until(begin_ns + u64::from(at) * PERIOD_NS);
                let level = (random.next_u32() % 100) as u8;
                send(&manager, level, u64::from(number * n_intents + at))
            };
            (0..n_intents).map(send).collect::<io::Result<Vec<Sent>>>()
        },
    )?;
    tell(&sent.concat())?;
    forever()
}

fn prepare(manager: &BroadcastManager) -> io::Result<()> {
    set_priority(SchedPriority::fifo(LEVEL), None).map_err(io::Error::other)?;
    for _ in 0..20 {
        send(manager, LEVEL, arrivals::UNNOTED)?;
    }
    Ok(())
}

fn send(manager: &BroadcastManager, level: u8, number: u64) -> io::Result<Sent> {
    let began_ns = now_ns();
    let mut intent = intent(&arrivals::message(began_ns, number));
    intent.extras.put(EXTRA_PRIORITY, i32::from(level));
    // Beyond what a user may have under way, none is accepted.
    while let Err(error) = manager.send(&intent) {
        match error {
            BroadcastError::Refused(_) => thread::sleep(PAUSE),
            error => return Err(io::Error::other(error)),
        }
    }
    Ok(Sent { level, began_ns, accepted_ns: now_ns() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An intent of a level that began, was accepted, and arrived.
    fn intent(level: u8, began_ns: u64, accepted_ns: u64, arrived_ns: u64) -> (Sent, u64) {
        (Sent { level, began_ns, accepted_ns }, arrived_ns)
    }

    #[test]
    fn a_failure_is_an_intent_that_overtakes_a_more_urgent_one() {
        let high = intent(9, 10, 20, 50);
        for (what, low, expected) in [
            ("in order", intent(1, 30, 40, 60), (1, 0)),
            ("overtakes", intent(1, 30, 35, 40), (1, 1)),
            ("begins while the other is told", intent(1, 15, 18, 40), (0, 0)),
            ("begins as the other is told", intent(1, 20, 25, 40), (1, 1)),
            ("invoked first", intent(1, 5, 8, 9), (0, 0)),
            ("invoked after the other's arrival", intent(1, 50, 55, 60), (0, 0)),
            ("as urgent", intent(9, 30, 35, 40), (0, 0)),
            ("more urgent", intent(10, 30, 35, 40), (0, 0)),
        ] {
            let (situations, failures) = expected;
            for intents in [[high, low], [low, high]] {
                assert_eq!(count(&intents), Count { situations, failures }, "{what}");
            }
        }
    }

    #[test]
    fn every_pair_counts() {
        let intents =
            [intent(9, 0, 1, 90), intent(8, 2, 3, 95), intent(7, 4, 5, 92), intent(1, 6, 7, 80)];
        assert_eq!(count(&intents), Count { situations: 6, failures: 4 });
    }
}
