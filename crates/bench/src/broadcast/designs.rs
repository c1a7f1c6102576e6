//! The broadcast service in other designs, as experiments to compare with.
//!
//! ```text
//!   request, on a looper at its sender's priority        one delivery at a time
//!     decode --> lock: match, queue                        take the first --> one-way calls
//! ```
//!
//! | design | queue | delivered |
//! |---|---|---|
//! | RTAndroid's (Kalkov 2018, 7.2.3) | by priority | at the priority of the first |
//! | Android's | two, one for the foreground flag | a whole queue in turn, by an ordinary thread |
//!
//! RTAndroid's one thread changes its priority with each intent. A thread of ours would wait for
//! the broker at each change, so two threads with priorities of their own stand for it, of which
//! one delivers at a time. The one that delivers inherits the priority of the other one.
//!
//! Requests, receivers' calls and bounds of users are those of [`baton_services::broadcast`], so
//! that nothing but the queues differs. In front of the one lock RTAndroid has a [`Guard`], which
//! lets threads in by priority. Whoever holds the lock inherits no priority, as in both systems.

use crate::broadcast::guard::Guard;
use crate::pair;
use crate::system::System;
use baton::android::Write;
use baton::{Errno, Handle, Object, Parcel, Process, Request};
use baton_services::broadcast::account::{Accounts, Counted};
use baton_services::broadcast::level::Outcome;
use baton_services::broadcast::priority::{level_of, level_of_intent};
use baton_services::broadcast::protocol::{self, PERFORM_RECEIVE, decode, encode_received};
use baton_services::intent::flags::RECEIVER_FOREGROUND;
use baton_services::intent::{Intent, Owner, Resolver};
use baton_services::looper::{Handler, Looper};
use baton_shm::lock::Lock;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard};
use strum::IntoStaticStr;

/// The real-time sender's priority.
pub const LEVEL: u8 = 80;
const EX_ILLEGAL_STATE: i32 = -5;

/// How broadcasts are queued and delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
pub enum Design {
    /// No lock, a queue and a thread for each priority.
    #[strum(serialize = "baton")]
    Ours,
    /// One lock that is entered by priority, one queue by priority, one delivery at a time.
    #[strum(serialize = "thesis-design")]
    Thesis,
    /// One lock, queues in the order of arrival, one thread.
    #[strum(serialize = "android-design")]
    Android,
    /// Android's, and the real-time sender's intents have the foreground flag.
    #[strum(serialize = "android-foreground")]
    AndroidForeground,
    /// Signals of D-Bus, through `dbus-broker`.
    #[strum(serialize = "dbus-broker")]
    DbusBroker,
    /// Signals of D-Bus, through `dbus-daemon`.
    #[strum(serialize = "dbus-daemon")]
    DbusDaemon,
}

impl Design {
    /// All but the buses, in the order of the thesis's figure 7.8.
    pub const SERVICES: [Design; 4] =
        [Design::Android, Design::AndroidForeground, Design::Thesis, Design::Ours];

    /// The bus that is measured here: `dbus-broker` if it is installed.
    pub fn bus() -> Design {
        match pair::on_path(System::DbusBroker.name()) {
            Ok(()) => Design::DbusBroker,
            Err(_) => Design::DbusDaemon,
        }
    }

    /// The system whose program has its processes.
    pub fn system(self) -> System {
        match self {
            Design::DbusBroker => System::DbusBroker,
            Design::DbusDaemon => System::DbusDaemon,
            _ => System::BatonTyped,
        }
    }

    /// Flags of the real-time sender's intents.
    pub fn flags(self) -> u32 {
        if self == Design::AndroidForeground { RECEIVER_FOREGROUND } else { 0 }
    }
}

struct OneLock {
    guard: Option<Guard>,
    receivers: Mutex<Resolver<Handle>>,
    accounts: Accounts,
    delivery: Delivery,
}

/// How intents come to their receivers.
enum Delivery {
    /// An ordinary thread and a real-time one, of which one delivers at a time.
    ByPriority { threads: [Handler; 2], turn: Arc<Lock<()>> },
    /// One thread, for ordinary intents and those with the foreground flag.
    ByArrival { thread: Handler, queues: [Arc<Lock<Vec<Deliver>>>; 2] },
}

type Deliver = Box<dyn FnOnce() + Send>;

impl Delivery {
    fn new(design: Design) -> Delivery {
        let start = |level: u8| {
            let looper = Looper::new(level.into()..=level.into());
            let handler = looper.handler();
            std::thread::spawn(move || looper.run());
            handler
        };
        match design {
            Design::Thesis => {
                Delivery::ByPriority { threads: [0, LEVEL].map(start), turn: Arc::default() }
            }
            _ => Delivery::ByArrival { thread: start(0), queues: Default::default() },
        }
    }

    fn queue(&self, level: usize, flags: u32, deliver: Deliver) {
        match self {
            Delivery::ByPriority { threads, turn } => {
                let turn = Arc::clone(turn);
                threads[usize::from(level > 0)].post_at(level, move || {
                    let _turn = turn.lock();
                    deliver();
                });
            }
            Delivery::ByArrival { thread, queues } => {
                let queue = &queues[usize::from(flags & RECEIVER_FOREGROUND != 0)];
                let mut pending = queue.lock();
                pending.push(deliver);
                if pending.len() == 1 {
                    let queue = Arc::clone(queue);
                    thread.post_at(0, move || {
                        let pending = std::mem::take(&mut *queue.lock());
                        pending.into_iter().for_each(|deliver| deliver());
                    });
                }
            }
        }
    }
}

/// Adds the service to a process, with its threads.
pub fn add(process: &Process, design: Design) -> Object {
    let service = OneLock {
        guard: (design == Design::Thesis).then(Guard::default),
        receivers: Mutex::default(),
        accounts: Accounts::default(),
        delivery: Delivery::new(design),
    };
    process.object(move |request| service.serve(request)).add()
}

impl OneLock {
    fn lock(&self) -> MutexGuard<'_, Resolver<Handle>> {
        self.receivers.lock().expect("nobody panics inside")
    }

    fn serve(&self, request: &Request<'_>) -> Result<Parcel, Errno> {
        let mut reply = Parcel::new();
        match decode(request.code(), request.data()).map_err(|_| Errno::BADMSG)? {
            protocol::Request::Register { filter, .. } => {
                let receiver = request.received.handle(0).ok_or(Errno::BADMSG)?;
                let inserted = self.lock().insert(Owner::Process, filter, receiver);
                inserted.map_err(|_| Errno::INVAL)?;
                reply.write_i32(0);
            }
            protocol::Request::Broadcast(send) => match self.accept(send.intent, request) {
                Ok(n_targets) => {
                    reply.write_i32(0);
                    reply.write_i32(n_targets as i32);
                }
                Err(why) => reply.write_exception(EX_ILLEGAL_STATE, &why),
            },
            _ => return Err(Errno::NOSYS),
        }
        Ok(reply)
    }

    fn accept(&self, intent: Intent, request: &Request<'_>) -> Result<usize, String> {
        let level = level_of_intent(&intent, level_of(request.priority()));
        let level = level.map_err(|error| error.to_string())?;
        let charge = self.accounts.charge(request.sender().1, Counted::Broadcast(level));
        let charge = charge.map_err(|error| error.to_string())?;
        let _inside = self.guard.as_ref().map(|guard| guard.enter(level));
        let receivers = self.lock();
        let found = receivers.query(&intent);
        let targets: Vec<Handle> = found.into_iter().map(|entry| entry.value.clone()).collect();
        let (n_targets, flags) = (targets.len(), intent.flags);
        let deliver = move || {
            // The thread has followed: its calls are to be served at the priority that it has now.
            baton::priority_changed();
            let parcel = encode_received(&intent, &Outcome::default(), false, false, 0, 0);
            for target in &targets {
                // Of a receiver that has no room, the bench misses the intent.
                let _ = target.one_way(PERFORM_RECEIVE, &parcel);
            }
            drop(charge);
        };
        self.delivery.queue(level, flags, Box::new(deliver));
        Ok(n_targets)
    }
}
