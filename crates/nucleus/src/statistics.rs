//! What a kernel counts (Greenaway 2007, section 4.2). `()` counts nothing and costs nothing.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread that was ready is not any more: an eager kernel would take it off its queue.
    Blocked,
    /// A thread was put on the ready queue.
    Enqueued,
    /// The same, later than it became ready.
    EnqueuedLate,
    /// A thread was taken off the ready queue.
    Dequeued,
    /// The same, later than it blocked.
    DequeuedLate,
    /// Another thread runs.
    Switched,
    /// The ready queue was searched.
    LookedUp,
    /// A message went from one thread to another.
    Transferred,
    /// A sender had to wait in a send queue.
    Queued,
}

/// Who counts.
pub trait Statistics: Default + Clone + 'static {
    /// Something happened.
    fn count(&mut self, event: Event);
    /// So many threads wait to send to one.
    fn see_senders(&mut self, n_senders: u32);
}

impl Statistics for () {
    fn count(&mut self, _event: Event) {}
    fn see_senders(&mut self, _n_senders: u32) {}
}

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// By event.
    counts: [u64; 9],
    length: usize,
    /// How often the ready queue had so many threads before an operation; the last one: or more.
    pub lengths: [u64; 32],
    /// Threads that waited to send to one, at most.
    pub most_senders: u32,
}

impl Counters {
    /// How often it happened.
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
