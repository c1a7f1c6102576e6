//! Memory that a caller lends to whom it calls, for what does not fit into a message.
//!
//! ```text
//!  caller   call ---------------------------- blocked ---------------> goes on
//!  server          receive   copy   copy ...   reply
//!                            \__ while the caller waits for this thread and nobody else __/
//! ```
//!
//! **Invariant**: the memory is reached only by `copy_nonoverlapping` in kernel code, in the time
//! in which its owner's kernel cannot let the owner go on: within one kernel because it is that
//! kernel's own code, between kernels because the envelope says `Copying` (`cluster::envelope`).

use std::marker::PhantomData;

/// What may be done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It may be copied from.
    Read,
    /// It may be copied to.
    Write,
}

/// Memory of a caller's, for the time of a call.
#[derive(Debug)]
pub struct Grant<'a> {
    raw: RawGrant,
    memory: PhantomData<&'a mut [u8]>,
}

/// Why a copy has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum GrantError {
    /// That thread does not wait for this one, or not any more, or has not granted this. What was
    /// copied before has been copied.
    #[error("that thread grants no such memory")]
    NotGranted,
    /// The mistake of who copies: there is less memory. Nothing was copied.
    #[error("the grant is shorter")]
    OutOfBounds,
}

/// The same, as a UTCB and an envelope hold it. None: it has no access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawGrant {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// 0 none, 1 read, 2 write.
    pub(crate) access: u64,
}

impl<'a> Grant<'a> {
    /// The partner may copy from it.
    pub fn read(memory: &'a [u8]) -> Grant<'a> {
        Grant::new(memory.as_ptr() as u64, memory.len(), Access::Read)
    }

    /// The partner may copy to it.
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
    /// The address at which this may be done.
    pub(crate) fn place(self, part: Part) -> Result<u64, GrantError> {
        if self.access != 1 + part.access as u64 {
            return Err(GrantError::NotGranted);
        }
        let end = part.offset.checked_add(part.left_bytes);
        let is_within = end.is_some_and(|end| end <= self.bytes);
        if is_within { Ok(self.address + part.offset) } else { Err(GrantError::OutOfBounds) }
    }
}

/// Bytes of a grant that somebody wants to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) access: Access,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// What is wanted of it from there, in this part and those that follow.
    pub(crate) left_bytes: u64,
}

/// As many bytes are copied in one go: the kernel takes no interrupt before it has done so.
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
