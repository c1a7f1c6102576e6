//! The broadcasts of one level, as its delivery thread sees them: pure, with time passed in.
//!
//! ```text
//!   put(event) --> urgent events        --> next_urgent(now)    --> effects: deliver, start, skip
//!              --> broadcasts, in turns --> next_broadcast(now) -->
//!                                           expire(now)         --> those of slow steps
//! ```
//!
//! A parallel broadcast is one item: all its receivers are called. An ordered one is a step for
//! each receiver, and the thread waits for no receiver: the next step is an item of its own, which
//! comes when the receiver has finished, has died or has taken too long. So a receiver that hangs
//! holds up its own broadcast until the time-out, and no other broadcast of its level.
//!
//! A broadcast with `FLAG_RECEIVER_REPLACE_PENDING` takes the place of one that has not begun. The
//! sender of a replaced ordered broadcast gets the initial result.
//!
//! A receiver of a manifest that does not run is started, and its delivery waits for that. So does
//! the delivery to a receiver that an earlier service knew, until its process has registered it
//! again.

use super::presence::Presence;
use super::token::Tokens;
use super::turns::Turns;
use crate::intent::flags::{RECEIVER_NO_ABORT, RECEIVER_REPLACE_PENDING};
use crate::intent::{Bundle, ComponentName, Intent};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::discriminant;
use std::sync::{Arc, OnceLock};

/// Foreground broadcasts that come before a background one which waits.
pub const FOREGROUND_RUN: u32 = 8;
/// The pause before a second call of a receiver that could not be called.
const FIRST_PAUSE_NS: u64 = 5_000_000;

/// A callback that receives broadcasts. `R` is a reference to its object.
#[derive(Debug)]
pub struct Receiver<R> {
    /// Its number, which no other receiver has.
    pub id: u64,
    /// Its object. One that an earlier service knew has none until its process is back.
    pub object: OnceLock<R>,
    /// Its process.
    pub pid: u32,
    /// The process's user.
    pub uid: u32,
    /// The name under which it is reported.
    pub name: String,
    /// The component whose receiver it is.
    pub component: Option<ComponentName>,
    /// The permission that its senders need.
    pub permission: Option<String>,
    /// Whether it is unregistered or dead, and which levels wait for it.
    pub presence: Presence,
}

/// Whom a broadcast goes to.
#[derive(Debug)]
pub enum Target<R> {
    /// A registered receiver.
    Registered(Arc<Receiver<R>>),
    /// A component of a manifest that has to be started first.
    Component(ComponentName),
    /// A receiver that an earlier service has called.
    Reached,
}

/// The result of an ordered broadcast so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// A number.
    pub code: i32,
    /// Text.
    pub data: Option<String>,
    /// Values.
    pub extras: Option<Bundle>,
}

/// How the receivers are called.
#[derive(Debug)]
pub enum Kind<R> {
    /// All at once.
    Parallel,
    /// One after the other. The last result goes to `result_to`.
    Ordered {
        /// The index of the first receiver. An earlier service has called those before.
        first: usize,
        /// The result before the first receiver.
        initial: Outcome,
        /// The receiver of the last result.
        result_to: Option<Arc<Receiver<R>>>,
    },
}

/// A broadcast that is accepted. `C` is held until the last receiver has it.
#[derive(Debug)]
pub struct Broadcast<R, C> {
    /// The intent.
    pub intent: Intent,
    /// The sender's user.
    pub uid: u32,
    /// Whether it comes before the background's.
    pub is_foreground: bool,
    /// Whether it was sent before its receiver was registered.
    pub is_sticky: bool,
    /// Whether an earlier service has begun to call its receivers.
    pub is_begun: bool,
    /// How the receivers are called.
    pub kind: Kind<R>,
    /// The receivers, in their order.
    pub targets: Vec<Target<R>>,
    /// What the sender is charged with.
    pub charge: C,
}

/// What the delivery thread hears.
#[derive(Debug)]
pub enum Event<R, C> {
    /// A broadcast is accepted.
    Accepted(Box<Broadcast<R, C>>),
    /// The receiver of a step has finished. The result of a parallel broadcast's has no meaning.
    Finished {
        /// The step's.
        token: u64,
        /// Its result.
        outcome: Outcome,
        /// Whether no other receiver gets the broadcast.
        aborts: bool,
    },
    /// A component's process has attached its receiver.
    Started(ComponentName, Arc<Receiver<R>>),
    /// A component cannot be started.
    NotStarted(ComponentName),
    /// A receiver has its object now.
    Returned(u64),
    /// A receiver is unregistered or dead.
    Gone(u64),
    /// Another ordered broadcast has taken the place of this one.
    Replaced(Box<Broadcast<R, C>>),
}

/// What the delivery thread is to do, in this order.
#[derive(Debug)]
pub enum Effect<R, C> {
    /// Note that no other broadcast takes this one's place any more.
    Begin(Arc<Broadcast<R, C>>),
    /// Call a receiver.
    Deliver {
        /// The receiver.
        to: Arc<Receiver<R>>,
        /// The broadcast.
        broadcast: Arc<Broadcast<R, C>>,
        /// The receiver's index. One more than the last one's: it gets the result.
        at: usize,
        /// Of a step that the receiver finishes, and that fails by [`Level::failed`]; else 0.
        token: u64,
        /// The result so far.
        outcome: Outcome,
        /// How long it has waited after it was not possible. 0 for a first call.
        pause_ns: u64,
    },
    /// Note how far an ordered broadcast is.
    Step {
        /// The broadcast.
        broadcast: Arc<Broadcast<R, C>>,
        /// The index of the next receiver.
        at: usize,
        /// The result so far.
        outcome: Outcome,
    },
    /// A component works on a broadcast from now on, or will once it is started.
    Busy(ComponentName),
    /// A component has done with a broadcast, or is skipped.
    Idle(ComponentName),
    /// Start a component. Several levels may ask for one component.
    Start(ComponentName),
    /// A receiver has not got the broadcast, or has not finished.
    Skipped {
        /// The receiver's name.
        name: String,
        /// The broadcast.
        broadcast: Arc<Broadcast<R, C>>,
        /// Why.
        why: Skip,
    },
}

/// Why a receiver is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// It has not finished in time.
    Slow,
    /// Its component was not started, or not in time.
    NotStarted,
    /// It is dead, or unregistered while it was awaited.
    Gone,
    /// Its process takes no more calls: its receive buffer is full, or there is no broker.
    Full,
}

/// How long steps may take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the call of a receiver that finishes until it has: see [`Level`].
    pub receive_ns: u64,
    /// From the start of a component until its receiver is attached.
    pub start_ns: u64,
}

/// A delivery that waits for its receiver.
#[derive(Debug)]
struct Step<R, C> {
    broadcast: Arc<Broadcast<R, C>>,
    /// The index of its target.
    at: usize,
    outcome: Outcome,
    awaits: Awaits<R>,
    /// When it is skipped, and its number.
    deadline: (u64, u64),
}

#[derive(Debug)]
enum Awaits<R> {
    /// The receiver with this id.
    Finish(u64),
    Start,
    /// The object of the receiver with this id.
    Return(u64),
    /// Another call of a receiver, after a pause in nanoseconds.
    Again(Arc<Receiver<R>>, u64),
}

/// The broadcasts of one level.
///
/// The receivers of an ordered broadcast, and those of components, finish: see [`Event::Finished`].
#[derive(Debug)]
pub struct Level<R, C> {
    number: usize,
    limits: Limits,
    urgent: VecDeque<Event<R, C>>,
    foreground: Turns<Box<Broadcast<R, C>>>,
    background: Turns<Box<Broadcast<R, C>>>,
    /// Foreground broadcasts since a background one had its turn.
    run: u32,
    steps: HashMap<u64, Step<R, C>>,
    /// The steps' tokens by their deadlines.
    deadlines: BTreeMap<(u64, u64), u64>,
    tokens: Tokens,
    n_steps: u64,
}

type Effects<R, C> = Vec<Effect<R, C>>;

impl<R, C> Broadcast<R, C> {
    /// The component to which a target belongs.
    fn component(&self, at: usize) -> Option<ComponentName> {
        match self.targets.get(at)? {
            Target::Registered(to) => to.component.clone(),
            Target::Component(name) => Some(name.clone()),
            Target::Reached => None,
        }
    }

    /// Whether it takes the place of another one of its user and its queue.
    fn replaces(&self, pending: &Broadcast<R, C>) -> bool {
        self.intent.has_flags(RECEIVER_REPLACE_PENDING)
            && !(self.is_sticky || self.is_begun)
            && !(pending.is_sticky || pending.is_begun)
            && discriminant(&self.kind) == discriminant(&pending.kind)
            && self.intent.filter_equals(&pending.intent)
    }
}

impl<R, C> Level<R, C> {
    /// A level without broadcasts.
    pub fn new(number: usize, limits: Limits, tokens: Tokens) -> Level<R, C> {
        Level {
            number,
            limits,
            urgent: VecDeque::new(),
            foreground: Turns::default(),
            background: Turns::default(),
            run: 0,
            steps: HashMap::new(),
            deadlines: BTreeMap::new(),
            tokens,
            n_steps: 0,
        }
    }

    /// Adds an event. True if it is a broadcast that has taken the place of another one, which does
    /// not come any more.
    pub fn put(&mut self, event: Event<R, C>) -> bool {
        let broadcast = match event {
            Event::Accepted(broadcast) => broadcast,
            event => {
                self.urgent.push_back(event);
                return false;
            }
        };
        let queue =
            if broadcast.is_foreground { &mut self.foreground } else { &mut self.background };
        // No more comparisons than a user may have broadcasts under way. The newest one, so that
        // no older one comes after this.
        let mut newest_first = queue.of(broadcast.uid).rev();
        let Some(place) = newest_first.find(|pending| broadcast.replaces(pending)) else {
            drop(newest_first);
            queue.push(broadcast.uid, broadcast);
            return false;
        };
        let replaced = std::mem::replace(place, broadcast);
        if let Kind::Ordered { result_to: Some(_), .. } = &replaced.kind {
            self.urgent.push_back(Event::Replaced(replaced));
        }
        true
    }

    /// Whether there is an accepted broadcast.
    pub fn has_broadcast(&self) -> bool {
        !(self.foreground.is_empty() && self.background.is_empty())
    }

    /// The effects of one event that is no accepted broadcast. `None` if there is none.
    pub fn next_urgent(&mut self, now_ns: u64) -> Option<Effects<R, C>> {
        let event = self.urgent.pop_front()?;
        let mut effects = Vec::new();
        self.hear(event, now_ns, &mut effects);
        Some(effects)
    }

    /// The effects of one accepted broadcast. `None` if there is none.
    pub fn next_broadcast(&mut self, now_ns: u64) -> Option<Effects<R, C>> {
        let is_backgrounds_turn = self.run >= FOREGROUND_RUN || self.foreground.is_empty();
        let broadcast = if is_backgrounds_turn && !self.background.is_empty() {
            self.run = 0;
            self.background.pop()?
        } else {
            self.run = self.run.saturating_add(1);
            self.foreground.pop()?
        };
        let mut effects = Vec::new();
        self.begin(broadcast, now_ns, &mut effects);
        Some(effects)
    }

    /// The time at which [`Level::expire`] has something to do.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.first_key_value().map(|((deadline_ns, _), _)| *deadline_ns)
    }

    /// The effects of steps whose time is over.
    pub fn expire(&mut self, now_ns: u64) -> Effects<R, C> {
        let mut effects = Vec::new();
        while let Some((&(deadline_ns, _), &token)) = self.deadlines.first_key_value() {
            if deadline_ns > now_ns {
                break;
            }
            let step = self.end(token).expect("a deadline is a step's");
            let why = match step.awaits {
                Awaits::Finish(_) => Skip::Slow,
                Awaits::Start => Skip::NotStarted,
                Awaits::Return(_) => Skip::Gone,
                Awaits::Again(to, pause_ns) => {
                    let Step { broadcast, at, outcome, .. } = step;
                    self.call(to, broadcast, at, outcome, pause_ns, now_ns, &mut effects);
                    continue;
                }
            };
            self.skip(step, why, now_ns, &mut effects);
        }
        effects
    }

    /// A delivery was not possible, and may be soon: it comes again after a pause, twice as long
    /// each time. One that has waited as long as a component may take to start is none.
    ///
    /// # Panics
    /// If the effect is no delivery.
    pub fn again(&mut self, effect: Effect<R, C>, now_ns: u64) -> Effects<R, C> {
        let Effect::Deliver { to, broadcast, at, token, outcome, pause_ns } = effect else {
            panic!("this is no delivery")
        };
        self.end(token);
        let pause_ns = (pause_ns * 2).max(FIRST_PAUSE_NS);
        let deadline_ns = now_ns.saturating_add(pause_ns);
        to.presence.wait(self.number);
        let awaits = Awaits::Again(to, pause_ns);
        let token = self.await_step(broadcast, at, outcome, awaits, deadline_ns);
        if pause_ns < self.limits.start_ns {
            return Vec::new();
        }
        self.failed(token, Skip::Full, now_ns)
    }

    /// The effects of a delivery with this token that has failed.
    pub fn failed(&mut self, token: u64, why: Skip, now_ns: u64) -> Effects<R, C> {
        let mut effects = Vec::new();
        if let Some(step) = self.end(token) {
            self.skip(step, why, now_ns, &mut effects);
        }
        effects
    }

    fn begin(&mut self, broadcast: Box<Broadcast<R, C>>, now_ns: u64, effects: &mut Effects<R, C>) {
        let broadcast: Arc<Broadcast<R, C>> = Arc::from(broadcast);
        if !broadcast.is_begun {
            effects.push(Effect::Begin(Arc::clone(&broadcast)));
        }
        let (first, initial) = match &broadcast.kind {
            Kind::Ordered { first, initial, .. } => (*first, initial.clone()),
            Kind::Parallel => {
                for at in 0..broadcast.targets.len() {
                    let (broadcast, outcome) = (Arc::clone(&broadcast), Outcome::default());
                    self.reach(broadcast, at, outcome, now_ns, effects);
                }
                return;
            }
        };
        self.step(broadcast, first, initial, now_ns, effects);
    }

    /// Goes on to another receiver of an ordered broadcast, or to its end.
    fn go_on(
        &mut self,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        let noted = Arc::clone(&broadcast);
        effects.push(Effect::Step { broadcast: noted, at, outcome: outcome.clone() });
        self.step(broadcast, at, outcome, now_ns, effects);
    }

    /// Calls the receiver of an ordered broadcast whose turn it is, or reports the result.
    fn step(
        &mut self,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        match broadcast.targets.get(at) {
            Some(Target::Reached) => self.step(broadcast, at + 1, outcome, now_ns, effects),
            Some(_) => self.reach(broadcast, at, outcome, now_ns, effects),
            None => self.report(broadcast, outcome, effects),
        }
    }

    /// Calls a receiver. One of a component that does not run is started first.
    fn reach(
        &mut self,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        effects.extend(broadcast.component(at).map(Effect::Busy));
        match &broadcast.targets[at] {
            Target::Registered(to) => {
                let to = Arc::clone(to);
                self.deliver(to, broadcast, at, outcome, now_ns, effects);
            }
            Target::Component(name) => {
                let name = name.clone();
                self.start(name, broadcast, at, outcome, now_ns, effects);
            }
            Target::Reached => {}
        }
    }

    /// Tells the sender the result of an ordered broadcast.
    fn report(
        &mut self,
        broadcast: Arc<Broadcast<R, C>>,
        outcome: Outcome,
        effects: &mut Effects<R, C>,
    ) {
        let Kind::Ordered { result_to: Some(to), .. } = &broadcast.kind else { return };
        let (to, at) = (Arc::clone(to), broadcast.targets.len());
        if self.waits_for(&to) {
            self.await_step(broadcast, at, outcome, Awaits::Return(to.id), u64::MAX);
        } else {
            let (token, pause_ns) = (0, 0);
            effects.push(Effect::Deliver { to, broadcast, at, token, outcome, pause_ns });
        }
    }

    fn deliver(
        &mut self,
        to: Arc<Receiver<R>>,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        if self.waits_for(&to) {
            self.await_step(broadcast, at, outcome, Awaits::Return(to.id), u64::MAX);
            return;
        }
        self.call(to, broadcast, at, outcome, 0, now_ns, effects);
    }

    #[expect(clippy::too_many_arguments, reason = "they are those of a step")]
    fn call(
        &mut self,
        to: Arc<Receiver<R>>,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        pause_ns: u64,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        let finishes = match broadcast.kind {
            // A result is not answered.
            Kind::Ordered { .. } => at < broadcast.targets.len(),
            Kind::Parallel => broadcast.component(at).is_some(),
        };
        let token = match finishes {
            true => {
                to.presence.wait(self.number);
                let deadline_ns = now_ns.saturating_add(self.limits.receive_ns);
                let (broadcast, outcome) = (Arc::clone(&broadcast), outcome.clone());
                self.await_step(broadcast, at, outcome, Awaits::Finish(to.id), deadline_ns)
            }
            false => 0,
        };
        effects.push(Effect::Deliver { to, broadcast, at, token, outcome, pause_ns });
    }

    /// Starts a component, unless another step waits for its start.
    fn start(
        &mut self,
        name: ComponentName,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        now_ns: u64,
        effects: &mut Effects<R, C>,
    ) {
        if self.steps_that_await_start(&name).is_empty() {
            effects.push(Effect::Start(name));
        }
        let deadline_ns = now_ns.saturating_add(self.limits.start_ns);
        self.await_step(broadcast, at, outcome, Awaits::Start, deadline_ns);
    }

    fn await_step(
        &mut self,
        broadcast: Arc<Broadcast<R, C>>,
        at: usize,
        outcome: Outcome,
        awaits: Awaits<R>,
        deadline_ns: u64,
    ) -> u64 {
        let token = loop {
            self.n_steps += 1;
            let token = self.tokens.token(self.number, self.n_steps);
            if token != 0 && !self.steps.contains_key(&token) {
                break token;
            }
        };
        let deadline = (deadline_ns, self.n_steps);
        self.deadlines.insert(deadline, token);
        self.steps.insert(token, Step { broadcast, at, outcome, awaits, deadline });
        token
    }

    fn end(&mut self, token: u64) -> Option<Step<R, C>> {
        let step = self.steps.remove(&token)?;
        self.deadlines.remove(&step.deadline);
        Some(step)
    }

    /// Ends a step without a result of its receiver's.
    fn skip(&mut self, step: Step<R, C>, why: Skip, now_ns: u64, effects: &mut Effects<R, C>) {
        let Step { broadcast, at, outcome, .. } = step;
        let name = match (broadcast.targets.get(at), &broadcast.kind) {
            (Some(Target::Registered(receiver)), _)
            | (None, Kind::Ordered { result_to: Some(receiver), .. }) => receiver.name.clone(),
            (Some(Target::Component(name)), _) => name.to_string(),
            (Some(Target::Reached) | None, _) => unreachable!("nobody waits for these"),
        };
        effects.push(Effect::Skipped { name, broadcast: Arc::clone(&broadcast), why });
        effects.extend(broadcast.component(at).map(Effect::Idle));
        if matches!(broadcast.kind, Kind::Ordered { .. }) && at < broadcast.targets.len() {
            self.go_on(broadcast, at + 1, outcome, now_ns, effects);
        }
    }

    fn hear(&mut self, event: Event<R, C>, now_ns: u64, effects: &mut Effects<R, C>) {
        match event {
            Event::Accepted(broadcast) => self.begin(broadcast, now_ns, effects),
            // A token that is not known is that of a step whose time is over, or a guess.
            Event::Finished { token, outcome, aborts } => {
                let Some(Step { broadcast, at, .. }) = self.end(token) else { return };
                effects.extend(broadcast.component(at).map(Effect::Idle));
                if matches!(broadcast.kind, Kind::Parallel) {
                    return;
                }
                let forbids_abort = broadcast.intent.flags & RECEIVER_NO_ABORT != 0;
                let next = match aborts && !forbids_abort {
                    true => broadcast.targets.len(),
                    false => at + 1,
                };
                self.go_on(broadcast, next, outcome, now_ns, effects);
            }
            Event::Replaced(broadcast) => {
                let Kind::Ordered { initial, .. } = &broadcast.kind else { return };
                let (initial, end) = (initial.clone(), broadcast.targets.len());
                self.go_on(Arc::from(broadcast), end, initial, now_ns, effects);
            }
            Event::Started(name, receiver) => {
                for token in self.steps_that_await_start(&name) {
                    let Some(step) = self.end(token) else { continue };
                    let Step { broadcast, at, outcome, .. } = step;
                    let to = Arc::clone(&receiver);
                    self.deliver(to, broadcast, at, outcome, now_ns, effects);
                }
            }
            Event::NotStarted(name) => {
                for token in self.steps_that_await_start(&name) {
                    effects.extend(self.failed(token, Skip::NotStarted, now_ns));
                }
            }
            Event::Returned(id) => {
                for token in
                    self.tokens(|step| matches!(step.awaits, Awaits::Return(its) if its == id))
                {
                    let Some(step) = self.end(token) else { continue };
                    let Step { broadcast, at, outcome, .. } = step;
                    match broadcast.targets.get(at) {
                        Some(Target::Registered(to)) => {
                            let to = Arc::clone(to);
                            self.deliver(to, broadcast, at, outcome, now_ns, effects);
                        }
                        _ => self.report(broadcast, outcome, effects),
                    }
                }
            }
            Event::Gone(id) => {
                let its = |step: &Step<R, C>| match &step.awaits {
                    Awaits::Finish(its) | Awaits::Return(its) => *its == id,
                    Awaits::Again(to, _) => to.id == id,
                    Awaits::Start => false,
                };
                for token in self.tokens(its) {
                    effects.extend(self.failed(token, Skip::Gone, now_ns));
                }
            }
        }
    }

    /// Whether a receiver's process has yet to come back. If it does, or is given up, an event says
    /// so.
    fn waits_for(&self, receiver: &Receiver<R>) -> bool {
        let is_awaited = || receiver.object.get().is_none() && !receiver.presence.is_gone();
        if !is_awaited() {
            return false;
        }
        receiver.presence.wait(self.number);
        is_awaited()
    }

    fn steps_that_await_start(&self, name: &ComponentName) -> Vec<u64> {
        self.tokens(|step| {
            let target = step.broadcast.targets.get(step.at);
            matches!(step.awaits, Awaits::Start)
                && matches!(target, Some(Target::Component(component)) if component == name)
        })
    }

    /// The tokens of the steps that are wanted, the oldest first.
    fn tokens(&self, is_wanted: impl Fn(&Step<R, C>) -> bool) -> Vec<u64> {
        let in_order = self.deadlines.values().copied();
        in_order.filter(|token| is_wanted(&self.steps[token])).collect()
    }
}
