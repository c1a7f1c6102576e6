//! A broker of the test's own.
use baton_broker::{Config, limits::Limits};
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::JoinHandle;

pub struct Broker {
    pub socket: PathBuf,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let (theirs, ours) = rustix::pipe::pipe().unwrap();
        let config = Config {
            socket: socket.clone(),
            listener: None,
            until_idle: false,
            contexts: Vec::new(),
            stop: Some(theirs),
            limits: Limits::default(),
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            baton_broker::run(config, move || ready.send(()).unwrap()).unwrap();
        });
        is_ready.recv().unwrap();
        Broker { socket, stop: Some(ours), thread: Some(thread), _directory: directory }
    }
}

impl Broker {
    /// Ends the broker under its clients.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            rustix::io::write(&stop, b"x").unwrap();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}
