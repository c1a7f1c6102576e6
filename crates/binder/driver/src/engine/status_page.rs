//! The status page: the part of the engine that peers and the broker see.

use super::in_flight::Slot;
use super::open_error::OpenError;
use baton_abi::lane::{Attendance, STATUS_BYTES, status};
use baton_shm::mapping::{self, Mapping};
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use baton_state::State;
use baton_state::buffer::Use;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// The status page of one engine. The words that show the state are written under the state's lock.
#[derive(Debug)]
pub(crate) struct StatusPage {
    page: Arc<Mapping<STATUS_BYTES>>,
    /// The state's marks of change when it was shown last.
    shown: [AtomicU64; 2],
    /// The state's share of two counters, to which the fast path adds its own.
    outstanding: AtomicU32,
    received: AtomicU64,
    /// The word that says whether lane loopers come.
    lane_loopers: AtomicU32,
}

impl StatusPage {
    /// The page, and its file for the broker.
    pub fn new() -> Result<(StatusPage, OwnedFd), OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let (file, page) =
            mapping::create_mapped("baton-front").map_err(system("memfd_create, mmap"))?;
        let page = StatusPage {
            page: Arc::new(page),
            shown: Default::default(),
            outstanding: AtomicU32::new(0),
            received: AtomicU64::new(0),
            lane_loopers: AtomicU32::new(0),
        };
        Ok((page, file))
    }

    /// The page itself.
    pub fn mapping(&self) -> &Arc<Mapping<STATUS_BYTES>> {
        &self.page
    }

    /// Locks the page in memory.
    pub fn lock_in_memory(&self) -> Result<(), Errno> {
        self.page.view().lock_in_memory(0, STATUS_BYTES)
    }

    /// Shows the state, and whether threads poll.
    pub fn publish(&self, state: &State, is_polling: bool) {
        let threads = (state.threads.len() as u64) << 32 | (state.pool.n_present as u64) << 1;
        let shown = [state.buffers.changes(), threads | u64::from(is_polling)];
        // Relaxed: changed under the state's lock alone.
        let before = self.shown.each_ref().map(|shown| shown.load(Ordering::Relaxed));
        if before != shown {
            self.shown.iter().zip(shown).for_each(|(to, new)| to.store(new, Ordering::Relaxed));
            let has_loopers = state.pool.n_present > 0 && !is_polling;
            let attendance = if has_loopers { Attendance::Loopers } else { Attendance::Nobody };
            self.put_room(state);
            self.put(status::ATTENDANCE, attendance as usize);
            self.put(status::BUFFER_BYTES, state.buffers.bytes());
            self.put(status::ONE_WAY_FREE, state.buffers.free(Use::OneWay));
            self.put(status::REAL_TIME_FREE, state.buffers.free(Use::RealTimeOneWay));
            self.put(status::THREADS, state.threads.len());
            self.put(status::LOOPERS, state.pool.n_present);
        }
        self.publish_counts(state);
    }

    /// Shows the receive buffer's room, if that has changed.
    pub fn publish_room(&self, state: &State) {
        let changes = state.buffers.changes();
        // Relaxed: changed under the state's lock alone.
        if self.shown[0].load(Ordering::Relaxed) != changes {
            self.shown[0].store(changes, Ordering::Relaxed);
            self.put_room(state);
        }
    }

    fn put_room(&self, state: &State) {
        let (used, buffers, largest) = state.room();
        self.put(status::LARGEST_FREE, largest);
        self.put(status::BUFFER_USED, used);
        self.put(status::BUFFERS, buffers);
    }

    fn put(&self, offset: usize, value: usize) {
        self.page.word(offset).store(value as u32, Ordering::Release);
    }

    /// Shows the counters to which the fast path adds.
    fn publish_counts(&self, state: &State) {
        let (outstanding, received) = (state.pending_calls() as u32, state.received);
        // Relaxed: both are changed under the state's lock alone.
        let before = self.outstanding.load(Ordering::Relaxed);
        if before != outstanding {
            self.outstanding.store(outstanding, Ordering::Relaxed);
            // SeqCst: see the broker's status page.
            let word = self.page.word(status::OUTSTANDING);
            word.fetch_add(outstanding.wrapping_sub(before), Ordering::SeqCst);
        }
        let before = self.received.load(Ordering::Relaxed);
        if before != received {
            self.received.store(received, Ordering::Relaxed);
            let word = self.page.double_word(status::TRANSACTIONS);
            word.fetch_add(received.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Shows whether real-time callers can wait for loopers of their own.
    pub fn publish_lane_loopers(&self, come: bool) {
        let come = u32::from(come);
        // Relaxed: changed under the state's lock alone.
        if self.lane_loopers.load(Ordering::Relaxed) != come {
            self.lane_loopers.store(come, Ordering::Relaxed);
            self.page.word(status::LANE_LOOPERS).store(come, Ordering::Release);
        }
    }

    /// Whether this process is frozen, as its callers see it.
    pub fn is_frozen(&self) -> bool {
        self.page.word(status::FROZEN).load(Ordering::SeqCst) != 0
    }

    /// Shows whether the process is frozen, for a broker that did not create the page and cannot
    /// write it.
    pub fn set_frozen(&self, frozen: bool) {
        // Pairs with the loads of clients, and with the broker's of the number of open calls.
        self.page.word(status::FROZEN).store(u32::from(frozen), Ordering::SeqCst);
    }

    /// Shows whether a thread has an operation in flight: freezing asks for it.
    #[inline(always)]
    pub fn set_open(&self, slot: &Option<Slot>, open: bool) {
        match slot {
            // Release, and `Entry::enter` fences it: see the broker's status page.
            Some(slot) => slot.open.store(u32::from(open), Ordering::Release),
            None => {
                let change = if open { 1 } else { u32::MAX };
                self.page.word(status::OUTSTANDING).fetch_add(change, Ordering::SeqCst);
            }
        }
    }

    /// Counts a transaction that a thread has received on the fast path.
    #[inline(always)]
    pub fn count_received(&self, slot: &Option<Slot>) {
        match slot {
            Some(slot) => {
                // Only this thread writes it.
                let count = slot.transactions.load(Ordering::Relaxed).wrapping_add(1);
                slot.transactions.store(count, Ordering::Relaxed);
            }
            None => {
                self.page.double_word(status::TRANSACTIONS).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
