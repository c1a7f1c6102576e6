//! The broadcast service in other designs, as experiments to compare with.
//!
//! ```text
//!   request, on a looper at its sender's priority        one thread
//!     decode --> lock: match, queue                        take the first --> one-way calls
//! ```
//!
//! | design | queue | thread |
//! |---|---|---|
//! | RTAndroid's (Kalkov 2018, 7.2.3) | by priority | at the priority of the first |
//! | Android's | in the order of arrival | ordinary |
//!
//! Requests, receivers' calls and bounds of users are those of [`baton_services::broadcast`], so
//! that nothing but the queues differs. The holder of a lock inherits the priority of who waits for
//! it: Android's own does not.

use baton::android::Write;
use baton::{Errno, Handle, Object, Parcel, Process, Request};
use baton_services::broadcast::account::{Accounts, Counted};
use baton_services::broadcast::level::Outcome;
use baton_services::broadcast::priority::{level_of, level_of_intent};
use baton_services::broadcast::protocol::{self, PERFORM_RECEIVE, decode, encode_received};
use baton_services::intent::{Intent, Owner, Resolver};
use baton_services::looper::{Handler, Looper};
use baton_shm::lock::Lock;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

const EX_ILLEGAL_STATE: i32 = -5;

/// How broadcasts are queued and delivered.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
pub enum Design {
    /// No lock, a queue and a thread for each priority.
    #[strum(serialize = "baton")]
    Ours,
    /// One lock, one queue by priority, one thread that follows.
    #[strum(serialize = "thesis-design")]
    Thesis,
    /// One lock, one queue in the order of arrival, one thread.
    #[strum(serialize = "android-design")]
    Android,
}

struct OneLock {
    receivers: Lock<Resolver<Handle>>,
    accounts: Accounts,
    is_by_priority: bool,
    thread: Handler,
}

/// Adds the service to a process, with its thread.
pub fn add(process: &Process, design: Design) -> Object {
    let is_by_priority = design == Design::Thesis;
    let looper = Looper::new(if is_by_priority { 0..=99 } else { 0..=0 });
    let (receivers, accounts) = (Lock::new(Resolver::default()), Accounts::default());
    let service = OneLock { receivers, accounts, is_by_priority, thread: looper.handler() };
    std::thread::spawn(move || looper.run());
    process.object(move |request| service.serve(request)).add()
}

impl OneLock {
    fn serve(&self, request: &Request<'_>) -> Result<Parcel, Errno> {
        let mut reply = Parcel::new();
        match decode(request.code(), request.data()).map_err(|_| Errno::BADMSG)? {
            protocol::Request::Register { filter, .. } => {
                let receiver = request.received.handle(0).ok_or(Errno::BADMSG)?;
                let inserted = self.receivers.lock().insert(Owner::Process, filter, receiver);
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
        let receivers = self.receivers.lock();
        let found = receivers.query(&intent);
        let targets: Vec<Handle> = found.into_iter().map(|entry| entry.value.clone()).collect();
        let n_targets = targets.len();
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
        self.thread.post_at(if self.is_by_priority { level } else { 0 }, deliver);
        Ok(n_targets)
    }
}
