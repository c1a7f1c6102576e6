//! What a thread and the kernels of its partners share: its message to one of them, or theirs to
//! it.
//!
//! ```text
//!             offer                          taken, and nothing more is wanted
//!   Idle ----------------> Offered ----------------------------------------> Taken
//!    | ^ \                  |  |  \ not there in no time                       |
//!    | |  \ wait            |  |   +------------------------> Refused          |
//!    | |   \        taken,  |  |                                 |             |
//!    | |    v   it is a call|  | withdraw                        |   settle    |
//!    | |   Waiting <--------+  |                                 |             |
//!    | |    |  |               |                                 |             |
//!    | +----|--+---------------+---------------------------------+-------------+
//!    |      | answer                                                           ^
//!    |      v                                                                  |
//!    |   Answering -----> Answered --------------------------------------------+
//! ```
//!
//! And from `Waiting` to `Copying` and back, while the partner reaches memory that was granted; if
//! the wait is to end meanwhile, to `Revoking`, and to `Revoked` when the partner is done.
//!
//! The thread's own kernel goes from `Idle` and to it; its partner's does the rest. Where both may
//! go on from, they compare and exchange: a wait ends in one way. A message is copied before it is
//! taken: if the exchange succeeds, nobody has touched the words since they were offered, since
//! every offer has a number of its own.
//!
//! `Answering` and `Copying` are the states in which the thread's own kernel must wait for
//! another's: it copies at most 64 words, or 4 KiB.
//!
//! **Invariant**: words, tag and partner are written by who may: the thread's own kernel while it
//! is
//! `Idle`, and the partner's while it is `Answering`.

use crate::grant::RawGrant;
use crate::message::{N_WORDS, Tag};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::thread_id::ThreadId;

/// What a thread waits for beyond its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stage {
    /// Nothing.
    Idle,
    /// That its message is taken.
    Offered,
    /// For a message from its partner.
    Waiting,
    /// That message is being written.
    Answering,
    /// It has come.
    Answered,
    /// Nothing: its message was taken.
    Taken,
    /// Nothing: its partner was not there.
    Refused,
    /// For its partner, which reaches memory that the thread has granted.
    Copying,
    /// The same, and the wait is over then.
    Revoking,
    /// Nothing: its wait was ended while its partner copied.
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

/// A stage, and of which offer or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageVersion(u64);

impl StageVersion {
    pub(crate) fn stage(self) -> Stage {
        STAGES[(self.0 & 15) as usize % STAGES.len()]
    }

    /// Whether this is the same offer, or the wait that it has become.
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

/// What a sender wants: that its message is taken, and perhaps more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendFlags(u32);

impl SendFlags {
    pub(crate) const SEND: SendFlags = SendFlags(0);
    /// And then an answer by the same thread.
    pub(crate) const CALL: SendFlags = SendFlags(1);
    /// Or only what is there when its message is taken: until then it lends its priority all the
    /// same.
    pub(crate) const POLL: SendFlags = SendFlags(1 << 3);
    /// Only if its partner waits for it.
    pub(crate) const AT_ONCE: SendFlags = SendFlags(1 << 1);
    /// Its kernel is told when a call was taken, since a deadline begins then.
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
    /// Notices from other kernels, by halves: for whom, and above that which.
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

    /// How it stands. What belongs to that is seen from here on.
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

    /// Read again by whoever gets the change that follows.
    pub(crate) fn set_priority(&self, priority: u8) {
        self.priority.store(priority.into(), Ordering::Relaxed);
    }

    pub(crate) fn partner(&self) -> u32 {
        self.partner.load(Ordering::Relaxed)
    }

    pub(crate) fn flags(&self) -> SendFlags {
        SendFlags(self.flags.load(Ordering::Relaxed))
    }

    /// What the partner may reach from when it has the message. Set before the wait for its answer.
    pub(crate) fn set_grant(&self, grant: RawGrant) {
        for (place, word) in self.grant.iter().zip([grant.address, grant.bytes, grant.access]) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// What the partner may reach while it has this at `Copying`.
    pub(crate) fn grant(&self) -> RawGrant {
        let [address, bytes, access] =
            [0, 1, 2].map(|index: usize| self.grant[index].load(Ordering::Relaxed));
        RawGrant { address, bytes, access }
    }

    /// The partner has copied, and the thread waits on. `false`: its wait has been ended meanwhile,
    /// and its kernel is to be told.
    pub(crate) fn end_copy(&self) -> bool {
        let copying = StageVersion(self.version.load(Ordering::Relaxed));
        let goes_on = copying.stage() == Stage::Copying && self.exchange(copying, Stage::Waiting);
        if !goes_on {
            // Nobody else goes on from `Revoking`. Release: the copy is made before its owner goes
            // on.
            self.version.store(copying.with(Stage::Revoked).0, Ordering::Release);
        }
        goes_on
    }

    /// A message for the partner.
    pub(crate) fn offer(&self, partner: u32, flags: SendFlags, tag: Tag, words: &[u64]) {
        self.flags.store(flags.0, Ordering::Relaxed);
        self.partner.store(partner, Ordering::Relaxed);
        self.write(tag, words);
        self.leave_idle(Stage::Offered);
    }

    /// A wait for the partner's message, which may be the answer to one that it was handed.
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

    /// Nobody else goes on from the stages that the owner settles.
    pub(crate) fn settle(&self) {
        let version = StageVersion(self.version.load(Ordering::Relaxed));
        debug_assert!(matches!(
            version.stage(),
            Stage::Answered | Stage::Taken | Stage::Refused | Stage::Revoked
        ));
        self.version.store(version.with(Stage::Idle).0, Ordering::Relaxed);
    }

    /// Goes from one stage to another, unless it has changed.
    pub(crate) fn exchange(&self, from: StageVersion, to: Stage) -> bool {
        let to = from.with(to).0;
        // Acquire: the other host_state's copy of the words ends before they are written again.
        // Release: what this host_state has copied was there until now.
        self.version.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The partner's message, if the thread waits for it. `from`: who that is.
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

    /// Copies the message, which is one only if the version has not changed after that.
    pub(crate) fn read(&self, words: &mut [u64; N_WORDS]) -> u64 {
        let tag = self.tag.load(Ordering::Relaxed);
        let length = usize::from(Tag::from_raw(tag).length());
        for (to, from) in words.iter_mut().zip(&self.words).take(length) {
            *to = from.load(Ordering::Relaxed);
        }
        tag
    }

    /// Notices for the thread of this name. Says whether it is there.
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
            // Looked at after what is there was read: who has put a later thread's notices there
            // has seen its name, and they are not overwritten.
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

    /// The notices that were left for the thread of this name. Those for others are dropped.
    pub(crate) fn take_notices(&self, to: ThreadId) -> u64 {
        let take = |place: &AtomicU64| match place.swap(0, Ordering::AcqRel) {
            half if half >> 32 == u64::from(to.raw()) => u64::from(half as u32),
            _ => 0,
        };
        take(&self.notices[0]) | take(&self.notices[1]) << 32
    }
}
