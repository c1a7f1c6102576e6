//! Adapters of Rust's logging crates to this log: features `log` and `tracing`.
//!
//! A message is formatted into memory that its thread keeps, and written in one piece.

#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "tracing")]
pub mod tracing;

use crate::record::MAX_TEXT_BYTES;
use crate::write::thread;
use crate::{Buffer, Priority};
use std::cell::RefCell;
use std::fmt;

/// A message that is being formatted. Bytes that exceed a record are dropped.
#[derive(Default)]
struct Words(String);

impl fmt::Write for Words {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len());
        self.0.push_str(&words[..words.floor_char_boundary(room)]);
        Ok(())
    }
}

thread_local!(static WORDS: RefCell<Words> = RefCell::default());

/// Writes the message that `say` formats. A message that is logged while another one is being
/// formatted gets memory of its own.
fn put(buffer: Buffer, priority: Priority, tag: &str, say: impl FnOnce(&mut Words)) {
    let mut say = Some(say);
    let mut write = |words: &mut Words| {
        words.0.clear();
        if let Some(say) = say.take() {
            say(words);
        }
        thread::write(buffer, priority, tag.as_bytes(), words.0.as_bytes());
    };
    let kept = WORDS.try_with(|words| words.try_borrow_mut().map(|mut words| write(&mut words)));
    // Without kept memory: within a message, or on a thread that is ending.
    if !matches!(kept, Ok(Ok(()))) {
        write(&mut Words::default());
    }
}
