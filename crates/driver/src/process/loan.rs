//! Loans: the bytes of a call, written straight into the memory that its target reads them from.
//!
//! ```text
//!   Parcel:  program's memory -> parcel -> lane -> receive buffer
//!   Loan:    program's memory           -> lane -> receive buffer
//! ```
//!
//! The target can write that memory at any instant, too. So there is no slice of it to be had:
//! bytes go in by copies, word by word, or through a raw pointer.

use super::{CallError, Handle, Process, Received, failure};
use crate::engine::loan::LoanedLane;
use crate::engine::tid;
use crate::payload::Payload;
use crate::send::Outgoing;
use baton_abi::uapi::TF_ACCEPT_FDS;
use baton_state::parcel::Sent;
use baton_state::transaction::Target;

/// The bytes of a call that has not been made yet. Dropped, it is not made.
///
/// A loan takes one of the 64 lanes between the two processes; calls that are made meanwhile take
/// others. What has not been written is whatever an earlier call to that process had there.
pub struct Loan<'a> {
    process: &'a Process,
    handle: &'a Handle,
    lane: LoanedLane,
}

impl Process {
    /// Takes memory for `bytes` of data of a call by this handle.
    ///
    /// Errors are those of [`Process::call`]: `Dead` if the target's process is gone, `ENOSPC` if a
    /// transaction never has so many bytes. Whether the target has room for them the call tells.
    pub fn loan<'a>(&'a self, handle: &'a Handle, bytes: usize) -> Result<Loan<'a>, CallError> {
        self.check_handle(handle)?;
        let engine = &self.inner.engine;
        if handle.number == 0 {
            self.find_manager()?;
        }
        let lane = engine.loan_lane(tid(), handle.number, bytes);
        let lane =
            lane.map_err(|refusal| failure(refusal.command, refusal.errno.raw_os_error()))?;
        Ok(Loan { process: self, handle, lane })
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

    /// Makes the call, as [`Process::call`] does with a parcel of these bytes.
    ///
    /// Its bytes are copied once, by the receiver. They are copied once more if the loan was made
    /// by another thread, or while this one served something else, or if it calls back into the
    /// process that it serves.
    ///
    /// `Dead` also if the target's process has gone since, `EBADF` if this one has been closed;
    /// `ENOSPC` if the target has no room.
    pub fn call(self, code: u32) -> Result<Received<'a>, CallError> {
        let Loan { process, handle, lane } = self;
        process.check_handle(handle)?;
        let mut answer = Ok(Received::awaited(&process.inner));
        if process.call_fast(handle.number, code, Payload::Loan(&lane), &mut answer) {
            return answer;
        }
        let (tid, flags) = (tid(), TF_ACCEPT_FDS);
        let sizes = (lane.bytes() as u64, 0);
        let (data, sent) = (Payload::Loan(&lane), Sent::default());
        let outgoing = Outgoing { code, flags, data, offsets: &[], sent };
        process.inner.engine.send(tid, Target::Handle(handle.number), flags, sizes, Ok(outgoing));
        // Where the call has gone another way, it is free for those that the call causes.
        drop(lane);
        process.await_reply(tid, handle.number)
    }

    /// False in a child of fork.
    fn is_mapped(&self) -> bool {
        !self.process.inner.engine.is_closed()
    }
}

impl std::fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loan").field("handle", self.handle).field("bytes", &self.bytes()).finish()
    }
}
