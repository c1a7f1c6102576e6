//! The adapter of the crate `log`.
//!
//! ```no_run
//! baton_log::adapter::log::Log::default().init(log::LevelFilter::Info)?;
//! log::info!(target: "sensors", "{} found", 3);
//! # Ok::<(), log::SetLoggerError>(())
//! ```

use super::put;
use crate::{Buffer, Priority};
use log::{Level, LevelFilter, Metadata, Record, SetLoggerError};
use std::fmt::Write;

/// A logger that writes to this log. The record's target becomes the tag.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    buffer: Buffer,
}

impl Default for Log {
    /// Writes to the buffer `main`.
    fn default() -> Log {
        Log::new(Buffer::Main)
    }
}

impl Log {
    /// Writes to this buffer.
    pub const fn new(buffer: Buffer) -> Log {
        Log { buffer }
    }

    /// Makes this the program's logger, for records of at least the level `most`.
    ///
    /// # Errors
    /// The program has a logger already.
    pub fn init(self, most: LevelFilter) -> Result<(), SetLoggerError> {
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(most);
        Ok(())
    }
}

impl log::Log for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let priority = match record.level() {
            Level::Error => Priority::Error,
            Level::Warn => Priority::Warn,
            Level::Info => Priority::Info,
            Level::Debug => Priority::Debug,
            Level::Trace => Priority::Verbose,
        };
        put(self.buffer, priority, record.target(), |words| {
            // A value that cannot be formatted is left out.
            let _ = words.write_fmt(*record.args());
        });
    }

    /// Does nothing: no record is held back.
    fn flush(&self) {}
}
