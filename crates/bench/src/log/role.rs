//! A process of `baton bench log`, as it sees itself: it says "ready" when it is at it, and ends
//! when it is killed, or with who started it.

use crate::child::{self, ChildProcess, say};
use crate::log::messages::{TAG, message};
use crate::log::{descriptors, kill_test};
use baton_log::{Buffer, Options, Priority, Reader};
use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use strum::IntoStaticStr;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// Reads datagrams.
    Datagrams,
    /// Reads a pipe.
    Pipe,
    /// Follows a log.
    Follower,
    /// Ordinary writers of a log, which write as fast as they can.
    Writers,
    /// Writers that count what they have written, and are to be killed.
    Killed,
}

/// What to be.
#[derive(Clone, Debug, clap::Args)]
pub struct RoleArgs {
    /// Which part
    pub role: Role,
    /// The socket, pipe or log
    pub place: PathBuf,
    /// Threads that write
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Process id of who started it: it ends with that one
    #[arg(long)]
    pub starter: u32,
}

impl Role {
    /// Starts it, and waits until it is at it.
    pub(crate) fn start(self, place: &Path, threads: usize) -> io::Result<ChildProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        let name: &str = self.into();
        command.args(["log-role", name]).arg(place).args(["--threads", &threads.to_string()]);
        Ok(ChildProcess::start_role(name, &mut command)?)
    }
}

/// Does the part until it is killed.
pub fn role(args: &RoleArgs) -> ExitCode {
    let name: &str = args.role.into();
    child::run_part(format!("log-role {name}"), args.starter, || part(args))
}

fn part(args: &RoleArgs) -> io::Result<()> {
    let ready = || say("ready");
    match args.role {
        Role::Datagrams => descriptors::read_datagrams(&args.place, ready),
        Role::Pipe => descriptors::read_pipe(&args.place, ready),
        Role::Follower => follow(&args.place),
        Role::Writers => write(&args.place, args.threads),
        Role::Killed => kill_test::write(&args.place, args.threads, ready),
    }
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

fn write(log: &Path, threads: usize) -> io::Result<()> {
    let logger = Options::new().directory(log).open();
    thread::scope(|scope| {
        for _ in 0..threads {
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
