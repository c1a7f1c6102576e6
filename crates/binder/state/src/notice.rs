//! Notices: a handle's listeners for the death and for the freezing of the node's owner.
//!
//! A notice has a number of its own: the handle may be dropped, and named anew, while the notice
//! is still being told.

/// A listener for the death of a handle's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeathNotice {
    /// The notice's number.
    pub id: u64,
    /// The program's word.
    pub cookie: u64,
    /// The death has been queued.
    pub was_queued: bool,
}

/// A queued death notice, until the program has acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfinishedDeath {
    /// The notice's number.
    pub id: u64,
    /// The cookie of the notice.
    pub cookie: u64,
    /// The program has read it.
    pub delivered: bool,
    /// The program has cleared the notice meanwhile: the answer to that follows the
    /// acknowledgement.
    pub cleared: bool,
}

/// A listener for the freezing of a handle's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeNotice {
    /// The notice's number.
    pub id: u64,
    /// The program's word.
    pub cookie: u64,
    /// The state that the program reads at the next delivery; unknown until the broker has
    /// answered.
    pub frozen: Option<bool>,
    /// How far the notice is on its way.
    pub stage: FreezeStage,
}

/// How far a freeze notice is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeStage {
    /// Nothing to tell.
    Idle,
    /// Queued.
    Queued,
    /// Read, not acknowledged; changed again meanwhile or not.
    Delivered {
        /// Tell the new state after BC_FREEZE_NOTIFICATION_DONE.
        again: bool,
    },
}
