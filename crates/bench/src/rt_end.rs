//! The processes of `baton bench rt`: a server, and ordinary callers.
//!
//! ```text
//!   server:  "ready"                     a handler says when it began, in eight bytes
//!   callers: "ready", once each has called    calls until it is killed
//! ```

use crate::party::{end_with, say};
use crate::service::{Service, now_ns};
use crate::stage::Stage;
use baton_driver::process::{Parcel, Process};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;

const CONTEXT: &str = "binder";
const SOCKET: &str = "rt.sock";
/// Of the server's pool.
const N_LOOPERS: usize = 4;

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Way {
    /// Baton's typed API.
    BatonTyped,
    /// A local stream socket.
    Unix,
}

impl Way {
    /// Both.
    pub const ALL: [Way; 2] = [Way::BatonTyped, Way::Unix];

    /// As rows have it.
    pub fn name(self) -> &'static str {
        match self {
            Way::BatonTyped => "baton-typed",
            Way::Unix => "unix",
        }
    }
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Answers.
    Server,
    /// Calls.
    Callers,
}

/// What to be.
#[derive(Debug, clap::Args)]
pub struct RtEndArgs {
    way: Way,
    role: Role,
    directory: PathBuf,
    broker: PathBuf,
    callers: usize,
    /// Process id of who started it: it ends with that one
    starter: u32,
}

/// One call: when its handler began.
pub type Call = Box<dyn FnMut() -> io::Result<u64> + Send>;

/// A server and its ordinary callers, which end with this.
pub struct Ends {
    way: Way,
    directory: PathBuf,
    broker: PathBuf,
    children: Vec<Child>,
}

impl Ends {
    /// Starts them, and waits until they are at it.
    pub fn start(stage: &Stage, way: Way, callers: usize) -> io::Result<Ends> {
        let place = stage.place(Service::Echo);
        let (directory, broker) = (place.directory.to_owned(), place.broker.to_owned());
        let mut ends = Ends { way, directory, broker, children: Vec::new() };
        ends.add(Role::Server, 0)?;
        if callers > 0 {
            ends.add(Role::Callers, callers)?;
        }
        Ok(ends)
    }

    fn add(&mut self, role: Role, callers: usize) -> io::Result<()> {
        let role = match role {
            Role::Server => "server",
            Role::Callers => "callers",
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "rt-end", self.way.name(), role]);
        command.arg(&self.directory).arg(&self.broker).arg(callers.to_string());
        command.arg(std::process::id().to_string()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().expect("it was asked for");
        self.children.push(child);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line == "ready\n" { Ok(()) } else { Err(io::Error::other("an end did not start")) }
    }

    /// A caller.
    pub fn caller(&self) -> io::Result<Call> {
        caller(self.way, &self.directory, &self.broker)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Who calls ends before who answers, and has nothing to complain of.
        for child in self.children.iter_mut().rev() {
            // One that has ended is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn caller(way: Way, directory: &Path, broker: &Path) -> io::Result<Call> {
    match way {
        Way::BatonTyped => {
            let process = Process::open(CONTEXT, broker).map_err(io::Error::other)?;
            let manager = process.context_manager().map_err(io::Error::other)?;
            let parcel = Parcel::from(&[0; 8][..]);
            Ok(Box::new(move || {
                let reply = process.call(&manager, 1, &parcel).map_err(io::Error::other)?;
                reply.data().try_into().map(u64::from_ne_bytes).map_err(io::Error::other)
            }))
        }
        Way::Unix => {
            let mut stream = UnixStream::connect(directory.join(SOCKET))?;
            Ok(Box::new(move || {
                let mut bytes = [0; 8];
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)?;
                Ok(u64::from_ne_bytes(bytes))
            }))
        }
    }
}

/// Plays an end until it is killed.
pub fn rt_end(args: &RtEndArgs) -> ExitCode {
    let done = end_with(args.starter).and_then(|()| match args.role {
        Role::Server => serve(args),
        Role::Callers => call(args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}, {:?}: {error}", args.way.name(), args.role);
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &RtEndArgs) -> io::Result<()> {
    match args.way {
        Way::BatonTyped => {
            let process = Process::open(CONTEXT, &args.broker).map_err(io::Error::other)?;
            let object = process.add_object(|_| Ok(Parcel::from(&now_ns().to_ne_bytes()[..])));
            process.become_context_manager(object)?;
            for _ in 1..N_LOOPERS {
                let process = process.clone();
                thread::spawn(move || process.serve());
            }
            say("ready")?;
            Err(process.serve().into())
        }
        Way::Unix => {
            let listener = UnixListener::bind(args.directory.join(SOCKET))?;
            say("ready")?;
            for stream in listener.incoming() {
                let mut stream = stream?;
                thread::spawn(move || {
                    let mut bytes = [0; 8];
                    while stream.read_exact(&mut bytes).is_ok() {
                        if stream.write_all(&now_ns().to_ne_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
            Ok(())
        }
    }
}

fn call(args: &RtEndArgs) -> io::Result<()> {
    let (told, called) = mpsc::channel();
    // Of Baton they are one process's threads, as the server's other users would be.
    for _ in 0..args.callers {
        let mut call = caller(args.way, &args.directory, &args.broker)?;
        let told = told.clone();
        thread::spawn(move || {
            let mut told = Some(told);
            loop {
                if let Err(error) = call() {
                    eprintln!("an ordinary caller: {error}");
                    return;
                }
                if let Some(told) = told.take() {
                    let _ = told.send(());
                }
            }
        });
    }
    called.iter().take(args.callers).for_each(drop);
    say("ready")?;
    loop {
        thread::park();
    }
}
