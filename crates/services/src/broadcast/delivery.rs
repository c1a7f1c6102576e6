//! The threads that deliver: one for each level in use, at the level's priority.

use super::account::Charge;
use super::components::Wanted;
use super::journal::Record;
use super::kept::{KeptBroadcast, KeptStep};
use super::level::{Broadcast, Effect, Event, Kind, Level, Limits, Outcome, Receiver, Skip};
use super::protocol::{PERFORM_RECEIVE, encode_received, is_transient};
use super::record::{Draft, Kind as RecordKind};
use super::stats::{Skipped, Stats};
use super::tables::Tables;
use super::token::Tokens;
use baton::{CallError, DeathLink, Handle, Parcel};
use baton_shm::lock::Lock;
use std::collections::VecDeque;
use std::sync::mpsc::{SendError, Sender};
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

/// A broadcast on its sender's account, in the counts and in the journal, until it has reached all
/// its receivers.
#[derive(Debug)]
pub struct UnderWay {
    /// Names it.
    pub id: u64,
    /// On the sender's account.
    pub charge: Charge,
    /// In the journal, if there is one. It ends before its step does.
    pub record: Option<Record>,
    /// How far an ordered one is.
    pub step: Lock<Option<Record>>,
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
    pub components: Sender<Wanted>,
    /// The bounds of steps.
    pub limits: Limits,
    /// By which receivers finish.
    pub tokens: Tokens,
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
        let level = Level::new(number, means.limits, means.tokens.clone());
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
                Effect::Begin(broadcast) => {
                    if let Some(record) = &broadcast.charge.record {
                        record.mark(KeptBroadcast::BEGUN);
                    }
                }
                Effect::Deliver { ref to, ref broadcast, at, token, ref outcome, .. } => {
                    let Some(delivered) = self.deliver(to, broadcast, token, outcome) else {
                        effects.extend(self.level.again(effect, now_ns()));
                        continue;
                    };
                    if let (Kind::Parallel, Some(record)) =
                        (&broadcast.kind, &broadcast.charge.record)
                    {
                        record.mark(KeptBroadcast::mark(at));
                    }
                    let Err(why) = delivered else { continue };
                    if token != 0 {
                        effects.extend(self.level.failed(token, why, now_ns()));
                    } else if why == Skip::Full {
                        self.skipped(to.name.clone(), broadcast, why);
                    }
                }
                Effect::Step { broadcast, at, outcome } => self.note(&broadcast, at, &outcome),
                // Without the thread of components, no process has a class.
                Effect::Busy(name) => _ = self.want(Wanted::Busy(name)),
                Effect::Idle(name) => _ = self.want(Wanted::Idle(name)),
                Effect::Start(name) => match self.means.tables.attached(&name) {
                    Some(receiver) => _ = self.level.put(Event::Started(name, receiver)),
                    None => {
                        if self.want(Wanted::Start(name.clone())).is_err() {
                            let _ = self.level.put(Event::NotStarted(name));
                        }
                    }
                },
                Effect::Skipped { name, broadcast, why } => self.skipped(name, &broadcast, why),
            }
        }
        // A broadcast that is kept here does not end.
        self.parallel = None;
    }

    fn want(&self, wanted: Wanted) -> Result<(), SendError<Wanted>> {
        self.means.components.send(wanted)
    }

    /// `None` if the receiver cannot be called now, and may be soon.
    fn deliver(
        &mut self,
        to: &Receiver<Callback>,
        broadcast: &Arc<ServiceBroadcast>,
        token: u64,
        outcome: &Outcome,
    ) -> Option<Result<(), Skip>> {
        if to.presence.is_gone() {
            return Some(Err(Skip::Gone));
        }
        let stepwise;
        let parcel = match (&broadcast.kind, &self.parallel) {
            (Kind::Parallel, Some((current, parcel)))
                if token == 0 && Arc::ptr_eq(current, broadcast) =>
            {
                parcel
            }
            (Kind::Parallel, _) if token == 0 => {
                let parcel = encode(broadcast, token, outcome);
                &self.parallel.insert((Arc::clone(broadcast), parcel)).1
            }
            _ => {
                stepwise = encode(broadcast, token, outcome);
                &stepwise
            }
        };
        let Some(callback) = to.object.get() else { return Some(Err(Skip::Gone)) };
        match callback.handle.one_way(PERFORM_RECEIVE, parcel) {
            Ok(()) => {
                self.means.stats.delivered(self.number);
                Some(Ok(()))
            }
            Err(CallError::DeadObject) => Some(Err(Skip::Gone)),
            Err(error) if is_transient(error) => None,
            Err(_) => Some(Err(Skip::Full)),
        }
    }

    /// Notes in the journal how far an ordered broadcast is. Without room there, the next service
    /// calls a receiver again, with the broadcast's id.
    fn note(&self, broadcast: &ServiceBroadcast, at: usize, outcome: &Outcome) {
        let UnderWay { id, step, .. } = &broadcast.charge;
        let body = KeptStep::write(at as u32, outcome);
        let draft = Draft { kind: RecordKind::Step, id: *id, n_marks: 0, body: body.data() };
        match self.means.tables.keep(broadcast.uid, self.number, &draft) {
            // The older one ends once the new one counts.
            Ok(record) => drop(std::mem::replace(&mut *step.lock(), record)),
            Err(why) => tracing::warn!(target: "broadcast", "a step is not kept: {why}"),
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
    let Broadcast { intent, is_sticky, charge, kind, .. } = broadcast;
    let is_ordered = token != 0 && matches!(kind, Kind::Ordered { .. });
    encode_received(intent, outcome, is_ordered, *is_sticky, token, charge.id)
}

/// The time of the steps' deadlines.
pub fn now_ns() -> u64 {
    baton_shm::clock::now_ns()
}
