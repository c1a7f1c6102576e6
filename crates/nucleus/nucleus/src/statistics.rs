//! Counts of a kernel's operations (Greenaway 2007, section 4.2). The type `()` counts nothing and
//! costs nothing.

/// A counted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread blocked. An eager kernel takes it off its ready queue then.
    Blocked,
    /// A thread was put on the ready queue.
    Enqueued,
    /// A thread was put on the ready queue later than it became ready.
    EnqueuedLate,
    /// A thread was taken off the ready queue.
    Dequeued,
    /// A thread was taken off the ready queue later than it blocked.
    DequeuedLate,
    /// Another thread was chosen to run.
    Switched,
    /// The ready queue was searched.
    LookedUp,
    /// A message was copied from one thread to another.
    Transferred,
    /// A sender had to wait in a send queue.
    Queued,
}

/// A counter of operations.
pub trait Statistics: Default + Clone + 'static {
    /// Counts one operation.
    fn count(&mut self, event: Event);
    /// Records that this many threads wait to send to one receiver.
    fn see_senders(&mut self, n_senders: u32);
}

impl Statistics for () {
    fn count(&mut self, _event: Event) {}
    fn see_senders(&mut self, _n_senders: u32) {}
}

/// Counters of all operations.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// By event.
    counts: [u64; 9],
    length: usize,
    /// How often the ready queue had this many threads before an operation on it. The last entry is
    /// for 31 and more.
    pub lengths: [u64; 32],
    /// The highest number of threads that waited to send to one receiver.
    pub most_senders: u32,
}

impl Counters {
    /// The count of an event.
    pub fn of(&self, event: Event) -> u64 {
        self.counts[event as usize]
    }

    fn sample_length(&mut self) {
        self.lengths[self.length.min(31)] += 1;
    }
}

impl Statistics for Counters {
    fn count(&mut self, event: Event) {
        self.counts[event as usize] += 1;
        match event {
            Event::Enqueued => {
                self.sample_length();
                self.length += 1;
            }
            Event::Dequeued => {
                self.sample_length();
                self.length -= 1;
            }
            Event::LookedUp => self.sample_length(),
            _ => {}
        }
    }

    fn see_senders(&mut self, n_senders: u32) {
        self.most_senders = self.most_senders.max(n_senders);
    }
}
