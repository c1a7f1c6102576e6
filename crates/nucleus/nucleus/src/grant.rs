//! Memory that a caller grants to its server during a call, for data that does not fit into a
//! message.
//!
//! ```text
//!  caller   call ---------------------------- blocked ---------------> goes on
//!  server          receive   copy   copy ...   reply
//!                            \__ while the caller waits for this thread and nobody else __/
//! ```
//!
//! **Invariant**: only `copy_nonoverlapping` in kernel code uses the memory, while the owner cannot
//! go on. Within one kernel that is so because the kernel itself copies; between kernels, because
//! the envelope is `Copying` (`cluster::envelope`).

use std::marker::PhantomData;

/// The direction in which the partner may copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The partner may copy from the memory.
    Read,
    /// The partner may copy to the memory.
    Write,
}

/// Memory of a caller for the duration of a call.
#[derive(Debug)]
pub struct Grant<'a> {
    raw: RawGrant,
    memory: PhantomData<&'a mut [u8]>,
}

/// Why a copy has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum GrantError {
    /// The owner does not wait for this thread, or has granted no memory for this direction. Parts
    /// that were copied before stay copied.
    #[error("that thread grants no such memory")]
    NotGranted,
    /// The copying thread's mistake: the granted memory is shorter. Nothing was copied.
    #[error("the grant is shorter")]
    OutOfBounds,
}

/// A grant as a UTCB and an envelope hold it. The default grants nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawGrant {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// 0: none, 1: read, 2: write.
    pub(crate) access: u64,
}

impl<'a> Grant<'a> {
    /// Lets the partner copy from this memory.
    pub fn read(memory: &'a [u8]) -> Grant<'a> {
        Grant::new(memory.as_ptr() as u64, memory.len(), Access::Read)
    }

    /// Lets the partner copy to this memory.
    pub fn write(memory: &'a mut [u8]) -> Grant<'a> {
        Grant::new(memory.as_mut_ptr() as u64, memory.len(), Access::Write)
    }

    fn new(address: u64, bytes: usize, access: Access) -> Grant<'a> {
        let raw = RawGrant { address, bytes: bytes as u64, access: 1 + access as u64 };
        Grant { raw, memory: PhantomData }
    }

    pub(crate) fn raw(&self) -> RawGrant {
        self.raw
    }
}

impl RawGrant {
    /// The address of a part, if the grant allows for its access.
    pub(crate) fn place(self, part: Part) -> Result<u64, GrantError> {
        if self.access != 1 + part.access as u64 {
            return Err(GrantError::NotGranted);
        }
        let end = part.offset.checked_add(part.left_bytes);
        let is_within = end.is_some_and(|end| end <= self.bytes);
        if is_within { Ok(self.address + part.offset) } else { Err(GrantError::OutOfBounds) }
    }
}

/// A range of granted memory to copy from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) access: Access,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Bytes from `offset` on that this part and the following ones copy.
    pub(crate) left_bytes: u64,
}

/// The most bytes that are copied at once. The kernel takes no interrupt meanwhile.
pub(crate) const CHUNK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_within_its_grant() {
        let grant = RawGrant { address: 1000, bytes: 10, access: 2 };
        let part = |access, offset, bytes| Part { access, offset, bytes, left_bytes: bytes };
        let place = |access, offset, bytes| grant.place(part(access, offset, bytes));
        for (offset, bytes, expected) in [
            (0, 10, Ok(1000)),
            (10, 0, Ok(1010)),
            (9, 1, Ok(1009)),
            (0, 11, Err(GrantError::OutOfBounds)),
            (11, 0, Err(GrantError::OutOfBounds)),
            (u64::MAX, 2, Err(GrantError::OutOfBounds)),
        ] {
            assert_eq!(place(Access::Write, offset, bytes), expected);
            assert_eq!(place(Access::Read, offset, bytes), Err(GrantError::NotGranted));
        }
        let none = RawGrant::default();
        for access in [Access::Read, Access::Write] {
            assert_eq!(none.place(part(access, 0, 0)), Err(GrantError::NotGranted));
        }
    }
}
