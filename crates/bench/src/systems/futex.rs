//! The floor: two words of shared memory, a message behind each, and nothing else.
//!
//! ```text
//!   0        64             AREA_BYTES  +64
//!   | word |  request ...   | word |  reply ...   |
//! ```
//!
//! A side writes its message, sets its word to the number of the exchange (release), and wakes;
//! the other sees the number (acquire) and copies the message out.

use crate::payload;
use crate::shared_map::SharedMap;
use crate::system::{Client, Consume, Server};
use baton_shm::futex;
use baton_shm::sync::Ordering;
use std::io;
use std::path::Path;

const DATA_AT: usize = 64;
const AREA_BYTES: usize = (1 << 20) + 4096;
const MAP_BYTES: usize = 2 * AREA_BYTES;

/// What a side does until its word changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Blocked,
    Spinning,
}

pub struct Side {
    shared: SharedMap<MAP_BYTES>,
    waiting: Waiting,
    inbox: usize,
    outbox: usize,
    number: u32,
    buffer: Vec<u8>,
}

fn side(shared: SharedMap<MAP_BYTES>, waiting: Waiting, inbox: usize) -> Side {
    let (outbox, buffer) = (AREA_BYTES - inbox, Vec::new());
    Side { shared, waiting, inbox, outbox, number: 0, buffer }
}

pub fn listen(directory: &Path, waiting: Waiting) -> io::Result<Side> {
    Ok(side(SharedMap::make_in(directory)?, waiting, 0))
}

pub fn connect(directory: &Path, waiting: Waiting) -> io::Result<Side> {
    Ok(side(SharedMap::find_in(directory)?, waiting, AREA_BYTES))
}

impl Side {
    fn send(&self, message: &[u8]) {
        self.shared.view().write(self.outbox + DATA_AT, message);
        let word = self.shared.word(self.outbox);
        // Release pairs with the acquire in the other side's `receive`.
        word.store(self.number, Ordering::Release);
        if self.waiting == Waiting::Blocked {
            futex::wake(word, 1);
        }
    }

    fn receive(&mut self, bytes: usize) {
        let word = self.shared.word(self.inbox);
        // Acquire pairs with the release in the other side's `send`.
        while word.load(Ordering::Acquire) != self.number {
            match self.waiting {
                Waiting::Blocked => drop(futex::wait(word, self.number.wrapping_sub(1), None)),
                Waiting::Spinning => std::hint::spin_loop(),
            }
        }
        self.buffer.resize(bytes, 0);
        self.shared.view().read(self.inbox + DATA_AT, &mut self.buffer);
    }
}

impl Client for Side {
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        self.send(request);
        self.receive(request.len());
        consume(&self.buffer);
        Ok(())
    }
}

impl Server for Side {
    fn serve(&mut self, n_calls: u32, payload_bytes: usize) -> io::Result<()> {
        for _ in 0..n_calls {
            self.number = self.number.wrapping_add(1);
            self.receive(payload_bytes);
            payload::check(&self.buffer).ok_or(io::ErrorKind::InvalidData)?;
            self.send(&self.buffer);
        }
        Ok(())
    }
}
