//! Programs from a zygote: how soon they run, and how much memory one more of them takes.
//!
//! *start* is from the start of `baton dalvikvm` to `main`, and *request* from the call of the
//! zygote's service, as a process makes it that has found the service before. *memory* is what a
//! process shares with nobody (`Private_Dirty` of smaps_rollup), once the program has collected its
//! garbage and waits: of a machine that was started by itself, and of the second one of a zygote.

use crate::child::{ChildProcess, PATIENCE};
use crate::java_binder::Names;
use crate::java_programs::{baton, number, program, until_main};
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results, Value, median_in, ratio};
use crate::service::Service;
use crate::testbed::Testbed;
use baton::{Handle, Process, ServiceManager};
use baton_services::process::helper::{Ended, Start};
use baton_services::zygote;
use baton_shm::clock::now_ns;
use rustix::pipe::{PipeFlags, pipe_with};
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

const ZYGOTE: &str = "bench.zygote";
const PRIVATE_KIB: &str = "private_kib";
/// Starts of each kind in a round.
const N_STARTS: usize = 20;
/// A zygote's collector, and the names of the rows.
const COLLECTORS: [[&str; 3]; 2] = [
    ["-Xgc:mark-sweep", "baton-zygote-mark-sweep", "baton-mark-sweep"],
    ["-Xgc:counting", "baton-zygote-counting", "baton-counting"],
];

fn key(system: &'static str, case: &'static str) -> RowKey {
    RowKey::new(system, case).heading(format!("zygote: {case}"))
}

/// A zygote, and the programs that it is to start.
struct Zygote<'a> {
    socket: &'a Path,
    collector: &'static str,
    baton: PathBuf,
    dex: PathBuf,
    service: Handle,
    _process: ChildProcess,
}

impl Zygote<'_> {
    /// The command of a program, from the zygote or not.
    fn command(&self, is_forked: bool, class: &str) -> Command {
        let mut command = Command::new(&self.baton);
        command.arg("dalvikvm").env("BATON_SOCKET", self.socket);
        match is_forked {
            true => command.args(["--from-zygote", ZYGOTE]),
            false => command.arg(self.collector),
        };
        command.arg("-cp").arg(&self.dex).arg(class);
        command
    }

    /// The time from a call to `main`, in nanoseconds.
    fn request(&self) -> Result<u64, Box<dyn Error>> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let null = File::open("/dev/null")?;
        let directory: OwnedFd = File::open("/")?.into();
        let dex = self.dex.display().to_string();
        let wanted = Start {
            arguments: ["dalvikvm", "-cp", &dex, "Hello"].map(str::to_owned).into(),
            uid: None,
            environment: Some(Vec::new()),
        };
        let fds = [null.as_fd(), tell.as_fd(), tell.as_fd(), directory.as_fd()];
        let before_ns = now_ns();
        let child = zygote::start(&self.service, &wanted, fds)?;
        drop(tell);
        let said = io::read_to_string(File::from(told))?;
        match child.wait() {
            Ended::Code(0) => Ok(number::<u64>(&said)?.saturating_sub(before_ns)),
            other => Err(format!("{other}: {said}").into()),
        }
    }

    /// A program that waits, and its memory that it shares with nobody.
    fn resident(&self, is_forked: bool) -> io::Result<(ChildProcess, f64)> {
        let mut command = self.command(is_forked, "Resident");
        let mut process = ChildProcess::start("program", &mut command)?;
        let pid = process.hear(PATIENCE)?;
        Ok((process, private_kib(&pid)?))
    }
}

/// `Private_Dirty` of a process, in KiB.
fn private_kib(pid: &str) -> io::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    let value = value.and_then(|it| it.trim().strip_suffix(" kB")?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("{pid} tells no private memory")))
}

/// Measures zygotes with either collector.
pub fn measure(found: &mut Results, rounds: u32) {
    for names in COLLECTORS {
        let done = take(found, names, rounds);
        found.ok(key(names[1], "start"), done);
    }
}

fn take(
    found: &mut Results,
    [collector, forked, own]: [&'static str; 3],
    rounds: u32,
) -> Result<(), Box<dyn Error>> {
    let testbed = Testbed::start()?;
    let socket = testbed.place(Service::Echo).broker;
    let (baton, dex) = (baton()?, program("vm-kernels.dex")?);
    let _names = Names::start(socket)?;
    let mut command = Command::new(&baton);
    command.arg("--socket").arg(socket).args(["zygote", "--name", ZYGOTE, collector]);
    let mut process = ChildProcess::start("zygote", &mut command)?;
    process.hear(PATIENCE)?;
    // A manager does not call itself.
    let client = Process::open("binder", socket)?;
    let service = ServiceManager::find(&client)?.service(ZYGOTE)?;
    let service = service.ok_or("the zygote is not there")?;
    let zygote = Zygote { socket, collector, baton, dex, service, _process: process };
    for _ in 0..rounds {
        let start = |_| until_main(zygote.command(true, "Hello"));
        let starts: io::Result<Vec<u64>> = (0..N_STARTS).map(start).collect();
        found.add_times(key(forked, "start"), starts);
        let requests: Result<Vec<u64>, _> = (0..N_STARTS).map(|_| zygote.request()).collect();
        found.add_times(key(forked, "request"), requests);
        let private_kib = |is_forked| zygote.resident(is_forked).map(|(_, kib)| kib);
        found.add_value(key(own, "memory"), PRIVATE_KIB, private_kib(false));
        let _first = zygote.resident(true)?;
        found.add_value(key(forked, "memory"), PRIVATE_KIB, private_kib(true));
    }
    Ok(())
}

/// Milliseconds to `main`, and how much of the first machine's memory the second one takes.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    const PRIVATE: Value = |rounds| rounds.values(PRIVATE_KIB);
    let mut ratios = Vec::new();
    for [_, forked, own] in COLLECTORS {
        let name = forked.trim_start_matches("baton-").replace('-', "_");
        for (case, bar) in [("start", None), ("request", Some(Bar::AtMost(3.0)))] {
            let median_ms = median_in(1e6, found.find(&key(forked, case)), P50);
            ratios.push(Ratio::new(format!("{name}_{case}_ms"), median_ms, bar));
        }
        let [second, first] = [forked, own].map(|system| found.find(&key(system, "memory")));
        let name = format!("{name}_memory_of_second_over_first");
        ratios.push(ratio(name, second, first, PRIVATE, Bar::AtMost(0.25)));
    }
    ratios
}
