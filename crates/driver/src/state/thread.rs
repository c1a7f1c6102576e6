//! Threads as the driver knows them: what each one calls, serves and waits for.

use super::transaction::{Serving, Via};
use super::work::Todo;
use baton_abi::control::ProcessId;

/// One level of a thread's transaction stack.
#[derive(Clone, Debug)]
pub enum Frame {
    /// It has called and not been answered.
    Calling(Calling),
    /// It serves a two-way transaction and has not answered.
    Serving(Serving),
}

/// An outstanding call.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    /// Where the answer will come.
    pub via: Via,
    /// Who was called.
    pub peer: ProcessId,
    /// The handle that was called: the right to call has to last until the message is taken.
    pub handle: Option<u32>,
    /// What the call gave out for this thread, so that nested calls find it.
    pub token: u64,
    /// The lane is this call's own, not one that was turned round.
    pub owns_lane: bool,
    /// The peer is gone: the call fails once it is the innermost.
    pub dead: bool,
}

/// How a thread came to serve, if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looper {
    /// BC_REGISTER_LOOPER: started because the driver asked.
    pub registered: bool,
    /// BC_ENTER_LOOPER: by itself.
    pub entered: bool,
    /// BC_EXIT_LOOPER.
    pub exited: bool,
    /// It did both, or registered without being asked.
    pub invalid: bool,
}

impl Looper {
    /// Whether it takes the process's work.
    pub fn serves(self) -> bool {
        self.registered || self.entered
    }
}

/// What a thread that is inside the driver sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It does not.
    No,
    /// The process's bell, for any work.
    Bell,
    /// The inbox of the lane that it called on.
    Lane(Via),
    /// A word of its own.
    Own,
}

/// What a thread that leaves had open on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// It owed an answer.
    Serving,
    /// It waited for one.
    Calling,
}

/// What BINDER_GET_EXTENDED_ERROR tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedError {
    /// Number of the transaction.
    pub id: u32,
    /// The BR_ that told of it; 0 stands for BR_OK.
    pub command: u32,
    /// A negative errno.
    pub param: i32,
}

/// One thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its part in the pool.
    pub looper: Looper,
    /// Its own work.
    pub todo: Todo,
    /// A failed command's return, until it is read: no command runs before.
    pub failed: bool,
    /// Its calls and services, innermost last.
    pub stack: Vec<Frame>,
    /// What it sleeps on.
    pub waiting: Waiting,
    /// Its read returns even if there is nothing: so does a thread's first ioctl, whichever it is.
    pub return_once: bool,
    /// Its last failure.
    pub error: ExtendedError,
}

impl Default for Thread {
    fn default() -> Self {
        Thread {
            looper: Looper::default(),
            todo: Todo::default(),
            failed: false,
            stack: Vec::new(),
            waiting: Waiting::No,
            return_once: true,
            error: ExtendedError::default(),
        }
    }
}

impl Thread {
    /// It may take the process's work: it owes nobody an answer and has nothing of its own.
    pub fn is_available(&self) -> bool {
        self.stack.is_empty() && self.todo.is_empty()
    }

    /// The lane whose answer it waits for.
    pub fn calls_on(&self) -> Option<&Calling> {
        match self.stack.last() {
            Some(Frame::Calling(calling)) => Some(calling),
            _ => None,
        }
    }

    /// What it serves right now.
    pub fn serves(&self) -> Option<&Serving> {
        match self.stack.last() {
            Some(Frame::Serving(serving)) => Some(serving),
            _ => None,
        }
    }
}
