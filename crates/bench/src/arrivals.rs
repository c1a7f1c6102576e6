//! One-way messages that say when they were sent, and what their receiver notes of them.
//!
//! ```text
//!   0        8        16      24
//!   | sent_ns | number | check |    number: UNNOTED of a message that is only to be checked
//! ```

use crate::child::{await_begin, forever, tell};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Size of a message.
pub const BYTES: usize = 24;
/// The number of messages whose times nobody wants.
pub const UNNOTED: u64 = u64::MAX;
/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// The mark of a message that has not come.
const MISSING: u64 = u64::MAX;

/// The time from the sending of each message to its receiver, in nanoseconds. Noted without a lock,
/// so that no receiver waits for another.
static NOTED: OnceLock<Box<[AtomicU64]>> = OnceLock::new();

/// A message, as it travels.
pub fn message(sent_ns: u64, number: u64) -> [u8; BYTES] {
    let words = [sent_ns, number, check(sent_ns, number)];
    let mut bytes = [0; BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| {
        to.copy_from_slice(&word.to_ne_bytes());
    });
    bytes
}

fn check(sent_ns: u64, number: u64) -> u64 {
    sent_ns.rotate_left(17) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Makes room for so many messages.
pub fn expect(count: usize) {
    NOTED.get_or_init(|| (0..count).map(|_| AtomicU64::new(MISSING)).collect());
}

/// Notes that a message has come now. `None` if it is none.
pub fn note(message: &[u8], now_ns: u64) -> Option<()> {
    let word = |at: usize| Some(u64::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let (sent_ns, number) = (word(0)?, word(8)?);
    if message.len() != BYTES || word(16)? != check(sent_ns, number) {
        return None;
    }
    let noted = NOTED.get().and_then(|noted| noted.get(number as usize));
    noted.inspect(|noted| noted.store(now_ns - sent_ns, Ordering::Relaxed));
    Some(())
}

/// The time of each message, in their order. An error if one has not come.
pub fn noted() -> io::Result<Vec<u64>> {
    let noted = NOTED.get().into_iter().flatten();
    let times_ns: Vec<u64> = noted.map(|noted| noted.load(Ordering::Relaxed)).collect();
    match times_ns.contains(&MISSING) {
        true => Err(io::Error::other("a message has not come")),
        false => Ok(times_ns),
    }
}

/// Receives so many messages by what `start` starts, until this process is told to say when they
/// have come.
pub fn receive<R>(count: usize, start: impl FnOnce() -> io::Result<R>) -> io::Result<()> {
    expect(count);
    let _receiving = start()?;
    await_begin()?;
    tell(&await_all()?)?;
    forever()
}

/// Waits for the last messages: the time of each, as [`noted`].
pub fn await_all() -> io::Result<Vec<u64>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match noted() {
            Err(_) if Instant::now() < deadline => thread::sleep(PAUSE),
            noted => return noted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_noted_and_nothing_else() {
        expect(2);
        assert!(noted().is_err());
        let sent = message(1, 0);
        assert_eq!(note(&sent, 2), Some(()));
        assert_eq!(note(&message(1, UNNOTED), 2), Some(()));
        for wrong in [&sent[1..], &[0; BYTES + 1], &[], &[7; BYTES]] {
            assert_eq!(note(wrong, 2), None, "{wrong:?}");
        }
        assert!(noted().is_err(), "the second is missing");
        note(&message(1, 1), 2);
        assert_eq!(noted().unwrap().len(), 2);
    }
}
