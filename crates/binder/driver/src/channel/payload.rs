//! The bytes that a transaction carries, wherever they lie.

use super::loan::LoanedLane;
use crate::sys::user::Source;
use baton_shm::mapping::View;

/// The data of a transaction that is to be sent.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// In memory of this process that only the driver writes.
    Bytes(&'a [u8]),
    /// In the program's memory, which the program may change or unmap.
    Program(Source),
    /// In a lane to the target, written in place.
    Loan(&'a LoanedLane),
}

impl Payload<'_> {
    /// The number of bytes.
    pub fn bytes(self) -> usize {
        match self {
            Payload::Bytes(data) => data.len(),
            Payload::Program(source) => source.bytes(),
            Payload::Loan(loan) => loan.bytes(),
        }
    }

    /// Copies the bytes into a lane.
    #[inline(always)]
    pub fn copy_to(self, map: View<'_>, at: usize) {
        match self {
            Payload::Bytes(data) => map.write(at, data),
            Payload::Program(source) => source.copy_to(map, at),
            Payload::Loan(loan) => loan.copy_to(map, at),
        }
    }
}
