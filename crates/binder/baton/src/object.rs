//! Objects that this process serves.

/// An object of this process that can be sent and called. Only its own process knows it: in a
/// parcel of another one it is an object that nobody serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub(crate) ptr: u64,
    /// 0 of an object that lives as long as its process.
    pub(crate) cookie: u64,
    /// `FLAT_BINDER_FLAG_*`.
    pub(crate) flags: u32,
}
