//! tracing-appender's writer, which drops what its queue has no room for; its thread writes a file
//! of 1 MiB over and over.

use baton_bench::log::log_writer::{LogWriter, serve};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;

const FILE_BYTES: usize = 1 << 20;

struct Round {
    file: File,
    written: usize,
}

impl Write for Round {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() > FILE_BYTES {
            self.file.rewind()?;
            self.written = 0;
        }
        let written = self.file.write(bytes)?;
        self.written += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(text: &'static [u8]) {
    let text = std::str::from_utf8(text).unwrap_or_default();
    tracing::info!(target: "vold", "{text}");
}

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let file = File::create(Path::new(&directory).join("tracing.log"))?;
    let (writer, _guard) = tracing_appender::non_blocking(Round { file, written: 0 });
    tracing_subscriber::fmt().with_writer(writer).with_ansi(false).with_thread_ids(true).init();
    let n_writers = std::thread::available_parallelism()?.get();
    serve((0..n_writers).map(|_| Box::new(write) as Box<dyn LogWriter>).collect())
}
