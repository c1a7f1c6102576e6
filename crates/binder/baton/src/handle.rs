//! A reference to an object of another process.

use crate::driver::Driver;
use crate::{CallError, Parcel, Process, Received};
use baton_abi::control::Strength;
use baton_driver::typed::{self, tid};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

impl Handle {
    /// A two-way transaction: returns when it has been answered. Meanwhile this thread serves the
    /// transactions that the call causes back into this process.
    ///
    /// A signal does not end a call: it is waited for again, as libbinder does. The wait has no
    /// bound; see [`Handle::call_within`].
    pub fn call(&self, code: u32, parcel: &Parcel) -> Result<Received<'_>, CallError> {
        self.driver.call(self.number, code, parcel, None)
    }

    /// Like [`Handle::call`], for at most this long: then [`CallError::TimedOut`].
    ///
    /// A transaction that has been sent cannot be taken back. Its object may still serve it; the
    /// answer is freed when it comes, with its objects and descriptors, and the memory between the
    /// two processes that the call had taken is used again after that. A process has at most
    /// 1,024 calls to another one open at a time, those that were given up included: the next one
    /// fails.
    ///
    /// While this thread serves a transaction that the call has caused, or if the call goes back to
    /// a thread that waits for this one, the time-out waits, too. A caller of a real-time priority
    /// does not lend it to the server: with a looper of its own, which has the priority, it need
    /// not.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("broker.sock");
    /// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
    /// # use baton::{CallError, Parcel, Process};
    /// # use std::time::Duration;
    /// let server = Process::open("binder", &socket)?;
    /// server.become_context_manager(server.object(|_| Ok(Parcel::new())).add())?;
    /// // Nobody serves.
    /// let client = Process::open("binder", &socket)?;
    /// let manager = client.context_manager()?;
    /// let answer = manager.call_within(1, &Parcel::new(), Duration::from_millis(5));
    /// assert_eq!(answer.err(), Some(CallError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_within(
        &self,
        code: u32,
        parcel: &Parcel,
        longest: Duration,
    ) -> Result<Received<'_>, CallError> {
        // One that is too far ahead for the clock does not come.
        let deadline = Instant::now().checked_add(longest);
        self.driver.call(self.number, code, parcel, deadline)
    }

    /// A one-way transaction: returns when the target has it or will have it. Those of one process
    /// to one object are served one after the other.
    pub fn one_way(&self, code: u32, parcel: &Parcel) -> Result<(), CallError> {
        self.driver.one_way(self.number, code, parcel)
    }

    /// Does what the calling thread's first call by this handle would do: it opens a channel, takes
    /// a lane and, for a thread of a real-time policy, waits until the server has a looper for that
    /// lane, at most `longest`. A first call waits for it too, but shorter. If the thread's
    /// priority has changed, that is seen here.
    ///
    /// True if the server has a looper that waits for this thread alone; `baton ps` tells whether
    /// that has the thread's priority. False for an ordinary thread, for a server that does not
    /// serve yet, and for one that has no such loopers. Errors are those of [`Handle::call`].
    pub fn prepare(&self, longest: Duration) -> Result<bool, CallError> {
        self.check_open()?;
        let prepared = self.driver.engine.prepare_lane(tid(), self.number, longest);
        prepared
            .map_err(|refusal| CallError::of_reply(refusal.command, refusal.errno.raw_os_error()))
    }

    /// Calls `recipient` once when the object's process is gone; soon, if it is already. It runs on
    /// a thread that serves. It is forgotten if this process drops its last handle to the object,
    /// closes the device or drops its last [`Process`].
    pub fn link_to_death(&self, recipient: impl FnOnce() + Send + 'static) {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return;
        }
        let Some(callbacks) = self.driver.callbacks.upgrade() else { return };
        typed::remember(engine);
        let mut state = engine.lock();
        let mut recipients = callbacks.recipients.lock();
        let cookie = state.references.get(self.number).and_then(|r| r.death).map(|d| d.cookie);
        if let Some(waiting) = cookie.and_then(|cookie| recipients.get_mut(&cookie)) {
            waiting.push(Box::new(recipient));
            return;
        }
        // A handle has one notice: one that has been told makes way for the next.
        if let Some(told) = cookie {
            state.clear_death(tid(), self.number, told);
        }
        let cookie = state.next_number();
        recipients.insert(cookie, vec![Box::new(recipient)]);
        state.request_death(self.number, cookie);
        drop(recipients);
        engine.unlock(state);
    }

    /// The process that has this reference, unless its last owner has dropped it.
    pub fn process(&self) -> Option<Process> {
        self.driver.process()
    }

    /// Ready to be called by: the manager's number has to lead to one.
    pub(crate) fn check_open(&self) -> Result<(), CallError> {
        self.driver.check_open()?;
        if self.number == 0 { self.driver.find_manager() } else { Ok(()) }
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
        state.decrease(self.number, Strength::Strong);
        engine.unlock(state);
    }
}
