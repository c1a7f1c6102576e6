//! Objects that end before their process.

use crate::driver::{Callbacks, Counted, Driver};
use crate::object::Object;
use baton_state::State;
use std::sync::Arc;

/// The cookie of such an object, and of no other: the state tells of its end.
pub(crate) const COOKIE: u64 = 1;

/// A strong reference to an object of this process that ends with the last reference to it: a
/// session, a callback, a token. Clones refer to the same object.
///
/// The object ends once this process has dropped the last of these values, other processes have
/// dropped their handles or died, and no transaction has the object on its way. Then its handler is
/// dropped: on a thread that serves, or on the one that drops the last value. In a process without
/// threads that serve it is dropped when the next such object is added, or with the process. A
/// handler that serves at that time is dropped when it has returned.
///
/// A value keeps its device open, and not the program's handlers. A handler that keeps a value of
/// its own object does not end before the process.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("broker.sock");
/// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
/// use baton::{Errno, Parcel, Process};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// // Each call opens a session: an object that counts, and lives as long as its client has it.
/// let server = Process::open("binder", &socket)?;
/// let sessions = server.object(|request| {
///     let (process, count) = (request.received.process().ok_or(Errno::BADF)?, AtomicU32::new(0));
///     let session = process.object(move |_| {
///         let calls = count.fetch_add(1, Ordering::Relaxed) + 1;
///         Ok(Parcel::from(&calls.to_ne_bytes()[..]))
///     });
///     let mut answer = Parcel::new();
///     answer.write_counted_object(&session.add_counted());
///     Ok(answer)
/// });
/// server.become_context_manager(sessions.add())?;
/// let looper = std::thread::spawn({
///     let server = server.clone();
///     move || server.serve()
/// });
///
/// let client = Process::open("binder", &socket)?;
/// let session = client.context_manager()?.call(1, &Parcel::new())?.handle(0).expect("an object");
/// session.call(1, &Parcel::new())?;
/// assert_eq!(session.call(1, &Parcel::new())?.data(), 2u32.to_ne_bytes());
/// // The session ends at the server.
/// drop(session);
/// # server.close();
/// # looper.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CountedObject {
    value: Arc<Value>,
}

/// All the values of one object.
struct Value {
    driver: Arc<Driver>,
    object: Object,
}

impl CountedObject {
    pub(crate) fn new(driver: &Arc<Driver>, object: Object) -> CountedObject {
        CountedObject { value: Arc::new(Value { driver: Arc::clone(driver), object }) }
    }

    /// The object's name. Sent after the object has ended, it is one that nobody serves.
    pub fn object(&self) -> Object {
        self.value.object
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.value.driver
    }
}

impl PartialEq for CountedObject {
    fn eq(&self, other: &CountedObject) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl Eq for CountedObject {}

impl std::fmt::Debug for CountedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CountedObject({})", self.value.object.ptr)
    }
}

impl Callbacks {
    /// Ends an object to which nobody refers. Its handler goes with the result.
    fn end_object(&self, object: u64) -> Option<Counted> {
        let ended = self.counted.lock().remove(&object);
        self.handlers.lock().remove(&object);
        ended
    }

    /// Ends an object that other processes have let go of, unless this one has it. To be called
    /// under the state's lock; what is returned is the program's, and is dropped without it.
    pub fn end_released(&self, object: u64) -> Option<Counted> {
        let is_had = self.counted.lock().get(&object)?.is_had;
        if is_had { None } else { self.end_object(object) }
    }

    /// Like [`Callbacks::end_released`], of all objects, in a process without loopers to hear of
    /// them.
    pub fn end_all_released(&self, state: &mut State) -> Vec<Counted> {
        let heard = std::iter::from_fn(|| state.next_unheard_end());
        heard.filter_map(|(object, _)| self.end_released(object)).collect()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return;
        }
        let Some(callbacks) = self.driver.callbacks.upgrade() else { return };
        let object = self.object.ptr;
        let state = engine.lock();
        let node = state.nodes.at(object).and_then(|id| state.nodes.get(id));
        let ended = if node.is_some_and(|node| node.is_held()) {
            if let Some(counted) = callbacks.counted.lock().get_mut(&object) {
                counted.is_had = false;
            }
            None
        } else {
            callbacks.end_object(object)
        };
        engine.unlock(state);
        // Not under the locks: handlers are the program's, and so is all that goes with them.
        drop((ended, callbacks));
    }
}
