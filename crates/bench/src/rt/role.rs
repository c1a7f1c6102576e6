//! A process of `baton bench rt`, as it sees itself: it says "ready" when it is at it, tells lines
//! of JSON if it has found something, and ends when it is killed, or with who started it.
//!
//! ```text
//!   server  ready; serves
//!   others  ready, once each of its ordinary threads has called; they call as fast as they can
//!   urgent  ready, once all its real-time threads are warm; told to, calls periodically;
//!           { times of each thread }
//!   steady  ready; { told how often, calls; ready }
//!   misuser ready; misuses what it has
//!   hog     ready; { at each opening of the gate: computes } { from when to when }
//!   late    ready; { at each opening of the gate: waits, calls } { when, and how long it took }
//! ```

use crate::child::{self, say, tell};
use crate::processors;
use crate::rt::caller::{self, Schedule};
use crate::rt::inversion;
use crate::rt::misuse::{self, Misuse};
use crate::rt::request::Request;
use crate::rt::way::{Call, Ends, Place, Way};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use strum::IntoStaticStr;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// Answers.
    Server,
    /// Ordinary callers.
    Others,
    /// Real-time callers.
    Urgent,
    /// A real-time caller that makes calls one after the other.
    Steady,
    /// Wants to hurt others.
    Misuser,
    /// Keeps a processor from all that is less urgent.
    Hog,
    /// A real-time caller that calls meanwhile.
    Late,
}

impl Role {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What to be.
#[derive(Clone, Debug, clap::Args)]
pub struct RoleArgs {
    /// How calls are made
    pub way: Way,
    /// Which part
    pub role: Role,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Process id of who started it: it ends with that one
    #[arg(long)]
    pub starter: u32,
    /// Where all its threads run
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Threads that call
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    #[command(flatten)]
    pub(crate) schedule: Schedule,
    /// For what a hog and a late caller wait
    #[arg(long)]
    pub gate: Option<PathBuf>,
    /// What a misuser does
    #[arg(long)]
    pub misuse: Option<Misuse>,
}

/// Does the part until it is killed.
pub(crate) fn role(args: &RoleArgs) -> ExitCode {
    let elsewhere = |_: &Place| Err(io::ErrorKind::Unsupported.into());
    let none = Ends { serve: elsewhere, callers: |_, _| Err(io::ErrorKind::Unsupported.into()) };
    run_with(args, args.way.ends().unwrap_or(none))
}

/// Does the part with ends that may be another program's.
pub fn run_with(args: &RoleArgs, ends: Ends) -> ExitCode {
    let name = format!("{}, {}", args.way.name(), args.role.name());
    child::run_part(name, args.starter, || {
        processors::go_to(args.cpu)?;
        act(args, ends)
    })
}

fn act(args: &RoleArgs, ends: Ends) -> io::Result<()> {
    let RoleArgs { place, schedule, threads, gate, .. } = args;
    match args.role {
        Role::Server => (ends.serve)(place),
        Role::Others => call_for_ever((ends.callers)(place, *threads)?),
        Role::Urgent => {
            caller::stay_in_memory();
            let callers = (ends.callers)(place, *threads)?;
            let wait = || say("ready").and_then(|()| order().map(drop));
            tell(&caller::call_periodically(callers, place.level, schedule, wait)?)?;
            forever()
        }
        Role::Steady => {
            caller::stay_in_memory();
            let call = (ends.callers)(place, 1)?.pop().expect("as many as were asked for");
            call_steadily(call, place.level, schedule)
        }
        Role::Misuser => misuse::commit(args.misuse.ok_or(io::ErrorKind::InvalidInput)?, place),
        Role::Hog => inversion::compute(place.level, asked(gate)?),
        Role::Late => {
            caller::stay_in_memory();
            let call = (ends.callers)(place, 1)?.pop().expect("as many as were asked for");
            inversion::call_late(call, place.level, schedule, asked(gate)?)
        }
    }
}

fn asked(gate: &Option<PathBuf>) -> io::Result<&Path> {
    gate.as_deref().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The next line of what it is told.
fn order() -> io::Result<String> {
    child::orders().next().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))
}

fn call_steadily(mut call: Call, level: u8, schedule: &Schedule) -> io::Result<()> {
    caller::prepare(&mut call, level, schedule)?;
    loop {
        say("ready")?;
        let n_calls: u32 = order()?.parse().map_err(io::Error::other)?;
        for _ in 0..n_calls {
            caller::call_once(&mut call)?;
        }
    }
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

/// Ordinary threads, which know no pause.
fn call_for_ever(callers: Vec<Call>) -> io::Result<()> {
    let (told, called) = mpsc::channel();
    let n_callers = callers.len();
    for mut call in callers {
        let told = told.clone();
        thread::spawn(move || {
            let first = call(Request::Time);
            let failed = first.is_err();
            // Nobody hears of it after the first failure.
            let _ = told.send(first);
            while !failed && call(Request::Time).is_ok() {}
        });
    }
    called.iter().take(n_callers).try_for_each(|first| first.map(drop))?;
    say("ready")?;
    forever()
}
