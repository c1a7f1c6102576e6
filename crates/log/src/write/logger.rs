//! One process's way to one log.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::layout::is_ring_size;
use crate::files::place;
use crate::moment::Source;
use crate::write::shared::Shared;
use crate::write::writer::Writer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a process logs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    directory: Option<PathBuf>,
    source: Option<Source>,
    ring_bytes: Option<[usize; N_BUFFERS]>,
}

impl Options {
    /// What everybody has: see [`directory`](crate::directory), [`Source::best`] and [`Settings`].
    pub fn new() -> Options {
        Options::default()
    }

    /// In this directory.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Options {
        self.directory = Some(path.into());
        self
    }

    /// With these stamps.
    pub fn source(mut self, source: Source) -> Options {
        self.source = Some(source);
        self
    }

    /// With rings of this size in a buffer, whatever the directory's settings are.
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

    /// Opens the log. Nothing is made on the way: that begins with the first record, and if it
    /// fails, records are counted.
    pub fn open(self) -> Logger {
        let directory = self.directory.unwrap_or_else(place::directory);
        let source = self.source.unwrap_or_else(Source::best);
        Logger { shared: Arc::new(Shared::new(directory, source, self.ring_bytes)) }
    }
}

/// A log that this process writes. Each thread that writes has a [`Writer`].
#[derive(Clone, Debug)]
pub struct Logger {
    shared: Arc<Shared>,
}

impl Logger {
    /// What the calling thread writes with. It may go to another thread, and its rings go to the
    /// next writer when it is dropped.
    pub fn writer(&self) -> Writer {
        Writer::new(Arc::clone(&self.shared))
    }

    /// The log's directory.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// What records are stamped with.
    pub fn source(&self) -> Source {
        self.shared.source
    }

    /// How many records of this process found no ring, in a buffer. Readers are told, as soon as
    /// there is a file to tell it in.
    pub fn unlogged(&self, buffer: Buffer) -> u64 {
        self.shared.unlogged(buffer)
    }
}
