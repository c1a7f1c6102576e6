//! The shared state of one thread's IPC with threads of other kernels: a message that it offers, or
//! its wait for a message.
//!
//! ```text
//!             offer                          taken, and nothing more is wanted
//!   Idle ----------------> Offered ----------------------------------------> Taken
//!    | ^ \                  |  |  \ not there in no time                       |
//!    | |  \ wait            |  |   +------------------------> Refused          |
//!    | |   \        taken,  |  |                                 |             |
//!    | |    v   it is a call|  | withdraw                        |   reset     |
//!    | |   Waiting <--------+  |                                 |             |
//!    | |    |  |               |                                 |             |
//!    | +----|--+---------------+---------------------------------+-------------+
//!    |      | answer                                                           ^
//!    |      v                                                                  |
//!    |   Answering -----> Answered --------------------------------------------+
//! ```
//!
//! While the partner copies from or to granted memory, the stage goes from `Waiting` to `Copying`
//! and back. If the wait is to end meanwhile, it goes to `Revoking`, and the partner makes that
//! `Revoked` when it is done.
//!
//! The thread's own kernel goes from `Idle` and back to it; the partner's kernel makes the other
//! steps. Where both may make a step, they compare and exchange, so a wait ends in one way. A
//! message is copied before it is taken. If the exchange succeeds, its words have not changed since
//! they were offered, because every offer has a number of its own.
//!
//! In `Answering` and `Copying` the thread's own kernel has to wait for the other kernel, which
//! copies at most 64 words, or 4 KiB.
//!
//! **Invariant**: the thread's own kernel writes the words, the tag and the partner in `Idle`. The
//! partner's kernel writes the words and the tag in `Answering`.

use crate::grant::RawGrant;
use crate::message::{N_WORDS, Tag};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::thread_id::ThreadId;

/// The stage of a thread's IPC with a remote partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stage {
    /// The thread waits for no remote partner.
    Idle,
    /// The thread's message waits until its partner takes it.
    Offered,
    /// The thread waits for a message of its partner.
    Waiting,
    /// The partner is writing its message.
    Answering,
    /// The partner's message is there.
    Answered,
    /// The partner has taken the message, and the thread wants no more.
    Taken,
    /// The partner did not wait for the message, whose timeout is zero.
    Refused,
    /// The partner is copying from or to memory that the thread has granted.
    Copying,
    /// The partner is still copying, and the wait ends when it is done.
    Revoking,
    /// The partner is done copying, and the wait has ended.
    Revoked,
}

const STAGES: [Stage; 10] = [
    Stage::Idle,
    Stage::Offered,
    Stage::Waiting,
    Stage::Answering,
    Stage::Answered,
    Stage::Taken,
    Stage::Refused,
    Stage::Copying,
    Stage::Revoking,
    Stage::Revoked,
];
const STAGE_BITS: u32 = 4;

/// A stage, and above it the number of the offer or wait to which it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageVersion(u64);

impl StageVersion {
    pub(crate) fn stage(self) -> Stage {
        STAGES[(self.0 & 15) as usize % STAGES.len()]
    }

    /// Whether both belong to one offer, or to one offer and the wait that it has become.
    pub(crate) fn continues(self, other: StageVersion) -> bool {
        self.0 >> STAGE_BITS == other.0 >> STAGE_BITS
    }

    fn with(self, stage: Stage) -> StageVersion {
        StageVersion(self.0 >> STAGE_BITS << STAGE_BITS | stage as u64)
    }

    fn next(self, stage: Stage) -> StageVersion {
        StageVersion(((self.0 >> STAGE_BITS) + 1) << STAGE_BITS | stage as u64)
    }
}

/// The kind of a send: what the sender wants besides the delivery of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendFlags(u32);

impl SendFlags {
    pub(crate) const SEND: SendFlags = SendFlags(0);
    /// The sender waits for an answer of the same thread.
    pub(crate) const CALL: SendFlags = SendFlags(1);
    /// The sender takes an answer only if it is there at once. Until its message is taken it lends
    /// its priority as a caller does.
    pub(crate) const POLL: SendFlags = SendFlags(1 << 3);
    /// The message is refused if its receiver does not wait for it.
    pub(crate) const AT_ONCE: SendFlags = SendFlags(1 << 1);
    /// The sender's kernel is told when the message of a call is taken, as a deadline begins then.
    pub(crate) const TIMED: SendFlags = SendFlags(1 << 2);

    pub(crate) fn and(self, other: SendFlags, when: bool) -> SendFlags {
        if when { SendFlags(self.0 | other.0) } else { self }
    }

    pub(crate) fn has(self, other: SendFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Envelope {
    version: AtomicU64,
    /// The thread that has this number now; 0: none.
    name: AtomicU32,
    partner: AtomicU32,
    flags: AtomicU32,
    priority: AtomicU32,
    tag: AtomicU64,
    /// Memory that the thread grants: address, bytes, access.
    grant: [AtomicU64; 3],
    /// Notices of threads of other kernels, in two halves of 32 bits. Above each half is the id of
    /// the thread for which it is.
    notices: [AtomicU64; 2],
    words: [AtomicU64; N_WORDS],
}

impl Envelope {
    pub(crate) fn new() -> Envelope {
        let zero = |_| AtomicU64::new(0);
        Envelope {
            version: AtomicU64::new(0),
            name: AtomicU32::new(0),
            partner: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            tag: AtomicU64::new(0),
            grant: [(); 3].map(zero),
            notices: [(); 2].map(zero),
            words: [(); N_WORDS].map(zero),
        }
    }

    /// The current stage and number. The caller sees everything that was written before it was set.
    pub(crate) fn version(&self) -> StageVersion {
        // Pairs with every store and exchange of the version.
        StageVersion(self.version.load(Ordering::Acquire))
    }

    /// The thread that has this number now.
    pub(crate) fn name(&self) -> Option<ThreadId> {
        // Pairs with `set_name`.
        ThreadId::from_raw(self.name.load(Ordering::Acquire))
    }

    pub(crate) fn set_name(&self, name: Option<ThreadId>) {
        self.name.store(name.map_or(0, ThreadId::raw), Ordering::Release);
    }

    pub(crate) fn priority(&self) -> u8 {
        self.priority.load(Ordering::Relaxed) as u8
    }

    /// Sets the thread's priority. The receiver of the change that follows reads it.
    pub(crate) fn set_priority(&self, priority: u8) {
        self.priority.store(priority.into(), Ordering::Relaxed);
    }

    pub(crate) fn partner(&self) -> u32 {
        self.partner.load(Ordering::Relaxed)
    }

    pub(crate) fn flags(&self) -> SendFlags {
        SendFlags(self.flags.load(Ordering::Relaxed))
    }

    /// Sets the memory that the partner may use once it has the message. Called before the wait
    /// begins.
    pub(crate) fn set_grant(&self, grant: RawGrant) {
        for (place, word) in self.grant.iter().zip([grant.address, grant.bytes, grant.access]) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// The memory that the partner may use while the stage is `Copying`.
    pub(crate) fn grant(&self) -> RawGrant {
        let [address, bytes, access] =
            [0, 1, 2].map(|index: usize| self.grant[index].load(Ordering::Relaxed));
        RawGrant { address, bytes, access }
    }

    /// Ends a copy of the partner. `false`: the wait was ended meanwhile, and the caller has to
    /// tell the thread's kernel.
    pub(crate) fn end_copy(&self) -> bool {
        let copying = StageVersion(self.version.load(Ordering::Relaxed));
        let goes_on = copying.stage() == Stage::Copying && self.exchange(copying, Stage::Waiting);
        if !goes_on {
            // No other party makes a step from `Revoking`. Release: the copy precedes everything
            // that the owner does next.
            self.version.store(copying.with(Stage::Revoked).0, Ordering::Release);
        }
        goes_on
    }

    /// Offers a message to the partner.
    pub(crate) fn offer(&self, partner: u32, flags: SendFlags, tag: Tag, words: &[u64]) {
        self.flags.store(flags.0, Ordering::Relaxed);
        self.partner.store(partner, Ordering::Relaxed);
        self.write(tag, words);
        self.leave_idle(Stage::Offered);
    }

    /// Begins to wait for a message of the partner, which may be the answer to a delivered message.
    pub(crate) fn wait(&self, partner: u32, flags: SendFlags) {
        self.flags.store(flags.0, Ordering::Relaxed);
        self.partner.store(partner, Ordering::Relaxed);
        self.leave_idle(Stage::Waiting);
    }

    fn leave_idle(&self, stage: Stage) {
        let version = StageVersion(self.version.load(Ordering::Relaxed));
        debug_assert_eq!(version.stage(), Stage::Idle);
        self.version.store(version.next(stage).0, Ordering::Release);
    }

    /// Makes the envelope `Idle` after the end of a wait. No other party makes a step from these
    /// stages.
    pub(crate) fn reset(&self) {
        let version = StageVersion(self.version.load(Ordering::Relaxed));
        debug_assert!(matches!(
            version.stage(),
            Stage::Answered | Stage::Taken | Stage::Refused | Stage::Revoked
        ));
        self.version.store(version.with(Stage::Idle).0, Ordering::Relaxed);
    }

    /// Goes from `from` to the stage `to`, unless the envelope has changed. Says whether it has
    /// gone.
    pub(crate) fn exchange(&self, from: StageVersion, to: Stage) -> bool {
        let to = from.with(to).0;
        // Acquire: the other kernel's copy of the words ends before this kernel writes them again.
        // Release: the words that this kernel has copied were valid until now.
        self.version.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Delivers a message of the thread `from`, if the envelope's thread waits for that one.
    pub(crate) fn answer(&self, from: u32, tag: Tag, words: &[u64]) -> bool {
        let version = self.version();
        let waits = version.stage() == Stage::Waiting && self.partner() == from;
        if !waits || !self.exchange(version, Stage::Answering) {
            return false;
        }
        self.write(tag, words);
        self.version.store(version.with(Stage::Answered).0, Ordering::Release);
        true
    }

    fn write(&self, tag: Tag, words: &[u64]) {
        self.tag.store(tag.raw(), Ordering::Relaxed);
        for (to, from) in self.words.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Copies the message. The copy is valid only if a later `exchange` from the version before
    /// succeeds.
    pub(crate) fn read(&self, words: &mut [u64; N_WORDS]) -> u64 {
        let tag = self.tag.load(Ordering::Relaxed);
        let length = usize::from(Tag::from_raw(tag).length());
        for (to, from) in words.iter_mut().zip(&self.words).take(length) {
            *to = from.load(Ordering::Relaxed);
        }
        tag
    }

    /// Leaves notices for a thread. `false`: the number belongs to no thread or another one by now.
    pub(crate) fn leave_notices(&self, to: ThreadId, bits: u64) -> bool {
        let halves = [bits as u32, (bits >> 32) as u32];
        let mut halves = halves.into_iter().zip(&self.notices);
        self.name() == Some(to)
            && halves.all(|(bits, place)| bits == 0 || self.leave_half(place, to, bits))
    }

    fn leave_half(&self, place: &AtomicU64, to: ThreadId, bits: u32) -> bool {
        let owner = u64::from(to.raw()) << 32;
        let mut old = place.load(Ordering::Acquire);
        loop {
            // Read after `old`: if a notifier of a later thread has written `old`, this sees the
            // later thread's id, and does not overwrite its notices.
            if self.name() != Some(to) {
                return false;
            }
            let kept = if old >> 32 == owner >> 32 { old } else { owner };
            let new = kept | u64::from(bits);
            match place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Takes the notices that were left for this thread. Those for earlier threads are dropped.
    pub(crate) fn take_notices(&self, to: ThreadId) -> u64 {
        let take = |place: &AtomicU64| match place.swap(0, Ordering::AcqRel) {
            half if half >> 32 == u64::from(to.raw()) => u64::from(half as u32),
            _ => 0,
        };
        take(&self.notices[0]) | take(&self.notices[1]) << 32
    }
}
