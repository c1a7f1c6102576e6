//! The requests of a thread besides IPC. A request lies in the thread's UTCB, and the
//! kernel writes its answer over it.

use crate::grant::{GrantError, Part};
use crate::thread_id::ThreadId;

/// A request of a thread, and then the kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// The thread asks for nothing.
    None,
    /// Makes a thread without stack and code, which
    /// [`exchange_registers`](crate::CurrentThread::exchange_registers) gives to it. Answered by
    /// `Created`, or by `Full`.
    Create {
        /// The thread's priority: 255 is the highest.
        priority: u8,
    },
    /// Lets a created thread run. Refused if the thread was started before, or has no code.
    Start(ThreadId),
    /// Stops a thread wherever it is, until it is resumed. It still receives messages.
    Suspend(ThreadId),
    /// Ends a thread's suspension.
    Resume(ThreadId),
    /// Sets a thread's base priority.
    SetPriority(ThreadId, u8),
    /// Ends a thread's wait in an IPC, with [`Cause::Aborted`](crate::Cause::Aborted). Refused if
    /// the thread waits in none.
    Abort(ThreadId),
    /// Gives the rest of the tick to another thread. A strict kernel refuses one of lower priority.
    SwitchTo(ThreadId),
    /// Moves the thread behind all others of its priority, with a new timeslice.
    Yield,
    /// Sets notice bits of another thread, which receives those that it accepts.
    Notify(ThreadId, u64),
    /// Says which notice bits the thread receives.
    AcceptNotices(u64),
    /// Swaps a word of another thread that the kernel gives no meaning to. Answered by `Word`.
    ExchangeUserWord(ThreadId, u64),
    /// Makes the thread the handler of an interrupt, instead of the former one.
    Attach(u8),
    /// Ends the thread.
    End,
    /// Answer: the thread that was created.
    Created(ThreadId),
    /// Answer: the word that the user word was before.
    Word(u64),
    /// Answer: the kernel has done it.
    Done,
    /// Answer: the kernel has not done it, because the named thread does not exist or its state
    /// does not allow for it.
    Refused,
    /// Answer: the kernel has as many threads as it can have.
    Full,
}

/// Where a thread that does not run goes on.
///
/// ```text
///  Tcb.resume          the address of its next instruction
///  Tcb.stack_pointer   its stack pointer
///  Utcb                its message registers
/// ```
///
/// There are no flags among the registers: an IPC keeps none, as a function call keeps none. A word
/// for the thread's user is beside them ([`Request::ExchangeUserWord`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    /// The thread's stack pointer.
    pub stack_pointer: usize,
    /// The address of the thread's next instruction.
    pub instruction_pointer: usize,
}

/// A request whose addresses the kernel trusts, since only `CurrentThread` makes it; then the
/// answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrustedRequest {
    None,
    /// Copies between memory that the thread of this name grants and the requester's memory at
    /// `local`.
    Copy {
        owner: u32,
        part: Part,
        local: usize,
    },
    Copied(Result<(), GrantError>),
    /// Aborts another thread's IPC and lets the thread go on at `new`.
    Exchange {
        id: u32,
        new: Registers,
    },
    /// Like `Exchange`, with a new body (`current_thread::ThreadBody`) on a stack of the pool.
    Restart {
        id: u32,
        body: u64,
    },
    /// Where the thread would have gone on. `None`: there is no such thread, or another kernel is
    /// just writing the message that it waits for.
    Exchanged(Option<Registers>),
}
