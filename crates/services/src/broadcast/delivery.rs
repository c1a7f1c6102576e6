//! The threads that deliver: one for each level in use, at the level's priority.

use super::account::Charge;
use super::level::{Broadcast, Effect, Event, Kind, Level, Limits, Outcome, Receiver, Skip};
use super::protocol::{PERFORM_RECEIVE, encode_received};
use super::stats::{Skipped, Stats};
use super::tables::{Tables, text};
use crate::intent::ComponentName;
use baton::{CallError, DeathLink, Handle, Parcel};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A receiver's object, whose death is reported.
#[derive(Debug)]
pub struct Callback {
    /// The object.
    pub handle: Handle,
    /// The wait for its death.
    pub link: OnceLock<DeathLink>,
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(link) = self.link.get() {
            self.handle.unlink_to_death(*link);
        }
    }
}

/// A broadcast on its sender's account and in the counts, until it has reached all its receivers.
#[derive(Debug)]
pub struct UnderWay {
    /// On the sender's account.
    pub charge: Charge,
    /// The counts.
    pub stats: Arc<Stats>,
    /// The level.
    pub level: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.stats.ended(self.level);
    }
}

/// An event of this service's.
pub type ServiceEvent = Event<Callback, UnderWay>;
type ServiceEffect = Effect<Callback, UnderWay>;
type ServiceBroadcast = Broadcast<Callback, UnderWay>;

/// The parts of the service that a delivery uses.
pub struct Means {
    /// Who receives what.
    pub tables: Tables<Callback>,
    /// What has been done.
    pub stats: Arc<Stats>,
    /// Where components are started: not by a delivery thread, which must not wait.
    pub starts: Sender<ComponentName>,
    /// The bounds of steps.
    pub limits: Limits,
}

/// The deliveries of one thread.
pub struct Delivery<'a> {
    means: &'a Means,
    number: usize,
    /// What is to be delivered.
    pub level: Level<Callback, UnderWay>,
    /// The parcel of the parallel broadcast that is being delivered.
    parallel: Option<(Arc<ServiceBroadcast>, Parcel)>,
}

impl<'a> Delivery<'a> {
    /// The deliveries of a level.
    pub fn new(means: &'a Means, number: usize) -> Delivery<'a> {
        let level = Level::new(number, means.limits, std::hash::RandomState::new());
        Delivery { means, number, level, parallel: None }
    }

    /// Deals with everything but accepted broadcasts.
    pub fn serve_urgent(&mut self) {
        let late = self.level.expire(now_ns());
        self.carry_out(late);
        while let Some(effects) = self.level.next_urgent(now_ns()) {
            self.carry_out(effects);
        }
    }

    /// Delivers one accepted broadcast. False if there is none.
    pub fn serve_broadcast(&mut self) -> bool {
        let Some(effects) = self.level.next_broadcast(now_ns()) else { return false };
        self.carry_out(effects);
        self.parallel = None;
        true
    }

    /// Sleeps until the thread is woken or a step has taken too long.
    pub fn sleep(&self) {
        match self.level.deadline_ns() {
            None => std::thread::park(),
            Some(deadline_ns) => {
                let left_ns = deadline_ns.saturating_sub(now_ns());
                std::thread::park_timeout(Duration::from_nanos(left_ns));
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<ServiceEffect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Deliver { to, broadcast, token, outcome } => {
                    let Err(why) = self.deliver(&to, &broadcast, token, &outcome) else { continue };
                    if token != 0 {
                        effects.extend(self.level.failed(token, why, now_ns()));
                    } else if why == Skip::Full {
                        self.skipped(to.name.clone(), &broadcast, why);
                    }
                }
                Effect::Start(name) => match self.means.tables.attached(&name) {
                    Some(receiver) => _ = self.level.put(Event::Started(name, receiver)),
                    None => {
                        if self.means.starts.send(name.clone()).is_err() {
                            let _ = self.level.put(Event::NotStarted(name));
                        }
                    }
                },
                Effect::Skipped { name, broadcast, why } => self.skipped(name, &broadcast, why),
            }
        }
    }

    fn deliver(
        &mut self,
        to: &Receiver<Callback>,
        broadcast: &Arc<ServiceBroadcast>,
        token: u64,
        outcome: &Outcome,
    ) -> Result<(), Skip> {
        if to.is_gone.load(Ordering::Relaxed) {
            return Err(Skip::Gone);
        }
        let stepwise;
        let parcel = match (&broadcast.kind, &self.parallel) {
            (Kind::Parallel, Some((current, parcel))) if Arc::ptr_eq(current, broadcast) => parcel,
            (Kind::Parallel, _) => {
                let parcel = encode(broadcast, token, outcome);
                &self.parallel.insert((Arc::clone(broadcast), parcel)).1
            }
            (Kind::Ordered { .. }, _) => {
                stepwise = encode(broadcast, token, outcome);
                &stepwise
            }
        };
        match to.object.handle.one_way(PERFORM_RECEIVE, parcel) {
            Ok(()) => {
                self.means.stats.delivered(self.number);
                Ok(())
            }
            Err(CallError::DeadObject) => Err(Skip::Gone),
            Err(_) => Err(Skip::Full),
        }
    }

    fn skipped(&self, receiver: String, broadcast: &ServiceBroadcast, why: Skip) {
        let action = broadcast.intent.action.clone();
        let (level, shown) = (self.number, action.as_deref().unwrap_or("(no action)"));
        tracing::warn!(target: "broadcast", "{receiver} skipped ({why:?}): {shown}, level {level}");
        self.means.stats.skipped(Skipped { receiver, action, priority: level, why });
    }
}

fn encode(broadcast: &ServiceBroadcast, token: u64, outcome: &Outcome) -> Parcel {
    let Broadcast { intent, is_sticky, .. } = broadcast;
    encode_received(intent, outcome, token != 0, *is_sticky, token)
}

/// The time of the steps' deadlines.
pub fn now_ns() -> u64 {
    baton_shm::clock::now_ns()
}

/// Starts the components that deliveries ask for, until the last delivery thread has ended. Tells
/// which could not be started.
pub fn start_components(
    wanted: std::sync::mpsc::Receiver<ComponentName>,
    start: impl Fn(&ComponentName) -> Result<(), String>,
    not_started: impl Fn(ComponentName),
) {
    for name in wanted {
        if let Err(why) = start(&name) {
            tracing::warn!(target: "broadcast", "{} does not start: {why}", text(&name));
            not_started(name);
        }
    }
}
