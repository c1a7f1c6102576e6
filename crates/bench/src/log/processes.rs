//! A process of `baton bench log`, as the run starts it: it says "ready" when it is at it, and ends
//! when it is killed, or with who started it.

use crate::child::{ChildProcess, RoleArgs, say};
use crate::log::kill_test;
use crate::log::messages::{TAG, message};
use crate::log::system::{read_datagrams, read_pipe};
use baton_log::{Buffer, Options, Priority, Reader};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{io, thread};

/// What a process is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Reads datagrams.
    Datagrams,
    /// Reads a pipe.
    Pipe,
    /// Follows a log.
    Follower,
    /// Ordinary writers of a log, which write as fast as they can.
    Writers { n_threads: usize },
    /// Writers that count what they have written, and are to be killed.
    Killed { n_threads: usize },
}

impl Role {
    /// Starts it at its socket, pipe or log, and waits until it is at it.
    pub fn start(self, place: &Path) -> io::Result<ChildProcess> {
        let mut program = Command::new(std::env::current_exe()?);
        Ok(ChildProcess::start_role("log's process", &mut program, "log-role", &(self, place))?)
    }
}

/// Does the part until it is killed.
pub fn run(args: &RoleArgs) -> ExitCode {
    let ready = || say("ready");
    args.run(|(role, place): (Role, PathBuf)| match role {
        Role::Datagrams => read_datagrams(&place, ready),
        Role::Pipe => read_pipe(&place, ready),
        Role::Follower => follow(&place),
        Role::Writers { n_threads } => write(&place, n_threads),
        Role::Killed { n_threads } => kill_test::write(&place, n_threads, ready),
    })
}

fn follow(log: &Path) -> io::Result<()> {
    let mut reader = Reader::open(log)?;
    say("ready")?;
    reader.follow(|item| {
        black_box(item);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn write(log: &Path, n_threads: usize) -> io::Result<()> {
    let logger = Options::new().directory(log).open();
    thread::scope(|scope| {
        for _ in 0..n_threads {
            let writer = logger.writer();
            scope.spawn(move || {
                for number in 0.. {
                    writer.write(Buffer::Main, Priority::Info, TAG.to_bytes(), message(number));
                }
            });
        }
        say("ready")
    })
}
