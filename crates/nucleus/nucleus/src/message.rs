//! The arguments and results of an IPC (tag, timeouts, errors), and their form in one word each.

use crate::thread_id::{Sender, Source, ThreadId, raw};
use std::fmt;

/// Words of a message, at most: the message registers of a thread.
pub const N_WORDS: usize = 64;
/// Message registers that are machine registers while the kernel switches threads.
pub const N_REGISTER_WORDS: usize = 8;

/// The tag of a message: a label, which the kernel only passes on, and the number of words.
///
/// ```text
///  63      32 31     8 7        0
/// +----------+--------+----------+
/// |  label   |   0    |  length  |
/// +----------+--------+----------+
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Tag(u64);

impl Tag {
    /// A tag with a label on which the two parties have agreed. `length`: 0 to 64 words.
    #[inline]
    pub const fn new(label: u32, length: u8) -> Tag {
        assert!(length as usize <= N_WORDS, "a message has at most 64 words");
        Tag((label as u64) << 32 | length as u64)
    }

    /// A tag with the label 0 and this number of words.
    #[inline]
    pub const fn of_length(length: u8) -> Tag {
        Tag::new(0, length)
    }

    /// The label.
    #[inline]
    pub const fn label(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of words.
    #[inline]
    pub const fn length(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_raw(word: u64) -> Tag {
        Tag(word)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.label(), self.length())
    }
}

/// How long a thread waits for its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timeout {
    /// The thread waits until the partner is there.
    Never,
    /// The thread does not wait.
    Zero,
    /// The thread waits until this time of the kernel's clock, in nanoseconds.
    At(u64),
}

impl Timeout {
    const NEVER: u64 = 0;
    const ZERO: u64 = 1;
    const AT: u64 = 2;

    fn kind(self) -> u64 {
        match self {
            Timeout::Never => Timeout::NEVER,
            Timeout::Zero => Timeout::ZERO,
            Timeout::At(_) => Timeout::AT,
        }
    }

    #[inline]
    pub(crate) fn of_send(peer: u64, deadline_ns: u64) -> Timeout {
        Timeout::of_kind(peer >> 32, deadline_ns)
    }

    #[inline]
    pub(crate) fn of_receive(receive: u64, deadline_ns: u64) -> Timeout {
        Timeout::of_kind(receive >> 34, deadline_ns)
    }

    #[inline]
    fn of_kind(kind: u64, deadline_ns: u64) -> Timeout {
        match kind & 3 {
            Timeout::NEVER => Timeout::Never,
            Timeout::ZERO => Timeout::Zero,
            _ => Timeout::At(deadline_ns),
        }
    }

    pub(crate) fn deadline_ns(self) -> u64 {
        if let Timeout::At(deadline_ns) = self { deadline_ns } else { 0 }
    }
}

/// One IPC: an optional send phase, and then an optional receive phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipc {
    /// The destination, and how long the thread waits until it receives.
    pub send: Option<(ThreadId, Timeout)>,
    /// The source, and how long the thread waits for a message from it.
    pub receive: Option<(Source, Timeout)>,
}

impl Ipc {
    /// A call: sends to a thread and receives its answer, without timeouts.
    #[inline]
    pub const fn call(to: ThreadId) -> Ipc {
        Ipc {
            send: Some((to, Timeout::Never)),
            receive: Some((Source::Thread(to), Timeout::Never)),
        }
    }

    /// Sends an answer to a thread that waits for it, and then receives from any source.
    #[inline]
    pub const fn reply_and_wait(to: ThreadId) -> Ipc {
        Ipc { send: Some((to, Timeout::Zero)), receive: Some((Source::Any, Timeout::Never)) }
    }

    /// The words `peer` and `receive` of a UTCB for this IPC.
    #[inline]
    pub(crate) fn raw(self) -> (u64, u64) {
        let peer = match self.send {
            Some((to, timeout)) => timeout.kind() << 32 | u64::from(to.raw()),
            None => u64::from(raw::NOBODY),
        };
        let receive = match self.receive {
            // Shifted by 34 and not by 32: the fast paths take equal words for a call without
            // timeouts.
            Some((from, timeout)) => timeout.kind() << 34 | u64::from(from.raw()),
            None => u64::from(raw::NOBODY),
        };
        (peer, receive)
    }
}

/// The phase of an IPC that has failed. If it is the second, the first has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The message was not sent.
    Send,
    /// The message was sent, if there was one, and none was received.
    Receive,
}

/// Why an IPC has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Cause {
    /// The caller's mistake: the partner is the caller itself, or no existing thread.
    #[error("there is no such partner")]
    NoPartner,
    /// The partner was not there before the timeout.
    #[error("the time is over")]
    Timeout,
    /// Another thread has aborted the wait.
    #[error("it was aborted")]
    Aborted,
    /// The partner has ended or failed during the wait, or its kernel was dropped.
    #[error("the partner has ended")]
    Ended,
}

/// A failed IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{phase:?}: {cause}")]
pub struct IpcError {
    /// The phase that has failed.
    pub phase: Phase,
    /// The reason.
    pub cause: Cause,
}

const CAUSES: [Cause; 4] = [Cause::NoPartner, Cause::Timeout, Cause::Aborted, Cause::Ended];

/// The word `peer` of a UTCB after an IPC: the sender, and above it 0 or the error.
#[inline]
pub(crate) fn result_word(result: Result<Sender, IpcError>) -> u64 {
    match result {
        Ok(sender) => u64::from(sender.raw()),
        Err(IpcError { phase, cause }) => {
            let phase = if phase == Phase::Send { 0 } else { 0x100 };
            (phase + 1 + cause as u64) << 32 | u64::from(raw::NOBODY)
        }
    }
}

/// The result that such a word encodes. `None`: the IPC had no receive phase.
#[inline]
pub(crate) fn result_of_word(word: u64) -> Result<Option<Sender>, IpcError> {
    match (word >> 32) as u32 {
        0 if word as u32 == raw::NOBODY => Ok(None),
        0 => Ok(Some(Sender::from_raw(word as u32))),
        error => {
            let phase = if error & 0x100 == 0 { Phase::Send } else { Phase::Receive };
            Err(IpcError { phase, cause: CAUSES[(error as usize & 0xff) - 1] })
        }
    }
}
