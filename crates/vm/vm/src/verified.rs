//! What the verification of a class leaves to the time when its code runs.

use rustc_hash::FxHashMap;

/// A check that an instruction makes each time before it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deferred {
    /// The class may not name what the instruction names, or that is missing: it throws.
    Access,
    /// This register has to be null: the class of its value or of the variable, which has this
    /// descriptor, could not be found.
    Null(u16, &'static str),
}

/// The checks of each method that needs some, by its index in the dex file; each with the unit of
/// its instruction.
#[derive(Debug, Default)]
pub struct Verified {
    pub(crate) checks: FxHashMap<u32, Box<[(u32, Deferred)]>>,
}
