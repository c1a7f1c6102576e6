//! `baton am serve`, the broker and the service manager under SIGKILL at random moments, while
//! others broadcast.
//!
//! Whatever the service has accepted reaches each receiver exactly once, whichever service calls
//! it. Whatever it has not answered reaches each receiver at most once. A broadcast that a later
//! one replaces reaches all receivers or none, and the last one all. Receivers register once.
//!
//! `BROADCAST_KILL_ROUNDS=N` for other than 5 rounds, `KILL_SEED=N` to choose the same victims and
//! delays.

use baton::{Process, SchedPriority};
use baton_rt::schedule::set_priority;
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::{BroadcastError, Delivery};
use baton_services::broadcast::level::Outcome;
use baton_services::broadcast::protocol::Send;
use baton_services::intent::flags::RECEIVER_REPLACE_PENDING;
use baton_services::intent::{Intent, IntentFilter, Value};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 5;
const N_RECEIVERS: i32 = 3;
/// Broadcasts of a sender that have not arrived everywhere, at most.
const MOST_UNDER_WAY: usize = 10;
/// The levels of the senders.
const LEVELS: [u8; 3] = [0, 40, 80];
/// The receiver of the results.
const RESULT: i32 = -1;

/// A program that is killed.
struct Victim {
    line: &'static [&'static str],
    child: Child,
}

impl Victim {
    /// Starts a program, and waits until it says that it is ready.
    fn start(directory: &Path, line: &'static [&'static str]) -> Victim {
        let address = directory.join(format!("ready-{}", line[0]));
        let _ = std::fs::remove_file(&address);
        let ready = UnixDatagram::bind(&address).unwrap();
        ready.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let said = directory.join(format!("stderr-{}", line[0]));
        let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
        command.arg("--socket").arg(directory.join("broker.sock")).args(line);
        command.env("NOTIFY_SOCKET", &address).env("XDG_RUNTIME_DIR", directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        let mut child = command.spawn().unwrap();
        let mut text = [0; 64];
        let n_bytes = loop {
            match ready.recv(&mut text) {
                Ok(n_bytes) => break n_bytes,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{line:?}: {}", std::fs::read_to_string(&said).unwrap());
        };
        assert!(text[..n_bytes].starts_with(b"READY=1"));
        Victim { line, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self, directory: &Path) {
        *self = Victim::start(directory, self.line);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a broadcast goes to its receivers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Parallel,
    Ordered,
    /// A later one of the same sender replaces it while no receiver has it.
    Replaceable,
}

/// A broadcast that the service was asked for.
#[derive(Clone, Copy)]
struct Sent {
    kind: Kind,
    level: u8,
    is_accepted: bool,
}

/// What was sent, and what arrived.
#[derive(Default)]
struct Ledger {
    /// Broadcasts by number.
    sent: Mutex<BTreeMap<u64, Sent>>,
    /// How often a receiver has got a broadcast.
    arrived: Mutex<HashMap<(i32, u64), u32>>,
    /// The results of ordered broadcasts: the sender's level, the number, the receivers' count.
    results: Mutex<Vec<(u8, u64, i32)>>,
    next: AtomicU64,
    n_unanswered: AtomicU64,
    is_over: AtomicBool,
}

fn number(delivery: &Delivery) -> u64 {
    match delivery.intent().extras.get("n") {
        Some(Value::Long(number)) => *number as u64,
        other => panic!("{other:?} is no number"),
    }
}

impl Ledger {
    fn arrive(&self, receiver: i32, number: u64) {
        *self.arrived.lock().unwrap().entry((receiver, number)).or_default() += 1;
    }

    fn has_arrived(&self, receiver: i32, number: u64) -> bool {
        self.arrived.lock().unwrap().contains_key(&(receiver, number))
    }

    /// Sends broadcasts until the end.
    fn send(self: &Arc<Self>, service: &BroadcastManager, level: u8) {
        if level != 0 {
            let _ = set_priority(SchedPriority::fifo(level), None);
        }
        let mut under_way: Vec<u64> = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            under_way.retain(|number| {
                (0..N_RECEIVERS).any(|receiver| !self.has_arrived(receiver, *number))
            });
            if under_way.len() >= MOST_UNDER_WAY {
                thread::park_timeout(Duration::from_millis(1));
                continue;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let kind = match number % 4 {
                0 => Kind::Ordered,
                1 => Kind::Replaceable,
                _ => Kind::Parallel,
            };
            let mut intent = Intent::new("news");
            intent.extras.put("n", number as i64);
            if kind == Kind::Replaceable {
                intent.flags |= RECEIVER_REPLACE_PENDING;
                intent.categories.insert(format!("level-{level}"));
            }
            let mut sent = Sent { kind, level, is_accepted: false };
            self.sent.lock().unwrap().insert(number, sent);
            let answer = match kind {
                Kind::Ordered => {
                    let ledger = Arc::clone(self);
                    let result = move |delivery: Delivery| {
                        let code = delivery.outcome().code;
                        ledger.results.lock().unwrap().push((level, number, code));
                        ledger.arrive(RESULT, number);
                    };
                    service.send_ordered(&Send { intent, ..Send::default() }, result)
                }
                Kind::Parallel | Kind::Replaceable => service.send(&intent),
            };
            match answer {
                Ok(n_receivers) => {
                    assert_eq!(n_receivers, N_RECEIVERS, "registrations come back");
                    sent.is_accepted = true;
                    self.sent.lock().unwrap().insert(number, sent);
                    if kind != Kind::Replaceable {
                        under_way.push(number);
                    }
                    if level != 0 {
                        // Ordinary threads get their part of the processors.
                        thread::park_timeout(Duration::from_millis(1));
                    }
                }
                Err(BroadcastError::Refused(why)) => panic!("{why:?}"),
                Err(_) => {
                    self.n_unanswered.fetch_add(1, Ordering::Relaxed);
                    thread::park_timeout(Duration::from_millis(1));
                }
            }
        }
    }

    /// Accepted broadcasts that a receiver has not got, and no later broadcast has replaced.
    fn missing(&self) -> Vec<(i32, u64)> {
        let sent = self.sent.lock().unwrap();
        let mut missing = Vec::new();
        // The levels that have a later broadcast that all receivers have.
        let mut replaced = HashSet::new();
        for (number, Sent { kind, level, is_accepted }) in sent.iter().rev() {
            let first = if *kind == Kind::Ordered { RESULT } else { 0 };
            let (got, lacking): (Vec<_>, Vec<_>) =
                (first..N_RECEIVERS).partition(|receiver| self.has_arrived(*receiver, *number));
            let is_replaced =
                *kind == Kind::Replaceable && got.is_empty() && replaced.contains(level);
            if *is_accepted && !is_replaced {
                missing.extend(lacking.iter().map(|receiver| (*receiver, *number)));
            }
            if *kind == Kind::Replaceable && lacking.is_empty() {
                replaced.insert(*level);
            }
        }
        missing
    }
}

/// A process with a thread that serves it.
struct Client {
    process: Process,
    looper: Option<JoinHandle<()>>,
}

impl Client {
    fn open(socket: &Path) -> Client {
        let process = Process::open("binder", socket).unwrap();
        let its = process.clone();
        let looper = Some(thread::spawn(move || _ = its.serve()));
        Client { process, looper }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.process.close();
        let _ = self.looper.take().map(JoinHandle::join);
    }
}

#[test]
fn nothing_accepted_is_lost_or_doubled_when_the_service_is_killed() {
    let setting = |name| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let seed = setting("KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds = setting("BROADCAST_KILL_ROUNDS").unwrap_or(ROUNDS);
    println!("{rounds} rounds, KILL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let socket = directory.join("broker.sock");
    let mut broker = Victim::start(directory, &["broker"]);
    let mut manager = Victim::start(directory, &["manager"]);
    let mut service = Victim::start(directory, &["am", "serve"]);

    let ledger = Arc::new(Ledger::default());
    let clients: Vec<Client> = (0..N_RECEIVERS).map(|_| Client::open(&socket)).collect();
    let services: Vec<BroadcastManager> =
        clients.iter().map(|client| BroadcastManager::find(&client.process).unwrap()).collect();
    for (receiver, service) in (0..).zip(&services) {
        let ledger = Arc::clone(&ledger);
        let receive = move |mut delivery: Delivery| {
            ledger.arrive(receiver, number(&delivery));
            let Outcome { code, data, extras } = delivery.outcome().clone();
            delivery.set_outcome(Outcome { code: code + 1, data, extras });
        };
        let mut filter = IntentFilter { priority: -receiver, ..IntentFilter::new("news") };
        filter.categories.extend(LEVELS.map(|level| format!("level-{level}")));
        service.register(filter, None, None, receive).unwrap();
    }
    let senders: Vec<_> = LEVELS
        .into_iter()
        .zip(services.iter().cloned())
        .map(|(level, service)| {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || ledger.send(&service, level))
        })
        .collect();

    for round in 1..=rounds {
        // Up to 20 ms: no wait for anything, but the choice of a moment.
        let delay = Duration::from_micros(u64::from(random.next_u32() % 20_000));
        let until = Instant::now() + delay;
        while let left @ 1.. = until.saturating_duration_since(Instant::now()).as_nanos() as u64 {
            thread::park_timeout(Duration::from_nanos(left));
        }
        let mut victims: Vec<&mut Victim> = match random.next_u32() % 5 {
            0 => vec![&mut service],
            1 => vec![&mut broker],
            2 => vec![&mut manager],
            3 => vec![&mut broker, &mut service],
            _ => vec![&mut broker, &mut manager, &mut service],
        };
        victims.iter_mut().for_each(|victim| victim.kill());
        victims.iter_mut().for_each(|victim| victim.restart(directory));
        let n_before = ledger.next.load(Ordering::Relaxed);
        // The load goes on: each sender has sent, and has the result of the next service.
        let is_back = |level: u8| {
            let results = ledger.results.lock().unwrap();
            results.iter().rev().any(|(its, number, _)| *its == level && *number > n_before)
        };
        while !LEVELS.into_iter().all(is_back) {
            assert!(senders.iter().all(|sender| !sender.is_finished()), "round {round}");
            thread::park_timeout(Duration::from_millis(1));
        }
        if round.is_multiple_of(100) {
            println!("{round} rounds are over");
        }
    }
    ledger.is_over.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| sender.join().unwrap());

    // Nothing is under way any more, and each receiver has taken in all calls before this one.
    let is_idle = || {
        let report = services[0].report();
        report.is_ok_and(|report| report.priorities.iter().all(|level| level.pending == 0))
    };
    while !is_idle() {
        thread::park_timeout(Duration::from_millis(1));
    }
    let patience = Instant::now() + Duration::from_secs(10);
    while !ledger.missing().is_empty() && Instant::now() < patience {
        thread::park_timeout(Duration::from_millis(1));
    }
    let missing = ledger.missing();
    let results = ledger.results.lock().unwrap();
    let wrong: Vec<_> = results.iter().filter(|(_, _, code)| *code != N_RECEIVERS).collect();
    let arrived = ledger.arrived.lock().unwrap();
    let doubled: Vec<_> = arrived.iter().filter(|(_, n_times)| **n_times != 1).collect();
    let n_sent = ledger.next.load(Ordering::Relaxed);
    let n_unanswered = ledger.n_unanswered.load(Ordering::Relaxed);
    println!("{n_sent} sent, {n_unanswered} of them unanswered, {} arrived", arrived.len());
    assert!(missing.is_empty() && doubled.is_empty(), "lost {missing:?}, doubled {doubled:?}");
    assert!(wrong.is_empty(), "not all receivers have counted: {wrong:?}");
}
