//! The answer to a call that a service has made.

use baton::{Handle, Parcel, Received};
use rustix::fd::OwnedFd;

/// The answer to a call of a service.
pub struct Answer<'a>(pub(crate) Source<'a>);

/// Where the bytes of an answer are.
pub(crate) enum Source<'a> {
    Received(Received<'a>),
    Parcel(Parcel),
    Short { bytes: [u8; SHORT_BYTES], length: usize },
}

/// Bytes of an answer that travels in registers.
pub(crate) const SHORT_BYTES: usize = 56;

impl Answer<'_> {
    /// The bytes of the answer.
    pub fn data(&self) -> &[u8] {
        match &self.0 {
            Source::Received(received) => received.data(),
            Source::Parcel(parcel) => parcel.data(),
            Source::Short { bytes, length } => &bytes[..*length],
        }
    }

    /// A reference to the object with this index, from 0. It belongs to the process that received
    /// the object; for an answer of a hosted service that is the answering service's process.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        match &self.0 {
            Source::Received(received) => received.handle(index),
            Source::Parcel(parcel) => parcel.handle(index),
            Source::Short { .. } => None,
        }
    }

    /// A duplicate of the descriptor with this index, from 0.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        match &self.0 {
            Source::Received(received) => received.fd(index),
            Source::Parcel(parcel) => parcel.owned_fd(index),
            Source::Short { .. } => None,
        }
    }
}
