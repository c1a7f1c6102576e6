//! Locks the pages that real-time calls touch: to fetch a page is a wait for a disk, and to touch
//! one for the first time is a wait for a lock of the kernel's.
//!
//! A lane is locked as far as plain calls use it. A larger payload may cause page faults.

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
    /// Locks a lane's pages, and the pages that all lanes share.
    fn mlock_lane(&self, lane: usize) -> Result<(), Errno> {
        let areas = self.lane(lane)?;
        areas.incoming().lock_in_memory(0, LANE_BYTES)?;
        areas.outgoing().lock_in_memory(0, LANE_BYTES)?;
        self.mlock_words()
    }

    /// Unlocks a lane's pages.
    pub(crate) fn munlock_lane(&self, lane: u32) {
        if let Ok(areas) = self.lane(lane as usize) {
            areas.incoming().release(0, LANE_BYTES);
            areas.outgoing().release(0, LANE_BYTES);
        }
        self.munlock_lane_ring(lane as usize);
    }
}

impl Engine {
    /// Locks the pages of a real-time caller's lane, at either end. The log warns once if that
    /// fails.
    pub(crate) fn mlock_lane(&self, channel: &Channel, lane: u32) {
        let kept = channel.mlock_lane(lane as usize).and_then(|()| self.mlock_own_pages());
        self.warn_of_paging(kept);
    }

    /// Locks the pages of a lane's ring, at either end, as [`Engine::mlock_lane`] does.
    pub(crate) fn mlock_lane_ring(&self, channel: &Channel, lane: usize) {
        self.warn_of_paging(channel.mlock_lane_ring(lane));
    }

    fn warn_of_paging(&self, kept: Result<(), Errno>) {
        if let Err(errno) = kept
            && !self.real_time.has_warned_of_paging.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(target: "binder", "{}: memory of real-time callers' lanes may be paged \
                out ({errno}): \
                RLIMIT_MEMLOCK is too low", self.identity.pid);
        }
    }

    /// Locks the engine's own pages, once.
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
