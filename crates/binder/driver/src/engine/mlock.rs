//! Memory that real-time calls touch stays in memory: a page that has to be fetched is a wait for a
//! disk, and one that is touched for the first time is a wait for a lock of the kernel's.
//!
//! Of a lane that is as much as plain calls need. What a call carries past that is taken as it
//! comes.

use super::Engine;
use super::fast::INLINE_BYTES;
use crate::channel::Channel;
use baton_abi::lane::{AREA_BYTES, RING_AT, STATUS_BYTES, TALLY_BYTES};
use baton_shm::mapping;
use baton_shm::sync::Ordering;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

/// Of either area of a lane: header, chain and payload of a plain call.
const LANE_BYTES: usize = INLINE_BYTES + PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// Of a receive buffer: the largest that has its pages kept.
const BUFFER_BYTES: usize = 1 << 20;

/// What an engine has said and done about it.
#[derive(Debug, Default)]
pub(super) struct Mlock {
    is_settled: AtomicBool,
    has_warned: AtomicBool,
}

impl Channel {
    /// A lane's pages, and those that all lanes share, stay in memory.
    fn keep_lane(&self, lane: usize) -> Result<(), Errno> {
        let areas = self.lane(lane)?;
        areas.incoming().lock_in_memory(0, LANE_BYTES)?;
        areas.outgoing().lock_in_memory(0, LANE_BYTES)?;
        self.keep_words()
    }

    /// A lane's pages may go.
    pub(super) fn release_lane(&self, lane: u32) {
        if let Ok(areas) = self.lane(lane as usize) {
            areas.incoming().release(0, LANE_BYTES);
            areas.outgoing().release(0, LANE_BYTES);
        }
    }
}

impl Engine {
    /// A lane is a real-time caller's, at either end.
    pub(super) fn keep_lane(&self, channel: &Channel, lane: u32) {
        let kept = channel.keep_lane(lane as usize).and_then(|()| self.settle_pages());
        if let Err(errno) = kept
            && !self.mlock.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(target: "binder", "{}: memory of real-time callers' lanes may be paged \
                out ({errno}): \
                RLIMIT_MEMLOCK is too low", self.identity.pid);
        }
    }

    /// The engine's own pages, at the first such lane.
    fn settle_pages(&self) -> Result<(), Errno> {
        let bytes = self.lock().buffers.bytes().min(BUFFER_BYTES);
        if bytes == 0 || self.mlock.is_settled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.front.view().lock_in_memory(0, STATUS_BYTES)?;
        self.tally.view().lock_in_memory(0, TALLY_BYTES)?;
        self.memory.view().lock_in_memory(0, bytes.next_multiple_of(PAGE_BYTES))?;
        let program_map = self.program_map.load(Ordering::Acquire);
        if program_map != 0 {
            // It is the program's to say where that is.
            let _ = mapping::lock_in_memory_at(program_map, bytes);
        }
        Ok(())
    }
}

const _: () = assert!(LANE_BYTES <= AREA_BYTES && RING_AT == PAGE_BYTES);
