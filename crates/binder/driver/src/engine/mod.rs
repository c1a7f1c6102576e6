//! The engine of one opened device, as its parts: each has its own fields and functions, and none
//! knows the engine. The layers above drive it: [`crate::realtime`], [`crate::fast`],
//! [`crate::runner`].
//!
//! Lock order: `opening`, then the broker's `applying`, then `state`, then a channel's own. The
//! broker's sockets are used under any of them, since the broker waits for nobody.

pub(crate) mod broker;
pub(crate) mod in_flight;
pub(crate) mod open_error;
pub(crate) mod pollables;
pub(crate) mod real_time;
pub(crate) mod receive_buffer;
pub(crate) mod status_page;
pub(crate) mod thread_end;

use crate::channel::Channel;
use crate::channel::peer_files::UserClosers;
use crate::sys::clock::StampClock;
use crate::sys::control_poll::ControlPoll;
use crate::sys::packet::descriptors;
use crate::wait::pool::Pool;
use crate::wait::settings::{Settings, count_processors};
use baton_abi::control::{ChannelId, Identity};
use baton_abi::lane::{ChainEntry, SENDER_USER};
use baton_shm::forks::ForkGeneration;
use baton_shm::lock::{Guard, Lock};
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use baton_state::State;
use baton_state::account::Accounts;
use baton_state::work::Tid;
use broker::{Broker, Dialled, Greeted};
use in_flight::Operations;
use open_error::OpenError;
use pollables::Pollables;
use real_time::RealTime;
use receive_buffer::ReceiveBuffer;
use rustc_hash::FxHashMap;
use status_page::StatusPage;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The driver of one opened device.
#[derive(Debug)]
pub struct Engine {
    /// The identity that the broker has given this process.
    pub identity: Identity,
    /// The engine's number: no other engine of this process ever has the same.
    pub(crate) number: u64,
    /// The process that has opened it.
    generation: ForkGeneration,
    pub(crate) closed: AtomicBool,
    pub(crate) state: Lock<State>,
    /// The state, under its lock.
    pub(crate) accounts: Accounts,
    /// Threads that close descriptors of peers.
    pub(crate) closers: UserClosers,
    /// One word for each thread, to wait for work of its own.
    pub(crate) own_words: Lock<FxHashMap<Tid, Arc<AtomicU32>>>,
    pub(crate) broker: Broker,
    pub(crate) page: StatusPage,
    /// The receive buffer.
    pub buffer: ReceiveBuffer,
    pub(crate) pool: Pool,
    pub(crate) operations: Operations,
    pub(crate) real_time: RealTime,
    pub(crate) pollables: Pollables,
    /// The program's effective user, changed under the state's lock. The broker has told peers of
    /// the one in `identity`.
    pub(crate) user: AtomicU32,
    pub(crate) control: Arc<ControlPoll>,
    pub(crate) stamp_clock: StampClock,
}

/// The parts of an engine that do not depend on its process: they may be made before that is known.
#[derive(Debug)]
pub(crate) struct Parts {
    dialled: Dialled,
    page: StatusPage,
    buffer: ReceiveBuffer,
    control: Arc<ControlPoll>,
}

/// The parts of an engine that has greeted the broker.
#[derive(Debug)]
pub(crate) struct GreetedParts {
    greeted: Greeted,
    page: StatusPage,
    buffer: ReceiveBuffer,
    control: Arc<ControlPoll>,
}

/// Engines so far.
static ENGINES: AtomicU64 = AtomicU64::new(0);

impl Parts {
    /// Connects to the broker at `socket`, which looks up this process meanwhile. `control` is a
    /// control thread's that is over, if there is one.
    pub fn new(socket: &Path, control: Option<ControlPoll>) -> Result<Parts, OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let connection = broker::dial(socket)?;
        let (page, page_file) = StatusPage::new()?;
        let dialled = Dialled::new(connection, socket, page_file)?;
        let buffer = ReceiveBuffer::new()?;
        let control = control.map_or_else(ControlPoll::new, Ok);
        let control = control.map_err(system("make the control thread's timers"))?;
        Ok(Parts { dialled, page, buffer, control: Arc::new(control) })
    }

    /// Introduces an engine of these parts to the broker, without waiting for the answer.
    pub fn greet(self, context: &str, on_behalf: Option<u32>) -> Result<GreetedParts, OpenError> {
        let Parts { dialled, page, buffer, control } = self;
        let greeted = dialled.greet(context, on_behalf)?;
        Ok(GreetedParts { greeted, page, buffer, control })
    }

    /// Whether the broker of these parts has ended or closed the connection.
    pub fn has_hung_up(&self) -> bool {
        self.dialled.has_hung_up()
    }
}

impl Engine {
    /// The engine of these parts, once the broker has answered. Nothing takes its events yet.
    pub(crate) fn connect(parts: GreetedParts, settings: Settings) -> Result<Engine, OpenError> {
        let GreetedParts { greeted, page, buffer, control } = parts;
        count_processors();
        let on_behalf = greeted.on_behalf;
        let (broker, mut identity) = greeted.await_welcome()?;
        if cfg!(not(simulated)) {
            // The broker may not see this process's own pid.
            identity.pid = on_behalf.unwrap_or_else(std::process::id);
        }
        let shown = Arc::clone(page.mapping());
        let stamp_clock = StampClock::new(broker.stamps);
        let pool = Pool::new(settings, broker.stamps, Arc::clone(&control), shown);
        let state = State::new(identity.process);
        let accounts = state.accounts.clone();
        accounts.set_owner(identity.uid, descriptors());
        let user = AtomicU32::new(identity.uid);
        Ok(Engine {
            identity,
            user,
            number: ENGINES.fetch_add(1, Ordering::Relaxed) + 1,
            generation: ForkGeneration::current(),
            closed: AtomicBool::new(false),
            state: Lock::new(state),
            accounts,
            closers: UserClosers::default(),
            own_words: Lock::default(),
            broker,
            page,
            buffer,
            pool,
            operations: Operations::default(),
            real_time: RealTime::default(),
            pollables: Pollables::default(),
            control,
            stamp_clock,
        })
    }

    /// The state, locked. [`Engine::unlock`] carries its effects out.
    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// A channel by its number.
    pub fn channel(&self, id: ChannelId) -> Option<Arc<Channel>> {
        self.pool.channels.get(id)
    }

    /// Whether [`Engine::close`] was called, or this is a child of fork.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_inherited()
    }

    /// Whether this is a child of fork of the process that has opened the device. A child has none
    /// of the engine's memory, and the holders of its locks may not exist there.
    pub fn is_inherited(&self) -> bool {
        !self.generation.is_current()
    }

    /// Whether threads poll.
    pub fn is_polling(&self) -> bool {
        self.pollables.is_used()
    }

    /// Whether every message goes by the state: threads poll, or messages name their sender's user.
    pub(crate) fn goes_by_state(&self) -> bool {
        self.is_polling() || self.user_entry().is_some()
    }

    /// The entry by which a message names its sender's user, if that is another one than the broker
    /// has told peers of.
    pub(crate) fn user_entry(&self) -> Option<ChainEntry> {
        let user = self.user.load(Ordering::Relaxed);
        let entry = ChainEntry { process: SENDER_USER, token: user.into() };
        (user != self.identity.uid).then_some(entry)
    }

    /// The word at which a thread waits for work of its own.
    pub(crate) fn own_word(&self, tid: Tid) -> Arc<AtomicU32> {
        Arc::clone(self.own_words.lock().entry(tid).or_default())
    }
}
