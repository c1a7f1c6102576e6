//! A call by the fast path.

use super::local::{self, Local, Route};
use super::own_lane::LaneEntry;
use super::receiver::{PostedAnswer, Receiver, has_few_references, is_plain};
use super::references::{Carries, Counted};
use super::serve::DATA_AT;
use crate::channel::payload::Payload;
use crate::channel::{Channel, INLINE_BYTES, Lane};
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::sys::clock::stamp;
use crate::sys::token;
use baton_abi::lane::{ChainEntry, Kind, Message, status};
use baton_shm::client_lanes::Progress;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_state::State;
use baton_state::buffer::allocation_bytes;
use baton_state::thread::Waiting;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use bytemuck::bytes_of;
use std::time::Instant;

/// How a call on the fast path ended.
pub enum Outcome {
    /// It has been answered.
    Answered,
    /// The state has adopted the call, and the thread waits for the answer there. Holds the result
    /// of its last wait.
    Adopted(Result<Seen, Wait>),
    /// The call was not made.
    No,
}

/// How a call by a thread that has entered ended.
enum CallEnd {
    Answered,
    /// The call has been posted, and has no plain answer. Holds the result of the last wait.
    Unanswered(Result<Seen, Wait>),
    NotMade,
}

/// The longest payload that is sent without a look at the target's room. The fast path does not use
/// that room, but a payload that is too large for a process is too large for its threads.
const UNCOUNTED_BYTES: usize = 128;

fn has_room(channel: &Channel, bytes: usize) -> bool {
    let free = || channel.status_word(status::LARGEST_FREE) as usize;
    bytes <= UNCOUNTED_BYTES || allocation_bytes(bytes, 0, 0, 0) <= free()
}

/// Gives up the lane of a call that the state has taken over.
#[cold]
fn leave(local: &mut Local, handle: u32, payload: Payload<'_>) {
    match payload {
        Payload::Bytes(_) | Payload::Program(_) => local.leave_lane(handle),
        Payload::Loan(loan) => loan.leave(),
    }
}

/// Takes an answer with few references. The function reads the header again: a reference to the
/// caller's copy would force that into memory.
#[inline(never)]
fn take_answer_with_references(
    engine: &Engine,
    in_flight: &InFlight,
    channel: &Channel,
    lane: Lane<'_>,
    receiver: &mut impl Receiver,
) -> bool {
    let message = lane.header();
    receiver.fits(&message)
        && has_few_references(&message, Kind::Reply, 0)
        && receiver.take_answer_with_references(
            engine,
            &PostedAnswer { in_flight, channel, message: &message, lane },
        )
}

impl Engine {
    /// Calls along the route that the thread remembers for this handle, and waits for the answer.
    /// An answer for the fast path goes to `receiver`. Past the deadline the call is the state's,
    /// which can give it up.
    #[inline(always)]
    pub fn call_fast(
        &self,
        handle: u32,
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        if payload.bytes() > INLINE_BYTES || local::is_serving() {
            return Outcome::No;
        }
        let call = |local: &mut Local| {
            Some(self.call_by(local, handle, named, payload, carries, deadline, receiver))
        };
        local::with(self, call).unwrap_or(Outcome::No)
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "see `call_entered`")]
    fn call_by(
        &self,
        local: &mut Local,
        handle: u32,
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        // A child of fork has neither an events page nor a route.
        let route = local.route(handle).filter(|_| !self.broker.has_events());
        let outcome =
            route.map(|route| self.call_on(route, named, payload, carries, deadline, receiver));
        match outcome {
            Some(Outcome::Answered) => {}
            Some(Outcome::Adopted(_)) => leave(local, handle, payload),
            Some(Outcome::No) | None => local.forget_stale(self),
        }
        outcome.unwrap_or(Outcome::No)
    }

    /// Calls along a route that may be stale. If the state takes the call over, it has the lane.
    #[inline(always)]
    fn call_on(
        &self,
        (in_flight, route): (&InFlight, &Route),
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        let own = route.lane.via();
        let via = match payload {
            Payload::Bytes(_) | Payload::Program(_) => Some(own),
            Payload::Loan(loan) => loan.plain_lane(own.channel),
        };
        let (Some(via), Ok(token)) = (via, token::next()) else { return Outcome::No };
        // The mark is set first: another thread that takes the operation over clears it.
        self.page.set_open(&in_flight.slot, true);
        let entry = route.lane.enter(&self.operations, in_flight, via.lane, (route.handle, token));
        let end = match &entry {
            Some(entry) => self.call_entered(
                entry,
                (in_flight, route),
                via.lane,
                token,
                named,
                payload,
                carries,
                deadline,
                receiver,
            ),
            None => CallEnd::NotMade,
        };
        let seen = match end {
            CallEnd::Answered => return Outcome::Answered,
            CallEnd::Unanswered(seen) => {
                self.hand_over(in_flight);
                seen
            }
            CallEnd::NotMade if self.turn_back(in_flight, via) => return Outcome::No,
            CallEnd::NotMade => Ok(Seen::Nudge),
        };
        // The entry ends only once the state has the call.
        drop(entry);
        Outcome::Adopted(seen)
    }

    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "inlined: what is put together is put into memory"
    )]
    fn call_entered(
        &self,
        entry: &LaneEntry<'_>,
        (in_flight, route): (&InFlight, &Route),
        number: u32,
        token: u64,
        (code, flags): (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> CallEnd {
        let (channel, own) = entry.channel();
        let lane = match payload {
            Payload::Bytes(_) | Payload::Program(_) => own,
            Payload::Loan(loan) => loan.areas(),
        };
        if channel.status_word(status::FROZEN) != 0 || !has_room(channel, payload.bytes()) {
            return CallEnd::NotMade;
        }
        let references = carries.references();
        let counted = references
            .and_then(|references| Counted::of_call(self, route.handle, channel, references));
        if counted.is_none() && references.is_some() {
            return CallEnd::NotMade;
        }
        channel.begin_lending(number);
        // The point of no return.
        let request = Message {
            kind: Kind::Request as u32,
            node: route.node.0,
            code,
            flags,
            data_bytes: payload.bytes() as u32,
            chain: 1,
            param: route.nice,
            stamp: stamp(self.broker.stamps),
            ..Message::default()
        };
        channel.show_nice(number as usize, route.nice);
        let policy = &route.lane.policy;
        policy.next(&self.pool.settings, channel, number);
        let caller = ChainEntry { process: self.identity.process.0, token };
        let reader = if let Some(counted) = counted {
            counted.post(lane, &request, payload, bytes_of(&caller)).0
        } else {
            let area = lane.outgoing();
            area.write(size_of::<Message>(), bytes_of(&caller));
            if !matches!(payload, Payload::Loan(_)) {
                payload.copy_to(area, DATA_AT);
            }
            lane.post(&request, |_| {})
        };
        channel.notify_of_request(number as usize, reader, false);
        let is_there = || (!lane.inbox().is_empty()).then_some(request.stamp);
        if !policy.yields_to_peer(self.broker.stamps, channel, number, is_there) {
            let seen = policy.await_answer_by(&self.pool.settings, channel, number, lane, deadline);
            if seen != Ok(Seen::Message) {
                return CallEnd::Unanswered(seen);
            }
        }
        if !self.take_answer((in_flight, entry), lane, receiver) {
            return CallEnd::Unanswered(Ok(Seen::Message));
        }
        channel.client_lanes.set_progress(number as usize, Progress::Departed);
        CallEnd::Answered
    }

    /// Undoes a call that was not posted, because its epoch has ended. False if the state has
    /// failed the call meanwhile.
    #[cold]
    fn turn_back(&self, in_flight: &InFlight, via: LaneId) -> bool {
        if in_flight.leave() {
            self.page.set_open(&in_flight.slot, false);
            return true;
        }
        self.with_state(|state| state.disown_call(in_flight.tid, via))
    }

    /// Takes the answer, if it is for the fast path and no event of the broker has to be applied
    /// before it.
    #[inline(always)]
    fn take_answer(
        &self,
        (in_flight, entry): (&InFlight, &LaneEntry<'_>),
        lane: Lane<'_>,
        receiver: &mut impl Receiver,
    ) -> bool {
        if self.broker.has_events() {
            return false;
        }
        let (message, (channel, _)) = (lane.header(), entry.channel());
        let taken = if is_plain(&message, Kind::Reply, 0) {
            let answer = PostedAnswer { in_flight, channel, message: &message, lane };
            receiver.fits(&message) && receiver.take_answer(self, &answer)
        } else {
            take_answer_with_references(self, in_flight, channel, lane, receiver)
        };
        if taken {
            self.page.set_open(&in_flight.slot, false);
            lane.inbox().clear();
        }
        taken
    }

    /// Gives the call to the state, because its answer is not for the fast path.
    #[cold]
    fn hand_over(&self, in_flight: &InFlight) {
        self.with_state(|state| {
            self.take_over(state, in_flight);
            state.set_waiting(in_flight.tid, Waiting::No);
        });
    }

    /// Remembers the route of a call that has been answered. The state has not changed since.
    pub fn remember_route(&self, state: &mut State, tid: Tid, handle: u32, via: LaneId) {
        let outermost = state.thread(tid).stack.is_empty();
        let reference = state.references.get(handle).filter(|reference| !reference.dead);
        let (Some(reference), Some(channel)) = (reference, self.channel(via.channel)) else {
            return;
        };
        // Handle 0 stands for the manager of the moment.
        let other = handle == 0 && state.manager != Some(0);
        if other || !outermost || self.goes_by_state() || channel.peer != reference.owner {
            return;
        }
        let node = reference.node;
        // A thread that has become a real-time one reserves a lane first.
        if !self.is_served_at_priority(&channel, via.lane) || self.in_flight().is_none() {
            return;
        }
        let _ = local::with(self, |local| {
            local.insert(self, (handle, node), &channel, via.lane);
            Some(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::{Buffered, CopiedPayload, Nothing, while_serving};
    use crate::runner::tests::{TestBroker, broker, channel, other_end};
    use crate::sys::thread::tid;
    use crate::sys::user::Source;
    use baton_abi::lane::MAX_PAYLOAD_BYTES;
    use baton_shm::schedule;
    use baton_shm::sync::Ordering;
    use baton_state::thread::{Calling, Frame};
    use baton_state::work::Work;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    const LANE: usize = 3;

    struct Stage {
        server: Arc<Engine>,
        client: Arc<Engine>,
        /// The client's end.
        channel: Arc<Channel>,
        _broker: TestBroker,
    }

    /// A client that knows no route to its context manager.
    fn stage() -> Stage {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        server.unlock(state);
        Stage { server, client, channel, _broker: broker }
    }

    impl Stage {
        fn via(&self) -> LaneId {
            self.channel.via(LANE)
        }

        /// Whether the calling thread remembers the route of calls on this lane.
        fn remembers(&self, via: LaneId) -> bool {
            let remember = |state: &mut State| self.client.remember_route(state, tid(), 0, via);
            self.client.with_state(remember);
            let has_route = |local: &mut Local| Some(local.route(0).is_some());
            local::with(&self.client, has_route).unwrap_or(false)
        }

        fn call(&self, bytes: &[u8]) -> Outcome {
            let (payload, mut receiver) = (Payload::Bytes(bytes), CopiedPayload::default());
            self.client.call_fast(0, (1, 0), payload, Nothing, None, &mut receiver)
        }

        /// The outcome of a call that the server answers with this message after `before`. A slow
        /// thread may meet an event of the broker's: then its call is not made, and comes again.
        fn answered_with(&self, answer: Message, before: impl Fn() + Sync) -> Outcome {
            let tries = (0..100).map(|_| {
                drop(self.client.pass_barrier());
                match self.remembers(self.via()) {
                    true => self.answered(answer, &before, || self.call(&[])),
                    false => Outcome::No,
                }
            });
            let mut made = tries.filter(|outcome| !matches!(outcome, Outcome::No));
            made.next().expect("the call is made")
        }

        /// Like `answered_with`, of a call that may not be made.
        fn answered(
            &self,
            answer: Message,
            before: impl Fn() + Sync,
            call: impl FnOnce() -> Outcome,
        ) -> Outcome {
            let theirs = other_end(&self.server, &self.channel);
            let _control_waits = self.server.lock();
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let lane = theirs.lane(LANE).unwrap();
                    while lane.inbox().is_empty() {
                        if is_over.load(Ordering::Acquire) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    lane.inbox().clear();
                    before();
                    lane.post(&answer, |_| {});
                });
                let outcome = call();
                is_over.store(true, Ordering::Release);
                outcome
            })
        }

        /// Like `answered_with`, of a call of the raw interface after `change`.
        fn answers_program(
            &self,
            before: impl Fn() + Sync,
            change: impl Fn(&mut State),
        ) -> Outcome {
            assert!(self.remembers(self.via()));
            let mut state = self.client.lock();
            state.buffers.map(MAX_PAYLOAD_BYTES);
            state.thread(tid()).return_once = false;
            change(&mut state);
            self.client.unlock(state);
            let (bytes, mut receiver) = ([1u8; 4], Buffered::new(tid()));
            let source = Source::new(bytes.as_ptr() as usize, bytes.len()).unwrap();
            let answer = Message { kind: Kind::Reply as u32, ..Message::default() };
            let payload = Payload::Program(source);
            let call = || self.client.call_buffered(0, (1, 0), payload, Nothing, &mut receiver);
            self.answered(answer, before, call)
        }

        /// Whether the client's state and its status page know of no call.
        fn is_idle(&self) -> bool {
            let in_flight = self.client.in_flight().unwrap();
            let is_open = in_flight.slot.as_ref().unwrap().open.load(Ordering::Relaxed) != 0;
            let mut state = self.client.lock();
            let is_inside = in_flight.is_inside(self.channel.id);
            state.thread(tid()).stack.is_empty() && !is_open && !is_inside
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            self.client.close();
            self.server.close();
        }
    }

    #[test]
    fn only_plain_answers_end_a_call() {
        type Change = (&'static str, bool, fn(&mut Message));
        let changes: [Change; 10] = [
            ("nothing", true, |_| ()),
            ("the longest data", true, |it| it.data_bytes = INLINE_BYTES as u32),
            ("longer data", false, |it| it.data_bytes = INLINE_BYTES as u32 + 1),
            ("its kind", false, |it| it.kind = Kind::Request as u32),
            ("a caller", false, |it| it.chain = 1),
            ("offsets", false, |it| it.offsets_bytes = 8),
            ("buffers", false, |it| it.buffers_bytes = 8),
            ("descriptors", false, |it| it.fds = 1),
            ("objects", false, |it| it.objects = 1),
            ("a ticket", false, |it| it.ticket = 1 << 32),
        ];
        for (name, is_plain, change) in changes {
            let stage = stage();
            let mut answer = Message { kind: Kind::Reply as u32, ..Message::default() };
            change(&mut answer);
            match stage.answered_with(answer, || ()) {
                Outcome::Answered => assert!(is_plain && stage.is_idle(), "{name}"),
                Outcome::Adopted(seen) => {
                    assert!(!is_plain && seen == Ok(Seen::Message), "{name}");
                    let mut state = stage.client.lock();
                    let is_known = state.thread(tid()).calls_on().map(|calling| calling.via);
                    assert_eq!(is_known, Some(stage.via()), "{name}");
                    assert_eq!(state.thread(tid()).waiting, Waiting::No, "{name}");
                }
                Outcome::No => unreachable!("the call is made"),
            }
        }
    }

    #[test]
    fn an_answer_waits_for_events_that_the_broker_sent_before_it() {
        let stage = stage();
        let answer = Message { kind: Kind::Reply as u32, ..Message::default() };
        let outcome = stage.answered_with(answer, || stage.client.broker.count_event());
        assert!(matches!(outcome, Outcome::Adopted(Ok(Seen::Message))));
    }

    /// Its caller has to ask for a looper first.
    #[test]
    fn a_real_time_thread_learns_no_route_on_a_lane_that_is_not_reserved() {
        let stage = stage();
        let learns = || {
            let is_real_time = schedule::set(0, libc::SCHED_FIFO, 1).is_ok();
            is_real_time.then(|| stage.remembers(stage.via()))
        };
        match std::thread::scope(|scope| scope.spawn(learns).join().unwrap()) {
            Some(learns) => assert!(!learns),
            None => println!(
                "skipped: {} (no real-time priority here)",
                std::thread::current().name().unwrap_or_default()
            ),
        }
    }

    #[test]
    fn a_call_shows_its_threads_nice_value() {
        let stage = stage();
        let call = || {
            schedule::set_nice(0, 19).unwrap();
            let answer = Message { kind: Kind::Reply as u32, ..Message::default() };
            // Whoever takes its answer.
            stage.answered_with(answer, || ());
        };
        std::thread::scope(|scope| scope.spawn(call).join().unwrap());
        assert_eq!(stage.channel.niced(1 << LANE), 1 << LANE);
    }

    /// A short payload goes to a full process, too: its thread has room on its lane.
    #[test]
    fn a_long_payload_goes_to_a_process_that_has_room() {
        let stage = stage();
        let sizes = [UNCOUNTED_BYTES, UNCOUNTED_BYTES + 1, MAX_PAYLOAD_BYTES];
        let fit = || sizes.map(|bytes| has_room(&stage.channel, bytes));
        assert_eq!(fit(), [true; 3]);
        let mut state = stage.server.lock();
        state.take_plain_room((MAX_PAYLOAD_BYTES, 0), None).unwrap();
        stage.server.unlock_room(state);
        assert_eq!(fit(), [true, false, false]);
    }

    /// The server takes calls and one-way transactions in by their age.
    #[test]
    fn a_call_says_when_it_was_posted() {
        let (stage, stamp) = (stage(), AtomicU64::new(0));
        let theirs = other_end(&stage.server, &stage.channel);
        let look = || stamp.store(theirs.lane(LANE).unwrap().header().stamp, Ordering::Relaxed);
        let answer = Message { kind: Kind::Reply as u32, ..Message::default() };
        stage.answered_with(answer, look);
        assert_ne!(stamp.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_program_calls_past_the_state_while_that_has_nothing_for_its_thread() {
        type Change = fn(&Engine, &mut State);
        let changes: [(&str, bool, Change); 3] = [
            ("nothing", true, |_, _| ()),
            ("work", false, |_, state| state.thread(tid()).todo.push(Work::DeathCleared(1))),
            ("a descriptor to poll", false, |client, _| client.pollables.begin()),
        ];
        for (name, expected, change) in changes {
            let stage = stage();
            let outcome = stage.answers_program(|| (), |state| change(&stage.client, state));
            assert_eq!(matches!(outcome, Outcome::Answered), expected, "{name}");
            assert_eq!(matches!(outcome, Outcome::No), !expected, "{name}");
        }
    }

    #[test]
    fn an_answer_of_a_call_that_is_the_states_leaves_no_room_taken() {
        let stage = stage();
        let revoke = || stage.client.with_state(|state| stage.client.revoke(state));
        let outcome = stage.answers_program(revoke, |_| ());
        assert!(matches!(outcome, Outcome::Adopted(_)));
        assert!(stage.client.lock().contents.is_empty());
    }

    #[test]
    fn a_call_that_is_not_for_the_fast_path_is_not_made() {
        let stage = stage();
        assert!(stage.remembers(stage.via()));
        let is_refused = |outcome| matches!(outcome, Outcome::No) && stage.is_idle();
        assert!(is_refused(stage.call(&[0; INLINE_BYTES + 1])), "long");
        assert!(is_refused(while_serving(|| stage.call(&[]))), "nested");
        assert!(!local::is_serving(), "a later call is outermost");
        stage.server.page.set_frozen(true);
        assert!(is_refused(stage.call(&[])), "to a frozen process");
        stage.server.page.set_frozen(false);
        stage.client.broker.count_event();
        assert!(is_refused(stage.call(&[])), "before an event of the broker");
    }

    #[test]
    fn a_call_whose_epoch_has_ended_is_not_made() {
        for (takes_over, all) in [(false, true), (false, false), (true, true), (true, false)] {
            let stage = stage();
            assert!(stage.remembers(stage.via()));
            let peer = stage.server.identity.process;
            let revoke = || {
                stage.client.with_state(|state| match all {
                    true => stage.client.revoke(state),
                    false => stage.client.revoke_with(state, peer),
                });
            };
            let in_flight = stage.client.in_flight().unwrap();
            let revocations = stage.client.operations.revocations_of(&stage.channel);
            let epoch = revocations.epoch();
            revoke();
            in_flight.set_lane(stage.via(), peer);
            stage.client.page.set_open(&in_flight.slot, true);
            assert!(!in_flight.begin(
                crate::engine::in_flight::CALLING,
                (revocations, epoch),
                0,
                1
            ));
            if takes_over {
                revoke();
            }
            assert!(stage.client.turn_back(&in_flight, stage.via()));
            assert!(stage.is_idle());
            assert!(matches!(stage.call(&[]), Outcome::No), "by a route that is stale");
            let is_gone = |local: &mut Local| Some(local.route(0).is_none());
            assert_eq!(local::with(&stage.client, is_gone), Some(true));
            assert!(stage.is_idle() && stage.channel.client_lanes.take_this(LANE as u32));
        }
    }

    #[test]
    fn a_route_is_learnt_from_an_outermost_call_to_a_live_owner_that_nobody_polls_for() {
        type Change = (&'static str, fn(&Stage));
        let changes: [Change; 6] = [
            ("a dead owner", |stage| {
                stage.client.lock().references.get_mut(0).unwrap().dead = true;
            }),
            ("another owner", |stage| {
                let mut state = stage.client.lock();
                state.references.get_mut(0).unwrap().owner = stage.client.identity.process;
            }),
            ("another manager", |stage| stage.client.lock().manager = Some(1)),
            ("a nested call", |stage| {
                let calling = Calling {
                    via: stage.channel.via(LANE + 1),
                    peer: stage.server.identity.process,
                    handle: None,
                    token: 1,
                    owns_lane: false,
                    dead: false,
                };
                stage.client.lock().thread(tid()).stack.push(Frame::Calling(calling));
            }),
            ("a program that polls", |stage| stage.client.pollables.begin()),
            ("a program that names its user", |stage| {
                stage.client.user.store(1 << 30, Ordering::Relaxed)
            }),
        ];
        for (name, change) in changes {
            let stage = stage();
            change(&stage);
            assert!(!stage.remembers(stage.via()), "{name}");
        }
        let stage = stage();
        assert!(stage.remembers(stage.via()));
    }
}
