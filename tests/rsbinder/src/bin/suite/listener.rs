//! Listeners: objects of a scenario that other processes call.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;

use baton_rsbinder_programs::suite::IListener::{BnListener, IListener};
use rsbinder::{BinderResult, Interface, Strong};

/// A call that a listener received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub value: i32,
    pub sequence: i32,
    pub caller_pid: i32,
    pub thread: ThreadId,
}

type During = Box<dyn Fn(i32) -> BinderResult<()> + Send + Sync>;

struct Listener {
    heard: Mutex<mpsc::Sender<Heard>>,
    during: During,
}

impl Listener {
    fn hear(&self, value: i32, sequence: i32) {
        let thread = std::thread::current().id();
        let heard = Heard { value, sequence, caller_pid: rsbinder::get_calling_pid(), thread };
        // The receiver is gone once the scenario went on.
        let _ = self.heard.lock().unwrap().send(heard);
    }
}

impl Interface for Listener {}

impl IListener for Listener {
    fn call(&self, value: i32) -> BinderResult<i32> {
        self.hear(value, 0);
        (self.during)(value)?;
        Ok(value + 1)
    }

    fn event(&self, source: i32, sequence: i32) -> BinderResult<()> {
        self.hear(source, sequence);
        Ok(())
    }
}

/// A listener and its received calls.
pub fn listen() -> (Strong<dyn IListener>, mpsc::Receiver<Heard>) {
    listen_and(|_| Ok(()))
}

/// A listener that runs a function before it answers a call.
pub fn listen_and(
    during: impl Fn(i32) -> BinderResult<()> + Send + Sync + 'static,
) -> (Strong<dyn IListener>, mpsc::Receiver<Heard>) {
    let (sender, heard) = mpsc::channel();
    let listener = Listener { heard: Mutex::new(sender), during: Box::new(during) };
    (BnListener::new_binder(listener), heard)
}

/// A listener that is counted in `alive` as long as a reference to it exists.
pub struct Counted(Arc<AtomicI32>);

impl Counted {
    pub fn make(alive: &Arc<AtomicI32>) -> Strong<dyn IListener> {
        alive.fetch_add(1, Ordering::SeqCst);
        BnListener::new_binder(Self(alive.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Interface for Counted {}

impl IListener for Counted {
    fn call(&self, value: i32) -> BinderResult<i32> {
        Ok(value + 1)
    }

    fn event(&self, _source: i32, _sequence: i32) -> BinderResult<()> {
        Ok(())
    }
}
