//! A looper of the raw interface: when it takes a request, answers and frees without the state.

use super::buffered::{Buffered, FastRead};
use super::client_cache::ClientCache;
use super::copied_payload::CopiedPayload;
use super::pinned::PinnedLooper;
use super::receiver::{PostedAnswer, Receiver};
use super::references::{Counted, Nothing, References};
use super::route_cache::RouteCache;
use super::serve::{Answered, Posted, Taken};
use crate::channel::payload::Payload;
use crate::channel::{Channel, INLINE_BYTES};
use crate::engine::Engine;
use crate::engine::in_flight::{CALLING, InFlight};
use crate::runner::tests::{TestBroker, broker, channel, other_end};
use crate::sys::priority::nice;
use crate::sys::thread::tid;
use crate::sys::user::Source;
use baton_abi::control::{ChannelId, NodeId, ProcessId, Strength};
use baton_abi::lane::header::OWNERS;
use baton_abi::lane::{ChainEntry, Kind, MAX_PAYLOAD_BYTES, Message, status};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::{
    BINDER_TYPE_FD, FLAT_BINDER_FLAG_ACCEPTS_FDS, FdObject, PtrCookie, TF_ACCEPT_FDS, TF_CLEAR_BUF,
};
use baton_shm::lane_owner::Owner;
use baton_shm::mailbox::{Mailbox, Seen};
use baton_shm::sync::{AtomicU32, Ordering};
use baton_state::State;
use baton_state::parcel::{Few, FewObjects, Named};
use baton_state::priority::QueuePriority;
use baton_state::thread::{Calling, ExtendedError, Frame, Thread, Waiting};
use baton_state::transaction::{
    BufferedMessage, HeldObject, Incoming, LaneId, SLOT_BYTES, Serving,
};
use baton_state::work::{Tid, Work};
use bytemuck::{Zeroable, bytes_of, bytes_of_mut};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::Cell;
use std::sync::Arc;

pub(crate) const LANE: usize = 3;
const ANOTHER: usize = 4;
/// The pool's other looper, which stays with its program.
const OTHER: Tid = (1 << 22) - 1;
/// Where the manager's node is.
const PTR: u64 = 0x10;
/// The client's pid, as these tests have it, and its user.
fn sender() -> (u32, u32) {
    (7, rustix::process::geteuid().as_raw())
}
const SLOT: u32 = SLOT_BYTES as u32;
/// Where the server has another node.
const OWN_PTR: u64 = 0x20;
const OWN: Named = Named::Binder { ptr: OWN_PTR, cookie: 0, flags: 0, strength: Strength::Strong };

pub(crate) struct Stage {
    pub server: Arc<Engine>,
    client: Arc<Engine>,
    /// The server's end.
    ours: Arc<Channel>,
    /// The client's end.
    theirs: Arc<Channel>,
    node: NodeId,
    _broker: TestBroker,
}

/// The kind of the calling looper: one of the pool, or one of the lane's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Of {
    Pool,
    Lane,
}

/// A server whose looper, the calling thread, has served a client by the general path.
pub(crate) fn stage(of: Of) -> Stage {
    let stage = without_looper();
    stage.enter(of);
    stage
}

fn without_looper() -> Stage {
    let broker = broker();
    let (server, client, theirs) = channel(&broker);
    let ours = other_end(&server, &theirs);
    while server.pool.channels.active().is_empty() {
        server.take_events();
    }
    let mut state = server.pass_barrier();
    state.buffers.map(MAX_PAYLOAD_BYTES);
    let node = state.nodes.at(PTR).unwrap();
    server.unlock(state);
    // The barrier may not be counted yet.
    while server.broker.has_events() {
        std::thread::yield_now();
    }
    Stage { server, client, ours, theirs, node, _broker: broker }
}

impl Stage {
    fn enter(&self, of: Of) {
        let mut state = self.server.lock();
        for looper in [tid(), OTHER] {
            state.enter_looper(looper);
            state.thread(looper).return_once = false;
        }
        self.server.unlock(state);
        match of {
            Of::Pool => self.learn(LANE),
            Of::Lane => self.dedicate(LANE),
        }
    }

    /// A call on the lane that the state has admitted.
    fn incoming(&self, lane: usize) -> Incoming {
        let (via, peer) = (self.ours.via(lane), self.client.identity.process);
        let serving = Serving { via, peer, accepts_fds: false, chain: Vec::new() };
        Incoming {
            buffer: 0,
            peer,
            node: Some(self.node),
            code: 1,
            flags: 0,
            sizes: (0, 0),
            sender: sender(),
            label: None,
            min_priority: None,
            lane_sender: None,
            queue_priority: QueuePriority::of(nice()),
            serving: Some(serving),
        }
    }

    /// The looper has served a call on the lane by the general path.
    fn learn(&self, lane: usize) {
        self.server.cache_client(&self.server.lock(), &self.incoming(lane), (PTR, 0));
    }

    /// The client as a looper caches it that has served a call on the lane.
    fn cached(&self) -> ClientCache<()> {
        let (server, mut client) = (&self.server, None);
        let epoch = server.operations.revocations_of(&self.ours).epoch();
        ClientCache::insert(&mut client, epoch, &server.lock(), &self.incoming(LANE), ());
        client.unwrap()
    }

    /// The lane waits for a looper of its own.
    fn offer(&self, lane: usize) {
        self.server.begin_dedicated(self.ours.id, lane as u32, SchedPriority::fifo(1), 0);
    }

    /// The looper is dedicated to the lane, and has served a call on it.
    fn dedicate(&self, lane: usize) {
        self.offer(lane);
        let mut state = self.server.lock();
        assert_eq!(state.become_dedicated(tid()), Some(self.ours.via(lane)));
        drop(state);
        assert!(self.ours.dedicate(self.ours.lane(lane).unwrap(), lane as u32, tid()));
        self.server.dedicated(self.ours.via(lane)).unwrap().set_registered();
        self.learn(lane);
    }

    pub fn message(&self) -> Message {
        let (kind, node) = (Kind::Request as u32, self.node.0);
        Message { kind, node, chain: 1, param: nice(), ..Message::default() }
    }

    pub fn post(&self, lane: usize, message: &Message) {
        let caller = ChainEntry { process: self.client.identity.process.0, token: 1 };
        let areas = self.theirs.lane(lane).unwrap();
        areas.post(message, |area| area.write(size_of::<Message>(), bytes_of(&caller)));
        if self.ours.is_pools(lane as u32) {
            self.theirs.set_ready(lane);
        }
    }

    /// Posts a request with one descriptor, which says that its packet has this number.
    fn post_for_descriptor(&self, fds_number: u32) {
        let object = FdObject { kind: BINDER_TYPE_FD, ..FdObject::zeroed() };
        let sizes = Message {
            data_bytes: size_of::<FdObject>() as u32,
            offsets_bytes: 8,
            ..self.message()
        };
        let message = Message { fds: 1, fds_number, ..sizes };
        let parts = message.parts().unwrap();
        let body = [bytes_of(&object), &[0; 8]].concat();
        let areas = self.theirs.lane(LANE).unwrap();
        areas.outgoing().write(parts.data_at, &body);
        self.post(LANE, &message);
    }

    /// Has the manager's node accept descriptors, or not.
    fn accept_fds(&self, accepts: bool) {
        let mut state = self.server.lock();
        let node = state.nodes.get_mut(self.node).unwrap();
        node.flags = if accepts { FLAT_BINDER_FLAG_ACCEPTS_FDS } else { 0 };
    }

    /// Sends one end of a pipe ahead of a message, and returns the other end.
    fn send_pipe(&self) -> OwnedFd {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        assert_eq!(self.theirs.send_fds(&[write.as_fd()]), Ok(0));
        read
    }

    /// The mailbox in which the lane's caller waits.
    fn callers_inbox(&self, lane: usize) -> Mailbox<'_> {
        self.theirs.lane(lane).unwrap().inbox()
    }

    /// The message that a read past the state brings, or how the read ends without one.
    fn read(&self) -> Result<BufferedMessage, &'static str> {
        match self.server.read_fast(tid()) {
            FastRead::PendingReturn((message, _), _) => Ok(message),
            FastRead::Look(_) => Err("look"),
            FastRead::Interrupted => Err("interrupted"),
            FastRead::Relieved => Err("relieved"),
            FastRead::No => Err("no"),
        }
    }

    fn serve(&self, lane: usize) -> BufferedMessage {
        self.post(lane, &self.message());
        self.read().unwrap()
    }

    /// Whether the looper answers past the state.
    fn answers(&self) -> bool {
        let bytes = [1u8; 4];
        let source = Source::new(bytes.as_ptr() as usize, bytes.len()).unwrap();
        let payload = Payload::Program(source);
        self.server.answer_fast(tid(), (0, 0), payload, Nothing).is_some()
    }

    fn taken<'a>(&'a self, in_flight: &'a InFlight) -> Taken<'a> {
        let (lane, via) = (self.ours.lane(LANE).unwrap(), self.ours.via(LANE));
        Taken { in_flight, channel: &self.ours, lane, via }
    }

    fn with_looper<T>(&self, body: impl FnOnce(&mut Thread) -> T) -> T {
        body(self.server.lock().thread(tid()))
    }

    /// Queues work for the looper.
    fn give_work(&self) {
        self.with_looper(|thread| {
            thread.todo.push(Work::DeathCleared(1));
            thread.flag.raise();
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.settle();
        self.client.close();
        self.server.close();
    }
}

#[test]
fn a_looper_of_the_pool_reads_past_the_state_while_nothing_else_wants_it() {
    type Case = (&'static str, Result<(u32, u32), &'static str>, fn(&Stage));
    let cases: [Case; 9] = [
        ("a request", Ok(sender()), |_| ()),
        ("work of its own", Err("no"), Stage::give_work),
        ("a caller that has left", Ok((0, sender().1)), |it| _ = it.callers_inbox(LANE).close()),
        ("a program that owes an answer", Err("no"), |it| _ = it.serve(ANOTHER)),
        ("a program that polls", Err("no"), |it| it.server.pollables.begin()),
        ("a lane that can have this looper", Err("no"), |it| it.offer(ANOTHER)),
        ("a lane for which the program is asked for a looper", Err("no"), |it| {
            it.offer(ANOTHER);
            let mut state = it.server.lock();
            state.exit_looper(OTHER);
            state.pool.max = 1;
            assert!(!state.pool.wants_dedicated());
        }),
        ("a lane that another looper serves", Err("look"), |it| {
            assert!(it.ours.start_serving(LANE as u32, Owner::Pool));
        }),
        ("a request that nobody has admitted", Err("look"), |it| {
            it.post(ANOTHER, &Message { node: it.node.0 + 1, ..it.message() });
            it.ours.claim_ready(LANE);
        }),
    ];
    for (name, expected, change) in cases {
        let stage = stage(Of::Pool);
        stage.post(LANE, &stage.message());
        change(&stage);
        assert_eq!(stage.read().map(|message| message.sender), expected, "{name}");
        let waiting = stage.with_looper(|thread| thread.waiting);
        assert_eq!(waiting, Waiting::No, "{name}: it is with its program");
    }
}

/// Its last lane's next request needs no announcement, which others could claim.
#[test]
fn a_looper_claims_what_it_takes_and_leaves_the_rest_announced() {
    let stage = stage(Of::Pool);
    let (server, active) = (&stage.server, stage.server.pool.channels.active());
    let any_work = server.pool.any_work.load(Ordering::Relaxed);
    let mut cache = RouteCache::default();
    cache.insert(server, &server.lock(), &stage.incoming(LANE), ());
    let mut takes = |posted| {
        let taken = cache.take(server, &active, (any_work, posted), &mut CopiedPayload::default());
        let Ok((taken, ())) = taken else { return false };
        assert!(taken.leave(server));
        taken.post(server, 0, (0, 0), |_, _| ());
        stage.callers_inbox(LANE).clear();
        true
    };
    stage.post(LANE, &stage.message());
    assert!(takes(false));
    assert_eq!(stage.ours.new_lanes().ok(), Some(0));
    stage.post(LANE, &stage.message());
    stage.ours.claim_ready(LANE);
    assert!(!takes(false), "another looper has claimed it");
    assert!(takes(true));
    stage.theirs.set_ready(LANE);
    assert!(!takes(false), "nothing lies there");
    assert_eq!(stage.ours.forget_ready(1 << LANE), 1, "the client has said so");
    assert!(!takes(true));
    assert_eq!(stage.ours.forget_ready(1 << LANE), 0, "nobody has said so");
}

#[test]
fn a_dedicated_looper_reads_past_the_state_while_its_lane_is_all_it_has() {
    /// Whether the message lies in the reserved slot.
    type Expected = Result<bool, &'static str>;
    type Case = (&'static str, Expected, fn(&Stage), fn(&mut Message));
    let cases: [Case; 7] = [
        ("a request", Ok(true), |_| (), |_| ()),
        ("a request that fills the slot", Ok(true), |_| (), |it| it.data_bytes = SLOT),
        ("a longer request", Ok(false), |_| (), |it| it.data_bytes = SLOT + 1),
        ("a request that nobody has admitted", Err("no"), |_| (), |it| it.node += 1),
        (
            "a slot in use",
            Ok(false),
            |it| {
                it.serve(LANE);
                assert!(it.answers());
            },
            |_| (),
        ),
        (
            "a lane that is over",
            Err("no"),
            |it| it.server.end_dedicated(it.ours.id, Some(LANE as u32)),
            |_| (),
        ),
        (
            "another priority of the caller",
            Err("no"),
            |it| it.server.dedicated(it.ours.via(LANE)).unwrap().renew(),
            |_| (),
        ),
    ];
    for (name, expected, change, change_message) in cases {
        let stage = stage(Of::Lane);
        stage.serve(LANE);
        assert!(stage.answers());
        change(&stage);
        let mut message = stage.message();
        change_message(&mut message);
        stage.post(LANE, &message);
        let read = stage.read();
        assert!(stage.with_looper(|thread| thread.is_out()), "{name}: it is with its program");
        let is_in_slot = read.map(|message| stage.server.free_slot_at(message.buffer));
        assert_eq!(is_in_slot, expected, "{name}");
    }
}

#[test]
fn a_looper_answers_past_the_state_while_its_transaction_is_its_own() {
    type Case = (&'static str, bool, fn(&Stage));
    let cases: [Case; 4] = [
        ("an answer", true, |_| ()),
        ("a caller that has left", false, |it| _ = it.callers_inbox(LANE).close()),
        ("a transaction that is the state's", false, |it| {
            it.server.with_state(|state| it.server.revoke(state));
        }),
        ("work of its own", false, Stage::give_work),
    ];
    for of in [Of::Pool, Of::Lane] {
        for (name, expected, change) in cases {
            let stage = stage(of);
            stage.serve(LANE);
            let error = ExtendedError { command: 1, ..ExtendedError::default() };
            stage.with_looper(|thread| thread.error = error);
            change(&stage);
            assert_eq!(stage.answers(), expected, "{name} of {of:?}");
            stage.server.settle();
            let has_sent = stage.with_looper(|thread| thread.error.command == 0);
            assert_eq!(has_sent, expected, "{name} of {of:?}");
            let outstanding = stage.server.lock().outstanding;
            assert_eq!(outstanding, u32::from(!expected), "{name} of {of:?}");
        }
    }
}

#[test]
fn a_dedicated_looper_that_uses_the_device_in_another_way_is_known_to_be_out() {
    let stage = stage(Of::Lane);
    let unknown = Message { node: stage.node.0 + 1, ..stage.message() };
    stage.post(LANE, &unknown);
    assert_eq!(stage.read().err(), Some("no"));
    assert!(stage.with_looper(|thread| thread.is_out()), "before it has a slot");
    stage.ours.lane(LANE).unwrap().inbox().clear();
    let message = stage.serve(LANE);
    assert!(stage.answers());
    assert!(stage.with_looper(|thread| thread.bypasses_state));
    stage.server.settle();
    assert!(!stage.with_looper(|thread| thread.bypasses_state), "after it has settled");
    assert!(!stage.server.free_slot_at(message.buffer), "that was no slot's");
}

/// One-way transactions that wait for room come first.
#[test]
fn no_slot_is_reserved_while_others_wait_for_room() {
    for waits in [false, true] {
        let stage = stage(Of::Lane);
        if waits {
            stage.server.pool.channels.wait_for_room(Arc::clone(&stage.ours), None);
        }
        stage.serve(LANE);
        assert_eq!(stage.with_looper(|thread| thread.bypasses_state), !waits);
    }
}

/// The epoch has ended since the looper has looked.
#[test]
fn a_slot_that_is_not_filled_leaves_no_room_taken() {
    let stage = stage(Of::Lane);
    for is_taken_over in [false, true] {
        let mut state = stage.server.lock();
        let slot = state.reserve_slot(tid(), stage.client.identity.process).unwrap();
        assert!(slot.begin_fill(stage.node));
        if is_taken_over {
            state.take_over_slots_of(None);
        }
        stage.server.unlock(state);
        stage.server.cancel_fill(&slot);
        assert_eq!((slot.is_taken_over(), slot.free()), (is_taken_over, false));
        assert!(stage.server.lock().contents.is_empty(), "taken over: {is_taken_over}");
    }
}

#[test]
fn a_thread_frees_past_the_state_what_is_room_only() {
    type Case = (&'static str, bool, fn(&mut State, usize));
    let cases: [Case; 4] = [
        ("a plain message", true, |_, _| ()),
        ("a refusal that is unread", false, |state, _| state.thread(tid()).failed = true),
        ("a call under way", false, |state, _| {
            let (via, peer) = (LaneId { channel: ChannelId(1), lane: 0 }, ProcessId(1));
            let (handle, owns_lane, dead) = (None, true, false);
            let calling = Calling { via, peer, handle, token: 1, owns_lane, dead };
            state.thread(tid()).stack.push(Frame::Calling(calling));
        }),
        ("more than room", false, |state, buffer| state.fill_plain_room(buffer, TF_CLEAR_BUF)),
    ];
    for (name, expected, change) in cases {
        let stage = stage(Of::Pool);
        let mut state = stage.server.lock();
        let buffer = state.take_plain_room((8, 0), None).unwrap();
        change(&mut state, buffer);
        drop(state);
        assert_eq!(stage.server.free_room(tid(), buffer, 0), expected, "{name}");
        assert_eq!(stage.server.lock().contents.is_empty(), expected, "{name}");
    }
}

#[test]
fn a_dedicated_looper_frees_its_slot_by_its_place_and_while_it_bypasses_the_state() {
    let stage = stage(Of::Lane);
    let other = stage.serve(LANE).buffer;
    assert!(stage.answers());
    let slot = stage.serve(LANE).buffer;
    assert!(!stage.server.free_slot_at(other), "another message's place");
    stage.server.settle();
    assert!(!stage.server.free_slot_at(slot), "the state frees it by now");
    assert!(stage.server.free_room(tid(), slot, 0));
}

/// The epoch has ended since the looper has looked.
#[test]
fn a_request_that_is_not_taken_in_leaves_no_room_taken() {
    let stage = stage(Of::Pool);
    stage.post(LANE, &stage.message());
    let revocations = stage.server.operations.revocations_of(&stage.ours);
    let epoch = revocations.epoch();
    stage.server.with_state(|state| stage.server.revoke(state));
    let in_flight = stage.server.in_flight().unwrap();
    let taken = stage.taken(&in_flight);
    let (message, is_pinned) = (taken.lane.header(), false);
    let request = Posted { taken, epoch, sender: &sender(), caller: 1, message, is_pinned };
    assert!(!Buffered::new(tid()).take_request(&stage.server, &request));
    assert!(stage.server.lock().contents.is_empty());
}

fn is_closed(read: &OwnedFd) -> bool {
    rustix::io::read(read, &mut [0]) == Ok(0)
}

/// A closer needs its time.
fn await_closed(read: &OwnedFd) {
    while !is_closed(read) {
        std::thread::yield_now();
    }
}

#[test]
fn a_descriptor_comes_with_a_request_past_the_state() {
    let stage = stage(Of::Pool);
    stage.accept_fds(true);
    let pipe = stage.send_pipe();
    stage.post_for_descriptor(0);
    let message = stage.read().unwrap();
    let mut object = FdObject::zeroed();
    stage.server.buffer.view().read(message.buffer, bytes_of_mut(&mut object));
    assert!(!is_closed(&pipe));
    assert!(stage.server.free_room(tid(), message.buffer, 0));
    assert!(!is_closed(&pipe), "it is the program's");
    // SAFETY: it has come for this program, which nobody else is.
    drop(unsafe { OwnedFd::from_raw_fd(object.fd as i32) });
    assert!(is_closed(&pipe));
}

#[test]
fn the_general_path_refuses_descriptors_that_may_not_come() {
    let cases =
        [("no node for descriptors", false, true, true), ("none was sent", true, false, false)];
    for (name, accepts, is_sent, lives) in cases {
        let stage = stage(Of::Pool);
        stage.accept_fds(accepts);
        let pipe = is_sent.then(|| stage.send_pipe());
        stage.post_for_descriptor(0);
        assert_eq!(stage.read().err(), Some("look"), "{name}");
        stage.server.with_state(|state| stage.server.accept_first(state));
        pipe.iter().for_each(await_closed);
        assert_eq!(stage.server.channel(stage.ours.id).is_some(), lives, "{name}");
        assert!(stage.server.lock().contents.is_empty(), "{name}");
    }
}

/// The epoch has ended since the looper has looked.
#[test]
fn a_request_that_is_not_taken_in_keeps_its_descriptors() {
    let stage = stage(Of::Pool);
    stage.accept_fds(true);
    let pipe = stage.send_pipe();
    stage.post_for_descriptor(0);
    let epoch = stage.server.operations.revocations_of(&stage.ours).epoch();
    stage.server.with_state(|state| stage.server.revoke(state));
    let in_flight = stage.server.in_flight().unwrap();
    let taken = stage.taken(&in_flight);
    let (message, is_pinned) = (taken.lane.header(), false);
    let request = Posted { taken, epoch, sender: &sender(), caller: 1, message, is_pinned };
    assert!(!Buffered::new(tid()).take_request_with_references(&stage.server, &request));
    assert!(!CopiedPayload::default().take_request_with_references(&stage.server, &request));
    assert!(stage.server.lock().contents.is_empty() && !is_closed(&pipe));
    assert_eq!(stage.ours.take_fds(&message).unwrap().len(), 1);
    await_closed(&pipe);
}

/// The transaction is the state's by then.
#[test]
fn an_answer_that_is_not_posted_takes_its_descriptors_back() {
    let stage = stage(Of::Pool);
    stage.post(LANE, &Message { flags: TF_ACCEPT_FDS, ..stage.message() });
    stage.read().unwrap();
    let (earlier, _kept) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    assert_eq!(stage.ours.send_fds(&[earlier.as_fd()]), Ok(0), "another message's");
    let another = Message { fds: 1, ..Message::default() };
    assert_eq!(stage.theirs.take_fds(&another).unwrap().len(), 1);
    let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    let in_flight = stage.server.in_flight().unwrap();
    let taken = stage.taken(&in_flight);
    let object = FdObject { kind: BINDER_TYPE_FD, ..FdObject::zeroed() };
    let few =
        FewObjects { fds: [write.as_raw_fd()].into_iter().collect(), ..FewObjects::default() };
    let references = References { offsets: &[0], objects: &few };
    stage.server.with_state(|state| stage.server.take_over_own(state));
    assert_eq!(
        taken.answer_with_references(&stage.server, bytes_of(&object), references),
        Answered::No
    );
    drop(write);
    // The client's control thread hears of it.
    while !is_closed(&read) {
        std::thread::yield_now();
    }
}

/// Whoever sends them has counted them, and then finds no such descriptor.
#[test]
fn references_of_an_answer_that_cannot_be_sent_are_taken_back() {
    let stage = stage(Of::Pool);
    stage.post(LANE, &Message { flags: TF_ACCEPT_FDS, ..stage.message() });
    stage.read().unwrap();
    let in_flight = stage.server.in_flight().unwrap();
    let few = FewObjects { named: [OWN].into_iter().collect(), fds: [-1].into_iter().collect() };
    let references = References { offsets: &[0, 24], objects: &few };
    let answered =
        stage.taken(&in_flight).answer_with_references(&stage.server, &[0; 48], references);
    assert_eq!(answered, Answered::No);
    let state = stage.server.lock();
    let node = state.nodes.at(OWN_PTR).and_then(|id| state.nodes.get(id));
    assert!(node.is_none_or(|node| node.holders.strong == 0));
}

/// A dedicated looper that bypasses the state counts nothing there.
#[test]
fn a_looper_of_the_pool_answers_with_references_past_the_state() {
    for (of, expected) in [(Of::Pool, true), (Of::Lane, false)] {
        let stage = stage(of);
        stage.serve(LANE);
        let few = FewObjects { named: [OWN].into_iter().collect(), ..FewObjects::default() };
        let (payload, references) =
            (Payload::Bytes(&[0; 24]), References { offsets: &[0], objects: &few });
        let told = stage.server.answer_fast(tid(), (0, 0), payload, references);
        assert_eq!(told.is_some(), expected, "{of:?}");
    }
}

#[test]
fn a_call_carries_descriptors_to_a_node_for_them_and_no_reference_to_the_dead() {
    let stage = without_looper();
    let (client, channel) = (&stage.client, &*stage.theirs);
    let (_read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    let node = FewObjects { named: [OWN].into_iter().collect(), ..FewObjects::default() };
    let fds = [write.as_raw_fd()].into_iter().collect();
    let fds = FewObjects { fds, ..FewObjects::default() };
    for (objects, accepts_fds, dead, expected) in [
        (&node, false, false, true),
        (&node, true, true, false),
        (&fds, true, false, true),
        (&fds, false, false, false),
    ] {
        let mut state = client.lock();
        let reference = state.references.get_mut(0).unwrap();
        reference.flags = if accepts_fds { FLAT_BINDER_FLAG_ACCEPTS_FDS } else { 0 };
        reference.dead = dead;
        client.unlock(state);
        let references = References { offsets: &[0], objects };
        let counted = Counted::of_call(client, 0, channel, references);
        let is_carried = counted.map(|counted| counted.take_back(client, channel)).is_some();
        assert_eq!(is_carried, expected, "{objects:?}, {accepts_fds}, {dead}");
    }
}

/// A refusal comes first: no command runs before it is read.
#[test]
fn a_thread_counts_past_the_state_what_concerns_no_other_thread() {
    let stage = stage(Of::Pool);
    let (server, client) = (&*stage.server, &*stage.client);
    let mut carried = Few::new();
    let mut state = server.lock();
    assert!(state.carry_few(tid(), client.identity.process, &[OWN], |_| None, &mut carried));
    assert_eq!(state.take_own_news(tid()).len(), 1);
    server.unlock(state);
    let fail = |engine: &Engine, failed| engine.lock().thread(tid()).failed = failed;
    let acknowledges = || {
        let node = PtrCookie { ptr: OWN_PTR, cookie: 0 };
        server.acknowledge_quietly(tid(), node, Strength::Strong)
    };
    fail(server, true);
    assert!(!acknowledges());
    fail(server, false);
    assert_eq!([acknowledges(), acknowledges()], [true, false], "there was one request");

    let held = client.lock().hold_few(stage.theirs.sender(), &carried);
    let HeldObject::Handle { handle, .. } = held[0] else { panic!("a handle has come") };
    let count = |handle, increases| {
        let counts = client.count_handle(tid(), handle, Strength::Strong, increases);
        (counts, client.lock().references.get(handle).map_or(0, |it| it.counts.strong))
    };
    fail(client, true);
    assert_eq!(count(handle, true), (false, 1));
    fail(client, false);
    assert!(!count(0, true).0, "the manager of the moment");
    assert_eq!(count(handle + 1, true), (false, 0), "no such handle");
    assert_eq!(count(handle, true), (true, 2));
    assert_eq!(count(handle, false), (true, 1));
    assert_eq!(count(handle, false), (true, 0));
    assert_eq!(count(handle, false), (false, 0), "there is none left");
}

/// The call has been taken over since its thread has seen the answer.
#[test]
fn an_answer_to_a_call_that_is_the_states_stays_on_its_lane() {
    type Take = fn(&Engine, &PostedAnswer<'_>) -> bool;
    let takes: [Take; 4] = [
        |client, answer| CopiedPayload::default().take_answer(client, answer),
        |client, answer| CopiedPayload::default().take_answer_with_references(client, answer),
        |client, answer| Buffered::new(tid()).take_answer(client, answer),
        |client, answer| Buffered::new(tid()).take_answer_with_references(client, answer),
    ];
    for (take, is_taken_over) in takes.into_iter().flat_map(|take| [(take, false), (take, true)]) {
        let stage = without_looper();
        let (client, channel) = (&stage.client, &*stage.theirs);
        let in_flight = client.in_flight().unwrap();
        let (via, peer) = (channel.via(LANE), stage.server.identity.process);
        let revocations = client.operations.revocations_of(channel);
        in_flight.set_lane(via, peer);
        assert!(in_flight.begin(CALLING, (revocations, revocations.epoch()), 0, 1));
        client.with_state(|state| {
            state.buffers.map(MAX_PAYLOAD_BYTES);
            state.thread(tid()).return_once = false;
            if is_taken_over {
                client.revoke(state);
            }
        });
        let message = Message { kind: Kind::Reply as u32, data_bytes: 8, ..Message::default() };
        let lane = channel.lane(LANE).unwrap();
        let answer = PostedAnswer { in_flight: &in_flight, channel, message: &message, lane };
        assert_eq!(take(client, &answer), !is_taken_over);
        assert!(in_flight.take_over().is_none(), "the call is over, or the state's already");
        if is_taken_over {
            assert!(client.lock().contents.is_empty());
        }
    }
}

/// Its cached clients are of the other lane.
#[test]
fn a_looper_that_is_dedicated_to_another_lane_serves_that() {
    let stage = stage(Of::Lane);
    stage.server.end_dedicated(stage.ours.id, Some(LANE as u32));
    let mut state = stage.server.lock();
    state.withdraw_lane(stage.ours.via(LANE));
    state.thread(tid()).relieved_of = None;
    drop(state);
    stage.dedicate(ANOTHER);
    stage.serve(ANOTHER);
}

#[test]
fn a_thread_owes_answers_at_one_device_while_it_serves_at_another() {
    for of in [Of::Pool, Of::Lane] {
        let owing = stage(of);
        owing.serve(LANE);
        let other = stage(of);
        other.post(LANE, &other.message());
        assert_eq!(other.read().err(), Some("no"));
        assert!(owing.answers());
    }
}

/// The looper may read another transaction, and answers that first.
#[test]
fn a_thread_that_comes_to_read_leaves_its_transaction_to_the_state() {
    for of in [Of::Pool, Of::Lane] {
        let stage = stage(of);
        stage.serve(LANE);
        stage.server.settle_answer();
        assert_eq!(stage.server.lock().outstanding, 1, "{of:?}");
        assert!(!stage.answers(), "{of:?}");
    }
}

#[test]
fn a_thread_that_ends_leaves_its_transaction_to_the_state() {
    for of in [Of::Pool, Of::Lane] {
        let stage = without_looper();
        let thread = || {
            stage.enter(of);
            stage.serve(LANE);
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
        assert_eq!(stage.server.lock().outstanding, 1, "{of:?}");
    }
}

/// A caller lends by the first word that the looper owns.
#[test]
fn an_answer_repays_its_caller_and_gives_the_lane_back_if_that_has_left() {
    for has_left in [false, true] {
        let stage = stage(Of::Pool);
        let (lane, theirs) = (LANE as u32, &stage.theirs);
        stage.ours.borrow(lane);
        theirs.see_looper(lane, std::process::id());
        assert!(theirs.lends(lane));
        if has_left {
            stage.callers_inbox(LANE).close();
        }
        let in_flight = stage.server.in_flight().unwrap();
        for _ in 0..OWNERS {
            theirs.begin_lending(lane);
            stage.taken(&in_flight).post(&stage.server, 0, (0, 0), |_, _| ());
            stage.callers_inbox(LANE).clear();
        }
        theirs.see_looper(lane, std::process::id());
        assert!(!theirs.lends(lane), "the looper owns no word any more");
        assert_eq!(stage.callers_inbox(LANE).is_given_back(), has_left);
    }
}

/// The caller may see the answer, and post its next request, before the looper has released the
/// word.
#[test]
fn a_looper_that_repays_late_does_not_release_the_word_of_the_next_request() {
    let stage = stage(Of::Pool);
    let (lane, theirs) = (LANE as u32, &stage.theirs);
    stage.ours.borrow(lane);
    theirs.see_looper(lane, std::process::id());
    theirs.begin_lending(lane);
    let owed = stage.ours.owed(lane);
    theirs.begin_lending(lane);
    stage.ours.repay(owed);
    theirs.see_looper(lane, std::process::id());
    assert!(theirs.lends(lane), "the looper owns the word of the next request");
    stage.ours.repay(stage.ours.owed(lane));
    theirs.see_looper(lane, std::process::id());
    assert!(!theirs.lends(lane));
}

#[test]
fn a_pinned_looper_takes_the_requests_of_its_lane_while_there_is_nothing_else() {
    let stage = stage(Of::Pool);
    let (server, in_flight) = (&stage.server, stage.server.in_flight().unwrap());
    let (client, any_work) = (stage.cached(), server.pool.any_work.load(Ordering::Relaxed));
    let sleepers = || server.pool.page.word(status::SLEEPERS).load(Ordering::Relaxed);
    let pin = || PinnedLooper::begin(server, stage.taken(&in_flight), &client, any_work);
    assert!(stage.ours.start_serving(LANE as u32, Owner::Pool));
    assert!(pin().is_none(), "another looper serves the lane");
    stage.ours.end_serving(LANE as u32);
    {
        let pinned = pin().unwrap();
        assert_eq!(sleepers(), 1);
        stage.post(LANE, &Message { data_bytes: INLINE_BYTES as u32 + 1, ..stage.message() });
        let (posted, ()) = pinned.find().unwrap();
        assert!(!pinned.take(&posted, &mut CopiedPayload::default()), "it is too long");
        stage.theirs.set_ready(ANOTHER);
        assert!(pinned.find().is_none(), "another lane has a request");
        stage.ours.claim_ready(ANOTHER);
        server.pool.any_work.fetch_add(1, Ordering::Relaxed);
        assert!(pinned.find().is_none(), "the process has work");
    }
    assert_eq!(sleepers(), 0);
}

#[test]
fn a_pinned_looper_takes_references_in_while_there_is_nothing_else() {
    let stage = stage(Of::Pool);
    let (server, in_flight) = (&stage.server, stage.server.in_flight().unwrap());
    let (client, any_work) = (stage.cached(), server.pool.any_work.load(Ordering::Relaxed));
    let pinned = PinnedLooper::begin(server, stage.taken(&in_flight), &client, any_work).unwrap();
    stage.accept_fds(true);
    let _pipe = stage.send_pipe();
    stage.post_for_descriptor(0);
    let takes = || pinned.take_with_references(&mut CopiedPayload::default()).is_some();
    stage.theirs.set_ready(ANOTHER);
    assert!(!takes(), "another lane has a request");
    stage.ours.claim_ready(ANOTHER);
    server.pool.any_work.fetch_add(1, Ordering::Relaxed);
    assert!(!takes(), "the process has work");
    server.pool.any_work.fetch_sub(1, Ordering::Relaxed);
    assert!(takes());
    assert!(in_flight.leave(), "the transaction is its own");
    server.page.set_open(&in_flight.slot, false);
}

#[test]
fn a_looper_is_pinned_among_several_clients_only_while_another_looper_sleeps() {
    let stage = stage(Of::Pool);
    let (pool, ours) = (&stage.server.pool, &stage.ours);
    let (one, two) = ([Arc::clone(ours)], [Arc::clone(ours), Arc::clone(ours)]);
    assert!(pool.may_pin(&one) && !pool.may_pin(&two));
    std::thread::scope(|scope| {
        let any_work = pool.any_work.load(Ordering::Acquire);
        let looper = scope.spawn(move || pool.await_client(any_work, &mut None));
        while !pool.may_pin(&two) {
            std::thread::yield_now();
        }
        pool.wake_loopers();
        looper.join().unwrap();
    });
    assert!(!pool.may_pin(&two));
}

#[test]
fn a_pinned_looper_returns_to_a_pool_in_which_no_looper_sleeps() {
    let stage = stage(Of::Pool);
    let (pool, ours) = (&stage.server.pool, &stage.ours);
    let number = LANE as u32;
    let lane = || ours.lane(LANE).unwrap();
    assert!(ours.pin(lane(), number));
    pool.begin_pinned();
    std::thread::scope(|scope| {
        let pinned = scope.spawn(move || ours.sleep_pinned(lane(), number, || false));
        while !ours.has_pinned_sleeper() {
            std::thread::yield_now();
        }
        pool.count_request(ours, &[Arc::clone(ours), Arc::clone(ours)]);
        assert_eq!(pinned.join().unwrap(), Ok(Seen::Nudge));
    });
    pool.end_pinned();
    ours.unpin(lane(), number);
}

/// A request on another lane begins a new count, and so does the end of a pinned looper.
#[test]
fn a_channel_counts_its_requests_in_a_row() {
    let stage = stage(Of::Pool);
    let ours = &stage.ours;
    for (requests, lane, counted) in [
        (&[][..], 3, 0),
        (&[3], 3, 1),
        (&[3, 3, 3], 3, 3),
        (&[3, 3, 4], 3, 0),
        (&[3, 3, 4], 4, 1),
        (&[63; 70], 63, 70),
    ] {
        requests.iter().for_each(|lane| ours.count_in_a_row(*lane));
        assert_eq!(ours.in_a_row(lane), counted, "{requests:?}");
        if let Some(last) = requests.last() {
            assert_eq!(ours.next_in_turn(u64::MAX), (last + 1) % 64, "{requests:?}");
            assert_eq!(ours.next_in_turn(1 << last), *last, "the only one");
        }
        let areas = ours.lane(LANE).unwrap();
        assert!(ours.pin(areas, LANE as u32));
        ours.unpin(areas, LANE as u32);
        assert_eq!((ours.in_a_row(lane), ours.next_in_turn(u64::MAX)), (0, 0));
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Somebody has queued work for the thread, and has not woken it yet.
#[test]
fn a_read_that_ends_with_a_signal_looks_for_work() {
    // SAFETY: plain data, of which zero is valid; the handler touches nothing. Waits end at it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    let cases = [
        (Of::Pool, false, "interrupted"),
        (Of::Pool, true, "look"),
        (Of::Lane, false, "interrupted"),
        (Of::Lane, true, "no"),
    ];
    for (of, has_work, expected) in cases {
        let (stage, looper) = (without_looper(), AtomicU32::new(0));
        let read = || {
            stage.enter(of);
            looper.store(tid(), Ordering::Release);
            stage.read().err()
        };
        let is_out = || {
            let looper = looper.load(Ordering::Acquire);
            stage.server.lock().threads.get(looper).is_none_or(Thread::is_out)
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(read);
            while is_out() {
                std::thread::yield_now();
            }
            let looper = looper.load(Ordering::Acquire);
            if has_work {
                stage.server.lock().thread(looper).todo.push(Work::DeathCleared(1));
            }
            while !reading.is_finished() {
                // SAFETY: a signal for a thread of this process. One that comes before the thread
                // sleeps changes nothing.
                unsafe {
                    libc::syscall(libc::SYS_tgkill, std::process::id(), looper, libc::SIGUSR2)
                };
                std::thread::yield_now();
            }
            assert_eq!(reading.join().unwrap(), Some(expected), "{of:?}, work: {has_work}");
        });
    }
}

/// A looper's cache of one epoch says nothing at the next.
#[test]
fn a_client_is_cached_with_all_its_nodes_until_its_epoch_ends() {
    let stage = stage(Of::Pool);
    let state = stage.server.lock();
    let (first, mut cache) = (stage.incoming(LANE), None);
    let second = Incoming { node: Some(NodeId(stage.node.0 + 1)), ..stage.incoming(LANE) };
    let mut insert = |epoch, incoming| {
        ClientCache::insert(&mut cache, epoch, &state, incoming, ());
        let client = cache.as_ref().unwrap();
        let last = Cell::new(None);
        let nodes = [&first, &second].map(|it| it.node.unwrap().0);
        let known = nodes.map(|node| client.cached_node_again(node, &last).is_some());
        (client.epoch(), known)
    };
    assert_eq!(insert(7, &first), (7, [true, false]));
    assert_eq!(insert(7, &second), (7, [true, true]));
    assert_eq!(insert(8, &second), (8, [false, true]));
}
