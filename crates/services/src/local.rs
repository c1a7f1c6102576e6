//! Broadcasts within a process: the same filters, and no service.
//!
//! | | `Prioritized` | `Original`: Android's |
//! |---|---|---|
//! | receivers are found | in a snapshot, without a lock | under a global lock |
//! | `send` | posts to the looper, at the intent's level | appends to one queue |
//! | `send_sync` | calls the own intent's receivers | delivers all pending intents |
//!
//! Sources: the RTAndroid thesis, 7.2.1 and 7.2.4; Android's `LocalBroadcastManager`.

use crate::broadcast::priority::{PriorityError, level_of, level_of_intent};
use crate::intent::{FilterError, Intent, IntentFilter, Key, Owner, Resolver, SharedResolver};
use crate::looper::Handler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a [`LocalBroadcastManager`] works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalDesign {
    /// By priority, without a lock.
    #[default]
    Prioritized,
    /// As Android does it: an experiment to compare with.
    Original,
}

/// Delivers intents within a process.
///
/// ```
/// use baton_services::intent::{Intent, IntentFilter};
/// use baton_services::local::{LocalBroadcastManager, LocalDesign};
/// use baton_services::looper::Looper;
///
/// let looper = Looper::new(0..=0);
/// let manager = LocalBroadcastManager::new(looper.handler(), LocalDesign::Prioritized);
/// manager.register(IntentFilter::new("org.example.READY"), |intent| println!("{intent:?}"))?;
/// assert!(manager.send_sync(&Intent::new("org.example.READY"))?);
/// assert!(!manager.send_sync(&Intent::new("org.example.OTHER"))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalBroadcastManager {
    shared: Arc<Shared>,
}

type Receive = dyn Fn(&Intent) + Send + Sync;

struct Shared {
    receivers: SharedResolver<Arc<Receiver>>,
    looper: Handler,
    original: Option<Mutex<Original>>,
}

struct Receiver {
    receive: Box<Receive>,
    is_gone: AtomicBool,
}

/// What Android's manager keeps under its one lock.
#[derive(Default)]
struct Original {
    receivers: Resolver<Arc<Receiver>>,
    pending: Vec<(Intent, Vec<Arc<Receiver>>)>,
}

impl Receiver {
    fn receive(&self, intent: &Intent) {
        if !self.is_gone.load(Ordering::Relaxed) {
            (self.receive)(intent);
        }
    }
}

/// A receiver that is registered.
#[derive(Clone)]
pub struct Registration {
    key: Key,
    receiver: Arc<Receiver>,
}

impl LocalBroadcastManager {
    /// A manager that delivers on a looper's thread.
    pub fn new(looper: Handler, design: LocalDesign) -> LocalBroadcastManager {
        let original = (design == LocalDesign::Original).then(Mutex::default);
        let shared = Shared { receivers: SharedResolver::default(), looper, original };
        LocalBroadcastManager { shared: Arc::new(shared) }
    }

    /// Registers a receiver. It runs on the looper's thread, or on those of senders that send
    /// synchronously.
    ///
    /// # Errors
    /// The filter cannot be registered: the caller's fault.
    pub fn register(
        &self,
        filter: IntentFilter,
        receive: impl Fn(&Intent) + Send + Sync + 'static,
    ) -> Result<Registration, FilterError> {
        let receive: Box<Receive> = Box::new(receive);
        let receiver = Arc::new(Receiver { receive, is_gone: AtomicBool::new(false) });
        let insert = |resolver: &mut Resolver<_>| {
            resolver.insert(Owner::Process, filter, Arc::clone(&receiver))
        };
        let key = match &self.shared.original {
            None => self.shared.receivers.update(insert),
            Some(original) => insert(&mut lock(original).receivers),
        }?;
        Ok(Registration { key, receiver })
    }

    /// Ends a registration: the receiver is not called any more, but for a call under way.
    pub fn unregister(&self, registration: &Registration) {
        registration.receiver.is_gone.store(true, Ordering::Relaxed);
        match &self.shared.original {
            None => self.shared.receivers.update(|resolver| resolver.remove(registration.key)),
            Some(original) => lock(original).receivers.remove(registration.key),
        };
    }

    /// Delivers an intent on the looper's thread. Its level is the calling thread's, unless an
    /// extra says a lower one. False if there is no receiver.
    ///
    /// # Errors
    /// The extra is no priority: the caller's fault.
    pub fn send(&self, intent: Intent) -> Result<bool, PriorityError> {
        let level = level_of_intent(&intent, level_of(baton::own_priority()))?;
        let Some(original) = &self.shared.original else {
            let receivers = matching(&self.shared.receivers.snapshot(), &intent);
            let is_received = !receivers.is_empty();
            if is_received {
                self.shared.looper.post_at(level, move || deliver(&intent, &receivers));
            }
            return Ok(is_received);
        };
        let mut locked = lock(original);
        let receivers = matching(&locked.receivers, &intent);
        if receivers.is_empty() {
            return Ok(false);
        }
        locked.pending.push((intent, receivers));
        if locked.pending.len() == 1 {
            let shared = Arc::clone(&self.shared);
            self.shared.looper.post_at(0, move || shared.deliver_pending());
        }
        Ok(true)
    }

    /// Delivers an intent on the calling thread, before it returns. False if there is no receiver.
    ///
    /// # Errors
    /// Those of [`LocalBroadcastManager::send`].
    pub fn send_sync(&self, intent: &Intent) -> Result<bool, PriorityError> {
        if self.shared.original.is_some() {
            let is_received = self.send(intent.clone())?;
            if is_received {
                self.shared.deliver_pending();
            }
            return Ok(is_received);
        }
        let resolver = self.shared.receivers.snapshot();
        let receivers = resolver.query(intent);
        receivers.iter().for_each(|entry| entry.value.receive(intent));
        Ok(!receivers.is_empty())
    }
}

impl Shared {
    /// Delivers all intents that are pending in Android's design.
    fn deliver_pending(&self) {
        let Some(original) = &self.original else { return };
        loop {
            let pending = std::mem::take(&mut lock(original).pending);
            if pending.is_empty() {
                return;
            }
            pending.iter().for_each(|(intent, receivers)| deliver(intent, receivers));
        }
    }
}

fn lock(original: &Mutex<Original>) -> std::sync::MutexGuard<'_, Original> {
    original.lock().unwrap_or_else(PoisonError::into_inner)
}

fn matching(resolver: &Resolver<Arc<Receiver>>, intent: &Intent) -> Vec<Arc<Receiver>> {
    resolver.query(intent).into_iter().map(|entry| Arc::clone(&entry.value)).collect()
}

fn deliver(intent: &Intent, receivers: &[Arc<Receiver>]) {
    receivers.iter().for_each(|receiver| receiver.receive(intent));
}

impl std::fmt::Debug for LocalBroadcastManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalBroadcastManager").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::priority::EXTRA_PRIORITY;
    use crate::looper::Looper;

    type Seen = Arc<Mutex<Vec<String>>>;

    fn manager(looper: &Looper, design: LocalDesign) -> (LocalBroadcastManager, Seen) {
        let manager = LocalBroadcastManager::new(looper.handler(), design);
        let seen = Seen::default();
        for action in ["a", "b", "c"] {
            let seen = Arc::clone(&seen);
            let receive = move |intent: &Intent| {
                seen.lock().unwrap().push(intent.action.clone().unwrap());
            };
            manager.register(IntentFilter::new(action), receive).unwrap();
        }
        (manager, seen)
    }

    fn run(looper: &Looper) {
        let quitter = looper.handler();
        looper.handler().post_at(0, move || quitter.quit());
        looper.run();
    }

    #[test]
    fn a_synchronous_send_delivers_its_own_intent_and_androids_design_all() {
        for (design, at_once, at_last) in [
            (LocalDesign::Prioritized, &["c"][..], &["c", "a", "b"][..]),
            (LocalDesign::Original, &["a", "b", "c"], &["a", "b", "c"]),
        ] {
            let looper = Looper::new(0..=0);
            let (manager, seen) = manager(&looper, design);
            assert_eq!(manager.send(Intent::new("a")), Ok(true));
            assert_eq!(manager.send(Intent::new("b")), Ok(true));
            assert_eq!(manager.send(Intent::new("nobody's")), Ok(false));
            assert_eq!(manager.send_sync(&Intent::new("c")), Ok(true));
            assert_eq!(*seen.lock().unwrap(), at_once, "{design:?}");
            run(&looper);
            assert_eq!(*seen.lock().unwrap(), at_last, "{design:?}");
        }
    }

    #[test]
    fn receivers_that_are_unregistered_get_nothing() {
        for design in [LocalDesign::Prioritized, LocalDesign::Original] {
            let looper = Looper::new(0..=0);
            let (manager, seen) = manager(&looper, design);
            let more = Arc::clone(&seen);
            let receive = move |_: &Intent| more.lock().unwrap().push("more".to_owned());
            let registration = manager.register(IntentFilter::new("a"), receive).unwrap();
            assert!(manager.send(Intent::new("a")).unwrap());
            manager.unregister(&registration);
            assert!(manager.send_sync(&Intent::new("a")).unwrap());
            run(&looper);
            assert_eq!(*seen.lock().unwrap(), ["a", "a"], "{design:?}");
        }
    }

    #[test]
    fn what_is_no_filter_or_priority_is_refused() {
        let looper = Looper::new(0..=0);
        let (manager, _) = manager(&looper, LocalDesign::Prioritized);
        assert!(manager.register(IntentFilter::default(), |_| {}).is_err());
        let mut intent = Intent::new("a");
        intent.extras.put(EXTRA_PRIORITY, 100);
        assert_eq!(manager.send(intent), Err(PriorityError::OutOfBounds(100)));
    }
}
