//! Memory that real-time calls touch stays in memory: a page that has to be fetched is a wait for a
//! disk, and one that is touched for the first time is a wait for a lock of the kernel's.
//!
//! Of a lane that is as much as plain calls need. What a call carries past that is taken as it
//! comes.

use crate::channel::{Channel, INLINE_BYTES};
use crate::engine::Engine;
use baton_abi::lane::{AREA_BYTES, RING_AT};
use baton_shm::sync::Ordering;
use rustix::io::Errno;

/// Bytes of either area of a lane that are locked: header, chain and payload of a plain call.
const LANE_BYTES: usize = INLINE_BYTES + PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// Most bytes of a receive buffer that are locked.
const BUFFER_BYTES: usize = 1 << 20;

impl Channel {
    /// A lane's pages, and those that all lanes share, stay in memory.
    fn mlock_lane(&self, lane: usize) -> Result<(), Errno> {
        let areas = self.lane(lane)?;
        areas.incoming().lock_in_memory(0, LANE_BYTES)?;
        areas.outgoing().lock_in_memory(0, LANE_BYTES)?;
        self.mlock_words()
    }

    /// A lane's pages may go.
    pub(crate) fn munlock_lane(&self, lane: u32) {
        if let Ok(areas) = self.lane(lane as usize) {
            areas.incoming().release(0, LANE_BYTES);
            areas.outgoing().release(0, LANE_BYTES);
        }
    }
}

impl Engine {
    /// A lane is a real-time caller's, at either end.
    pub(crate) fn mlock_lane(&self, channel: &Channel, lane: u32) {
        let kept = channel.mlock_lane(lane as usize).and_then(|()| self.mlock_own_pages());
        if let Err(errno) = kept
            && !self.real_time.has_warned_of_paging.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(target: "binder", "{}: memory of real-time callers' lanes may be paged \
                out ({errno}): \
                RLIMIT_MEMLOCK is too low", self.identity.pid);
        }
    }

    /// The engine's own pages, at the first such lane.
    fn mlock_own_pages(&self) -> Result<(), Errno> {
        let bytes = self.lock().buffers.bytes().min(BUFFER_BYTES);
        if bytes == 0 || self.real_time.pages_are_locked.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.page.lock_in_memory()?;
        self.broker.mlock_tally()?;
        self.buffer.lock_in_memory(bytes)?;
        Ok(())
    }
}

const _: () = assert!(LANE_BYTES <= AREA_BYTES && RING_AT == PAGE_BYTES);
