//! The engine's runner: the state under its lock, and the I/O that the state asks for.
//!
//! Lock order: `events`, then `state`, then a channel's own. The broker's sockets are used under
//! any of them, since the broker waits for nobody.
//!
//! A hidden control thread takes what no thread of the program comes for: the broker's events, and
//! messages of peers that found nobody at home.

use crate::channel::Channel;
use crate::control::Broker;
use crate::device::OpenError;
use crate::state::thread::Waiting;
use crate::state::transaction::{Arrival, Received, Refusal, Room, Verdict, Via};
use crate::state::work::Tid;
use crate::state::{Effect, State};
use baton_abi::control::{ChannelId, End, Event, Granted, Identity, ProcessId, Reply, Request};
use baton_abi::lane::*;
use baton_abi::uapi::TF_UPDATE_TXN;
use baton_shm::bell::Bell;
use baton_shm::futex::{FAR_AHEAD, Wait};
use baton_shm::mailbox::{Mailbox, Reader, Seen};
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::sync::{AtomicU32, Ordering};
use rustc_hash::FxHashMap;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// The driver of one opened device.
#[derive(Debug)]
pub struct Engine {
    /// Who the broker says this process is.
    pub identity: Identity,
    state: Mutex<State>,
    /// Held while events are taken from the broker's stream and applied.
    events: Mutex<()>,
    pub(crate) broker: Broker,
    channels: RwLock<Channels>,
    front: Mapping,
    /// The receive buffer, as the engine writes it.
    pub(crate) memory: Mapping,
    memory_file: OwnedFd,
    /// Where the program has mapped it; 0 before.
    pub(crate) program_map: AtomicUsize,
    /// One word a thread, to wait for work of its own; never removed, as threads are few.
    own_words: Mutex<FxHashMap<Tid, &'static AtomicU32>>,
    /// Some channel's one-way transactions wait for room.
    any_full: AtomicBool,
    polling: AtomicBool,
    /// An eventfd for each thread that polls.
    pollables: Mutex<FxHashMap<Tid, &'static OwnedFd>>,
    epoll: OwnedFd,
    stop: OwnedFd,
    barriers: AtomicU64,
    barrier_seen: AtomicU64,
    key: std::hash::RandomState,
    pub(crate) broker_lost: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Channels {
    by_id: FxHashMap<ChannelId, Arc<Channel>>,
    /// Replaced as a whole: a look at all of them costs one count.
    incoming: Arc<Vec<Arc<Channel>>>,
    outgoing: FxHashMap<ProcessId, Vec<Arc<Channel>>>,
}

fn set_readable(pollable: &OwnedFd, readable: bool) {
    let mut count = [0; 8];
    if readable {
        let _ = rustix::io::write(pollable, &1u64.to_ne_bytes());
    } else {
        let _ = rustix::io::read(pollable, &mut count);
    }
}

/// How long a call may lie in its lane before the server's control thread is asked to look: all
/// of the server's threads are busy, and there may be no room.
const UNTAKEN: std::time::Duration = std::time::Duration::from_millis(1);

const EVENTS: u64 = 0;
const STOP: u64 = 1;

/// The calling thread's id.
pub fn tid() -> Tid {
    thread_local!(static TID: Tid = rustix::thread::gettid().as_raw_nonzero().get() as Tid);
    TID.with(|tid| *tid)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Engine {
    /// Connects to the broker at `socket` and starts the control thread.
    pub fn open(context: &str, socket: &Path) -> Result<Arc<Engine>, OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let page = mapping::create("baton-front", FRONT_BYTES).map_err(system("memfd_create"))?;
        let front = Mapping::new(&page, FRONT_BYTES, Access::ReadWrite).map_err(system("mmap"))?;
        let memory_file =
            mapping::create("binder", MAX_PAYLOAD_BYTES).map_err(system("memfd_create"))?;
        let memory = Mapping::new(&memory_file, MAX_PAYLOAD_BYTES, Access::ReadWrite)
            .map_err(system("mmap"))?;
        // The program may map it to read, and nothing else.
        mapping::forbid_new_writers(&memory_file).map_err(system("fcntl"))?;
        let (broker, identity) = Broker::connect(socket, context, page.as_fd())?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = rustix::event::eventfd(0, flags).map_err(system("eventfd"))?;
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .map_err(system("epoll_create"))?;
        let engine = Arc::new(Engine {
            state: Mutex::new(State::new(identity.process)),
            identity,
            events: Mutex::new(()),
            broker,
            channels: RwLock::default(),
            front,
            memory,
            memory_file,
            program_map: AtomicUsize::new(0),
            own_words: Mutex::default(),
            any_full: AtomicBool::new(false),
            polling: AtomicBool::new(false),
            pollables: Mutex::default(),
            epoll,
            stop,
            barriers: AtomicU64::new(0),
            barrier_seen: AtomicU64::new(0),
            key: std::hash::RandomState::new(),
            broker_lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        engine.watch(engine.broker.events(), EVENTS).map_err(system("epoll_ctl"))?;
        engine.watch(engine.stop.as_fd(), STOP).map_err(system("epoll_ctl"))?;
        let control = Arc::clone(&engine);
        crate::thread::start(move || control.run_control())
            .map_err(system("start the control thread"))?;
        Ok(engine)
    }

    /// The state, locked. [`Engine::unlock`] carries its effects out.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Carries out what the state wants done, then lets it go.
    pub fn unlock(&self, mut state: MutexGuard<'_, State>) {
        self.carry_out(&mut state);
    }

    /// The receive buffer's file.
    pub fn memory_file(&self) -> BorrowedFd<'_> {
        self.memory_file.as_fd()
    }

    /// Polls readable while the calling thread would find work. Polling threads cost the others a
    /// doorbell over the socket, so it begins with the first use.
    pub fn readable(&self) -> Result<BorrowedFd<'static>, Errno> {
        let tid = tid();
        let mut state = self.lock();
        self.polling.store(true, Ordering::SeqCst);
        let pollable = match lock(&self.pollables).entry(tid) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                // Never closed: the program's epoll may hold it.
                place.insert(Box::leak(Box::new(rustix::event::eventfd(0, flags)?)))
            }
        };
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
        {
            channel.lane(calling.via.lane as usize)?.inbox().set_polling(true);
        }
        self.publish(&state);
        self.accept(&mut state, None);
        self.carry_out(&mut state);
        Ok(pollable.as_fd())
    }

    /// Whether [`Engine::close`] was called, or this is a child of fork.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether threads poll.
    pub fn is_polling(&self) -> bool {
        self.polling.load(Ordering::Relaxed)
    }

    // ---- effects ----------------------------------------------------------------------------

    /// Carries out the effects, and publishes what peers see of the state.
    pub fn carry_out(&self, state: &mut State) {
        while state.has_effects() {
            for effect in state.take_effects() {
                self.carry_out_one(state, effect);
            }
        }
        self.publish(state);
        if self.is_polling() {
            for (&tid, pollable) in lock(&self.pollables).iter() {
                let readable = state.would_read(tid) || self.has_answer(state, tid);
                set_readable(pollable, readable);
            }
        }
    }

    fn carry_out_one(&self, state: &mut State, effect: Effect) {
        match effect {
            Effect::Wake(_, Waiting::No) => {}
            Effect::Wake(_, Waiting::Bell) | Effect::WakeLooper => self.bell().ring_own(),
            Effect::Wake(_, Waiting::Lane(via)) => {
                if let Some(channel) = self.channel(via.channel)
                    && let Ok(lane) = channel.lane(via.lane as usize)
                {
                    lane.inbox().nudge();
                }
            }
            Effect::Wake(tid, Waiting::Own) => Mailbox::new(self.own_word(tid)).nudge(),
            Effect::Tell(request) => self.broker.tell(&request),
            Effect::Answer(via, kind, errno) => self.answer(via, kind, errno, 0),
            Effect::Abandon(via) => {
                if let Some(channel) = self.channel(via.channel) {
                    channel.abandon_lane(via.lane);
                }
            }
            Effect::Account(channel) => {
                if let Some(channel) = self.channel(channel) {
                    channel.publish_account(state.one_way_account(channel.id));
                }
            }
            Effect::Close(fds) => {
                for fd in fds {
                    // SAFETY: installed by this engine for a buffer that has just been dropped;
                    // nobody else owns the number (or, for an array's, the protocol says so).
                    drop(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
            Effect::Complain(line) => {
                tracing::warn!(target: "binder", "{}:{} {line}", self.identity.pid, tid());
            }
        }
    }

    fn publish(&self, state: &State) {
        let put = |offset, value: usize| {
            let word = self.front.word(offset);
            if word.load(Ordering::Relaxed) != value as u32 {
                word.store(value as u32, Ordering::Release);
            }
        };
        let loopers = state.loopers();
        let attended = loopers > 0 && !self.is_polling();
        let attendance = if attended { Attendance::Loopers } else { Attendance::Nobody };
        let (used, buffers) = state.buffers.used();
        put(front::ATTENDANCE, attendance as usize);
        put(front::BUFFER_BYTES, state.buffers.bytes());
        put(front::ONE_WAY_FREE, state.buffers.one_way_free());
        put(front::BUFFER_USED, used);
        put(front::BUFFERS, buffers);
        put(front::OUTSTANDING, state.pending_calls());
        put(front::THREADS, state.threads.len());
        put(front::LOOPERS, loopers);
        self.front.double_word(front::TRANSACTIONS).store(state.received, Ordering::Relaxed);
    }

    /// A caller that polls may have been answered.
    fn has_answer(&self, state: &State, tid: Tid) -> bool {
        let calling = state.threads.get(&tid).and_then(|thread| thread.calls_on());
        calling.is_some_and(|calling| {
            self.channel(calling.via.channel).is_some_and(|channel| {
                channel.lane(calling.via.lane as usize).is_ok_and(|lane| !lane.inbox().is_empty())
            })
        })
    }

    fn bell(&self) -> Bell<'_> {
        Bell::new(self.front.word(front::BELL), self.front.word(front::SLEEPERS))
    }

    fn own_word(&self, tid: Tid) -> &'static AtomicU32 {
        lock(&self.own_words).entry(tid).or_insert_with(|| Box::leak(Box::new(AtomicU32::new(0))))
    }

    // ---- channels ---------------------------------------------------------------------------

    /// A channel by name.
    pub fn channel(&self, id: ChannelId) -> Option<Arc<Channel>> {
        self.channels.read().unwrap_or_else(|p| p.into_inner()).by_id.get(&id).cloned()
    }

    fn channels_with(&self, peer: ProcessId) -> Vec<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
        channels.by_id.values().filter(|channel| channel.peer == peer).cloned().collect()
    }

    /// A channel to a process, opened if there is none.
    pub fn channel_to(&self, peer: ProcessId) -> Result<Arc<Channel>, Errno> {
        if let Some(channel) = self.newest_channel_to(peer) {
            return Ok(channel);
        }
        self.open_channel(peer)
    }

    fn newest_channel_to(&self, peer: ProcessId) -> Option<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
        channels.outgoing.get(&peer).and_then(|all| all.last()).cloned()
    }

    fn open_channel(&self, peer: ProcessId) -> Result<Arc<Channel>, Errno> {
        self.broker.ask(&Request::OpenChannel { target: peer })?;
        self.take_events();
        self.newest_channel_to(peer).ok_or(Errno::SRCH)
    }

    /// A free lane to a process.
    pub fn lane_to(&self, peer: ProcessId) -> Result<(Arc<Channel>, usize), Errno> {
        let first = self.channel_to(peer)?;
        if let Some(lane) = first.take_lane()? {
            return Ok((first, lane));
        }
        let all = {
            let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
            channels.outgoing.get(&peer).cloned().unwrap_or_default()
        };
        for channel in all {
            if let Some(lane) = channel.take_lane()? {
                return Ok((channel, lane));
            }
        }
        let another = self.open_channel(peer)?;
        let lane = another.take_lane()?.ok_or(Errno::AGAIN)?;
        Ok((another, lane))
    }

    fn add_channel(&self, id: ChannelId, end: End, peer: Identity, fds: Vec<OwnedFd>) {
        let channel = match Channel::new(id, end, peer.process, fds) {
            Ok(channel) => Arc::new(channel),
            Err(errno) => {
                tracing::warn!(target: "binder", "cannot map a channel: {errno}");
                return;
            }
        };
        // Edge-triggered: what has no room in the stash stays in the socket.
        if let Err(errno) = self.watch_edges(channel.socket(), id.0 + 2) {
            tracing::warn!(target: "binder", "cannot watch a channel: {errno}");
        }
        let mut state = self.lock();
        let known = state.peers.entry(peer.process).or_default();
        (known.pid, known.uid, known.label) = (peer.pid, peer.uid, peer.security_context);
        let mut channels = self.channels.write().unwrap_or_else(|p| p.into_inner());
        match end {
            End::Server => Arc::make_mut(&mut channels.incoming).push(Arc::clone(&channel)),
            End::Client => {
                channels.outgoing.entry(peer.process).or_default().push(Arc::clone(&channel));
            }
        }
        channels.by_id.insert(id, channel);
    }

    fn remove_channel(&self, channel: &Channel) {
        channel.ends().dead = true;
        channel.shut_down();
        let _ = rustix::event::epoll::delete(&self.epoll, channel.socket());
        let mut channels = self.channels.write().unwrap_or_else(|p| p.into_inner());
        channels.by_id.remove(&channel.id);
        Arc::make_mut(&mut channels.incoming).retain(|other| other.id != channel.id);
        if let Some(all) = channels.outgoing.get_mut(&channel.peer) {
            all.retain(|other| other.id != channel.id);
            if all.is_empty() {
                channels.outgoing.remove(&channel.peer);
            }
        }
    }

    /// The peer has broken the protocol: it loses the channel, and nobody else loses anything.
    pub fn end_channel(&self, state: &mut State, channel: &Channel, why: &str) {
        tracing::warn!(target: "binder", "channel {} with {:?} ended: {why}", channel.id.0, channel.peer);
        state.fail_channel(channel.id);
        self.carry_out(state);
        self.remove_channel(channel);
    }

    // ---- posting ----------------------------------------------------------------------------

    fn answer(&self, via: Via, kind: Kind, errno: Errno, code: u32) {
        let param = -errno.raw_os_error();
        let message = Message { kind: kind as u32, code, param, ..Message::default() };
        self.post_answer(via, &message, |_, _| {});
    }

    /// Posts a reply, or an error in its place, to the caller on a lane. False if it has left.
    pub fn post_answer(
        &self,
        via: Via,
        message: &Message,
        body: impl FnOnce(&Mapping, usize),
    ) -> bool {
        let Some(channel) = self.channel(via.channel) else { return false };
        let Ok(lane) = channel.lane(via.lane as usize) else { return false };
        if channel.end == End::Server {
            channel.ends().serving &= !(1 << via.lane);
        }
        match lane.post(message, body) {
            Reader::Polling => channel.ring_socket(),
            Reader::Closed => return false,
            Reader::Woken | Reader::Elsewhere => {}
        }
        true
    }

    /// A token that no peer can guess.
    pub fn token(&self, number: u64) -> u64 {
        use std::hash::BuildHasher;
        self.key.hash_one(number)
    }

    // ---- coming in --------------------------------------------------------------------------

    /// Takes in everything that peers have posted (or one of them), oldest first. What has to wait
    /// for an event of the broker is returned.
    fn accept(&self, state: &mut State, only: Option<ProcessId>) -> Vec<Candidate> {
        let incoming = {
            let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
            Arc::clone(&channels.incoming)
        };
        let mut blocked = Blocked::default();
        while let Some((channel, what)) = self.oldest(state, &incoming, only, &blocked) {
            let outcome = match what.place {
                Place::Lane(lane) => self.accept_lane(state, &channel, lane),
                Place::OneWay => self.accept_one_way(state, &channel),
            };
            match outcome {
                Ok(()) => {}
                Err(Stop::Later) => blocked.later.push(what),
                Err(Stop::NoRoom) => {
                    channel.ends().full = true;
                    self.any_full.store(true, Ordering::Relaxed);
                }
                Err(Stop::Violation(why)) => self.end_channel(state, &channel, why),
                Err(Stop::Refused(_)) => unreachable!("refusals have been told"),
            }
        }
        blocked.later
    }

    /// The oldest message of all. A message that was posted because of another one is younger, and
    /// whoever sees it sees the other; hence the second look when the first finds something.
    fn oldest(
        &self,
        state: &mut State,
        incoming: &[Arc<Channel>],
        only: Option<ProcessId>,
        blocked: &Blocked,
    ) -> Option<(Arc<Channel>, Candidate)> {
        let found = self.look(state, incoming, only, blocked)?;
        if incoming.len() == 1 {
            return Some(found);
        }
        self.look(state, incoming, only, blocked)
    }

    fn look(
        &self,
        state: &mut State,
        incoming: &[Arc<Channel>],
        only: Option<ProcessId>,
        blocked: &Blocked,
    ) -> Option<(Arc<Channel>, Candidate)> {
        let mut oldest: Option<(Arc<Channel>, Candidate)> = None;
        let mut offer = |channel: &Arc<Channel>, place, stamp_ns| {
            let what = Candidate { channel: channel.id, place, stamp_ns };
            let older = oldest.as_ref().is_none_or(|(_, best)| stamp_ns < best.stamp_ns);
            if older && !blocked.has(&what) {
                oldest = Some((Arc::clone(channel), what));
            }
        };
        for channel in incoming.iter().filter(|c| only.is_none_or(|peer| c.peer == peer)) {
            let mut ends = channel.ends();
            if ends.dead {
                continue;
            }
            let mut ready = channel.ready_lanes(&mut ends);
            while ready != 0 {
                let lane = ready.trailing_zeros() as usize;
                ready &= ready - 1;
                if let Ok(areas) = channel.lane(lane) {
                    offer(channel, Place::Lane(lane), areas.header().stamp_ns);
                }
            }
            if ends.full {
                continue;
            }
            match channel.first_one_way(&mut ends) {
                Ok(Some((message, _))) => offer(channel, Place::OneWay, message.stamp_ns),
                Ok(None) => {}
                Err(_) => {
                    drop(ends);
                    self.end_channel(state, channel, "impossible one-way ring");
                }
            }
        }
        oldest
    }

    /// A buffer has been freed: one-way transactions that waited for room come in.
    pub fn freed(&self, state: &mut State) {
        // Written and read under the state's lock.
        if !self.any_full.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut waited = false;
        for channel in self.channels.read().unwrap_or_else(|p| p.into_inner()).incoming.iter() {
            waited |= std::mem::take(&mut channel.ends().full);
        }
        if waited {
            // What waits for an event still does; the next look finds it.
            self.accept(state, None);
        }
    }

    fn accept_lane(&self, state: &mut State, channel: &Channel, lane: usize) -> Result<(), Stop> {
        let areas = channel.lane(lane).map_err(|_| Stop::Later)?;
        let bit = 1 << lane;
        let serving = channel.ends().serving & bit != 0;
        let message = areas.header();
        if serving || areas.inbox().is_empty() || message.kind != Kind::Request as u32 {
            return Err(Stop::Violation("a request where none can be"));
        }
        let via = channel.via(lane);
        match self.take_in(state, channel, &message, areas.map, areas.inbox, via, None) {
            Err(Stop::NoRoom) => unreachable!("only one-way transactions wait for room"),
            Err(stop) => return Err(stop),
            Ok(refused) => {
                let mut ends = channel.ends();
                ends.ready &= !bit;
                ends.serving |= bit;
                drop(ends);
                areas.inbox().clear();
                if let Some((kind, errno)) = refused {
                    // Descriptors are installed when it is read: by then it was complete.
                    let code = if errno == Errno::MFILE { 0 } else { AT_THE_DOOR };
                    self.answer(via, kind, errno, code);
                }
            }
        }
        Ok(())
    }

    fn accept_one_way(&self, state: &mut State, channel: &Channel) -> Result<(), Stop> {
        let first = channel.first_one_way(&mut channel.ends());
        let Ok(Some((message, at))) = first else {
            return Err(Stop::Violation("impossible one-way ring"));
        };
        let via = channel.via(0);
        self.take_in(state, channel, &message, channel.head(), at, via, None)?;
        // What it takes is published before its record is given back: the client never counts
        // it as neither.
        channel.publish_account(state.one_way_account(channel.id));
        self.publish(state);
        channel.release_one_way(&mut channel.ends(), &message);
        Ok(())
    }

    /// Takes a transaction in: right, room, copy, objects. `Ok(Some)` if its sender is to be told
    /// of a refusal. `on` is the thread that waits on the lane, when the lane turned round.
    #[expect(clippy::too_many_arguments, reason = "a message's place, and whom it is for")]
    fn take_in(
        &self,
        state: &mut State,
        channel: &Channel,
        message: &Message,
        map: &Mapping,
        at: usize,
        via: Via,
        on: Option<Tid>,
    ) -> Result<Option<(Kind, Errno)>, Stop> {
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        let mut chain = vec![ChainEntry::default(); usize::from(message.chain)];
        map.read(at + parts.chain_at, bytemuck::cast_slice_mut(&mut chain));
        let arrival = Arrival { via, peer: channel.peer, message, chain };
        let room = match state.admit(&arrival) {
            Ok(room) => room,
            Err(Verdict::NotYet) => return Err(Stop::Later),
            Err(Verdict::NoRoom) => return Err(Stop::NoRoom),
            Err(Verdict::Refused(kind, errno)) => {
                self.drop_cargo(state, &arrival, channel);
                return Ok(Some((kind, errno)));
            }
        };
        if message.flags & TF_UPDATE_TXN != 0 && self.is_frozen() {
            let node = baton_abi::control::NodeId(message.node);
            state.supersede(channel.peer, node, message.code, message.flags);
        }
        let contents = match self.unload(state, &arrival, channel, room, (map, at + parts.data_at))
        {
            Ok(contents) => contents,
            Err(Stop::Refused(errno)) => return Ok(Some((Kind::Failed, errno))),
            Err(stop) => return Err(stop),
        };
        state.deliver(on, arrival, room, contents);
        Ok(None)
    }

    fn is_frozen(&self) -> bool {
        self.front.word(front::FROZEN).load(Ordering::Acquire) != 0
    }

    /// A refused message's references and descriptors.
    fn drop_cargo(&self, state: &mut State, arrival: &Arrival<'_>, channel: &Channel) {
        state.drop_claim(arrival);
        drop(channel.take_fds(arrival.message));
    }

    /// Copies a payload into its room and puts its objects in place.
    fn unload(
        &self,
        state: &mut State,
        arrival: &Arrival<'_>,
        channel: &Channel,
        room: Room,
        (map, at): (&Mapping, usize),
    ) -> Result<Received, Stop> {
        let message = arrival.message;
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        let bytes = parts.end - parts.data_at;
        if let Some(label) = room.label {
            self.write_label(state, arrival.peer, label);
        }
        if message.offsets_bytes == 0 && message.ticket == 0 && message.fds == 0 {
            Mapping::copy(map, at, &self.memory, room.buffer, bytes);
            return Ok(Received::default());
        }
        let held = state.claim(arrival);
        let fds: Vec<i32> = match channel.take_fds(message) {
            Ok(fds) => fds.into_iter().map(IntoRawFd::into_raw_fd).collect(),
            Err(errno) => {
                state.reject(room, held, Vec::new());
                return Err(match errno {
                    Errno::MFILE => Stop::Refused(errno),
                    _ => Stop::Violation("descriptors missing"),
                });
            }
        };
        let mut payload = vec![0; bytes];
        map.read(at, &mut payload);
        let placed = self.place_objects(state, message, &mut payload, room, &held, &fds);
        match placed {
            Ok(contents) => {
                self.memory.write(room.buffer, &payload);
                Ok(contents)
            }
            Err(crate::parcel::Malformed) => {
                state.reject(room, held, fds);
                Err(Stop::Violation("malformed objects"))
            }
        }
    }

    fn place_objects(
        &self,
        state: &State,
        message: &Message,
        payload: &mut [u8],
        room: Room,
        granted: &[Granted],
        fds: &[i32],
    ) -> Result<Received, crate::parcel::Malformed> {
        let data_bytes = message.data_bytes as usize;
        let offsets_at = data_bytes.next_multiple_of(8);
        let buffers_at = offsets_at + (message.offsets_bytes as usize).next_multiple_of(8);
        if !message.offsets_bytes.is_multiple_of(8) {
            return Err(crate::parcel::Malformed);
        }
        let (front, buffers) = payload.split_at_mut(buffers_at);
        let (data, offsets) = front.split_at_mut(offsets_at);
        let offsets: Vec<u64> = offsets.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let base = self.program_map.load(Ordering::Acquire) + room.buffer;
        let delivery =
            crate::parcel::Delivery { granted, fds, buffers_address: (base + buffers_at) as u64 };
        crate::parcel::receive(&mut data[..data_bytes], &offsets, buffers, &delivery, |id| {
            state.nodes.get(id).map(|node| (node.ptr, node.cookie))
        })
    }

    fn write_label(&self, state: &State, peer: ProcessId, at: usize) {
        let label = state.peers.get(&peer).map_or("", |peer| &peer.label);
        self.memory.write(at, label.as_bytes());
        self.memory.zero(at + label.len(), 1);
    }

    /// Takes what has come back on the lane of the thread's innermost call. False if it has to
    /// wait for an event.
    pub fn accept_answer(&self, state: &mut State, tid: Tid) -> bool {
        let Some(&calling) = state.thread(tid).calls_on() else { return true };
        let Some(channel) = self.channel(calling.via.channel) else {
            // The channel ended while the thread was on its way here.
            state.fail_channel(calling.via.channel);
            return true;
        };
        let Ok(areas) = channel.lane(calling.via.lane as usize) else { return true };
        if areas.inbox().look() != Seen::Message {
            return true;
        }
        let message = areas.header();
        let outcome = match Kind::from_raw(message.kind) {
            Some(Kind::Reply) => self.accept_reply(state, tid, &channel, &message, areas),
            Some(kind @ (Kind::Failed | Kind::Dead | Kind::Frozen)) => {
                areas.inbox().clear();
                if message.code == AT_THE_DOOR {
                    state.never_sent(tid);
                }
                state.answered_with(tid, kind, message.param.clamp(-4095, 0));
                Ok(true)
            }
            Some(Kind::Request) => {
                self.accept_nested(state, tid, &channel, &message, areas, calling.via)
            }
            _ => Err(Stop::Violation("an answer of no kind")),
        };
        match outcome {
            Ok(over) => {
                if over && calling.owns_lane {
                    channel.give_lane(calling.via.lane);
                }
            }
            Err(Stop::Later) => return false,
            Err(Stop::Violation(why)) => self.end_channel(state, &channel, why),
            Err(Stop::NoRoom | Stop::Refused(_)) => unreachable!("not of an answer"),
        }
        true
    }

    fn accept_reply(
        &self,
        state: &mut State,
        tid: Tid,
        channel: &Channel,
        message: &Message,
        areas: crate::channel::Lane<'_>,
    ) -> Result<bool, Stop> {
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        let via = channel.via(0);
        let arrival = Arrival { via, peer: channel.peer, message, chain: Vec::new() };
        let room = match state.admit_reply(&arrival) {
            Ok(room) => room,
            Err(Verdict::NotYet) => return Err(Stop::Later),
            Err(Verdict::NoRoom) => unreachable!("a reply is not one-way"),
            Err(Verdict::Refused(kind, errno)) => {
                self.drop_cargo(state, &arrival, channel);
                areas.inbox().clear();
                state.answered_with(tid, kind, -errno.raw_os_error());
                return Ok(true);
            }
        };
        let from = (areas.map, areas.inbox + parts.data_at);
        match self.unload(state, &arrival, channel, room, from) {
            Ok(contents) => {
                areas.inbox().clear();
                state.answered(tid, message, room, contents);
            }
            Err(Stop::Refused(errno)) => {
                areas.inbox().clear();
                state.answered_with(tid, Kind::Failed, -errno.raw_os_error());
            }
            Err(stop) => return Err(stop),
        }
        Ok(true)
    }

    fn accept_nested(
        &self,
        state: &mut State,
        tid: Tid,
        channel: &Channel,
        message: &Message,
        areas: crate::channel::Lane<'_>,
        via: Via,
    ) -> Result<bool, Stop> {
        let taken =
            self.take_in(state, channel, message, areas.map, areas.inbox, via, Some(tid))?;
        areas.inbox().clear();
        if let Some((kind, errno)) = taken {
            self.answer(via, kind, errno, AT_THE_DOOR);
        }
        Ok(false)
    }

    // ---- waiting ----------------------------------------------------------------------------

    /// Waits until a read by this thread has something to return. `EAGAIN` if it would not wait,
    /// `EINTR` after a signal.
    pub fn await_work<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
        nonblocking: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        loop {
            let answered = self.accept_answer(&mut state, tid);
            let later = if process_work { self.accept(&mut state, None) } else { Vec::new() };
            self.carry_out(&mut state);
            if state.has_work(tid, process_work) {
                return Ok(state);
            }
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if !answered || !later.is_empty() {
                drop(state);
                state = self.catch_up(&later, (!answered).then_some(tid));
                continue;
            }
            if nonblocking {
                self.hurry(&mut state, tid);
                return Err(Errno::AGAIN);
            }
            state = self.sleep(state, tid, process_work)?;
        }
    }

    /// A call that nobody has taken in yet: its server's control thread can tell whether it will
    /// be taken at all.
    fn hurry(&self, state: &mut State, tid: Tid) {
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
            && let Ok(lane) = channel.lane(calling.via.lane as usize)
            && !lane.outbox().is_empty()
        {
            channel.ring_socket();
        }
    }

    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        let innermost = state.thread(tid).calls_on().map(|calling| calling.via);
        let outcome = if let Some(via) = innermost {
            let Some(channel) = self.channel(via.channel) else { return Ok(state) };
            let lane = channel.lane(via.lane as usize)?;
            state.set_waiting(tid, Waiting::Lane(via));
            drop(state);
            // A looper that has been woken for it takes it.
            let untaken = !channel.is_expected(via.lane) && !lane.outbox().is_empty();
            match lane.inbox().wait(Some(if untaken { UNTAKEN } else { FAR_AHEAD })) {
                Err(Wait::TimedOut) => {
                    if !lane.outbox().is_empty() {
                        channel.ring_socket();
                    }
                    lane.inbox().wait(Some(FAR_AHEAD))
                }
                outcome => outcome,
            }
        } else if process_work {
            state.set_waiting(tid, Waiting::Bell);
            let announced = self.bell().announce();
            let news = self.has_news();
            drop(state);
            let outcome = if news { Wait::Woken } else { self.bell().sleep(announced) };
            self.bell().rise();
            match outcome {
                Wait::Woken => Ok(Seen::Nudge),
                other => Err(other),
            }
        } else {
            let word = Mailbox::new(self.own_word(tid));
            state.set_waiting(tid, Waiting::Own);
            drop(state);
            word.wait(Some(FAR_AHEAD))
        };
        state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Err(Wait::Interrupted) if !state.has_work(tid, process_work) => {
                // An answer that came with the signal is left for the next read.
                Err(Errno::INTR)
            }
            _ => Ok(state),
        }
    }

    fn has_news(&self) -> bool {
        let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
        channels.incoming.iter().any(|channel| channel.has_news(&channel.ends()))
    }

    // ---- the broker's events ----------------------------------------------------------------

    /// Applies every event that has come.
    pub fn take_events(&self) {
        let _events = lock(&self.events);
        let mut news = false;
        loop {
            match self.broker.next_event() {
                Ok(Some((event, fds))) => {
                    self.apply(event, fds);
                    news = true;
                }
                Ok(None) => {
                    // A peer may have been faster than its event: what it posted has rung for
                    // nobody, or was left for later.
                    if news {
                        let mut state = self.lock();
                        self.accept(&mut state, None);
                        self.carry_out(&mut state);
                    }
                    return;
                }
                Err(_) => {
                    if !self.broker_lost.swap(true, Ordering::SeqCst)
                        && !self.closed.load(Ordering::Acquire)
                    {
                        tracing::warn!(target: "binder", "the broker is gone; calls go on, nothing new can be reached");
                    }
                    let _ = rustix::event::epoll::delete(&self.epoll, self.broker.events());
                    return;
                }
            }
        }
    }

    fn apply(&self, event: Event, fds: Vec<OwnedFd>) {
        match event {
            Event::Channel { channel, end, peer } => self.add_channel(channel, end, peer, fds),
            Event::Barrier { number } => {
                self.barrier_seen.fetch_max(number, Ordering::AcqRel);
            }
            Event::References { holder: Some((process, false)), .. } => {
                let mut state = self.lock();
                self.accept(&mut state, Some(process));
                state.event(event);
                self.carry_out(&mut state);
            }
            Event::Dead { process } => {
                let mut state = self.lock();
                self.accept(&mut state, Some(process));
                state.event(event);
                self.carry_out(&mut state);
                for channel in self.channels_with(process) {
                    self.remove_channel(&channel);
                }
            }
            event => {
                let mut state = self.lock();
                state.event(event);
                self.carry_out(&mut state);
            }
        }
    }

    /// Waits until every event that was caused before now has been applied. A message that is then
    /// still without its grant or its references never had them: its channel ends.
    fn catch_up(&self, later: &[Candidate], caller: Option<Tid>) -> MutexGuard<'_, State> {
        let number = self.barriers.fetch_add(1, Ordering::AcqRel) + 1;
        self.broker.tell(&Request::Barrier { number });
        while self.barrier_seen.load(Ordering::Acquire) < number
            && !self.broker_lost.load(Ordering::Acquire)
        {
            let flags = rustix::event::PollFlags::IN;
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(self.broker.events(), flags)];
            // The control thread may take the event from under this poll.
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut fds, Some(&time));
            self.take_events();
        }
        let mut state = self.lock();
        let still = self.accept(&mut state, None);
        for liar in still.iter().filter(|what| later.contains(what)) {
            if let Some(channel) = self.channel(liar.channel) {
                self.end_channel(&mut state, &channel, "a call without a grant");
            }
        }
        if let Some(tid) = caller
            && !self.accept_answer(&mut state, tid)
            && let Some(calling) = state.thread(tid).calls_on().copied()
            && let Some(channel) = self.channel(calling.via.channel)
        {
            self.end_channel(&mut state, &channel, "a reply with references it was not given");
        }
        self.carry_out(&mut state);
        state
    }

    // ---- the control thread -----------------------------------------------------------------

    fn watch(&self, fd: BorrowedFd<'_>, name: u64) -> Result<(), Errno> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        add(&self.epoll, fd, EventData::new_u64(name), EventFlags::IN | EventFlags::RDHUP)
    }

    fn watch_edges(&self, fd: BorrowedFd<'_>, name: u64) -> Result<(), Errno> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        add(&self.epoll, fd, EventData::new_u64(name), flags)
    }

    fn run_control(&self) {
        let mut events = Vec::with_capacity(32);
        loop {
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            match rustix::event::epoll::wait(&self.epoll, space, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    EVENTS => self.take_events(),
                    channel => self.visit(ChannelId(channel - 2)),
                }
            }
        }
    }

    /// A peer has rung, sent descriptors ahead, or hung up.
    fn visit(&self, id: ChannelId) {
        let Some(channel) = self.channel(id) else { return };
        let over = channel.drain_socket().is_err();
        if over {
            // What it sent last may carry references of which the broker has told by now.
            self.take_events();
        }
        let mut state = self.lock();
        let later = self.accept(&mut state, over.then_some(channel.peer));
        if over {
            self.end_channel(&mut state, &channel, "the peer has hung up");
        }
        self.carry_out(&mut state);
        drop(state);
        if !later.is_empty() {
            drop(self.catch_up(&later, None));
        }
    }

    /// Closes the device: the broker is told by the end of the connection.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        for socket in self.broker.sockets() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        let mut state = self.lock();
        let channels = {
            let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
            channels.by_id.values().cloned().collect::<Vec<_>>()
        };
        for channel in channels {
            state.fail_channel(channel.id);
            self.carry_out(&mut state);
            self.remove_channel(&channel);
        }
        let tids: Vec<Tid> = state.threads.keys().copied().collect();
        for tid in tids {
            let waiting = state.thread(tid).waiting;
            self.carry_out_one(&mut state, Effect::Wake(tid, waiting));
        }
    }

    /// In a child of fork, which shares nothing of the device: its copies of the sockets go, so
    /// that the parent's death is seen.
    pub fn forked(&self) {
        self.closed.store(true, Ordering::Release);
        let channels = self.channels.try_read();
        let sockets = channels.iter().flat_map(|c| c.by_id.values()).map(|c| c.socket());
        for socket in sockets.chain(self.broker.sockets()) {
            crate::thread::close_in_child(socket);
        }
    }

    /// Sends descriptors, chooses a lane: see [`crate::send`].
    pub(crate) fn refuse_if_frozen(
        &self,
        channel: &Channel,
        one_way: bool,
    ) -> Result<bool, Refusal> {
        if channel.front_word(front::FROZEN) == 0 {
            return Ok(false);
        }
        self.broker.tell(&Request::FrozenTouched { target: channel.peer, two_way: !one_way });
        if one_way {
            return Ok(true);
        }
        Err(Refusal { command: baton_abi::uapi::BR_FROZEN_REPLY, errno: Errno::AGAIN })
    }

    /// Asks the broker for the context manager, unless it is known.
    pub(crate) fn find_manager(&self) -> Result<(), Errno> {
        if self.lock().manager.is_some() {
            return Ok(());
        }
        match self.broker.ask(&Request::ContextManager)? {
            Reply::Ticket { ticket } => {
                self.take_events();
                let mut state = self.lock();
                let found = state.set_manager(ticket);
                self.unlock(state);
                if found { Ok(()) } else { Err(Errno::PROTO) }
            }
            _ => Err(Errno::PROTO),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where a message lies on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Lane(usize),
    OneWay,
}

/// A message that could come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    channel: ChannelId,
    place: Place,
    stamp_ns: u64,
}

/// Why a message stays, or its channel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It waits for an event.
    Later,
    /// It waits for room.
    NoRoom,
    /// Its sender is told.
    Refused(Errno),
    /// Its sender has broken the protocol.
    Violation(&'static str),
}

/// What this round has found to stay.
#[derive(Default)]
struct Blocked {
    later: Vec<Candidate>,
}

impl Blocked {
    fn has(&self, what: &Candidate) -> bool {
        self.later.iter().any(|other| (other.channel, other.place) == (what.channel, what.place))
    }
}
