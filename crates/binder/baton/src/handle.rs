//! A reference to an object of another process.

use crate::driver::{Driver, Recipient, Recipients};
use baton_abi::control::Strength;
use baton_driver::typed;
use baton_state::State;
use rustix::io::Errno;
use std::sync::Arc;

/// A strong reference to an object of another process, by which the object is called. Dropped, it
/// is released.
///
/// A handle keeps its device open, and not the program's handlers: these may keep handles.
///
/// Two handles are equal if they refer to one object by one opened device. As in the kernel, the
/// context manager's stands for whoever is the manager when it is called.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("broker.sock");
/// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
/// use baton::{Parcel, Process};
///
/// const DOUBLE: u32 = 1;
/// let server = Process::open("binder", &socket)?;
/// let object = server.object(|request| {
///     let number = u32::from_ne_bytes(request.data().try_into().unwrap_or_default());
///     Ok(Parcel::from(&(2 * number).to_ne_bytes()[..]))
/// });
/// server.become_context_manager(object.add())?;
/// let looper = std::thread::spawn({
///     let server = server.clone();
///     move || server.serve()
/// });
///
/// let client = Process::open("binder", &socket)?;
/// let doubler = client.context_manager()?;
/// let answer = doubler.call(DOUBLE, &Parcel::from(&21u32.to_ne_bytes()[..]))?;
/// assert_eq!(answer.data(), 42u32.to_ne_bytes());
/// # drop(answer);
/// # server.close();
/// # looper.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle {
    pub(crate) driver: Arc<Driver>,
    pub(crate) number: u32,
}

/// A wait for an object's death, which [`Handle::unlink_to_death`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeathLink {
    /// Of the handle's notice; 0 for no notice.
    cookie: u64,
    number: u64,
}

impl Handle {
    /// Calls `recipient` once when the object's process is gone; soon, if it is already. It runs on
    /// a thread that serves. It is forgotten if this process drops its last handle to the object,
    /// closes the device or drops its last [`Process`](crate::Process), and by
    /// [`Handle::unlink_to_death`].
    pub fn link_to_death(&self, recipient: impl FnOnce() + Send + 'static) -> DeathLink {
        let none = DeathLink { cookie: 0, number: 0 };
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return none;
        }
        let Some(callbacks) = self.driver.callbacks.upgrade() else { return none };
        typed::remember(engine);
        let mut state = engine.lock();
        let mut recipients = callbacks.recipients.lock();
        let number = state.next_number();
        let cookie = self.death_cookie(&state);
        let known = cookie.and_then(|cookie| Some((cookie, recipients.get_mut(&cookie)?)));
        if let Some((cookie, known)) = known {
            known.waiting.push((number, Box::new(recipient)));
            return DeathLink { cookie, number };
        }
        // A handle has one notice: one that has been told makes way for the next.
        if cookie.is_some() {
            state.forget_death(self.number);
        }
        let cookie = state.next_number();
        let waiting: Vec<(_, Recipient)> = vec![(number, Box::new(recipient))];
        // Room for one more costs a look at all: those of handles that are gone make room.
        let mut forgotten = Vec::new();
        if recipients.len() == recipients.capacity() {
            let is_gone = |cookie: &u64, it: &mut Recipients| !state.has_death(it.handle, *cookie);
            forgotten.extend(recipients.extract_if(is_gone));
        }
        recipients.insert(cookie, Recipients { handle: self.number, waiting });
        state.request_death(self.number, cookie);
        drop(recipients);
        engine.unlock(state);
        // Not under the locks: recipients are the program's.
        drop(forgotten);
        DeathLink { cookie, number }
    }

    /// Ends a wait for this object's death: the link's recipient is dropped. False if that has been
    /// called, is about to be or has been forgotten, and for a link to another object's death.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("broker.sock");
    /// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
    /// # use baton::{Parcel, Process};
    /// # let server = Process::open("binder", &socket)?;
    /// # server.become_context_manager(server.object(|_| Ok(Parcel::new())).add())?;
    /// let client = Process::open("binder", &socket)?;
    /// let manager = client.context_manager()?;
    /// let link = manager.link_to_death(|| println!("the manager is gone"));
    /// assert!(manager.unlink_to_death(link));
    /// assert!(!manager.unlink_to_death(link));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unlink_to_death(&self, link: DeathLink) -> bool {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return false;
        }
        let Some(callbacks) = self.driver.callbacks.upgrade() else { return false };
        typed::remember(engine);
        let mut state = engine.lock();
        if self.death_cookie(&state) != Some(link.cookie) {
            return false;
        }
        let mut recipients = callbacks.recipients.lock();
        let Some(known) = recipients.get_mut(&link.cookie) else { return false };
        let waiting = &mut known.waiting;
        let Some(at) = waiting.iter().position(|(number, _)| *number == link.number) else {
            return false;
        };
        let unlinked = waiting.remove(at);
        if waiting.is_empty() {
            recipients.remove(&link.cookie);
            state.forget_death(self.number);
        }
        drop(recipients);
        engine.unlock(state);
        // Not under the locks: the recipient is the program's.
        drop(unlinked);
        true
    }

    /// The object's process and the object in it, by the numbers that `baton ps --json` shows.
    /// `None` for the context manager's handle, and once the device is closed.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return None;
        }
        let state = engine.lock();
        let reference = state.references.get(self.number)?;
        Some((reference.owner.0, reference.node.0))
    }

    /// Counts the processes that hold the object, this one among them. For the context manager
    /// alone (`EPERM`), which so learns whether a service that it knows still has clients.
    pub fn count_holders(&self) -> Result<u32, Errno> {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return Err(Errno::BADF);
        }
        engine.count_holders(self.number).map(|(strong, _)| strong)
    }

    fn death_cookie(&self, state: &State) -> Option<u64> {
        state.references.get(self.number)?.death.map(|notice| notice.cookie)
    }
}

impl Driver {
    /// A handle for one that the state has counted already.
    pub fn handle(self: &Arc<Self>, number: u32) -> Handle {
        Handle { driver: Arc::clone(self), number }
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver) && self.number == other.number
    }
}

impl Eq for Handle {}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        let engine = &self.driver.engine;
        if !engine.is_inherited() {
            engine.lock().increase(self.number, Strength::Strong);
        }
        self.driver.handle(self.number)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.number)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return;
        }
        let mut state = engine.lock();
        let cookie = self.death_cookie(&state);
        state.decrease(self.number, Strength::Strong);
        let gone = cookie.filter(|cookie| !state.has_death(self.number, *cookie));
        let callbacks = gone.and_then(|_| self.driver.callbacks.upgrade());
        let all = callbacks.as_ref().zip(gone);
        let forgotten = all.and_then(|(all, gone)| all.recipients.lock().remove(&gone));
        engine.unlock(state);
        // Not under the locks: recipients are the program's, and so is all that goes with them.
        drop((forgotten, callbacks));
    }
}
