//! The values that the write half of an exchange leaves to the read half, and the program's read
//! buffer.

use crate::fast::LocalObject;
use crate::sys::user;
use baton_abi::uapi::*;
use baton_shm::lock::Guard;
use baton_state::State;
use baton_state::node::News;
use baton_state::priority::RequestedPriority;
use baton_state::transaction::BufferedMessage;
use bytemuck::bytes_of;
use rustix::io::Errno;

/// Room that the kernel asks for before it takes an item: its largest return, with the command.
pub(super) const LARGEST_RETURN: usize = 4 + size_of::<TransactionDataSecctx>();

/// Room that one object's news takes: BR_INCREFS and BR_ACQUIRE.
pub(super) const LARGEST_NEWS: usize = 2 * (4 + size_of::<PtrCookie>());

/// How an exchange has ended.
pub(super) enum Exchanged {
    /// The state knows all of it, or it has bypassed the state, as only a thread may that the state
    /// knows.
    Over(Result<(), Errno>),
    /// The state does not know yet that the thread returns to its program.
    Returns(Result<(), Errno>),
}

/// The result of the write half, for the read half.
pub(super) enum Written<'a> {
    /// The state has the rest.
    Nothing,
    /// The state has work for the thread, and is locked: what the last command has caused has yet
    /// to be carried out.
    HasWork(Guard<'a, State>),
    /// The last command was a call by this handle.
    Called(u32),
    /// The last command was a call by this handle, and a signal has come since.
    Interrupted(u32),
    /// Nothing is left: the returns are in the read buffer, or the state knows that the thread
    /// returns to its program.
    Over,
}

/// The first return of the exchange.
pub(super) enum What {
    /// The thread's reply has left.
    Complete,
    /// The thread's call has left, and has been answered.
    Answer(BufferedMessage),
    /// A transaction has come.
    Transaction(BufferedMessage, LocalObject),
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

    /// The rest of an exchange's read buffer, with what begins it.
    pub fn of(exchange: &WriteRead) -> Result<Returns, Errno> {
        let (start, size) = (exchange.read_buffer as usize, exchange.read_size as usize);
        let consumed = usize::try_from(exchange.read_consumed).map_err(|_| Errno::INVAL)?;
        let mut returns = Returns::at(start, size);
        returns.at = start.wrapping_add(consumed);
        user::writable(returns.at, returns.room().max(4))?;
        if consumed == 0 {
            returns.put(BR_NOOP, &[]);
        }
        Ok(returns)
    }

    /// Bytes of it that have been filled.
    pub fn filled(&self, start: usize) -> u64 {
        (self.at - start) as u64
    }

    pub fn room(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// The news of a node.
    pub fn put_news(&mut self, news: &News) {
        let (ptr, cookie) = news.object;
        for &command in &news.returns {
            self.put(command, bytes_of(&PtrCookie { ptr, cookie }));
        }
    }

    pub fn put(&mut self, command: u32, payload: &[u8]) {
        user::copy_out(self.at, bytes_of(&command));
        user::copy_out(self.at + 4, payload);
        self.at += 4 + payload.len();
    }
}
