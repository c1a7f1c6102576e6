//! The mounted binderfs of a run, in a process of its own.

use crate::system::{Server, System};
use baton_binderfs::{Config, MountError, Options, PageSource, serve};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

/// A binderfs that is mounted until this is dropped.
struct Mount {
    stop: Option<io::PipeWriter>,
    serving: Option<JoinHandle<Result<(), MountError>>>,
}

impl Server for Mount {}

impl Drop for Mount {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.serving.take().map(JoinHandle::join);
    }
}

/// Where the binderfs of a system is mounted in a broker's run.
pub fn directory(system: System, broker: &Path) -> PathBuf {
    broker.with_file_name(format!("binderfs-{}", system.name()))
}

/// Mounts a binderfs that has a device for a system's context.
pub fn start(system: System, broker: &Path) -> io::Result<Box<dyn Server>> {
    let directory = directory(system, broker);
    std::fs::create_dir_all(&directory)?;
    let pages = match system {
        System::BatonMountedStored => PageSource::Stored,
        _ => PageSource::Passthrough,
    };
    let (stopped, stop) = io::pipe()?;
    let config = Config {
        directory,
        socket: broker.to_owned(),
        contexts: vec![system.name().to_owned()],
        apart: None,
        stop: OwnedFd::from(stopped),
        options: Options::default(),
        pages: Some(pages),
        kept_open: None,
        ends_with_namespace: false,
        kept: None,
    };
    let (tell, is_ready) = channel();
    let serving = thread::spawn(move || serve(config, move || _ = tell.send(())));
    if is_ready.recv().is_err() {
        let served = serving.join().expect("it returns why");
        return Err(io::Error::other(served.expect_err("it was not ready")));
    }
    Ok(Box::new(Mount { stop: Some(stop), serving: Some(serving) }))
}
