//! Loans: the bytes of a call, written straight into the memory that its target reads them from.
//!
//! ```text
//!   Parcel:  program's memory -> parcel -> lane -> receive buffer
//!   Loan:    program's memory           -> lane -> receive buffer
//! ```
//!
//! The target can write that memory at any instant, too. So there is no slice of it to be had:
//! bytes go in by copies, word by word, or through a raw pointer.

use crate::{CallError, Handle, Received};
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::TF_ACCEPT_FDS;
use baton_driver::typed::{LoanedLane, Nothing, Outgoing, Payload, tid};
use baton_state::parcel::Sent;
use baton_state::transaction::Target;
use std::time::{Duration, Instant};

/// The bytes of a call that has not been made yet. Dropped, it is not made.
///
/// A loan takes one of the 64 lanes between the two processes; calls that are made meanwhile take
/// others. What has not been written is whatever an earlier call to that process had there.
pub struct Loan<'a> {
    handle: &'a Handle,
    lane: LoanedLane,
}

impl Handle {
    /// Takes memory for `bytes` of data of a call by this handle.
    ///
    /// Errors are those of [`Handle::call`]: [`CallError::DeadObject`] if the object's process is
    /// gone, [`CallError::TooLarge`] if a transaction never has so many bytes. Whether the process
    /// has room for them the call tells.
    pub fn loan(&self, bytes: usize) -> Result<Loan<'_>, CallError> {
        self.check_open()?;
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(CallError::TooLarge);
        }
        let lane = self.driver.engine.loan_lane(tid(), self.number, bytes);
        let lane = lane.map_err(|refusal| {
            CallError::of_reply(refusal.command, refusal.errno.raw_os_error())
        })?;
        Ok(Loan { handle: self, lane })
    }
}

impl<'a> Loan<'a> {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.lane.bytes()
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// Past the end: the caller's bug.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let room = self.bytes().checked_sub(offset);
        assert!(room.is_some_and(|room| bytes.len() <= room), "past the end of a loan");
        if self.is_mapped() {
            let (map, at) = self.lane.place();
            map.write(at + offset, bytes);
        }
    }

    /// Writes all of it: the word with each index, the last one as far as there is room for it.
    pub fn fill(&mut self, word: impl FnMut(usize) -> u64) {
        if self.is_mapped() {
            let (map, at) = self.lane.place();
            map.fill(at, self.bytes(), word);
        }
    }

    /// Where the first byte lies, on an address that is a multiple of 16. Writing there is as sound
    /// as writing to [`Loan::bytes`] bytes of memory shared with another process: by raw writes of
    /// this process's, until the loan is called or dropped, never by a reference, and not in a
    /// child of fork, which does not have the memory.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        let (map, at) = self.lane.place();
        map.at(at, self.bytes())
    }

    /// Makes the call, as [`Handle::call`] does with a parcel of these bytes.
    ///
    /// Its bytes are copied once, by the receiver. They are copied once more if the loan was made
    /// by another thread, or while this one served something else, or if it calls back into the
    /// process that it serves.
    ///
    /// [`CallError::DeadObject`] also if the object's process has gone since,
    /// [`CallError::NoRoom`] if it has no room.
    pub fn call(self, code: u32) -> Result<Received<'a>, CallError> {
        self.make(code, None)
    }

    /// Like [`Loan::call`], for at most this long, as [`Handle::call_within`] does.
    pub fn call_within(self, code: u32, longest: Duration) -> Result<Received<'a>, CallError> {
        self.make(code, Instant::now().checked_add(longest))
    }

    fn make(self, code: u32, deadline: Option<Instant>) -> Result<Received<'a>, CallError> {
        let Loan { handle: Handle { driver, number }, lane } = self;
        driver.check_open()?;
        let mut answer = Ok(Received::awaited(driver));
        let payload = Payload::Loan(&lane);
        if driver.call_fast(*number, code, payload, Nothing, deadline, &mut answer) {
            return answer;
        }
        let (tid, flags) = (tid(), TF_ACCEPT_FDS);
        let sizes = (lane.bytes() as u64, 0);
        let (data, sent) = (Payload::Loan(&lane), Sent::default());
        let outgoing = Outgoing { code, flags, data, offsets: &[], sent };
        driver.engine.send(tid, Target::Handle(*number), flags, sizes, Ok(outgoing));
        // Where the call has gone another way, it is free for those that the call causes.
        drop(lane);
        driver.await_reply(tid, *number, deadline)
    }

    /// False in a child of fork.
    fn is_mapped(&self) -> bool {
        !self.handle.driver.engine.is_closed()
    }
}

impl std::fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loan").field("handle", self.handle).field("bytes", &self.bytes()).finish()
    }
}
