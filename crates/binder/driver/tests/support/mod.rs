//! A broker of the test's own.
use baton_broker::{Config, Running};
use std::path::PathBuf;

pub struct Broker {
    pub socket: PathBuf,
    _running: Running,
    _directory: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let running = Running::start(Config::at(&socket)).unwrap();
        Broker { socket, _running: running, _directory: directory }
    }
}
