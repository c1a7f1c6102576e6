//! One opened device.

use crate::driver::{Callbacks, Driver};
use crate::error::CallError;
use crate::handle::Handle;
use crate::object::Object;
use baton_abi::control::Strength;
use baton_abi::sched_priority::SchedPriority;
use baton_driver::typed;
use rustix::io::Errno;
use std::sync::Arc;

/// One opened device: a party that serves objects and calls those of others. Its threads share it.
///
/// A child of `fork` does not have it, and can open its own. There every call, and whatever else
/// says how it has ended, fails with [`CallError::Closed`] or `EBADF`; an object that is added is
/// one that nobody serves, and a link to a death is nothing; what is dropped is the parent's as
/// before. A child that was forked inside of a handler must not return from that.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("broker.sock");
/// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
/// use baton::{Errno, Parcel, Process};
///
/// let process = Process::open("binder", &socket)?;
/// let object = process.object(|request| Ok(Parcel::from(request.data()))).add();
/// process.become_context_manager(object)?;
/// let looper = std::thread::spawn({
///     let process = process.clone();
///     move || process.serve()
/// });
/// process.close();
/// assert_eq!(looper.join().unwrap(), Errno::BADF);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Process {
    pub(crate) driver: Arc<Driver>,
    pub(crate) callbacks: Arc<Callbacks>,
}

/// A thread of this process has got another scheduling policy, priority or nice value, or is bound
/// to other processors, by itself or by somebody: its next call is served accordingly. A thread
/// that has had them since its first call need not say so.
pub fn priority_changed() {
    typed::priorities_changed();
}

/// The calling thread's priority: as it was when it first asked, after the last
/// [`priority_changed`].
pub fn own_priority() -> SchedPriority {
    typed::of_transaction(None)
}

impl Process {
    /// Makes an object the one that others reach by [`Process::context_manager`]. `EBUSY` if the
    /// context has a manager, `EPERM` if it belongs to another user.
    pub fn become_context_manager(&self, object: Object) -> Result<(), Errno> {
        if self.driver.engine.is_inherited() {
            return Err(Errno::BADF);
        }
        self.driver.engine.become_manager(object.ptr, object.cookie, object.flags)
    }

    /// The context manager's object. [`CallError::NoManager`] if there is none.
    pub fn context_manager(&self) -> Result<Handle, CallError> {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return Err(CallError::Closed);
        }
        self.driver.find_manager()?;
        let mut state = engine.lock();
        let number = state.manager.ok_or(CallError::NoManager)?;
        state.increase_manager(Strength::Strong);
        engine.unlock(state);
        Ok(self.driver.handle(number))
    }

    /// Whether the calling process is a child of `fork` of the one that has opened the device.
    pub fn is_inherited(&self) -> bool {
        self.driver.engine.is_inherited()
    }

    /// Ends the process's part: calls under way and new ones fail with [`CallError::Closed`],
    /// threads that serve return, handlers and death recipients are dropped once none runs. In a
    /// child of fork it does nothing.
    pub fn close(&self) {
        if self.is_inherited() {
            return;
        }
        self.driver.engine.close();
        self.callbacks.clear();
    }
}

impl Driver {
    /// The process, unless its last owner has dropped it.
    pub fn process(self: &Arc<Self>) -> Option<Process> {
        let callbacks = self.callbacks.upgrade()?;
        Some(Process { driver: Arc::clone(self), callbacks })
    }
}

impl Handle {
    /// The process that has this reference, unless its last owner has dropped it.
    pub fn process(&self) -> Option<Process> {
        self.driver.process()
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let engine = &self.driver.engine;
        f.debug_struct("Process")
            .field("number", &engine.identity.process.0)
            .field("closed", &engine.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(simulated)]
impl Process {
    /// The engine of the device that this process has open: for the simulator.
    pub fn engine(&self) -> &typed::Engine {
        &self.driver.engine
    }
}
