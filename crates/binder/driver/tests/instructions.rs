//! How many instructions a call of four bytes takes in user space, client and server together,
//! where neither waits: counted by valgrind's callgrind. Typed calls, calls by the
//! raw interface with its program's own part, and the two mailboxes alone by which a call goes.
//!
//! Each end runs alone, beside a peer that one thread plays along with it ([`Peer`]): what it waits
//! for is there before it looks. So the count does not depend on who gets a processor when. It
//! stands for two ends on two processors that meet each other's messages at the first look; that
//! they do is for `baton bench rpc --check`. One-way transactions are sent and taken by one thread.
//!
//! The test starts itself under valgrind with two numbers of calls, and divides the difference.

#[path = "support/program.rs"]
mod program;

use baton::{Parcel, Process};
use baton_abi::control::End;
use baton_abi::lane::{AREA_BYTES, Carried, ChainEntry, Kind, Message, area_at, header};
use baton_abi::uapi::{BC_ENTER_LOOPER, BC_TRANSACTION, BR_TRANSACTION_COMPLETE, TF_ONE_WAY};
use baton_broker::{Config, Running};
use baton_shm::mailbox::{Mailbox, Seen};
use program::{Commands, Program};
use rustix::thread::CpuSet;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

/// Ways to call, the instructions that a call may take without the peers', and how many more calls
/// the longer run makes.
const WAYS: [Way; 5] = [
    (MAILBOXES, post_and_take, 130, 100_000),
    ("typed", call, 800, 400_000),
    ("typed with an object", call_with_object, 3_500, 100_000),
    ("raw", exchange, 10_600, 50_000),
    (RAW_ONE_WAY, exchange_one_way, 14_900, 50_000),
];
type Way = (&'static str, fn(u64), u64, u64);
/// The peers' own part of all but the first.
const PEERS: Way = ("peers", play, 0, 100_000);
const MAILBOXES: &str = "mailboxes";
const RAW_ONE_WAY: &str = "raw one-way";
/// Calls of the shorter run.
const CALLS: u64 = 2_000;
/// Calls after which each end knows the other, and a looper is pinned to its only caller's lane.
const KNOWN_AFTER: u64 = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, calls] = &arguments[..]
        && let Some((_, make, ..)) = WAYS.iter().chain(&[PEERS]).find(|(name, ..)| name == hidden)
    {
        on_one_processor();
        make(calls.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        println!("skipped: instructions (not an optimised build)");
        return ExitCode::SUCCESS;
    }
    let Some(peers) = of_a_call(PEERS) else {
        println!("skipped: instructions (valgrind is not installed)");
        return ExitCode::SUCCESS;
    };
    let mut too_many = false;
    for way in WAYS {
        let (name, _, most, _) = way;
        let all = of_a_call(way).expect("valgrind is installed");
        let each = if [MAILBOXES, RAW_ONE_WAY].contains(&name) { all } else { all - peers };
        println!("{name}: {each} instructions a call, of {most}");
        too_many |= each > most;
    }
    if too_many { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// So that nobody moves, and nobody spins before the peers say where they are.
fn on_one_processor() {
    let mut first = CpuSet::new();
    first.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &first).expect("a processor on which it runs");
}

/// The other end of the first lane of the only channel, by its memory: it repeats the message that
/// it sent last, with other data.
#[derive(Clone, Copy)]
struct Peer {
    head: usize,
    lane: usize,
    /// How many objects a request carries.
    objects: usize,
}

/// A processor on which no end runs.
const ELSEWHERE: u32 = 4096;

impl Peer {
    /// Of a channel that both ends have used.
    fn find(objects: usize) -> Peer {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
        let hex = |word: &str| usize::from_str_radix(word, 16).expect("a number");
        // Where a byte of the channel's file is mapped.
        let place = |at: usize| {
            let channels = maps.lines().filter(|line| line.contains("/memfd:baton-channel"));
            let mut places = channels.filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let (start, end) = words.next()?.split_once('-')?;
                let before = at.checked_sub(hex(words.nth(1)?))?;
                (before < hex(end) - hex(start)).then(|| hex(start) + before)
            });
            places.next().expect("it is mapped")
        };
        Peer { head: place(0), lane: place(area_at(0, End::Server)), objects }
    }

    fn word(self, at: usize) -> &'static AtomicU32 {
        // SAFETY: within a channel's map, which stays as long as its ends are open; whoever else
        // touches these words does so by atomics.
        unsafe { AtomicU32::from_ptr(at as *mut u32) }
    }

    /// Says that it runs on another processor than the end that is counted, which therefore looks
    /// before it sleeps.
    fn is_elsewhere(self, end: End) {
        let at = match end {
            End::Server => header::CLIENT_PROCESSOR,
            End::Client => header::SERVER_PROCESSOR,
        };
        self.word(self.head + at).store(ELSEWHERE, Relaxed);
    }

    /// The mailbox from which an end takes.
    fn inbox(self, end: End) -> Mailbox<'static> {
        Mailbox::new(self.word(self.area(end)))
    }

    fn area(self, inbox_of: End) -> usize {
        self.lane + area_at(0, inbox_of) - area_at(0, End::Server)
    }

    /// Sends a request to the server, or an answer to the client.
    fn send(self, to: End, data: u32) {
        let chain = match to {
            End::Server => size_of::<ChainEntry>() + self.objects * size_of::<Carried>(),
            End::Client => 0,
        };
        self.word(self.area(to) + size_of::<Message>() + chain).store(data, Relaxed);
        self.inbox(to).post();
    }

    /// Takes what an end has sent: a looper that is pinned watches on.
    fn take_from(self, end: End) {
        match end {
            End::Client => self.inbox(End::Server).clear_watched(),
            End::Server => self.inbox(End::Client).clear(),
        }
    }
}

/// The handler only answers.
const ANSWERS: u64 = u64::MAX;
/// It answers by hand, and keeps its looper until the client's end has been counted. Then it plays
/// the client.
const KEEPS: u64 = u64::MAX - 1;

/// The two ends of so many calls, and what their handler does.
struct Stage {
    calls: u64,
    /// [`ANSWERS`], [`KEEPS`], or how many calls more it makes as the client.
    act: AtomicU64,
    peer: OnceLock<Peer>,
    /// The client's end has been counted; and the server's.
    counted: [Barrier; 2],
}

impl Stage {
    fn new(calls: u64) -> Arc<Stage> {
        let (act, peer) = (AtomicU64::new(ANSWERS), OnceLock::new());
        Arc::new(Stage { calls, act, peer, counted: [(); 2].map(|()| Barrier::new(2)) })
    }

    /// In the handler of each call.
    #[inline(always)]
    fn handle(&self, value: u32) {
        if let Some(&peer) = self.peer.get() {
            match self.act.load(Relaxed) {
                ANSWERS => {}
                KEEPS => self.keep(peer, value),
                left => {
                    peer.take_from(End::Server);
                    self.call(peer, left, value);
                }
            }
        }
    }

    #[inline(always)]
    fn call(&self, peer: Peer, left: u64, value: u32) {
        match left.checked_sub(1) {
            Some(left) => {
                self.act.store(left, Relaxed);
                peer.send(End::Server, value);
            }
            None => _ = self.counted[1].wait(),
        }
    }

    #[cold]
    fn keep(&self, peer: Peer, value: u32) {
        peer.send(End::Client, value);
        self.counted[0].wait();
        peer.is_elsewhere(End::Server);
        self.call(peer, self.calls, value);
    }

    /// Counts both ends of the calls, which `call` makes.
    fn count(&self, objects: usize, mut call: impl FnMut(u32) -> u32) {
        let mut check = |value: u32| assert_eq!(call(value), value);
        (0..KNOWN_AFTER).for_each(|number| check(number as u32));
        let peer = *self.peer.get_or_init(|| Peer::find(objects));
        self.act.store(KEEPS, Relaxed);
        check(0);
        peer.is_elsewhere(End::Client);
        for number in 0..self.calls {
            peer.send(End::Client, number as u32);
            check(number as u32);
            peer.take_from(End::Client);
        }
        self.counted.iter().for_each(|counted| _ = counted.wait());
    }
}

/// The peers alone, in memory in which nobody is.
fn play(calls: u64) {
    let lane = vec![0_u64; 2 * AREA_BYTES / 8].leak().as_ptr().addr();
    let stage = Stage::new(calls);
    let peer = *stage.peer.get_or_init(|| Peer { head: lane, lane, objects: 0 });
    stage.act.store(calls, Relaxed);
    for number in 0..calls {
        let number = black_box(number as u32);
        peer.send(End::Client, number);
        stage.handle(number);
        peer.take_from(End::Client);
    }
}

/// An object of the typed API.
fn call(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Process::open("binder", broker.socket()).expect("open");
    let stage = Stage::new(calls);
    let handler = Arc::clone(&stage);
    let object = server
        .object(move |request| {
            handler.handle(value_of(request.data()));
            Ok(Parcel::from(request.data()))
        })
        .add();
    server.become_context_manager(object).expect("nobody else is");
    let serving = server.clone();
    let looper = thread::spawn(move || serving.serve());
    let client = Process::open("binder", broker.socket()).expect("open");
    let manager = client.context_manager().expect("there is one");
    stage.count(0, |value| {
        let request = value.to_ne_bytes();
        let reply = manager.call(1, &Parcel::from(&request[..])).expect("answered");
        value_of(reply.data())
    });
    server.close();
    looper.join().expect("it ends");
}

/// The like of [`call`], with an object of the client's that the server holds already.
fn call_with_object(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Process::open("binder", broker.socket()).expect("open");
    let stage = Stage::new(calls);
    let (handler, kept) = (Arc::clone(&stage), OnceLock::new());
    let object = server
        .object(move |request| {
            kept.get_or_init(|| request.received.handle(0).expect("the client's object"));
            let value = request.data().get(..4).expect("four bytes");
            handler.handle(value_of(value));
            Ok(Parcel::from(value))
        })
        .add();
    server.become_context_manager(object).expect("nobody else is");
    let serving = server.clone();
    let looper = thread::spawn(move || serving.serve());
    let client = Process::open("binder", broker.socket()).expect("open");
    let own = client.object(|_| Ok(Parcel::new())).add();
    let manager = client.context_manager().expect("there is one");
    stage.count(1, |value| {
        let mut request = Parcel::from(&value.to_ne_bytes()[..]);
        request.write_object(own);
        value_of(manager.call(1, &request).expect("answered").data())
    });
    server.close();
    looper.join().expect("it ends");
}

fn value_of(data: &[u8]) -> u32 {
    u32::from_ne_bytes(data.try_into().expect("four bytes"))
}

/// The like of [`call`], by command buffers.
fn exchange(calls: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Program::open(broker.socket());
    server.become_manager();
    let client = Program::open(broker.socket());
    let stage = Stage::new(calls);
    let serving = Arc::clone(&stage);
    let looper = thread::spawn(move || {
        let mut commands = Commands::default().put(BC_ENTER_LOOPER, &[]);
        // One of them is that with which the looper is kept.
        for _ in 0..KNOWN_AFTER + 1 + calls {
            let request = server.await_message(commands);
            serving.handle(value_of(&request.data));
            commands = Commands::default().free(&request).reply(&request.data);
        }
        server.exchange_in(&commands, &mut []).expect("it is taken");
    });
    let mut commands = Commands::default();
    stage.count(0, |value| {
        let calling = std::mem::take(&mut commands).call(0, &value.to_ne_bytes());
        let reply = client.await_message(calling);
        commands = Commands::default().free(&reply);
        value_of(&reply.data)
    });
    looper.join().expect("it ends");
}

/// One-way transactions to one node, by command buffers. One thread is client and looper in turn:
/// when it frees a message, the next one waits.
fn exchange_one_way(transactions: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).expect("broker");
    let server = Program::open(broker.socket());
    server.become_manager();
    let client = Program::open(broker.socket());
    let send = |value: u32| {
        let commands = Commands::default();
        let returned = client
            .exchange(commands.send(BC_TRANSACTION, 0, TF_ONE_WAY, &value.to_ne_bytes()))
            .expect("it is taken");
        assert!(returned.commands().contains(&BR_TRANSACTION_COMPLETE));
    };
    let mut commands = Commands::default().put(BC_ENTER_LOOPER, &[]);
    send(0);
    for value in 0..transactions as u32 {
        send(value + 1);
        let message = server.await_message(commands);
        assert_eq!(value_of(&message.data), value);
        commands = Commands::default().free(&message);
    }
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
        assert_eq!(mailbox.wait(None), Ok(Seen::Message));
        assert_eq!(self.kind.load(Relaxed), kind as u32);
        assert_eq!(self.rest.iter().fold(0, |all, word| all | word.load(Relaxed)), 0);
        let data = self.data.load(Relaxed);
        mailbox.clear();
        data
    }
}

/// Nothing but a message there and one back, each with its header written and checked, all by one
/// thread.
fn post_and_take(calls: u64) {
    let [requests, answers] = <[Area; 2]>::default();
    for number in 0..calls {
        requests.post(Kind::Request, number as u32);
        answers.post(Kind::Reply, requests.take(Kind::Request));
        assert_eq!(answers.take(Kind::Reply), number as u32);
    }
}

fn of_a_call((name, _, _, more): Way) -> Option<u64> {
    let [short, long] = [CALLS, CALLS + more].map(|calls| count(name, calls));
    Some((long? - short?) / more)
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
