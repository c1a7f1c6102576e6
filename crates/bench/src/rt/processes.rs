//! A process of `baton bench rt`, beside the server, as the run starts it: it says "ready" when it
//! is at it, tells lines of JSON if it has found something, and ends when it is killed, or with who
//! started it.
//!
//! ```text
//!   others  ready, once each of its ordinary threads has called; they call as fast as they can
//!   urgent  ready, once all its real-time threads are warm; told to, calls periodically;
//!           { times of each thread }
//!   steady  ready; { told how often, calls; ready }
//!   misuser ready; misuses what it has
//!   hog     ready; { at each opening of the barrier: computes } { from when to when }
//!   late    ready; { at each opening of the barrier: waits, calls } { when, and how long it took }
//! ```
//!
//! [`Processes`] are those of one measurement, as the run sees them.

use crate::child::{self, ChildProcess, RoleArgs, say, tell};
use crate::order::Side;
use crate::pair::{Endpoint, Place, command};
use crate::rt::caller::{self, Call, CallerSchedule};
use crate::rt::inversion;
use crate::rt::misuse::{self, Misuse};
use crate::service::{Ask, Service};
use crate::system::System;
use crate::systems::{self, mqueue};
use crate::testbed::Testbed;
use baton_rt::SchedPriority;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::{io, thread};
use strum::IntoStaticStr;

/// What a process is.
#[derive(Clone, Debug, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// So many ordinary callers.
    Others(usize),
    /// Real-time callers, with calls of each, and the time from one to the next in microseconds.
    Urgent { n_callers: usize, schedule: CallerSchedule, n_calls: u32, period_us: u64 },
    /// A real-time caller that makes calls one after the other.
    Steady(CallerSchedule),
    /// Wants to hurt others.
    Misuser(Misuse),
    /// Keeps a processor from all that is less urgent, at each opening of a barrier.
    Hog(CallerSchedule, PathBuf),
    /// A real-time caller that calls meanwhile.
    Late(CallerSchedule, PathBuf),
}

/// What a process is, and how calls are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub role: Role,
    pub system: System,
    pub directory: PathBuf,
    pub broker: PathBuf,
}

/// Threads of a server's pool, which serve all callers.
const N_LOOPERS: usize = 4;

/// A server, and others, each known by its number. Dropped, they end, those that came last first,
/// and the server after them.
pub struct Processes<'a> {
    place: Place<'a>,
    system: System,
    children: Vec<ChildProcess>,
    servers: Vec<Endpoint>,
}

impl Processes<'_> {
    pub fn new(testbed: &Testbed, system: System) -> Processes<'_> {
        let place = testbed.place(Service::Clock);
        Processes { place, system, children: Vec::new(), servers: Vec::new() }
    }

    /// A server, whose thread has this priority if it has one for everybody; and its process id.
    pub fn server(&mut self, level: u8, cpu: Option<usize>) -> io::Result<u32> {
        let has_one = self.system == System::Mqueue && level > 0;
        let priority = has_one.then_some(SchedPriority::fifo(level));
        let place = Place { priority, ..self.place };
        let mut server = Endpoint::start(self.system, Side::Pool, place, N_LOOPERS)?;
        cpu.map_or(Ok(()), |cpu| server.go_to(cpu))?;
        let id = server.id();
        self.servers.push(server);
        Ok(id)
    }

    /// Starts a process, and waits until it is at it.
    pub fn start(&mut self, role: Role) -> io::Result<usize> {
        let (directory, broker) = (self.place.directory.to_owned(), self.place.broker.to_owned());
        let mut program = command(self.system, &broker)?;
        let name = (&role).into();
        let part = Part { role, system: self.system, directory, broker };
        self.children.push(ChildProcess::start_role(name, &mut program, "rt-role", &part)?);
        Ok(self.children.len() - 1)
    }

    pub fn get(&mut self, number: usize) -> &mut ChildProcess {
        &mut self.children[number]
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        // Callers end before servers, and have nothing to complain of.
        while self.children.pop().is_some() {}
        self.servers.clear();
        if self.system == System::Mqueue {
            mqueue::forget(self.place.directory);
        }
    }
}

/// Does the part until it is killed.
pub(crate) fn run_role(args: &RoleArgs) -> ExitCode {
    args.run(|part: Part| {
        let connect = |n| systems::clients(part.system, &part.directory, &part.broker, n);
        act(&part, &connect)
    })
}

/// Does the part with callers that may be another program's.
pub fn run_with(args: &RoleArgs, connect: fn(&Path) -> io::Result<Call>) -> ExitCode {
    args.run(|part: Part| act(&part, &|n| (0..n).map(|_| connect(&part.directory)).collect()))
}

fn act(part: &Part, callers: &dyn Fn(usize) -> io::Result<Vec<Call>>) -> io::Result<()> {
    let real_time = || {
        caller::stay_in_memory();
        Ok::<_, io::Error>(callers(1)?.pop().expect("as many as were asked for"))
    };
    match part.role {
        Role::Others(n_callers) => call_for_ever(callers(n_callers)?),
        Role::Urgent { n_callers, schedule, n_calls, period_us } => {
            caller::stay_in_memory();
            let callers = callers(n_callers)?;
            let wait = || say("ready").and_then(|()| order().map(drop));
            let periodic = (n_calls, period_us);
            tell(&caller::call_periodically(callers, schedule, periodic, wait)?)?;
            forever()
        }
        Role::Steady(schedule) => call_steadily(real_time()?, schedule),
        Role::Misuser(misuse) => misuse::commit(misuse, &part.broker),
        Role::Hog(schedule, ref barrier) => inversion::compute(schedule, barrier),
        Role::Late(schedule, ref barrier) => inversion::call_late(real_time()?, schedule, barrier),
    }
}

/// The next line of what it is told.
fn order() -> io::Result<String> {
    child::orders().next().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))
}

fn call_steadily(mut call: Call, schedule: CallerSchedule) -> io::Result<()> {
    caller::prepare(&mut call, schedule)?;
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
            let first = caller::ask(&mut call, Ask::Time);
            let failed = first.is_err();
            // Nobody hears of it after the first failure.
            let _ = told.send(first);
            while !failed && caller::ask(&mut call, Ask::Time).is_ok() {}
        });
    }
    called.iter().take(n_callers).try_for_each(|first| first.map(drop))?;
    say("ready")?;
    forever()
}
