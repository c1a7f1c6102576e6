//! How many instructions a call of four bytes takes in user space, client and server together:
//! counted by valgrind's callgrind, which does not waver as a clock does. Of a typed call, and of one
//! by the raw interface with what the program there does itself; and of two mailboxes alone, by which a call goes.
//!
//! The test starts itself under valgrind with two numbers of calls, and divides the difference.

#[path = "support/program.rs"]
mod program;

use baton_abi::lane::Kind;
use baton_abi::uapi::BC_ENTER_LOOPER;
use baton_broker::{Config, Running};
use baton_driver::process::{Parcel, Process};
use baton_shm::mailbox::{Mailbox, Seen};
use program::{Commands, Program};
use rustix::thread::CpuSet;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Ways to call, the instructions that a call may take (what it takes, and one twentieth), and how many more calls the longer
/// run makes. Of the raw interface half are the test's own. See docs/performance.md.
const WAYS: [Way; 4] = [
    ("mailboxes", ping_pong, 180, 50_000),
    ("line", call_by_line, 400, 50_000),
    ("typed", call, 715, 50_000),
    ("raw", exchange, 10_700, 10_000),
];
type Way = (&'static str, fn(u64), u64, u64);
/// Calls of the shorter run.
const CALLS: u64 = 2_000;
/// Most runs of each.
const RUNS: usize = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, calls] = &arguments[..]
        && let Some((_, make, ..)) = WAYS.iter().find(|(name, ..)| name == hidden)
    {
        on_one_processor();
        make(calls.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        println!("skipped: not an optimised build");
        return ExitCode::SUCCESS;
    }
    let mut too_many = false;
    for (name, _, most, more) in WAYS {
        let Some(each) = of_a_call(name, most, more) else {
            println!("skipped: valgrind is not installed");
            return ExitCode::SUCCESS;
        };
        println!("{name}: {each} instructions a call, of {most}");
        too_many |= each > most;
    }
    if too_many { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Nobody spins there.
fn on_one_processor() {
    let mut first = CpuSet::new();
    first.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &first).expect("a processor on which it runs");
}

/// The same as [`call`], by command buffers.
fn exchange(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Program::open(broker.socket());
    server.become_manager();
    let client = Program::open(broker.socket());
    let looper = std::thread::spawn(move || {
        let mut commands = Commands::default().put(BC_ENTER_LOOPER, &[]);
        for _ in 0..calls {
            let request = server.await_message(commands);
            commands = Commands::default().free(&request).reply(&request.data);
        }
        server.exchange_in(&commands, &mut []).expect("it is taken");
    });
    let mut commands = Commands::default();
    for number in 0..calls {
        let request = (number as u32).to_ne_bytes();
        let reply = client.await_message(commands.call(0, &request));
        assert_eq!(reply.data, request);
        commands = Commands::default().free(&reply);
    }
    looper.join().expect("it ends");
}

/// A function called by a line, by a client and a server of one process, whose instructions are counted together.
fn call_by_line(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Process::open("binder", broker.socket()).expect("open");
    let object = server.add_function(|_, value: u32| Ok(value));
    server.become_context_manager(object).expect("nobody else is");
    let serving = server.clone();
    let looper = std::thread::spawn(move || serving.serve());
    let client = Process::open("binder", broker.socket()).expect("open");
    let manager = client.context_manager().expect("there is one");
    let mut line = client.line(&manager).expect("its own handle");
    let mut sum = 0;
    for number in 0..calls {
        let answer: u32 = line.call(1, &(number as u32)).expect("answered");
        sum += u64::from(answer);
    }
    assert_eq!(sum, (0..calls).sum());
    server.close();
    looper.join().expect("it ends");
}

/// The same of parcels.
fn call(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Process::open("binder", broker.socket()).expect("open");
    let object = server.add_object(|request| Ok(Parcel::from(request.data())));
    server.become_context_manager(object).expect("nobody else is");
    let serving = server.clone();
    let looper = std::thread::spawn(move || serving.serve());
    let client = Process::open("binder", broker.socket()).expect("open");
    let manager = client.context_manager().expect("there is one");
    let mut sum = 0;
    for number in 0..calls {
        let request = (number as u32).to_ne_bytes();
        let reply = client.call(&manager, 1, &Parcel::from(&request[..])).expect("answered");
        sum += u64::from(u32::from_ne_bytes(reply.data().try_into().expect("four bytes")));
    }
    assert_eq!(sum, (0..calls).sum());
    server.close();
    looper.join().expect("it ends");
}

/// A message's place, with as many words before its bytes as a lane's.
#[derive(Default)]
struct Area {
    mailbox: AtomicU32,
    kind: AtomicU32,
    rest: [AtomicU64; 7],
    data: AtomicU32,
}

impl Area {
    fn post(&self, kind: Kind, data: u32) {
        self.kind.store(kind as u32, Relaxed);
        self.rest.iter().for_each(|word| word.store(0, Relaxed));
        self.data.store(data, Relaxed);
        Mailbox::new(&self.mailbox).post();
    }

    fn take(&self, kind: Kind) -> u32 {
        let mailbox = Mailbox::new(&self.mailbox);
        while mailbox.wait(None) != Ok(Seen::Message) {}
        assert_eq!(self.kind.load(Relaxed), kind as u32);
        assert_eq!(self.rest.iter().fold(0, |all, word| all | word.load(Relaxed)), 0);
        let data = self.data.load(Relaxed);
        mailbox.clear();
        data
    }
}

/// Nothing but a message there and one back, each with its header written and checked.
fn ping_pong(calls: u64) {
    let areas = <[Area; 2]>::default();
    let [requests, answers] = &areas;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..calls).for_each(|_| answers.post(Kind::Reply, requests.take(Kind::Request)));
        });
        for number in 0..calls {
            requests.post(Kind::Request, number as u32);
            assert_eq!(answers.take(Kind::Reply), number as u32);
        }
    });
}

/// The least of as many runs as it takes to be at most `most`: on a busy machine, where others want the processor, the two sleep
/// instead of letting each other by, which takes more.
fn of_a_call(name: &str, most: u64, more: u64) -> Option<u64> {
    let mut least = u64::MAX;
    for _ in 0..RUNS {
        let [short, long] = [CALLS, CALLS + more].map(|calls| count(name, calls));
        least = least.min((long? - short?) / more);
        if least <= most {
            break;
        }
    }
    Some(least)
}

fn count(name: &str, calls: u64) -> Option<u64> {
    let program = std::env::current_exe().expect("our own program");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output = command.arg(&program).args([name, &calls.to_string()]).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    Some(collected.expect("callgrind's sum").trim().parse().expect("a number"))
}
