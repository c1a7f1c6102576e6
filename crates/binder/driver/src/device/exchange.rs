//! What the halves of one exchange leave to each other, and the program's read buffer.

use crate::fast::Subject;
use crate::sys::user;
use baton_abi::uapi::*;
use baton_state::priority::RequestedPriority;
use baton_state::transaction::BufferedMessage;
use bytemuck::bytes_of;
use rustix::io::Errno;

/// Room that the kernel asks for before it takes an item: its largest return, with the command.
pub(super) const LARGEST_RETURN: usize = 4 + size_of::<TransactionDataSecctx>();

/// Who has made an exchange. Past the state only a thread goes that is known to it.
pub(super) enum Exchanged {
    Past(Result<(), Errno>),
    ByState(Result<(), Errno>),
}

/// What the write half leaves to the read half.
pub(super) enum Written {
    /// Nothing but what the state has.
    Nothing,
    /// The last command was a call by this handle.
    Called(u32),
    /// It was, and a signal has come since.
    Interrupted(u32),
    /// What is to be told.
    PendingReturn(PendingReturn),
}

/// What a read is to give at once.
pub(super) struct PendingReturn {
    pub what: What,
    /// Whether its program is to be asked for one more looper.
    pub wants_looper: bool,
}

/// Of what it is to tell.
pub(super) enum What {
    /// The thread's reply has left.
    Complete,
    /// Its call has, and has been answered.
    Answer(BufferedMessage),
    /// There is something to serve.
    Transaction(BufferedMessage, Subject),
}

/// Room in the program's read buffer, which has been found writable.
pub(super) struct Returns {
    pub at: usize,
    pub end: usize,
    /// The transaction among them: how many the thread serves with it, and by what.
    pub serves: Option<(usize, RequestedPriority)>,
}

impl Returns {
    /// All of a read buffer.
    pub fn at(start: usize, bytes: usize) -> Returns {
        Returns { at: start, end: start.wrapping_add(bytes), serves: None }
    }

    /// Bytes of it that have been filled.
    pub fn filled(&self, start: usize) -> u64 {
        (self.at - start) as u64
    }

    pub fn room(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    pub fn put(&mut self, command: u32, payload: &[u8]) {
        user::copy_out(self.at, bytes_of(&command));
        user::copy_out(self.at + 4, payload);
        self.at += 4 + payload.len();
    }
}
