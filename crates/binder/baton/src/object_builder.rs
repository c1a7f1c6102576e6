//! Objects are added to their process.

use crate::counted_object::{self, CountedObject};
use crate::object::Object;
use crate::parcel::Parcel;
use crate::process::Process;
use crate::received::Request;
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::FLAT_BINDER_FLAG_ACCEPTS_FDS;
use rustix::io::Errno;
use std::sync::Arc;

/// An object that is about to be added to its process: [`Process::object`] begins it,
/// [`ObjectBuilder::add`] ends it.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("broker.sock");
/// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
/// use baton::{Parcel, Process, SchedPriority};
///
/// let process = Process::open("binder", &socket)?;
/// let object = process
///     .object(|request| Ok(Parcel::from(request.data())))
///     .min_priority(SchedPriority::nice(-5))
///     .accepts_descriptors(false)
///     .add();
/// process.become_context_manager(object)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an object is its process's once it is added"]
pub struct ObjectBuilder<'a, F> {
    process: &'a Process,
    handler: F,
    min_priority: SchedPriority,
    accepts_descriptors: bool,
}

impl Process {
    /// Begins an object that `handler` serves, on whichever thread serves. A one-way transaction's
    /// answer is dropped; an `Err` becomes [`CallError::Refused`](crate::CallError::Refused), and
    /// so does a panic (`EFAULT`), after which the thread goes on serving.
    pub fn object<F>(&self, handler: F) -> ObjectBuilder<'_, F>
    where
        F: Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    {
        let min_priority = SchedPriority::default();
        ObjectBuilder { process: self, handler, min_priority, accepts_descriptors: true }
    }
}

impl<F> ObjectBuilder<'_, F>
where
    F: Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
{
    /// The minimum priority at which the handler runs, whoever calls. A caller that is more urgent
    /// is served at its own, a real-time one always at its real-time priority. Unless it is set, or
    /// at a nice value of 0, the object asks for nothing: a thread serves at its own priority, or
    /// at its caller's if that is better. [`SchedPriority::LEAST`] leaves it to the callers alone.
    ///
    /// The thread that serves takes the priority over in its process's own right (RLIMIT_NICE and
    /// RLIMIT_RTPRIO, or CAP_SYS_NICE), and has its own again afterwards. A thread without the
    /// right stays as it is.
    pub fn min_priority(mut self, priority: SchedPriority) -> Self {
        self.min_priority = priority;
        self
    }

    /// Whether requests may carry descriptors: yes unless set. Otherwise a call that has some is
    /// refused (`EPERM`).
    pub fn accepts_descriptors(mut self, accepts: bool) -> Self {
        self.accepts_descriptors = accepts;
        self
    }

    /// Adds the object. It lives until its process is closed or dropped; see
    /// [`ObjectBuilder::add_counted`] for one that may end before. In a child of fork it is one
    /// that nobody serves.
    pub fn add(self) -> Object {
        let Process { driver, callbacks } = self.process;
        if driver.engine.is_inherited() {
            return Object { ptr: 0, cookie: 0, flags: 0 };
        }
        let ptr = driver.engine.lock().next_number();
        let flags = self.flags();
        callbacks.add_handler(ptr, Box::new(self.handler));
        Object { ptr, cookie: 0, flags }
    }

    /// Adds an object that ends when neither this process nor another one refers to it any more:
    /// then its handler is dropped. In a child of fork it is one that nobody serves, and the
    /// handler is dropped at once.
    pub fn add_counted(self) -> CountedObject {
        let Process { driver, callbacks } = self.process;
        if driver.engine.is_inherited() {
            return CountedObject::new(driver, Object { ptr: 0, cookie: 0, flags: 0 });
        }
        let mut state = driver.engine.lock();
        let (ptr, ended) = (state.next_number(), callbacks.end_all_released(&mut state));
        driver.engine.unlock(state);
        let object = Object { ptr, cookie: counted_object::COOKIE, flags: self.flags() };
        callbacks.add_counted(ptr, Arc::new(self.handler));
        // Not under the locks: handlers are the program's.
        drop(ended);
        CountedObject::new(driver, object)
    }

    /// `FLAT_BINDER_FLAG_*` of the object.
    fn flags(&self) -> u32 {
        let accepts = if self.accepts_descriptors { FLAT_BINDER_FLAG_ACCEPTS_FDS } else { 0 };
        accepts | self.min_priority.node_flags()
    }
}

impl<F> std::fmt::Debug for ObjectBuilder<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectBuilder")
            .field("min_priority", &self.min_priority)
            .field("accepts_descriptors", &self.accepts_descriptors)
            .finish_non_exhaustive()
    }
}
