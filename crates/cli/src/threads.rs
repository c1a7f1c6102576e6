//! Threads of commands, which a user's limit or a control group may deny.

use crate::failure::Failure;
use baton::Process;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread.
pub fn start<T: Send + 'static>(
    tried: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    Builder::new().spawn(run).map_err(|error| denied(tried, &error))
}

/// Starts threads that serve a process until it is closed.
pub fn serve(tried: &str, process: &Process, n: usize) -> Result<Vec<JoinHandle<()>>, Failure> {
    let looper = |_| {
        let process = process.clone();
        start(tried, move || _ = process.serve())
    };
    (0..n).map(looper).collect()
}

/// The system does not start a thread.
pub fn denied(tried: &str, error: &io::Error) -> Failure {
    Failure::new(tried, format!("start a thread: {error}")).advice(
        "`ulimit -u` and pids.max of the control group say how many processes and threads there \
         may be",
    )
}
