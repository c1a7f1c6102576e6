//! What a thread may want of its kernel other than IPC. A request lies in the thread's UTCB, and
//! its answer takes its place.

use crate::thread_id::ThreadId;

/// A request, and then its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Nothing is wanted.
    None,
    /// A thread that can be started; answered by `Created`.
    Create {
        /// Its priority.
        priority: u8,
    },
    /// A thread that was created begins.
    Start(ThreadId),
    /// A thread stops, wherever it is; messages reach it all the same.
    Suspend(ThreadId),
    /// A thread that was suspended goes on.
    Resume(ThreadId),
    /// A thread's own priority.
    SetPriority(ThreadId, u8),
    /// A thread's wait for its partner ends.
    Abort(ThreadId),
    /// The rest of the tick is another thread's.
    SwitchTo(ThreadId),
    /// The thread goes behind those of its priority.
    Yield,
    /// Bits that another thread will find.
    Notify(ThreadId, u64),
    /// Which bits the thread receives.
    AcceptNotices(u64),
    /// Another thread's word that the kernel does not know the meaning of; answered by `Word`.
    ExchangeUserWord(ThreadId, u64),
    /// The thread becomes the handler of an interrupt, whoever was before.
    Attach(u8),
    /// The thread ends.
    End,
    /// Who has been created.
    Created(ThreadId),
    /// What was there before.
    Word(u64),
    /// It is done.
    Done,
    /// It is not: no such thread, or none that this can be done to.
    Refused,
    /// There is no room for another thread.
    Full,
}
