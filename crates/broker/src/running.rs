//! A broker on a thread of this process, for those who bring their own: benchmarks and tests.

use crate::run::{Config, RunError, run};
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A broker that listens. Dropped, it ends.
#[derive(Debug)]
pub struct Running {
    path: PathBuf,
    /// Closed, it ends the broker: the other end is the configuration's `stop`.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    /// Starts one, and returns when it listens. Its `stop` is this value's own.
    pub fn start(config: Config) -> Result<Running, RunError> {
        let path = config.socket.clone();
        let (end, stop) = pipe_with(PipeFlags::CLOEXEC).map_err(RunError::of("pipe", &path))?;
        let config = Config { stop: Some(end), ..config };
        let (ready, is_ready) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            run(config, move || ready.send(()).expect("it is waited for below"))
        });
        let mut broker = Running { path, stop: Some(stop), thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(broker),
            // It ended without a word: its result is why.
            Err(mpsc::RecvError) => broker.join().map(|()| broker),
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// Ends it, under its clients if it has some.
    pub fn stop(mut self) -> Result<(), RunError> {
        self.stop = None;
        self.join()
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If the broker has.
    pub fn join(&mut self) -> Result<(), RunError> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("a broker does not panic"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
