//! What an IPC says: tags, timeouts, errors, and their form in one word each.

use crate::thread_id::{Sender, Source, ThreadId, raw};
use std::fmt;

/// Words of a message, at most: the message registers of a thread.
pub const N_WORDS: usize = 64;
/// Message registers that are machine registers while the kernel switches threads.
pub const N_REGISTER_WORDS: usize = 8;

/// A message's label, which the kernel only hands on, and how many words it has.
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
    /// A label on which the two parties have agreed, and from 0 to 64 words.
    #[inline]
    pub const fn new(label: u32, length: u8) -> Tag {
        assert!(length as usize <= N_WORDS, "a message has at most 64 words");
        Tag((label as u64) << 32 | length as u64)
    }

    /// The tag of a message with this many words.
    #[inline]
    pub const fn of_length(length: u8) -> Tag {
        Tag::new(0, length)
    }

    /// What the two parties have agreed on.
    #[inline]
    pub const fn label(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Words.
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
    /// As long as it takes.
    Never,
    /// Not at all.
    Zero,
    /// Until this time of the kernel's clock, in nanoseconds.
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

/// One IPC: a message to somebody, if any, and then one from somebody, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipc {
    /// To whom, and how long it may take until that thread receives.
    pub send: Option<(ThreadId, Timeout)>,
    /// From whom, and how long it may take until something comes.
    pub receive: Option<(Source, Timeout)>,
}

impl Ipc {
    /// Sends to a thread and receives its answer.
    #[inline]
    pub const fn call(to: ThreadId) -> Ipc {
        Ipc {
            send: Some((to, Timeout::Never)),
            receive: Some((Source::Thread(to), Timeout::Never)),
        }
    }

    /// Answers a thread, if it waits for that, and receives what comes next.
    #[inline]
    pub const fn reply_and_wait(to: ThreadId) -> Ipc {
        Ipc { send: Some((to, Timeout::Zero)), receive: Some((Source::Any, Timeout::Never)) }
    }

    /// The words `peer` and `receive` of a UTCB.
    #[inline]
    pub(crate) fn raw(self) -> (u64, u64) {
        let peer = match self.send {
            Some((to, timeout)) => timeout.kind() << 32 | u64::from(to.raw()),
            None => u64::from(raw::NOBODY),
        };
        let receive = match self.receive {
            // Not where the other one is: the fast paths take equal words for a call without
            // timeouts.
            Some((from, timeout)) => timeout.kind() << 34 | u64::from(from.raw()),
            None => u64::from(raw::NOBODY),
        };
        (peer, receive)
    }
}

/// Which half of an IPC has failed. If it is the second, the first is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The message was not sent.
    Send,
    /// The message was sent, if there was one, and none came.
    Receive,
}

/// Why an IPC has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Cause {
    /// The caller's mistake: it names itself, or no thread that exists.
    #[error("there is no such partner")]
    NoPartner,
    /// The partner was not there in time.
    #[error("the time is over")]
    Timeout,
    /// Another thread has ended the wait.
    #[error("it was aborted")]
    Aborted,
    /// The partner has ended, or failed, while it was waited for.
    #[error("the partner has ended")]
    Ended,
}

/// A failed IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{phase:?}: {cause}")]
pub struct IpcError {
    /// Which half.
    pub phase: Phase,
    /// Why.
    pub cause: Cause,
}

const CAUSES: [Cause; 4] = [Cause::NoPartner, Cause::Timeout, Cause::Aborted, Cause::Ended];

/// The word `peer` of a UTCB after an IPC: who has sent, and above it 0 or an error.
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

/// The opposite. `None`: there was nobody to receive from.
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
