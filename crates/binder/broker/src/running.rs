//! A broker on a thread of this process, for benchmarks and tests that need a broker of their own.

use crate::run::{Config, run};
use crate::run_error::RunError;
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A broker that listens at [`Running::socket`]. Dropping this value stops the broker and waits for
/// its thread.
#[derive(Debug)]
pub struct Running {
    path: PathBuf,
    /// Closing this write end stops the broker, which polls the read end as `Config::stop`.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    /// Starts a broker with `config` and returns once it listens. This value replaces `config.stop`
    /// with a pipe of its own. Errors are those of [`run`].
    pub fn start(config: Config) -> Result<Running, RunError> {
        let path = config.socket.clone();
        let (end, stop) = pipe_with(PipeFlags::CLOEXEC).map_err(RunError::of("pipe", &path))?;
        let config = Config { stop: Some(end), ..config };
        let (ready, is_ready) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            run(config, move || ready.send(()).expect("`start` waits for the message"))
        });
        let mut broker = Running { path, stop: Some(stop), thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(broker),
            // The thread ended before the broker listened: its result says why.
            Err(mpsc::RecvError) => broker.join().map(|()| broker),
        }
    }

    /// Path of the socket at which the broker listens.
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// Stops the broker, whether or not clients are connected, and waits for its thread.
    pub fn stop(mut self) -> Result<(), RunError> {
        self.stop = None;
        self.join()
    }

    /// Waits until the broker ends by itself, and returns its result. Returns `Ok` at a second
    /// call.
    ///
    /// # Panics
    /// Panics if the broker's thread panicked.
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
