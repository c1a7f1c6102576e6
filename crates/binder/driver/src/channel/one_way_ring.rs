//! A ring in which one-way transactions travel: see [`lane_rings`](super::lane_rings).
//!
//! A record is a [`Message`], its parts, and padding to 64 bytes. Its `word` is its size. A record
//! never wraps: a [`Kind::Skip`] leads from one that does not fit back to the ring's beginning.

use baton_abi::lane::*;
use baton_shm::mapping::View;
use baton_shm::ring::{Consumer, Corrupt, Producer};
use baton_shm::sync::{AtomicU64, Ordering};
use bytemuck::{bytes_of, bytes_of_mut};
use std::collections::VecDeque;

/// A ring in a channel's memory.
#[derive(Clone, Copy)]
pub(super) struct OneWayRing<'a> {
    /// The memory.
    pub view: View<'a>,
    /// Offset of the records in the view.
    pub at: usize,
    /// The position of the client.
    pub tail: &'a AtomicU64,
    /// The position of the server.
    pub head: &'a AtomicU64,
    /// The place from which on the ring, once it is empty, starts over.
    pub restart: usize,
}

impl OneWayRing<'_> {
    /// Whether the client says that a record lies here which the server has not taken.
    pub fn is_empty(self) -> bool {
        self.tail.load(Ordering::Acquire) == self.head.load(Ordering::Relaxed)
    }

    /// Puts a record into the ring. `Ok(false)` if there is no room.
    pub fn put(
        self,
        producer: &mut Producer,
        message: &Message,
        write: impl FnOnce(View<'_>, usize),
    ) -> Result<bool, Corrupt> {
        let bytes = message.parts().ok_or(Corrupt)?.end.next_multiple_of(64);
        let (free, before_end) = producer.room(self.head)?;
        let beyond_end = free - before_end;
        let restart = free == RING_BYTES && producer.place() >= self.restart;
        if before_end < bytes || restart {
            if beyond_end < bytes {
                return Ok(false);
            }
            let skip = Message { word: before_end as u32, kind: Kind::Skip as u32, ..*message };
            self.view.write(self.at + producer.place(), bytes_of(&skip));
            producer.publish(self.tail, before_end);
        }
        let at = self.at + producer.place();
        let message = Message { word: bytes as u32, ..*message };
        self.view.write(at, bytes_of(&message));
        write(self.view, at);
        producer.publish(self.tail, bytes);
        Ok(true)
    }

    /// The header of the oldest record, and its offset in the view.
    pub fn first(self, consumer: &mut Consumer) -> Result<Option<(Message, usize)>, Corrupt> {
        // A skip leads to the ring's beginning, where a record lies. The writer of another one
        // could go on for ever.
        for _ in 0..2 {
            let available = consumer.available(self.tail)?;
            if available == 0 {
                return Ok(None);
            }
            if available < size_of::<Message>() {
                return Err(Corrupt);
            }
            let at = self.at + consumer.place();
            let mut message = Message::default();
            self.view.read(at, bytes_of_mut(&mut message));
            let bytes = message.word as usize;
            if bytes == 0 || bytes > available || !bytes.is_multiple_of(64) {
                return Err(Corrupt);
            }
            match Kind::from_raw(message.kind) {
                Some(Kind::Skip) => _ = self.release(consumer, &message),
                Some(Kind::OneWay) => {
                    let fits = message.parts().is_some_and(|parts| parts.end <= bytes);
                    return if fits { Ok(Some((message, at))) } else { Err(Corrupt) };
                }
                _ => return Err(Corrupt),
            }
        }
        Err(Corrupt)
    }

    /// Removes the oldest record, which has been copied. Returns the position up to which the ring
    /// has been read.
    pub fn release(self, consumer: &mut Consumer, message: &Message) -> u64 {
        consumer.release(self.head, message.word as usize)
    }
}

/// The records in a ring that the server has not taken yet, as their client knows them.
#[derive(Debug, Default)]
pub struct Pending {
    /// The end of each in the ring, and its size in the receive buffer.
    records: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Pending {
    /// Adds a record that ends at this position, and takes so many bytes in the receive buffer.
    pub fn push(&mut self, end: u64, bytes: usize) {
        self.records.push_back((end, bytes));
        self.bytes += bytes;
    }

    /// Forgets the records that the server, whose position is `head`, has taken.
    pub fn forget_taken(&mut self, head: u64) {
        while let Some((_, bytes)) = self.records.pop_front_if(|(end, _)| *end <= head) {
            self.bytes -= bytes;
        }
    }

    /// The number of records, and the bytes that they will take in the receive buffer.
    pub fn n_and_bytes(&self) -> (usize, usize) {
        (self.records.len(), self.bytes)
    }
}

/// One end of a lane's ring.
#[derive(Debug)]
pub struct RingEnd {
    /// Client: the positions.
    pub producer: Producer,
    /// Client: the records that the server has not taken yet.
    pub pending: Pending,
    /// Server: the positions.
    pub consumer: Consumer,
}

impl Default for RingEnd {
    fn default() -> RingEnd {
        let (producer, consumer) = (Producer::new(RING_BYTES), Consumer::new(RING_BYTES));
        RingEnd { producer, pending: Pending::default(), consumer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_shm::mapping::{Mapping, create_mapped};

    /// A writer that puts skips for ever would keep the reader busy.
    #[test]
    fn a_skip_that_leads_to_another_one_is_no_record() {
        let (_, map): (_, Mapping<RING_BYTES>) = create_mapped("ring").unwrap();
        let (tail, head) = <(AtomicU64, AtomicU64)>::default();
        let ring = OneWayRing { view: map.view(), at: 0, tail: &tail, head: &head, restart: 0 };
        let put = |at: usize, kind: Kind, bytes: usize| {
            let message = Message { word: bytes as u32, kind: kind as u32, ..Message::default() };
            map.view().write(at, bytes_of(&message));
            tail.fetch_add(bytes as u64, Ordering::Release);
        };
        let mut consumer = Consumer::new(RING_BYTES);
        put(0, Kind::Skip, RING_BYTES);
        assert_eq!(ring.first(&mut consumer), Ok(None), "its record has not come");
        put(0, Kind::Skip, 64);
        put(64, Kind::OneWay, 64);
        let (message, at) = ring.first(&mut consumer).unwrap().unwrap();
        assert_eq!((message.kind, at), (Kind::OneWay as u32, 64));
        ring.release(&mut consumer, &message);
        put(128, Kind::Skip, 64);
        put(192, Kind::Skip, 64);
        assert_eq!(ring.first(&mut consumer), Err(Corrupt));
    }
}
