//! The service `broadcast`: requests come in, broadcasts go out.
//!
//! ```text
//!   request, on a looper at its sender's priority        a delivery thread at the level's priority
//!     invoke --> decode --> match a snapshot --> accept -- queue --> one-way calls of receivers
//! ```
//!
//! - A sender's looper takes no lock that an ordinary thread may hold below it, and waits for no
//!   receiver.
//! - A delivery thread calls receivers one-way, at its own priority.

use super::account::{Charge, Counted};
use super::adopt::{Left, LeftBroadcast};
use super::components::{Components, serve_components};
use super::delivery::{Callback, Delivery, Means, ServiceEvent, UnderWay, now_ns};
use super::ids::Ids;
use super::journal::{Journal, JournalError, Opened, Record};
use super::kept::{Callee, KeptBroadcast, KeptOrder, KeptReceiver};
use super::level::{Broadcast, Event, Kind, Limits, Receiver, Target};
use super::presence::Presence;
use super::priority::{N_LEVELS, PriorityError, level_of, level_of_intent, priority_of};
use super::protocol::{self, Request, RequestError, decode};
use super::queue::Queues;
use super::record::{Draft, Kept, Kind as RecordKind};
use super::report::{ReceiverReport, Report, StickyReport, words};
use super::stats::Stats;
use super::tables::{Caller, Refusal, Registration, Tables};
use super::token::Tokens;
use crate::dump::Dumps;
use crate::intent::flags::RECEIVER_FOREGROUND;
use crate::intent::{ComponentName, FilterError, Manifest, Policy};
use baton::android::{LAST_CALL, Write};
use baton::{Errno, Handle, Object, Parcel, Process};
use baton_rt::schedule::set_priority;
use baton_shm::lock::Lock;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

const PING: u32 = u32::from_be_bytes(*b"_PNG");
const DESCRIPTOR: u32 = u32::from_be_bytes(*b"_NTF");
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");
const EX_SECURITY: i32 = -1;
const EX_BAD_PARCELABLE: i32 = -2;
const EX_ILLEGAL_ARGUMENT: i32 = -3;
const EX_ILLEGAL_STATE: i32 = -5;

/// How the service is run.
pub struct Settings {
    /// The bounds of steps: 10 seconds each unless set.
    pub limits: Limits,
    /// Which users hold which permissions.
    pub policy: Policy,
    /// Starts components, and keeps those that work.
    pub components: Components,
    /// The file, in memory, by which the next service goes on where this one is killed.
    pub journal: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        let ten_seconds = 10_000_000_000;
        let limits = Limits { receive_ns: ten_seconds, start_ns: ten_seconds };
        let (policy, components) = Default::default();
        Settings { limits, policy, components, journal: None }
    }
}

/// The broadcast service in its process. Dropped, its delivery threads end.
pub struct Server {
    shared: Arc<Shared>,
    object: Object,
}

struct Shared {
    means: Means,
    queues: Queues<ServiceEvent, N_LEVELS>,
    threads: [OnceLock<Thread>; N_LEVELS],
    /// The threads to be joined. Its holder starts one.
    running: Lock<Vec<JoinHandle<()>>>,
    is_closed: AtomicBool,
    without_priority: OnceLock<String>,
    dumps: Dumps,
    ids: Ids,
    /// What an earlier service has left, until it goes on.
    left: Lock<Vec<LeftBroadcast>>,
}

/// Why a request has no reply of its own: its sender's fault, or the machine's.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Priority(#[from] PriorityError),
    #[error("the argument {0} is no object of another process")]
    NoObject(&'static str),
    #[error("no thread to deliver: {0}")]
    NoThread(std::io::Error),
}

impl ServeError {
    fn exception(&self) -> i32 {
        match self {
            ServeError::Request(_) => EX_BAD_PARCELABLE,
            ServeError::Refused(Refusal::NotYourPackage { .. }) => EX_SECURITY,
            ServeError::Refused(Refusal::Exhausted(_)) | ServeError::NoThread(_) => {
                EX_ILLEGAL_STATE
            }
            ServeError::Refused(_) | ServeError::Priority(_) | ServeError::NoObject(_) => {
                EX_ILLEGAL_ARGUMENT
            }
        }
    }
}

impl Server {
    /// Adds the service to a process, whose threads serve it: [`Process::serve`]. Whoever calls
    /// this installs the manifests, calls [`Server::go_on`], and publishes [`Server::object`].
    ///
    /// A journal that is of no use is said in the log, and the service does without it.
    ///
    /// # Errors
    /// A thread cannot be started, or another service has the journal.
    pub fn start(process: &Process, settings: Settings) -> Result<Server, std::io::Error> {
        let Settings { limits, policy, components, journal } = settings;
        let (want, wanted) = mpsc::channel();
        let stats = Arc::new(Stats::default());
        let opened = journal.map(|path| open_journal(&path)).transpose()?.flatten();
        let (journal, kept) = opened.map(|it| (it.journal, it.kept)).unzip();
        let random = || std::hash::RandomState::new().hash_one(0) as u32;
        let ids = Ids::new(journal.as_ref().map_or_else(random, |journal| journal.epoch()));
        let left = Left::new(kept.unwrap_or_default(), &ids);
        let tables = Tables::new(policy, journal);
        let left = take_over(&tables, left);
        let tokens = Tokens::default();
        let means = Means { tables, stats, components: want, limits, tokens };
        let shared = Arc::new_cyclic(|weak: &Weak<Shared>| {
            let woken = Weak::clone(weak);
            let wake = move |level: usize| {
                let shared = woken.upgrade();
                if let Some(thread) = shared.as_ref().and_then(|it| it.threads[level].get()) {
                    thread.unpark();
                }
            };
            Shared {
                means,
                queues: Queues::new(wake),
                threads: std::array::from_fn(|_| OnceLock::new()),
                running: Lock::default(),
                is_closed: AtomicBool::new(false),
                without_priority: OnceLock::new(),
                dumps: Dumps::default(),
                ids,
                left: Lock::new(left),
            }
        });
        // Weak, as the handles of receivers keep the device open, which keeps this handler.
        let weak = Arc::downgrade(&shared);
        let told = Weak::clone(&weak);
        let not_started = move |name: ComponentName| {
            if let Some(shared) = told.upgrade() {
                shared.tell_all(|| Event::NotStarted(name.clone()));
            }
        };
        std::thread::Builder::new()
            .name("baton-components".to_owned())
            .spawn(move || serve_components(wanted, &components, not_started))?;
        let object = process.object(move |request| {
            let shared = weak.upgrade().ok_or(Errno::BADF)?;
            serve(&shared, request)
        });
        Ok(Server { shared, object: object.add() })
    }

    /// The service's object.
    pub fn object(&self) -> Object {
        self.object
    }

    /// Installs the receivers of an application, which runs as this user.
    ///
    /// # Errors
    /// A filter cannot be registered: the manifest's fault.
    pub fn install(&self, manifest: &Manifest, uid: u32) -> Result<(), FilterError> {
        self.shared.means.tables.install(manifest, uid)
    }

    /// Goes on with the broadcasts of an earlier service. To be called when the manifests are
    /// installed, and before the service is published. Receivers that do not come back within the
    /// time in which a component has to start are dead.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn go_on(&self) -> Result<(), std::io::Error> {
        let left = std::mem::take(&mut *self.shared.left.lock());
        let levels: Vec<usize> = left.iter().map(|left| left.level).collect();
        left.into_iter().for_each(|left| self.shared.adopt(left));
        // A thread sees all of its level at once: one that replaces another one comes in its place.
        levels.into_iter().try_for_each(|level| self.shared.ensure_thread(level))?;
        let shared = Arc::clone(&self.shared);
        let deadline_ns = now_ns().saturating_add(shared.means.limits.start_ns);
        let give_up = move || {
            while !shared.is_closed.load(Ordering::Acquire) {
                match deadline_ns.saturating_sub(now_ns()) {
                    0 => return shared.give_up(),
                    left_ns => std::thread::park_timeout(Duration::from_nanos(left_ns)),
                }
            }
        };
        let builder = std::thread::Builder::new().name("baton-return".to_owned());
        self.shared.running.lock().push(builder.spawn(give_up)?);
        Ok(())
    }

    /// Says that a component's process has ended before it has attached its receiver.
    pub fn not_started(&self, name: &ComponentName) {
        self.shared.tell_all(|| Event::NotStarted(name.clone()));
    }

    /// The service's state.
    pub fn report(&self) -> Report {
        self.shared.report()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What is under way is the next service's.
        if let Some(journal) = self.shared.means.tables.journal() {
            journal.close();
        }
        // Release pairs with the acquire of `run`.
        self.shared.is_closed.store(true, Ordering::Release);
        let running = std::mem::take(&mut *self.shared.running.lock());
        for thread in running {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The level has a delivery thread from now on.
    fn ensure_thread(self: &Arc<Self>, level: usize) -> Result<(), std::io::Error> {
        if self.threads[level].get().is_some() {
            return Ok(());
        }
        let mut running = self.running.lock();
        if self.threads[level].get().is_some() {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name(format!("broadcast-{level}"))
            .spawn(move || shared.run(level))?;
        let _ = self.threads[level].set(thread.thread().clone());
        running.push(thread);
        Ok(())
    }

    /// A level's delivery thread.
    fn run(&self, level: usize) {
        if let Err(error) = set_priority(priority_of(level), None) {
            let why = error.to_string();
            if self.without_priority.set(why).is_ok() {
                tracing::warn!(target: "broadcast", "delivery threads stay ordinary: {error}");
            }
        }
        let mut delivery = Delivery::new(&self.means, level);
        while !self.is_closed.load(Ordering::Acquire) {
            for event in self.queues.take_all(level) {
                if delivery.level.put(event) {
                    self.queues.handed_over(level);
                }
            }
            delivery.serve_urgent();
            // The order of these two is the invariant of `queue`.
            if delivery.level.has_broadcast() && self.queues.is_first(level) {
                delivery.serve_broadcast();
                self.queues.handed_over(level);
            } else {
                delivery.sleep();
            }
        }
    }

    /// Tells the delivery threads of all levels.
    fn tell_all(&self, event: impl Fn() -> ServiceEvent) {
        // Pairs with the fence of `is_first`: a thread that is not seen here sees what the caller
        // has stored.
        fence(Ordering::SeqCst);
        let has_thread = |level: &usize| self.threads[*level].get().is_some();
        (0..N_LEVELS).filter(has_thread).for_each(|level| self.queues.tell(level, event()));
    }

    /// Tells the delivery threads that wait for a receiver.
    fn tell_waiting(&self, receiver: &Receiver<Callback>, event: fn(u64) -> ServiceEvent) {
        let levels = receiver.presence.waiting();
        levels.for_each(|level| self.queues.tell(level, event(receiver.id)));
    }

    fn forget(&self, id: u64) {
        if let Some(receiver) = self.means.tables.remove(id) {
            self.tell_waiting(&receiver, Event::Gone);
        }
    }

    fn broadcast(self: &Arc<Self>, request: &baton::Request<'_>) -> Result<usize, ServeError> {
        let sender = level_of(request.priority());
        let (_, uid) = request.sender();
        let mut invocation = self.queues.invoke(sender);
        let Request::Broadcast(mut send) = decode(request.code(), request.data())? else {
            unreachable!("the caller has looked at the code")
        };
        let level = level_of_intent(&send.intent, sender)?;
        invocation.lower_to(level);
        let charge = self.means.tables.accounts().charge(uid, Counted::Broadcast(level));
        let charge = charge.map_err(Refusal::from)?;
        let id = self.ids.next(level);
        let (pid, _) = request.sender();
        let result_to = request.received.handle(0);
        let result_to = result_to.map(|handle| Arc::new(result_receiver(handle, pid, uid)));
        let order = send.is_ordered.then(|| {
            let key = send.result_key;
            let callee = result_to.as_ref().map(|_| Callee { pid, uid, key });
            KeptOrder { initial: std::mem::take(&mut send.initial), result_to: callee }
        });
        let is_answered = order.as_ref().is_some_and(|order| order.result_to.is_some());
        let accepted = self.means.tables.resolve(&send, uid, level, id, |targets| {
            if targets.is_empty() && !is_answered {
                return Ok(None);
            }
            self.ensure_thread(level).map_err(ServeError::NoThread)?;
            let body = KeptBroadcast::write(uid, &send.intent, false, order.as_ref(), &targets);
            let n_marks = KeptBroadcast::n_marks(order.is_some(), targets.len());
            let draft = Draft { kind: RecordKind::Broadcast, id, n_marks, body: body.data() };
            let record = self.means.tables.keep(uid, level, &draft).map_err(Refusal::from)?;
            Ok::<_, ServeError>(Some((targets, record)))
        })?;
        let Some((targets, record)) = accepted else { return Ok(0) };
        let (n_targets, intent) = (targets.len(), send.intent);
        let kind = match order {
            Some(KeptOrder { initial, .. }) => Kind::Ordered { first: 0, initial, result_to },
            None => Kind::Parallel,
        };
        let is_foreground = intent.flags & RECEIVER_FOREGROUND != 0;
        let charge = self.under_way(id, level, charge, record);
        let broadcast = Broadcast {
            intent,
            uid,
            is_foreground,
            is_sticky: false,
            is_begun: false,
            kind,
            targets,
            charge,
        };
        invocation.accept(Event::Accepted(Box::new(broadcast)));
        Ok(n_targets)
    }

    fn answer(
        self: &Arc<Self>,
        request: &baton::Request<'_>,
        reply: &mut Parcel,
    ) -> Result<(), ServeError> {
        if request.code() == protocol::BROADCAST_INTENT {
            let n_targets = self.broadcast(request)?;
            reply.write_i32(n_targets as i32);
            return Ok(());
        }
        let (pid, uid) = request.sender();
        let caller = Caller { pid, uid };
        let object = || request.received.handle(0).ok_or(ServeError::NoObject("receiver"));
        match decode(request.code(), request.data())? {
            Request::Broadcast(_) => unreachable!("it has a code of its own"),
            Request::Register { filter, permission, package, key } => {
                let handle = object()?;
                let link = |id| self.callback(handle.clone(), id);
                let callee = Callee { pid, uid, key };
                let asked = KeptReceiver { callee, filter, permission, package };
                match self.means.tables.register(asked, link)? {
                    Registration::Back(receiver) => {
                        self.tell_waiting(&receiver, Event::Returned);
                    }
                    Registration::Known(receiver) => {
                        let is_it = |callback: &Callback| callback.handle == handle;
                        if !receiver.object.get().is_some_and(is_it) {
                            return Err(Refusal::KeyInUse.into());
                        }
                    }
                    Registration::New(receiver, stickies) => {
                        let own = level_of(request.priority());
                        let send = |sticky| self.send_sticky(&receiver, sticky, own);
                        if let Err(refused) = stickies.iter().try_for_each(|it| send(it)) {
                            self.forget(receiver.id);
                            return Err(refused);
                        }
                    }
                }
            }
            Request::ReturnResultReceiver { key } => {
                let handle = object()?;
                let link = |id| self.callback(handle, id);
                let returned = self.means.tables.give_back(Callee { pid, uid, key }, link);
                if let Some(receiver) = returned {
                    self.tell_waiting(&receiver, Event::Returned);
                }
            }
            Request::Unregister => {
                let handle = object()?;
                let is_it = |callback: &Callback| callback.handle == handle;
                for id in self.means.tables.find(pid, is_it)? {
                    self.forget(id);
                }
            }
            Request::RemoveSticky(intent) => {
                self.means.tables.remove_sticky(&intent, uid);
            }
            Request::Finish { token, outcome, aborts } => {
                if let Some(level) = self.means.tokens.level(token) {
                    self.queues.tell(level, Event::Finished { token, outcome, aborts });
                }
            }
            Request::Attach(name) => {
                let handle = object()?;
                let link = |id| self.callback(handle, id);
                let receiver = self.means.tables.attach(&caller, &name, link)?;
                self.tell_all(|| Event::Started(name.clone(), Arc::clone(&receiver)));
            }
            Request::Describe => {
                let text = serde_json::to_string(&self.report());
                reply.write_string(&text.expect("a report has only names and numbers"));
            }
        }
        Ok(())
    }

    /// Delivers a sticky broadcast that was there before its receiver, at the lower of their
    /// levels: the thread that registers must not hold up what is above it.
    fn send_sticky(
        self: &Arc<Self>,
        receiver: &Arc<Receiver<Callback>>,
        sticky: &super::tables::Sticky,
        own: usize,
    ) -> Result<(), ServeError> {
        let level = sticky.level.min(own);
        let charge = self.means.tables.accounts().charge(receiver.uid, Counted::Broadcast(level));
        let charge = charge.map_err(Refusal::from)?;
        self.ensure_thread(level).map_err(ServeError::NoThread)?;
        let (id, uid, intent) = (self.ids.next(level), receiver.uid, sticky.intent.clone());
        let targets = vec![Target::Registered(Arc::clone(receiver))];
        let body = KeptBroadcast::write(uid, &intent, true, None, &targets);
        let n_marks = KeptBroadcast::n_marks(false, 1);
        let draft = Draft { kind: RecordKind::Broadcast, id, n_marks, body: body.data() };
        let record = self.means.tables.keep(uid, level, &draft).map_err(Refusal::from)?;
        let charge = self.under_way(id, level, charge, record);
        let broadcast = Broadcast {
            intent,
            uid,
            is_foreground: false,
            is_sticky: true,
            is_begun: false,
            kind: Kind::Parallel,
            targets,
            charge,
        };
        self.queues.invoke(level).accept(Event::Accepted(Box::new(broadcast)));
        Ok(())
    }

    fn under_way(&self, id: u64, level: usize, charge: Charge, record: Option<Record>) -> UnderWay {
        let stats = Arc::clone(&self.means.stats);
        stats.accepted(level);
        UnderWay { id, charge, record, step: Lock::default(), stats, level }
    }

    /// Goes on with a broadcast of an earlier service.
    fn adopt(&self, left: LeftBroadcast) {
        let Means { tables, .. } = &self.means;
        let Some(journal) = tables.journal() else { return };
        let is_begun = left.is_begun();
        let (level, uid) = (left.level, left.broadcast.uid);
        let targets = left.targets(|id| tables.registered(id));
        let kind = left.kind(|callee| tables.adopt_result_receiver(callee));
        let adopt = |kept: &Kept| Some(journal.adopt(tables.accounts(), uid, kept));
        let charge = tables.accounts().adopt(uid, Counted::Broadcast(level));
        let mut charge = self.under_way(left.record.id, level, charge, adopt(&left.record));
        charge.step = Lock::new(left.step.as_ref().and_then(|(_, kept)| adopt(kept)));
        let KeptBroadcast { intent, is_sticky, .. } = left.broadcast;
        let is_foreground = intent.flags & RECEIVER_FOREGROUND != 0;
        let broadcast =
            Broadcast { intent, uid, is_foreground, is_sticky, is_begun, kind, targets, charge };
        self.queues.invoke(level).accept(Event::Accepted(Box::new(broadcast)));
    }

    /// Forgets the callbacks of an earlier service that have not come back.
    fn give_up(&self) {
        for receiver in self.means.tables.give_up() {
            self.tell_waiting(&receiver, Event::Gone);
        }
    }

    /// A receiver's object, which is forgotten when its process dies.
    fn callback(self: &Arc<Self>, handle: Handle, id: u64) -> Callback {
        let callback = Callback { handle, link: OnceLock::new() };
        let weak = Arc::downgrade(self);
        let link = callback.handle.link_to_death(move || {
            if let Some(shared) = weak.upgrade() {
                shared.forget(id);
            }
        });
        let _ = callback.link.set(link);
        callback
    }

    fn report(&self) -> Report {
        let (receivers, stickies) = self.means.tables.describe();
        let (priorities, skipped) = self.means.stats.describe();
        let receivers = receivers.into_iter().map(|receiver| ReceiverReport {
            actions: words(&receiver.filters, |filter| &filter.actions),
            schemes: words(&receiver.filters, |filter| &filter.schemes),
            filter_priority: receiver.filters.iter().map(|it| it.priority).max().unwrap_or(0),
            name: receiver.name,
            pid: receiver.pid,
            uid: receiver.uid,
            permission: receiver.permission,
        });
        let stickies = stickies.iter().map(|sticky| StickyReport {
            action: sticky.intent.action.clone(),
            uid: sticky.uid,
            priority: sticky.level,
        });
        Report {
            receivers: receivers.collect(),
            stickies: stickies.collect(),
            priorities,
            skipped,
            without_priority: self.without_priority.get().cloned(),
        }
    }
}

/// Opens the journal. `None` if it is of no use.
fn open_journal(path: &Path) -> Result<Option<Opened>, std::io::Error> {
    match Journal::open(path) {
        Ok(opened) => {
            let path = path.display();
            if let Some(why) = &opened.refused {
                tracing::error!(target: "broadcast", "{path} is lost and begun anew: {why}");
            }
            if !opened.is_in_memory {
                tracing::warn!(target: "broadcast", "{path} is on a disk, which may delay senders");
            }
            Ok(Some(opened))
        }
        Err(error @ JournalError::InUse(_)) => {
            Err(std::io::Error::new(std::io::ErrorKind::ResourceBusy, error))
        }
        Err(error) => {
            tracing::error!(target: "broadcast", "broadcasts end with this service: {error}");
            Ok(None)
        }
    }
}

/// Takes over the receivers and the sticky broadcasts of an earlier service. Returns its broadcasts
/// under way.
fn take_over(tables: &Tables<Callback>, left: Left) -> Vec<LeftBroadcast> {
    let Some(journal) = tables.journal() else { return Vec::new() };
    let last = left.last_receiver();
    for (receiver, kept) in left.receivers {
        let record = journal.adopt(tables.accounts(), receiver.callee.uid, &kept);
        // Its record ends if its filter is none.
        let _ = tables.adopt_receiver(kept.id, receiver, record);
    }
    tables.skip_ids(last);
    for (level, sticky, kept) in left.stickies {
        let record = journal.adopt(tables.accounts(), sticky.uid, &kept);
        tables.adopt_sticky(level, sticky, record);
    }
    left.useless.iter().for_each(|kept| journal.discard(kept));
    left.broadcasts
}

/// The receiver of an ordered broadcast's result.
fn result_receiver(handle: Handle, pid: u32, uid: u32) -> Receiver<Callback> {
    Receiver {
        id: 0,
        object: OnceLock::from(Callback { handle, link: OnceLock::new() }),
        pid,
        uid,
        name: format!("the sender, process {pid}"),
        component: None,
        permission: None,
        presence: Presence::default(),
    }
}

fn serve(shared: &Arc<Shared>, request: &baton::Request<'_>) -> Result<Parcel, Errno> {
    let mut reply = Parcel::new();
    match request.code() {
        PING => return Ok(reply),
        DESCRIPTOR => {
            reply.write_string(protocol::MANAGER);
            return Ok(reply);
        }
        DUMP => {
            let to = request.received.take_fd(0).ok_or(Errno::BADMSG)?;
            shared.dumps.write(request.sender().1, to, shared.report().to_string())?;
            return Ok(reply);
        }
        code if code > LAST_CALL => return Err(Errno::NOSYS),
        _ => {}
    }
    reply.write_i32(0);
    match shared.answer(request, &mut reply) {
        Ok(()) => Ok(reply),
        Err(error) => {
            let mut reply = Parcel::new();
            reply.write_exception(error.exception(), &error.to_string());
            Ok(reply)
        }
    }
}
