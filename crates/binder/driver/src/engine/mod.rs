//! The engine's runner: the state under its lock, and the I/O that the state asks for.
//!
//! Lock order: `opening`, then `events`, then `state`, then a channel's own. The broker's sockets
//! are used under any of them, since the broker waits for nobody.
//!
//! A hidden control thread takes what no thread of the program comes for: the broker's events, and
//! messages of peers that found nobody at home.

mod accept;
mod active_set;
mod answer;
mod bells;
mod channels;
pub(crate) mod dedicated;
mod effects;
mod events;
pub(crate) mod fast;
mod follow;
mod leave;
pub(crate) mod loan;
mod mlock;
pub(crate) mod mute;
mod program_loopers;
mod rejoin;
pub(crate) mod reserve;
mod round_timer;
pub(crate) mod settings;
pub(crate) mod spin;
mod standby;
mod stay;
mod take_in;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wait;
mod wait_policy;
pub(crate) mod yield_first;

use crate::channel::Channel;
use crate::control::Broker;
use crate::device::OpenError;
use accept::Among;
use baton_abi::control::{ChannelId, Identity, ProcessId};
use baton_abi::lane::*;
use baton_shm::forks::ForkGeneration;
use baton_shm::lock::{Guard, Lock};
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use baton_state::account::Accounts;
use baton_state::work::Tid;
use baton_state::{Effect, State};
use round_timer::RoundTimer;
use rustc_hash::FxHashMap;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use settings::Settings;
use spin::SpinBudget;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

/// The driver of one opened device.
#[derive(Debug)]
pub struct Engine {
    /// Who the broker says this process is.
    pub identity: Identity,
    /// No other engine of this process ever has it.
    number: u64,
    /// The process that has opened it.
    generation: ForkGeneration,
    fast: fast::Fast,
    state: Lock<State>,
    /// The state's.
    accounts: Accounts,
    /// Held while events are taken from the broker's stream and applied.
    events: Lock<()>,
    events_taken: AtomicU32,
    pub(crate) broker: Broker,
    channels: Lock<Channels>,
    /// Channels that have been removed.
    retired: Lock<Vec<Retired>>,
    /// Channels whose client has announced too much that was not there.
    muted: Lock<mute::AllMuted>,
    /// Held while a channel is opened.
    opening: Lock<()>,
    front: Arc<Mapping<STATUS_BYTES>>,
    tally: Mapping<TALLY_BYTES>,
    /// What the state was like when it was shown last.
    shown: [AtomicU64; 2],
    /// What of the state's stands in the status page beside the fast path's.
    published_outstanding: AtomicU32,
    published_received: AtomicU64,
    /// The receive buffer, as the engine writes it.
    pub memory: Mapping<MAX_PAYLOAD_BYTES>,
    memory_file: OwnedFd,
    /// Where the program has mapped it; 0 before.
    pub(crate) program_map: AtomicUsize,
    /// Loopers sleep on it beside their clients' bells; this process's own.
    any_work: AtomicU32,
    repeats: bells::Repeats,
    settings: Settings,
    /// How long loopers wait for clients.
    gaps: SpinBudget,
    /// A looper spins: one is enough.
    spinning: AtomicBool,
    /// How much has been taken in while there were several clients.
    requests: AtomicU64,
    /// One word a thread, to wait for work of its own.
    own_words: Lock<FxHashMap<Tid, Arc<AtomicU32>>>,
    /// Some channel's one-way transactions wait for room.
    any_full: AtomicBool,
    /// Which.
    full: Lock<Vec<Arc<Channel>>>,
    polling: AtomicBool,
    /// An eventfd for each thread that polls.
    pollables: Lock<FxHashMap<Tid, &'static OwnedFd>>,
    epoll: OwnedFd,
    stop: OwnedFd,
    dedicated_loopers: dedicated::DedicatedLoopers,
    standby: standby::Standby,
    watchdog: RoundTimer,
    reservations: reserve::Reservations,
    mlock: mlock::Mlock,
    barriers: AtomicU64,
    barrier_seen: AtomicU64,
    /// Channels that could not be had, of which the log has not heard.
    unlogged: Lock<Unlogged>,
    closed: AtomicBool,
}

/// A channel that is on no list any more, and what is to be said of it: a log may keep its writer
/// waiting, who so holds no lock.
#[derive(Debug)]
struct Retired {
    channel: Arc<Channel>,
    why: Option<&'static str>,
}

/// A line of the log that is written once a second at most.
#[derive(Debug, Default)]
struct Unlogged {
    count: u64,
    written: Option<Instant>,
}

/// Engines so far.
static ENGINES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
struct Channels {
    by_id: FxHashMap<ChannelId, Arc<Channel>>,
    incoming: Vec<Arc<Channel>>,
    /// The incoming channels while they are at most [`active_set::FEW`]; replaced as a whole: a
    /// look costs one count.
    few: Arc<Vec<Arc<Channel>>>,
    /// Those of them at which loopers look; see [`active_set`].
    active: Arc<Vec<Arc<Channel>>>,
    /// Both ends', oldest first.
    by_peer: FxHashMap<ProcessId, Vec<Arc<Channel>>>,
    /// The last channel that was opened to be called on and could not be had, and why.
    refused: Option<(ProcessId, Errno)>,
}

/// The calling thread's id.
pub fn tid() -> Tid {
    baton_shm::thread::id()
}

impl Engine {
    /// [`Engine::open_with`] the environment's settings.
    pub fn open(context: &str, socket: &Path) -> Result<Arc<Engine>, OpenError> {
        Engine::open_with(context, socket, Settings::of_environment())
    }

    /// Connects to the broker at `socket` and starts the control thread.
    pub fn open_with(
        context: &str,
        socket: &Path,
        settings: Settings,
    ) -> Result<Arc<Engine>, OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let page = mapping::create("baton-front", STATUS_BYTES).map_err(system("memfd_create"))?;
        let front =
            Mapping::<STATUS_BYTES>::new(&page, Access::ReadWrite).map_err(system("mmap"))?;
        let tally_page =
            mapping::create("baton-tally", TALLY_BYTES).map_err(system("memfd_create"))?;
        let tally =
            Mapping::<TALLY_BYTES>::new(&tally_page, Access::ReadWrite).map_err(system("mmap"))?;
        let memory_file =
            mapping::create("binder", MAX_PAYLOAD_BYTES).map_err(system("memfd_create"))?;
        let memory = Mapping::<MAX_PAYLOAD_BYTES>::new(&memory_file, Access::ReadWrite)
            .map_err(system("mmap"))?;
        // The program may map it to read, and nothing else.
        mapping::forbid_new_writers(&memory_file).map_err(system("fcntl"))?;
        let (broker, identity) = Broker::connect(socket, context, [page, tally_page])?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = rustix::event::eventfd(0, flags).map_err(system("eventfd"))?;
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .map_err(system("epoll_create"))?;
        let state = State::new(identity.process);
        let accounts = state.accounts.clone();
        accounts.set_owner(identity.uid, crate::control::descriptors());
        let engine = Arc::new(Engine {
            state: Lock::new(state),
            accounts,
            identity,
            generation: ForkGeneration::current(),
            number: ENGINES.fetch_add(1, Ordering::Relaxed) + 1,
            fast: fast::Fast::default(),
            events: Lock::new(()),
            events_taken: AtomicU32::new(0),
            broker,
            channels: Lock::default(),
            retired: Lock::default(),
            muted: Lock::default(),
            opening: Lock::default(),
            front: Arc::new(front),
            tally,
            shown: Default::default(),
            published_outstanding: AtomicU32::new(0),
            published_received: AtomicU64::new(0),
            memory,
            memory_file,
            program_map: AtomicUsize::new(0),
            any_work: AtomicU32::new(0),
            repeats: bells::Repeats::new().map_err(system("timerfd_create"))?,
            settings: settings.here(),
            gaps: SpinBudget::default(),
            spinning: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            own_words: Lock::default(),
            any_full: AtomicBool::new(false),
            full: Lock::default(),
            polling: AtomicBool::new(false),
            pollables: Lock::default(),
            epoll,
            stop,
            dedicated_loopers: Default::default(),
            standby: Default::default(),
            watchdog: RoundTimer::new(program_loopers::ROUND).map_err(system("timerfd_create"))?,
            reservations: Default::default(),
            mlock: Default::default(),
            barriers: AtomicU64::new(0),
            barrier_seen: AtomicU64::new(0),
            unlogged: Lock::default(),
            closed: AtomicBool::new(false),
        });
        let link = engine.broker.link();
        engine.watch_events(&link).map_err(system("epoll_ctl"))?;
        engine.watch(engine.stop.as_fd(), events::STOP).map_err(system("epoll_ctl"))?;
        engine.watch(engine.repeats.timer.timer(), events::REPEAT).map_err(system("epoll_ctl"))?;
        engine.watch(engine.watchdog.timer(), events::WATCHDOG).map_err(system("epoll_ctl"))?;
        crate::thread::forget_in_children();
        let control = Arc::clone(&engine);
        crate::thread::start("baton-control", move || control.run_control())
            .map_err(system("start the control thread"))?;
        Ok(engine)
    }

    /// The state, locked. [`Engine::unlock`] carries its effects out.
    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Carries out what the state wants done, then lets it go.
    pub fn unlock(&self, mut state: Guard<'_, State>) {
        self.carry_out(&mut state);
    }

    /// No other engine of this process ever has it.
    pub(crate) fn number(&self) -> u64 {
        self.number
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
        state.end_dedicated(tid);
        self.polling.store(true, Ordering::SeqCst);
        self.revoke(&mut state);
        let pollable = match self.pollables.lock().entry(tid) {
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
        self.accept(&mut state, Among::Watched);
        self.carry_out(&mut state);
        Ok(pollable.as_fd())
    }

    /// A thread uses the device no more: BINDER_THREAD_EXIT, or its end.
    pub fn forget_thread(&self, tid: Tid) {
        let mut state = self.lock();
        self.take_over_own(&mut state);
        state.thread_exit(tid);
        self.unlock(state);
        self.end_reservations(tid);
        self.own_words.lock().remove(&tid);
    }

    /// Whether [`Engine::close`] was called, or this is a child of fork.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_inherited()
    }

    /// Whether this is a child of fork of the process that has opened the device: it has none of
    /// the engine's memory, and nobody may be left to let go of its locks.
    pub fn is_inherited(&self) -> bool {
        !self.generation.is_current()
    }

    /// Whether threads poll.
    pub fn is_polling(&self) -> bool {
        self.polling.load(Ordering::Relaxed)
    }

    /// Closes the device: the broker is told by the end of the connection.
    pub fn close(&self) {
        if self.is_inherited() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        self.wake_standby();
        self.broker.link().shut_down();
        let mut state = self.lock();
        self.revoke(&mut state);
        let channels = {
            let channels = self.channels.lock();
            channels.by_id.values().cloned().collect::<Vec<_>>()
        };
        for channel in channels {
            state.fail_channel(channel.id);
            self.carry_out_effects(&mut state);
            self.remove_channel(&channel, None);
        }
        state.close();
        self.carry_out(&mut state);
        let tids: Vec<Tid> = state.threads.iter().map(|(tid, _)| tid).collect();
        for tid in tids {
            let waiting = state.thread(tid).waiting;
            self.carry_out_one(&mut state, Effect::Wake(tid, waiting));
        }
    }

    /// In a child of fork, which shares nothing of the device: its copies of the sockets go, so
    /// that the parent's death is seen.
    pub fn forked(&self) {
        self.closed.store(true, Ordering::Release);
        self.fast.revocation.revoke();
        let channels = self.channels.try_lock();
        let sockets = channels.iter().flat_map(|c| c.by_id.values()).map(|c| c.socket());
        let link = self.broker.link_in_child();
        for socket in sockets.chain(link.iter().flat_map(|link| link.sockets())) {
            crate::thread::close_in_child(socket);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
