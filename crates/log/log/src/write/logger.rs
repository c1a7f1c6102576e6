//! A process's access to one log.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::directory;
use crate::files::layout::is_ring_size;
use crate::moment::Source;
use crate::write::shared::Shared;
use crate::write::writer::Writer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options of a [`Logger`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    directory: Option<PathBuf>,
    source: Option<Source>,
    ring_bytes: Option<[usize; N_BUFFERS]>,
}

impl Options {
    /// The defaults: see [`directory`](crate::directory), [`Source::best`] and
    /// [`Settings`](crate::Settings).
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the directory of the log.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Options {
        self.directory = Some(path.into());
        self
    }

    /// Sets the clock of stamps.
    pub fn source(mut self, source: Source) -> Options {
        self.source = Some(source);
        self
    }

    /// Sets the bytes of rings, by buffer, in place of the directory's settings.
    ///
    /// # Panics
    /// If a ring cannot have this size: a power of two, from 64 KiB to 1 GiB.
    pub fn ring_bytes(mut self, bytes: [usize; N_BUFFERS]) -> Options {
        assert!(
            bytes.into_iter().all(is_ring_size),
            "a ring's size is a power of two from 64 KiB to 1 GiB"
        );
        self.ring_bytes = Some(bytes);
        self
    }

    /// Opens the log. The file is made with the first record. Records are counted if that fails.
    pub fn open(self) -> Logger {
        let directory = self.directory.unwrap_or_else(directory::directory);
        let source = self.source.unwrap_or_else(Source::best);
        Logger { shared: Arc::new(Shared::new(directory, source, self.ring_bytes)) }
    }
}

/// A log that this process writes. Each writing thread has a [`Writer`].
#[derive(Clone, Debug)]
pub struct Logger {
    shared: Arc<Shared>,
}

impl Logger {
    /// A writer for one thread. It may move to another thread. When it is dropped, the next writer
    /// gets its rings.
    pub fn writer(&self) -> Writer {
        Writer::new(Arc::clone(&self.shared))
    }

    /// The log's directory.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The clock of stamps.
    pub fn source(&self) -> Source {
        self.shared.source
    }

    /// The number of records of this process in a buffer that found no ring. Readers get this
    /// number once the process has a file.
    pub fn unlogged(&self, buffer: Buffer) -> u64 {
        self.shared.unlogged(buffer)
    }
}
