//! What a thread writes with.
//!
//! The fast path takes a stamp, sees that the record fits below the limit, copies it, and shows it.
//! Everything else leaves it by one comparison: a limit is zero for a buffer without a ring, and in
//! a child of fork, to which the rings do not belong.

use crate::bell::{Rung, is_asked};
use crate::buffer::{Buffer, N_BUFFERS, Priority};
use crate::moment::Source;
use crate::record::{Kind, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, record_bytes};
use crate::ring::Entry;
use crate::write::shared::{Home, Lane, Shared};
use baton_shm::clock;
use baton_shm::thread::is_real_time;
use baton_shm::wiped::Wiped;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Not zero, in the process that made the writer.
const MINE: usize = N_BUFFERS;

/// One thread's way into the log. Dropped, it leaves its rings to the next thread.
#[derive(Debug)]
pub struct Writer {
    source: Source,
    shared: Arc<Shared>,
    /// Up to where each ring may be written, and [`MINE`].
    limits: Wiped<[AtomicU64; N_BUFFERS + 1]>,
    /// Borrowed while a record is written: a signal handler that would write meanwhile sees it.
    lanes: [RefCell<Option<Lane>>; N_BUFFERS],
    thread: Cell<u32>,
    rung: Rung,
    /// A real-time thread never rings.
    is_silent: Cell<bool>,
}

/// A record's two parts, and what it is.
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
            lanes: Default::default(),
            thread: Cell::new(this_thread()),
            rung: Rung::default(),
            is_silent: Cell::new(false),
        }
    }

    /// Writes a text. What exceeds [`MAX_TEXT_BYTES`] with its tag is cut off. A zero byte in it
    /// ends the text for those who read it as Android's.
    #[inline]
    pub fn write(&self, buffer: Buffer, priority: Priority, tag: &[u8], message: &[u8]) {
        self.put(buffer, Words { kind: Kind::Text(priority), tag, message });
    }

    /// Writes an event: its tag's number, and a payload in Android's form. What exceeds
    /// [`MAX_PAYLOAD_BYTES`] with the number is cut off.
    #[inline]
    pub fn write_event(&self, buffer: Buffer, tag: u32, payload: &[u8]) {
        self.put(buffer, Words { kind: Kind::Event, tag: &tag.to_le_bytes(), message: payload });
    }

    /// Gets a ring for this buffer now, and not with the first record. `false` if there is none to
    /// be had: records will be counted, and a ring be asked for again.
    pub fn prepare(&self, buffer: Buffer) -> bool {
        self.lanes[buffer as usize].try_borrow_mut().is_ok_and(|mut slot| {
            self.leave_what_is_the_parents(&mut slot);
            self.fill(buffer, &mut slot)
        })
    }

    #[inline(always)]
    fn put(&self, buffer: Buffer, words: Words<'_>) {
        let index = buffer as usize;
        let Ok(mut slot) = self.lanes[index].try_borrow_mut() else {
            return self.shared.count_unlogged(buffer);
        };
        // For handlers on this thread: the loan comes before the record, and goes after it.
        compiler_fence(Ordering::SeqCst);
        let stamp = self.source.stamp();
        let n_bytes = words.tag.len() + words.message.len();
        let fits = |lane: &Lane| {
            n_bytes <= MAX_TEXT_BYTES
                && lane.ring.end_of(record_bytes(n_bytes))
                    <= self.limits[index].load(Ordering::Relaxed)
                && !lane.ring.wants_sample(stamp)
        };
        let (lane, stamp, words) = match slot.as_mut().filter(|lane| fits(lane)) {
            Some(lane) => (lane, stamp, words),
            // The record's way from here on is the same as ever: what the processor has learnt of
            // it holds.
            None => match self.make_way(buffer, &mut slot, stamp, words.cut_bytes()) {
                Some((lane, stamp)) => (lane, stamp, words.cut()),
                None => return self.shared.count_unlogged(buffer),
            },
        };
        let Words { kind, tag, message } = words;
        lane.ring.append(&Entry { stamp, kind, thread: self.thread.get(), tag, message });
        if is_asked(&lane.asleep, stamp) {
            self.ring_bell(&lane.home);
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Makes room for a record of so many bytes, and says what to stamp it with. `None` if there is
    /// no ring.
    #[cold]
    fn make_way<'a>(
        &self,
        buffer: Buffer,
        slot: &'a mut Option<Lane>,
        mut stamp: u64,
        n_bytes: usize,
    ) -> Option<(&'a mut Lane, u64)> {
        // Seldom more than a part of the ring has come to its end: all else is kept out of the way.
        let is_mine = self.limits[MINE].load(Ordering::Relaxed) != 0;
        if !(is_mine && slot.as_ref().is_some_and(|lane| !lane.ring.wants_sample(stamp))) {
            stamp = self.prepare_lane(buffer, slot, stamp)?;
        }
        let lane = slot.as_mut()?;
        let (part, n_bytes) = (lane.ring.next_part(), record_bytes(n_bytes));
        lane.ring.make_room(n_bytes);
        self.limits[buffer as usize].store(lane.ring.limit(n_bytes), Ordering::Relaxed);
        if lane.ring.next_part() != part && is_asked(&lane.following, stamp) {
            self.ring_bell(&lane.home);
        }
        Some((lane, stamp))
    }

    /// Sees to it that there is a ring, and that it has a sample that is young enough.
    #[inline(never)]
    fn prepare_lane(&self, buffer: Buffer, slot: &mut Option<Lane>, stamp: u64) -> Option<u64> {
        self.leave_what_is_the_parents(slot);
        let had_ring = slot.is_some();
        if !self.fill(buffer, slot) {
            return None;
        }
        let lane = slot.as_mut()?;
        let source = self.source;
        // Clocks can be slow, so most records are content with one reading. But stamps in a ring
        // only grow: another thread may have written here since, and a sample is younger.
        let stamp = if had_ring { stamp } else { source.stamp() };
        if !lane.ring.wants_sample(stamp) {
            return Some(stamp);
        }
        lane.ring.take_sample(source.sample());
        Some(source.stamp())
    }

    fn fill(&self, buffer: Buffer, slot: &mut Option<Lane>) -> bool {
        if slot.is_none() {
            *slot = self.shared.take_lane(buffer);
            if let Some(lane) = slot
                && !self.is_silent.get()
                && is_real_time()
            {
                self.fall_silent(&lane.home);
            }
        }
        slot.is_some()
    }

    /// In a child of fork the rings are another process's. Their memory is not mapped, their files
    /// are closed.
    fn leave_what_is_the_parents(&self, slot: &mut Option<Lane>) {
        // No exchange: the processor would wait here for every line that a reader has just looked
        // at.
        if self.limits[MINE].load(Ordering::Relaxed) == 0 {
            self.limits[MINE].store(1, Ordering::Relaxed);
            self.thread.set(this_thread());
            self.is_silent.set(false);
            for other in &self.lanes {
                if let Ok(mut other) = other.try_borrow_mut() {
                    std::mem::forget(other.take());
                }
            }
            std::mem::forget(slot.take());
        }
    }

    /// Tells those who follow.
    #[cold]
    fn ring_bell(&self, home: &Home) {
        if !self.is_silent.get() && self.rung.is_due(clock::now_ns()) {
            match is_real_time() {
                true => self.fall_silent(home),
                false => home.file.ring_bell(),
            }
        }
    }

    /// From now on followers look for what this thread writes. They are told so by its last ring.
    fn fall_silent(&self, home: &Home) {
        self.is_silent.set(true);
        home.file.add_silent();
        home.file.ring_bell();
    }
}

impl<'a> Words<'a> {
    /// Most bytes of both.
    #[inline]
    fn most(&self) -> usize {
        match self.kind {
            Kind::Text(_) => MAX_TEXT_BYTES,
            Kind::Event | Kind::Sample | Kind::Gap => MAX_PAYLOAD_BYTES,
        }
    }

    /// How many of both fit a record.
    #[inline]
    fn cut_bytes(&self) -> usize {
        (self.tag.len() + self.message.len()).min(self.most())
    }

    /// As much as fits a record.
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
        for (buffer, slot) in Buffer::ALL.into_iter().zip(&mut self.lanes) {
            match slot.get_mut().take() {
                Some(lane) if is_mine => {
                    if self.is_silent.replace(false) {
                        lane.home.file.remove_silent();
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
