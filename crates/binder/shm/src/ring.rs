//! Positions of a byte ring between one writer process and one reader process.
//!
//! Both positions only grow; the index of a byte is its position modulo the size. The writer owns
//! `tail`, the reader owns `head`. Each accepts the other's position only within bounds.
//!
//! Memory order: [`Producer::publish`] releases the bytes before the new tail, and the consumer's
//! load acquires them. [`Consumer::release`] gives the bytes back, and the producer's load acquires
//! that.

use crate::sync::{AtomicU64, Ordering};

/// The writer's side.
#[derive(Debug)]
pub struct Producer {
    size: u64,
    tail: u64,
}

/// The reader's side.
#[derive(Debug)]
pub struct Consumer {
    size: u64,
    head: u64,
}

/// The other side's position is impossible, which is the other side's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl Producer {
    /// A writer of an empty ring of `size` bytes.
    pub fn new(size: usize) -> Self {
        Producer { size: size as u64, tail: 0 }
    }

    /// Number of bytes that have been published.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Index of the next byte to write.
    pub fn place(&self) -> usize {
        (self.tail % self.size) as usize
    }

    /// Number of free bytes, and of those before the end of the ring. `Corrupt` if the reader lies.
    pub fn room(&self, head: &AtomicU64) -> Result<(usize, usize), Corrupt> {
        let used = self.tail.checked_sub(head.load(Ordering::Acquire)).ok_or(Corrupt)?;
        let free = self.size.checked_sub(used).ok_or(Corrupt)?;
        let before_end = self.size - self.tail % self.size;
        Ok((free as usize, free.min(before_end) as usize))
    }

    /// Publishes `bytes` bytes from [`Producer::place`] on.
    pub fn publish(&mut self, tail: &AtomicU64, bytes: usize) {
        self.tail += bytes as u64;
        tail.store(self.tail, Ordering::Release);
    }
}

impl Consumer {
    /// A reader of an empty ring of `size` bytes.
    pub fn new(size: usize) -> Self {
        Consumer { size: size as u64, head: 0 }
    }

    /// Number of bytes that have been given back.
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Index of the next byte to read.
    pub fn place(&self) -> usize {
        (self.head % self.size) as usize
    }

    /// Number of bytes to read, up to the end of the ring. `Corrupt` if the writer lies.
    pub fn available(&self, tail: &AtomicU64) -> Result<usize, Corrupt> {
        let filled = tail.load(Ordering::Acquire).checked_sub(self.head).ok_or(Corrupt)?;
        if filled > self.size {
            return Err(Corrupt);
        }
        Ok(filled.min(self.size - self.head % self.size) as usize)
    }

    /// Gives `bytes` bytes, which have been copied, back to the writer. Returns the new head.
    pub fn release(&mut self, head: &AtomicU64, bytes: usize) -> u64 {
        self.head += bytes as u64;
        head.store(self.head, Ordering::Release);
        self.head
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_and_never_pass_each_other() {
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        let (mut producer, mut consumer) = (Producer::new(64), Consumer::new(64));
        for step in 0..100 {
            let bytes = 8 * (1 + step % 3);
            let (free, before_end) = producer.room(&head).unwrap();
            assert!(before_end <= free && free <= 64);
            let bytes = bytes.min(before_end);
            producer.publish(&tail, bytes);
            assert_eq!(consumer.available(&tail), Ok(bytes));
            consumer.release(&head, bytes);
            assert_eq!(producer.place(), consumer.place());
        }
    }

    /// Each end at its own position, with the other end's: what it may use, up to the ring's end.
    #[test]
    fn each_end_accepts_the_others_position_within_the_ring() {
        let corrupt = Err(Corrupt);
        // Of the writer: its tail, the reader's head, the free bytes and those before the end.
        for (tail, head, room) in [
            (0, 0, Ok((64, 64))),
            (24, 0, Ok((40, 40))),
            (24, 24, Ok((64, 40))),
            (64, 0, Ok((0, 0))),
            (64, 40, Ok((40, 40))),
            (88, 24, Ok((0, 0))),
            (88, 56, Ok((32, 32))),
            (65, 0, corrupt),
            (24, 25, corrupt),
            (24, u64::MAX, corrupt),
        ] {
            let producer = Producer { size: 64, tail };
            assert_eq!(producer.room(&AtomicU64::new(head)), room, "{tail}, {head}");
            assert_eq!((producer.position(), producer.place()), (tail, tail as usize % 64));
        }
        // Of the reader: its head, the writer's tail, and the bytes before the end.
        for (head, tail, available) in [
            (0, 0, Ok(0)),
            (0, 64, Ok(64)),
            (24, 88, Ok(40)),
            (24, 40, Ok(16)),
            (152, 160, Ok(8)),
            (0, 65, Err(Corrupt)),
            (24, 23, Err(Corrupt)),
            (24, u64::MAX, Err(Corrupt)),
        ] {
            let consumer = Consumer { size: 64, head };
            assert_eq!(consumer.available(&AtomicU64::new(tail)), available, "{head}, {tail}");
            assert_eq!((consumer.position(), consumer.place()), (head, head as usize % 64));
        }
    }

    #[test]
    fn impossible_positions_are_detected() {
        let word = AtomicU64::new(0);
        let mut producer = Producer::new(64);
        producer.publish(&word, 32);
        assert_eq!(producer.room(&AtomicU64::new(33)), Err(Corrupt));
        assert_eq!(Consumer::new(64).available(&AtomicU64::new(65)), Err(Corrupt));
        let mut consumer = Consumer::new(64);
        consumer.release(&word, 8);
        assert_eq!(consumer.available(&AtomicU64::new(7)), Err(Corrupt));
    }
}
