//! Clients of the broadcast service: they send intents and register receivers.
//!
//! A service that is killed may have called a receiver and not have noted it; the next one calls
//! the receiver again, with the broadcast's id. The receiver's end remembers ids, and answers for
//! the receiver if it has finished: see [`seen`](super::seen).

use super::level::Outcome;
use super::protocol::{self, NAME, Request, Send, decode_received, encode, is_transient};
use super::report::Report;
use super::seen::{Answer, First, Seen};
use crate::intent::{ComponentName, Intent, IntentFilter};
use baton::android::{Exception, Reader};
use baton::{CallError, CountedObject, Errno, Handle, NameError, Parcel, Process};
use baton::{SchedPriority, ServiceManager};
use baton_shm::lock::Lock;
use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a real-time thread waits, before its first broadcast, for the service's looper that
/// has its priority. Another looper may take it for an ordinary thread.
const LOOPER_PATIENCE: Duration = Duration::from_millis(500);
/// How long a client waits before it looks again for a service that has died.
const PAUSE: Duration = Duration::from_millis(20);

thread_local! {
    /// The service and the priority for which the calling thread has a looper.
    static PREPARED: Cell<Option<(usize, u32, SchedPriority)>> = const { Cell::new(None) };
}

/// A process's access to the broadcast service. When the service dies, and another one takes its
/// place, receivers are registered there again.
///
/// Threads of the program serve the receivers: [`Process::serve`].
#[derive(Clone, Debug)]
pub struct BroadcastManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    process: Process,
    service: Lock<Handle>,
    /// Services that have died.
    n_died: AtomicU32,
    /// The requests by which the receivers were registered.
    registered: Lock<Vec<(CountedObject, Request)>>,
    /// The receivers of results that have not come, and their keys.
    results: Lock<Vec<(CountedObject, u64)>>,
    /// Answers of receivers that the service could not be told. A thread tries again while there
    /// are any.
    untold: Lock<VecDeque<(u64, Answer)>>,
    /// Keys that nobody can guess are hashes of a count, with a secret.
    secret: RandomState,
    n_keys: AtomicU64,
}

/// Why the service did not do what it was asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BroadcastError {
    /// The service manager knows no broadcast service, or has not answered.
    #[error("the service manager: {0}")]
    Name(#[from] NameError),
    /// There is no broadcast service.
    #[error("there is no service {NAME:?}")]
    NoService,
    /// The call has failed.
    #[error("the broadcast service: {0}")]
    Call(#[from] CallError),
    /// The service refuses.
    #[error("{}", .0.message)]
    Refused(Exception),
    /// The service's answer has another form.
    #[error("the broadcast service answers in another form")]
    Misunderstood,
}

/// What a receiver gets. Dropped, it finishes with the result that it has.
#[derive(Debug)]
pub struct Delivery {
    received: protocol::Received,
    aborts: bool,
    inner: Weak<Inner>,
    seen: Arc<Lock<Seen>>,
}

impl Delivery {
    /// The intent.
    pub fn intent(&self) -> &Intent {
        &self.received.intent
    }

    /// Whether receivers get it one after the other.
    pub fn is_ordered(&self) -> bool {
        self.received.is_ordered
    }

    /// Whether it was sent before the receiver was registered.
    pub fn is_sticky(&self) -> bool {
        self.received.is_sticky
    }

    /// The result so far.
    pub fn outcome(&self) -> &Outcome {
        &self.received.outcome
    }

    /// Changes the result for the next receiver of an ordered broadcast.
    pub fn set_outcome(&mut self, outcome: Outcome) {
        self.received.outcome = outcome;
    }

    /// Keeps an ordered broadcast from further receivers.
    pub fn abort(&mut self) {
        self.aborts = true;
    }
}

impl Drop for Delivery {
    /// The service goes on to the next receiver, also if this one has panicked.
    fn drop(&mut self) {
        let protocol::Received { id, token, outcome, .. } = &mut self.received;
        if *token == 0 {
            return; // The service does not wait.
        }
        let answer = Answer { outcome: std::mem::take(outcome), aborts: self.aborts };
        // The token of the service that has asked last.
        let token = self.seen.lock().finish(*id, *token, &answer);
        if let Some(inner) = self.inner.upgrade() {
            inner.finish(token, answer);
        }
    }
}

impl BroadcastManager {
    /// The broadcast service of a process's context.
    ///
    /// # Errors
    /// There is none.
    pub fn find(process: &Process) -> Result<BroadcastManager, BroadcastError> {
        let inner = Inner {
            process: process.clone(),
            service: Lock::new(find(process)?),
            n_died: AtomicU32::new(0),
            registered: Lock::default(),
            results: Lock::default(),
            untold: Lock::default(),
            secret: RandomState::new(),
            n_keys: AtomicU64::new(0),
        };
        let manager = BroadcastManager { inner: Arc::new(inner) };
        manager.inner.watch();
        Ok(manager)
    }

    /// The process whose threads serve the receivers.
    pub fn process(&self) -> &Process {
        &self.inner.process
    }

    /// Sends a broadcast and returns the number of its receivers. Its priority is that of the
    /// calling thread, unless an extra says a lower one.
    ///
    /// # Errors
    /// The intent is malformed, or the user has too many broadcasts under way: the caller's fault.
    pub fn send(&self, intent: &Intent) -> Result<i32, BroadcastError> {
        self.send_with(&Send { intent: intent.clone(), ..Send::default() })
    }

    /// Sends a broadcast with options and returns the number of its receivers.
    ///
    /// # Errors
    /// Those of [`BroadcastManager::send`].
    pub fn send_with(&self, send: &Send) -> Result<i32, BroadcastError> {
        self.request_number(&Request::Broadcast(Box::new(send.clone())), None)
    }

    /// Sends an ordered broadcast, whose last result goes to `result`.
    ///
    /// # Errors
    /// Those of [`BroadcastManager::send`].
    pub fn send_ordered(
        &self,
        send: &Send,
        result: impl Fn(Delivery) + std::marker::Send + Sync + 'static,
    ) -> Result<i32, BroadcastError> {
        let key = self.inner.next_key();
        let send = Send { is_ordered: true, result_key: key, ..send.clone() };
        let weak = Arc::downgrade(&self.inner);
        let result_to = self.inner.receiver(move |delivery| {
            if let Some(inner) = weak.upgrade() {
                inner.forget_result(key);
            }
            result(delivery);
        });
        self.inner.results.lock().push((result_to.clone(), key));
        let sent = self.request_number(&Request::Broadcast(Box::new(send)), Some(&result_to));
        if sent.is_err() {
            self.inner.forget_result(key);
        }
        sent
    }

    /// Forgets a sticky broadcast of the calling user.
    ///
    /// # Errors
    /// The service is gone.
    pub fn remove_sticky(&self, intent: &Intent) -> Result<(), BroadcastError> {
        self.inner.call(&Request::RemoveSticky(intent.clone()), None, |_| Some(()))
    }

    /// Registers a receiver. `receive` runs on threads that serve the process. Senders need the
    /// permission; explicit intents may name the package, which belongs to the calling user.
    ///
    /// # Errors
    /// The filter has no action, or the user has too many receivers: the caller's fault.
    pub fn register(
        &self,
        filter: IntentFilter,
        permission: Option<&str>,
        package: Option<&str>,
        receive: impl Fn(Delivery) + std::marker::Send + Sync + 'static,
    ) -> Result<CountedObject, BroadcastError> {
        let [permission, package] = [permission, package].map(|text| text.map(str::to_owned));
        let key = self.inner.next_key();
        let request = Request::Register { filter, permission, package, key };
        self.inner.register(request, receive)
    }

    /// Attaches the receiver of a component: what the component's process does when it is started.
    /// The process is in the foreground until `receive` has dropped the delivery.
    ///
    /// # Errors
    /// No manifest has the component, or it is another user's: the caller's fault.
    pub fn attach(
        &self,
        component: ComponentName,
        receive: impl Fn(Delivery) + std::marker::Send + Sync + 'static,
    ) -> Result<CountedObject, BroadcastError> {
        self.inner.register(Request::Attach(component), receive)
    }

    /// Ends the registrations of a receiver.
    /// The receiver's code is dropped with the last value that refers to it.
    ///
    /// # Errors
    /// It is not registered: the caller's fault.
    pub fn unregister(&self, receiver: &CountedObject) -> Result<(), BroadcastError> {
        self.inner.forget_receiver(receiver);
        self.inner.call(&Request::Unregister, Some(receiver), |_| Some(()))
    }

    /// The service's state.
    ///
    /// # Errors
    /// The service is gone, or of another version.
    pub fn report(&self) -> Result<Report, BroadcastError> {
        let read = |reader: &mut Reader<'_>| serde_json::from_str(&reader.string()?).ok();
        self.inner.call(&Request::Describe, None, read)
    }

    fn request_number(
        &self,
        request: &Request,
        object: Option<&CountedObject>,
    ) -> Result<i32, BroadcastError> {
        self.inner.prepare()?;
        self.inner.call(request, object, |reader| reader.i32())
    }
}

impl Inner {
    /// A real-time thread has a looper of its priority in the service from now on.
    fn prepare(&self) -> Result<(), BroadcastError> {
        let priority = baton::own_priority();
        let n_died = self.n_died.load(Ordering::Relaxed);
        let wanted = Some((std::ptr::from_ref(self).addr(), n_died, priority));
        if priority.is_real_time() && PREPARED.get() != wanted {
            let service = self.service.lock().clone();
            if service.prepare(LOOPER_PATIENCE)? {
                PREPARED.set(wanted);
            }
        }
        Ok(())
    }

    fn call<T>(
        &self,
        request: &Request,
        object: Option<&CountedObject>,
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T, BroadcastError> {
        let service = self.service.lock().clone();
        let (code, parcel) = encode(request, object);
        let answer = service.call(code, &parcel)?;
        let mut reader = Reader::new(answer.data());
        match reader.status() {
            Some(Ok(())) => read(&mut reader).ok_or(BroadcastError::Misunderstood),
            Some(Err(exception)) => Err(BroadcastError::Refused(exception)),
            None => Err(BroadcastError::Misunderstood),
        }
    }

    fn register(
        self: &Arc<Self>,
        request: Request,
        receive: impl Fn(Delivery) + std::marker::Send + Sync + 'static,
    ) -> Result<CountedObject, BroadcastError> {
        let receiver = self.receiver(receive);
        // Known before the call: a service that dies now has, or its successor gets, the request.
        self.registered.lock().push((receiver.clone(), request.clone()));
        let registered = self.call(&request, Some(&receiver), |_| Some(()));
        if registered.is_err() {
            self.forget_receiver(&receiver);
        }
        registered.map(|()| receiver)
    }

    /// An object that receives.
    fn receiver(
        self: &Arc<Self>,
        receive: impl Fn(Delivery) + std::marker::Send + Sync + 'static,
    ) -> CountedObject {
        // Weak: the process has the handler.
        let inner: Weak<Inner> = Arc::downgrade(self);
        let seen = Arc::new(Lock::new(Seen::default()));
        let handler = move |request: &baton::Request<'_>| {
            if request.code() != protocol::PERFORM_RECEIVE {
                return Err(Errno::NOSYS);
            }
            let received = decode_received(request.data()).map_err(|_| Errno::BADMSG)?;
            let first = seen.lock().begin(received.id, received.token);
            match first {
                First::Yes => {
                    let (inner, seen) = (Weak::clone(&inner), Arc::clone(&seen));
                    receive(Delivery { received, aborts: false, inner, seen });
                }
                First::Finished(answer) => {
                    if let Some(inner) = inner.upgrade() {
                        inner.finish(received.token, answer);
                    }
                }
                First::Running => {}
            }
            Ok(Parcel::new())
        };
        self.process.object(handler).add_counted()
    }

    fn next_key(&self) -> u64 {
        let count = self.n_keys.fetch_add(1, Ordering::Relaxed);
        self.secret.hash_one(count).max(1)
    }

    fn forget_receiver(&self, receiver: &CountedObject) {
        let mut registered = self.registered.lock();
        let forgotten: Vec<_> = registered.extract_if(.., |(its, _)| its == receiver).collect();
        drop(registered);
        // Not under the lock: the receivers are the program's.
        drop(forgotten);
    }

    fn forget_result(&self, key: u64) {
        let mut results = self.results.lock();
        let forgotten: Vec<_> = results.extract_if(.., |(_, its)| *its == key).collect();
        drop(results);
        // Not under the lock: the receivers are the program's.
        drop(forgotten);
    }

    /// Tells the service, which waits for it, that a receiver has finished.
    fn finish(self: &Arc<Self>, token: u64, answer: Answer) {
        if self.try_finish(token, &answer) {
            return;
        }
        let mut untold = self.untold.lock();
        untold.push_back((token, answer));
        if untold.len() > 1 {
            return;
        }
        drop(untold);
        let weak = Arc::downgrade(self);
        let tell = move || {
            while weak.upgrade().is_some_and(|inner| !inner.tell_untold()) {
                std::thread::sleep(PAUSE);
            }
        };
        let _ = std::thread::Builder::new().name("baton-finish".to_owned()).spawn(tell);
    }

    /// False if the service cannot be told now, and may be soon.
    fn try_finish(&self, token: u64, answer: &Answer) -> bool {
        let Answer { outcome, aborts } = answer.clone();
        let service = self.service.lock().clone();
        let (code, parcel) = encode(&Request::Finish { token, outcome, aborts }, None);
        // A service that is gone does not wait, and the next one asks again.
        !matches!(service.one_way(code, &parcel), Err(error) if is_transient(error))
    }

    /// True if nothing is left to be told.
    fn tell_untold(&self) -> bool {
        loop {
            let Some((token, answer)) = self.untold.lock().front().cloned() else { return true };
            if !self.try_finish(token, &answer) {
                return false;
            }
            let mut untold = self.untold.lock();
            untold.pop_front();
            if untold.is_empty() {
                return true;
            }
        }
    }

    fn watch(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.service.lock().link_to_death(move || {
            let rejoin = move || {
                while weak.upgrade().is_some_and(|inner| !inner.rejoin()) {
                    std::thread::sleep(PAUSE);
                }
            };
            // Not on the thread that serves, which this may need.
            let _ = std::thread::Builder::new().name("baton-rejoin".to_owned()).spawn(rejoin);
        });
    }

    /// Registers the receivers with the next service. False if there is none yet.
    fn rejoin(self: &Arc<Self>) -> bool {
        let service = match find(&self.process) {
            Ok(service) => service,
            Err(BroadcastError::Name(NameError::Call(CallError::Closed))) => return true,
            Err(_) => return false,
        };
        *self.service.lock() = service;
        self.n_died.fetch_add(1, Ordering::Relaxed);
        self.watch();
        let mut requests = self.registered.lock().clone();
        let results = self.results.lock().clone();
        let returned = |(object, key)| (object, Request::ReturnResultReceiver { key });
        requests.extend(results.into_iter().map(returned));
        for (object, request) in requests {
            let register = || self.call(&request, Some(&object), |_| Some(()));
            let mut registered = register();
            while let Err(BroadcastError::Call(error)) = registered
                && is_transient(error)
            {
                std::thread::sleep(PAUSE);
                registered = register();
            }
            // A service that dies meanwhile is watched; another refusal is its last word.
            if let Err(error) = registered {
                tracing::warn!(target: "broadcast", "a receiver is not registered again: {error}");
            }
        }
        true
    }
}

fn find(process: &Process) -> Result<Handle, BroadcastError> {
    ServiceManager::find(process)?.service(NAME)?.ok_or(BroadcastError::NoService)
}
