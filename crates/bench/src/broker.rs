//! A broker of the benchmark's own, at a socket that nobody else knows.

use baton_broker::{Config, RunError, limits::Limits};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A running broker. Dropped, it ends.
#[derive(Debug)]
pub struct Broker {
    socket: PathBuf,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// It could not run.
    #[error("the broker: {0}")]
    Run(#[from] RunError),
    /// A system call failed.
    #[error("start a broker: {0}")]
    System(#[from] Errno),
}

impl Broker {
    /// Starts one that listens in `directory` and knows `contexts` beside Android's.
    pub fn start(directory: &Path, contexts: Vec<String>) -> Result<Broker, BrokerError> {
        let socket = directory.join("broker.sock");
        let (theirs, stop) = rustix::pipe::pipe()?;
        let config = Config {
            socket: socket.clone(),
            listener: None,
            until_idle: false,
            contexts,
            stop: Some(theirs),
            limits: Limits::default(),
        };
        let (tell, outcome) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let ready = tell.clone();
            let ended = baton_broker::run(config, move || drop(ready.send(Ok(()))));
            drop(tell.send(ended));
        });
        outcome.recv().expect("it says how it ends")?;
        Ok(Broker { socket, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, b"x");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
