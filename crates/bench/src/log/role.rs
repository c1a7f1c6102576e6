//! A process of `baton bench log`, as it sees itself: it says "ready" when it is at it, and ends
//! when it is killed, or with who started it.

use crate::actor::Actor;
use crate::endpoint::{end_with, say};
use crate::log::messages::{TAG, message};
use crate::log::{descriptors, storm};
use baton_log::{Buffer, Options, Priority, Reader};
use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

/// A program starts within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Reads datagrams.
    Datagrams,
    /// Reads a pipe.
    Pipe,
    /// Follows a log.
    Follower,
    /// Ordinary writers of a log, which write as fast as they can.
    Crowd,
    /// Writers that count what they have written, and are to be killed.
    Storm,
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
    fn name(self) -> &'static str {
        match self {
            Role::Datagrams => "datagrams",
            Role::Pipe => "pipe",
            Role::Follower => "follower",
            Role::Crowd => "crowd",
            Role::Storm => "storm",
        }
    }

    /// Starts it, and waits until it is at it.
    pub fn start(self, place: &Path, threads: usize) -> io::Result<Actor> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["log-role", self.name()]).arg(place);
        command.args(["--threads", &threads.to_string()]);
        command.args(["--starter", &std::process::id().to_string()]);
        let mut actor = Actor::start(&mut command)?;
        match actor.hear(PATIENCE).map_err(io::Error::other)?.as_str() {
            "ready\n" => Ok(actor),
            _ => Err(io::Error::other(format!("the {} says something else", self.name()))),
        }
    }
}

/// Plays the part until it is killed.
pub fn role(args: &RoleArgs) -> ExitCode {
    let played = end_with(args.starter).and_then(|()| play(args));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baton bench log-role {}: {error}", args.role.name());
            ExitCode::FAILURE
        }
    }
}

fn play(args: &RoleArgs) -> io::Result<()> {
    let ready = || say("ready");
    match args.role {
        Role::Datagrams => descriptors::read_datagrams(&args.place, ready),
        Role::Pipe => descriptors::read_pipe(&args.place, ready),
        Role::Follower => follow(&args.place),
        Role::Crowd => write(&args.place, args.threads),
        Role::Storm => storm::write(&args.place, args.threads, ready),
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
