//! The two positions of a ring.

/// Where the oldest record of a ring begins, and where its newest one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub tail: u64,
    pub head: u64,
}
