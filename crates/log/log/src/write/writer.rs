//! One thread's access to a log.
//!
//! The fast path takes a stamp, checks that the record fits below the limit, copies it, and
//! publishes it. Every other case leaves the fast path through that one comparison: the limit is
//! zero for a buffer without a ring, and in a child of fork, which must not use the rings.

use crate::buffer::{Buffer, N_BUFFERS, Priority};
use crate::moment::Source;
use crate::record::{Kind, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, record_bytes};
use crate::ring::Entry;
use crate::wakeup::{WakeupLimiter, wants_wakeup};
use crate::write::shared::{ProcessFile, Shared, WriterRing};
use baton_shm::clock;
use baton_shm::thread::is_real_time;
use baton_shm::wiped::Wiped;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Not zero in the process that made the writer.
const MINE: usize = N_BUFFERS;

/// The writer of one thread. When it is dropped, the next thread gets its rings.
#[derive(Debug)]
pub struct Writer {
    source: Source,
    shared: Arc<Shared>,
    /// The position up to which each ring may be written, and [`MINE`].
    limits: Wiped<[AtomicU64; N_BUFFERS + 1]>,
    /// Borrowed while a record is written, so that a signal handler that logs meanwhile notices it.
    rings: [RefCell<Option<WriterRing>>; N_BUFFERS],
    /// Set while a ring is taken, so that a signal handler that logs meanwhile notices it: this
    /// thread may hold the locks of `shared`.
    is_taking: Cell<bool>,
    thread: Cell<u32>,
    limiter: WakeupLimiter,
    /// Real-time threads wake no follower.
    is_silent: Cell<bool>,
}

/// The kind of a record, and its two parts.
#[derive(Clone, Copy)]
struct Words<'a> {
    kind: Kind,
    tag: &'a [u8],
    message: &'a [u8],
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Writer {
        let limits = Wiped::<[AtomicU64; N_BUFFERS + 1]>::new().expect("a page of memory");
        limits[MINE].store(1, Ordering::Relaxed);
        Writer {
            source: shared.source,
            shared,
            limits,
            rings: Default::default(),
            is_taking: Cell::new(false),
            thread: Cell::new(this_thread()),
            limiter: WakeupLimiter::default(),
            is_silent: Cell::new(false),
        }
    }

    /// Writes a text. It is cut to [`MAX_TEXT_BYTES`] with its tag. A zero byte ends the text for
    /// readers of Android's format.
    #[inline]
    pub fn write(&self, buffer: Buffer, priority: Priority, tag: &[u8], message: &[u8]) {
        self.put(buffer, Words { kind: Kind::Text(priority), tag, message });
    }

    /// Writes an event: the number of its tag, and a payload in Android's format. It is cut to
    /// [`MAX_PAYLOAD_BYTES`] with the number.
    #[inline]
    pub fn write_event(&self, buffer: Buffer, tag: u32, payload: &[u8]) {
        self.put(buffer, Words { kind: Kind::Event, tag: &tag.to_le_bytes(), message: payload });
    }

    /// Gets a ring for this buffer now instead of with the first record. `false`: none can be made
    /// now. Records are counted then, and later ones try again.
    ///
    /// A signal handler may write to buffers that its thread has prepared: see docs/log.md.
    pub fn prepare(&self, buffer: Buffer) -> bool {
        self.rings[buffer as usize].try_borrow_mut().is_ok_and(|mut slot| {
            self.leave_what_is_the_parents(&mut slot);
            self.fill(buffer, &mut slot)
        })
    }

    #[inline(always)]
    fn put(&self, buffer: Buffer, words: Words<'_>) {
        let index = buffer as usize;
        let Ok(mut slot) = self.rings[index].try_borrow_mut() else {
            return self.shared.count_unlogged(buffer);
        };
        // For signal handlers of this thread: the borrow begins before the record and ends after
        // it.
        compiler_fence(Ordering::SeqCst);
        let stamp = self.source.stamp();
        let n_bytes = words.tag.len() + words.message.len();
        let fits = |lane: &WriterRing| {
            n_bytes <= MAX_TEXT_BYTES
                && lane.ring.end_of(record_bytes(n_bytes))
                    <= self.limits[index].load(Ordering::Relaxed)
                && !lane.ring.wants_sample(stamp)
        };
        let (lane, stamp, words) = match slot.as_mut().filter(|lane| fits(lane)) {
            Some(lane) => (lane, stamp, words),
            // The record then takes the common path, so that the branch predictor's history stays
            // useful.
            None => match self.make_way(buffer, &mut slot, stamp, words.cut_bytes()) {
                Some((lane, stamp)) => (lane, stamp, words.cut()),
                None => return self.shared.count_unlogged(buffer),
            },
        };
        let Words { kind, tag, message } = words;
        lane.ring.append(&Entry { stamp, kind, thread: self.thread.get(), tag, message });
        if wants_wakeup(&lane.asleep, stamp) {
            self.notify_followers(&lane.process_file);
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Makes room for a record of this many bytes, and returns its stamp. `None`: there is no ring.
    #[cold]
    fn make_way<'a>(
        &self,
        buffer: Buffer,
        slot: &'a mut Option<WriterRing>,
        mut stamp: u64,
        n_bytes: usize,
    ) -> Option<(&'a mut WriterRing, u64)> {
        // Mostly a part of the ring is full. All other cases are in another function.
        let is_mine = self.limits[MINE].load(Ordering::Relaxed) != 0;
        if !(is_mine && slot.as_ref().is_some_and(|lane| !lane.ring.wants_sample(stamp))) {
            stamp = self.prepare_lane(buffer, slot, stamp)?;
        }
        let lane = slot.as_mut()?;
        let (part, n_bytes) = (lane.ring.next_part(), record_bytes(n_bytes));
        lane.ring.make_room(n_bytes);
        self.limits[buffer as usize].store(lane.ring.limit(n_bytes), Ordering::Relaxed);
        if lane.ring.next_part() != part && wants_wakeup(&lane.following, stamp) {
            self.notify_followers(&lane.process_file);
        }
        Some((lane, stamp))
    }

    /// Makes sure that there is a ring with a recent sample.
    #[inline(never)]
    fn prepare_lane(
        &self,
        buffer: Buffer,
        slot: &mut Option<WriterRing>,
        stamp: u64,
    ) -> Option<u64> {
        self.leave_what_is_the_parents(slot);
        let had_ring = slot.is_some();
        if !self.fill(buffer, slot) {
            return None;
        }
        let lane = slot.as_mut()?;
        let source = self.source;
        // Most records need one read of the clock. But stamps in a ring only grow: another thread
        // may have written here since the stamp was taken, and a new sample is later than it.
        let stamp = if had_ring { stamp } else { source.stamp() };
        if !lane.ring.wants_sample(stamp) {
            return Some(stamp);
        }
        lane.ring.take_sample(source.sample());
        Some(source.stamp())
    }

    fn fill(&self, buffer: Buffer, slot: &mut Option<WriterRing>) -> bool {
        if slot.is_none() {
            *slot = self.take_ring(buffer);
            if let Some(lane) = slot
                && !self.is_silent.get()
                && is_real_time()
            {
                self.fall_silent(&lane.process_file);
            }
        }
        slot.is_some()
    }

    /// Takes a ring. `None`: none can be made now, or a signal handler has interrupted this
    /// function and calls it.
    fn take_ring(&self, buffer: Buffer) -> Option<WriterRing> {
        if self.is_taking.replace(true) {
            return None;
        }
        // For signal handlers of this thread, as in `put`.
        compiler_fence(Ordering::SeqCst);
        let ring = self.shared.take_ring(buffer);
        compiler_fence(Ordering::SeqCst);
        self.is_taking.set(false);
        ring
    }

    /// Drops rings of the parent process in a child of fork. Their memory is not mapped there, and
    /// their files are closed.
    fn leave_what_is_the_parents(&self, slot: &mut Option<WriterRing>) {
        // A load and no exchange, which would wait for each cache line that a reader has just read.
        if self.limits[MINE].load(Ordering::Relaxed) == 0 {
            self.limits[MINE].store(1, Ordering::Relaxed);
            self.thread.set(this_thread());
            self.is_silent.set(false);
            for other in &self.rings {
                if let Ok(mut other) = other.try_borrow_mut() {
                    std::mem::forget(other.take());
                }
            }
            std::mem::forget(slot.take());
        }
    }

    /// Wakes followers.
    #[cold]
    fn notify_followers(&self, process_file: &ProcessFile) {
        if !self.is_silent.get() && self.limiter.is_due(clock::now_ns()) {
            match is_real_time() {
                true => self.fall_silent(process_file),
                false => process_file.file.notify_followers(),
            }
        }
    }

    /// Tells followers to look for the records of this thread, and wakes them for the last time.
    fn fall_silent(&self, process_file: &ProcessFile) {
        self.is_silent.set(true);
        process_file.file.add_silent();
        process_file.file.notify_followers();
    }
}

impl<'a> Words<'a> {
    /// The most bytes of both parts.
    #[inline]
    fn most(&self) -> usize {
        match self.kind {
            Kind::Text(_) => MAX_TEXT_BYTES,
            Kind::Event | Kind::Sample | Kind::Gap => MAX_PAYLOAD_BYTES,
        }
    }

    /// The bytes of both parts that fit into a record.
    #[inline]
    fn cut_bytes(&self) -> usize {
        (self.tag.len() + self.message.len()).min(self.most())
    }

    /// Cuts both parts to fit into a record.
    #[inline]
    fn cut(self) -> Words<'a> {
        let tag = &self.tag[..self.tag.len().min(self.most())];
        let message = &self.message[..self.message.len().min(self.most() - tag.len())];
        Words { tag, message, ..self }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let is_mine = self.limits[MINE].load(Ordering::Relaxed) != 0;
        for (buffer, slot) in Buffer::ALL.into_iter().zip(&mut self.rings) {
            match slot.get_mut().take() {
                Some(lane) if is_mine => {
                    if self.is_silent.replace(false) {
                        lane.process_file.file.remove_silent();
                    }
                    self.shared.give_back(buffer, lane);
                }
                parents => std::mem::forget(parents),
            }
        }
    }
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
