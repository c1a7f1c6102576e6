//! Thirty processes and their broker under SIGKILL, for as long as one asks.
//!
//! A service manager, servers that register there, and clients that look them up and check every
//! answer. All of them and the broker are killed at random moments and started anew. A wrong
//! answer, an error that no kill explains, a process that hangs or ends by itself, and whatever is
//! left of the dead when all is over, is a failure. Now and then nobody is killed until all is well
//! again: every thread of every client is answered by every server.
//!
//! `STORM_SECONDS=n` for other than 8 seconds, `STORM_SEED=n` to choose the same victims and
//! delays.

#[path = "../restart/child.rs"]
#[expect(dead_code, reason = "the children of a storm are asked less")]
mod child;
#[path = "../support/rng.rs"]
#[expect(dead_code, reason = "a choice of moments needs no more")]
mod rng;
mod roles;
#[path = "../support/vitals.rs"]
mod vitals;

use baton_driver::observer::Observer;
use baton_shm::clock::now_ns;
use child::{Child, PATIENCE, some_instant};
use rng::Rng;
use roles::KINDS;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SECONDS: u64 = 8;
/// Nobody is killed after so much of a storm until all is well again.
const BETWEEN_LULLS: Duration = Duration::from_secs(10);

/// Servers have indexes below this.
pub const SERVERS: usize = 9;
const CLIENTS: usize = 20;
/// Threads of a client that call.
pub const THREADS: usize = 2;
/// Slots: the broker's and the manager's; then the servers, then the clients.
const BROKER_SLOT: usize = 0;
const MANAGER_SLOT: usize = 1;
const FIRST_SERVER: usize = MANAGER_SLOT + 1;
const FIRST_CLIENT: usize = FIRST_SERVER + SERVERS;
const SLOTS: usize = FIRST_CLIENT + CLIENTS;
/// How errors name the manager, whichever process it is.
pub const MANAGER: u64 = 0;

/// How long a broker waits for the engines of the one before.
pub const GRACE: Duration = Duration::from_secs(3);
/// Engines try the next broker once a second at least, and a machine may be busy.
const REJOIN: Duration = Duration::from_secs(2);
/// How much more resident memory the last broker may have than the first.
const BROKER_GROWTH_KIB: u64 = 16 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, role, socket, number, index] = &arguments[..]
        && hidden == "role"
    {
        roles::run(role, Path::new(socket), self::number(number), self::number(index));
        return ExitCode::SUCCESS;
    }
    let setting = |name| std::env::var(name).ok().map(|value| number(&value));
    let seed = setting("STORM_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let seconds = setting("STORM_SECONDS").unwrap_or(SECONDS);
    println!("{seconds} seconds, STORM_SEED={seed}");
    let directory = tempfile::tempdir().expect("a directory");
    let mut storm = KillTest::new(&directory.path().join("broker.sock"), seed);
    match storm.blow(Duration::from_secs(seconds)) {
        Ok(()) => {
            println!("passed: {}; wrong 0, hung 0, leaked 0", storm.totals());
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("STORM_SEED={seed}: {fault}\n{}", storm.totals());
            ExitCode::FAILURE
        }
    }
}

/// What was seen that must not be.
type Result<T = ()> = std::result::Result<T, String>;

/// A process of the storm.
struct Member {
    child: Child,
    number: u64,
    ready: bool,
    /// When each thread last said something, and the last lull in which it found all well.
    heard: [Instant; THREADS],
    whole: [u64; THREADS],
}

/// Times, on the clock that all processes share, between which somebody is missing.
#[derive(Default)]
struct Outages(Vec<(u64, u64)>);

impl Outages {
    fn begin(&mut self) {
        if self.0.last().is_none_or(|last| last.1 < now_ns()) {
            self.0.push((now_ns(), u64::MAX));
        } else if let Some(last) = self.0.last_mut() {
            last.1 = u64::MAX;
        }
    }

    fn end(&mut self) {
        if let Some(last) = self.0.last_mut() {
            last.1 = now_ns();
        }
    }

    /// In milliseconds, of those that are over.
    fn longest(&self) -> u64 {
        let all = self.0.iter().filter(|outage| outage.1 != u64::MAX);
        all.map(|outage| (outage.1 - outage.0) / 1_000_000).max().unwrap_or(0)
    }

    /// Whether one of them, or what comes after it, has something of such a time.
    fn touch(&self, start: u64, end: u64, after: Duration) -> bool {
        let start = start.saturating_sub(after.as_nanos() as u64);
        self.0.iter().rev().any(|outage| outage.0 <= end && start <= outage.1)
    }
}

/// Of a process at rest: descriptors, threads, maps of shared memory.
type Vitals = (usize, usize, usize);

struct KillTest {
    rng: Rng,
    socket: std::path::PathBuf,
    members: BTreeMap<usize, Member>,
    numbers: u64,
    lulls: u64,
    killed_at: HashMap<u64, u64>,
    without_broker: Outages,
    without_manager: Outages,
    kills: BTreeMap<&'static str, u64>,
    calls: [u64; KINDS.len()],
    errors: BTreeMap<String, u64>,
}

fn role(slot: usize) -> &'static str {
    match slot {
        BROKER_SLOT => "broker",
        MANAGER_SLOT => "manager",
        FIRST_SERVER..FIRST_CLIENT => "server",
        _ => "client",
    }
}

impl KillTest {
    fn new(socket: &Path, seed: u64) -> KillTest {
        KillTest {
            rng: Rng::new(seed),
            socket: socket.to_owned(),
            members: BTreeMap::new(),
            numbers: MANAGER,
            lulls: 0,
            killed_at: HashMap::new(),
            without_broker: Outages::default(),
            without_manager: Outages::default(),
            kills: BTreeMap::new(),
            calls: [0; KINDS.len()],
            errors: BTreeMap::new(),
        }
    }

    fn blow(&mut self, duration: Duration) -> Result {
        self.without_broker.begin();
        self.without_manager.begin();
        (0..SLOTS).for_each(|slot| self.start(slot));
        self.await_all_well()?;
        self.end_all_but_two()?;
        let at_rest = [BROKER_SLOT, MANAGER_SLOT].map(|slot| vitals(self.pid(slot)));
        let resident_kib = resident_kib(self.pid(BROKER_SLOT));

        let (begin, mut progress) = (Instant::now(), Instant::now());
        (FIRST_SERVER..SLOTS).for_each(|slot| self.start(slot));
        while begin.elapsed() < duration {
            some_instant(&mut self.rng, 50_000_000);
            self.hear_all()?;
            let victim = self.victim();
            self.kill(victim)?;
            self.start(victim);
            if progress.elapsed() > BETWEEN_LULLS {
                self.await_all_well()?;
                println!("{} s: {}", begin.elapsed().as_secs(), self.totals());
                progress = Instant::now();
            }
        }
        self.await_all_well()?;
        self.end_all_but_two()?;
        for (slot, before) in [BROKER_SLOT, MANAGER_SLOT].into_iter().zip(at_rest) {
            let pid = self.pid(slot);
            patiently(|| {
                let now = vitals(pid);
                let fine = now.0 <= before.0 && now.1 <= before.1 && now.2 <= before.2;
                fine.then_some(()).ok_or_else(|| {
                    let (role, files) = (role(slot), vitals::open_files(pid));
                    format!("leaked: the {role} has {now:?}, {before:?} at first: {files:?}")
                })
            })?;
        }
        let grown = self::resident_kib(self.pid(BROKER_SLOT)).saturating_sub(resident_kib);
        println!(
            "the broker's resident memory: {resident_kib} KiB, and {grown} KiB more at the end"
        );
        let fine = grown <= BROKER_GROWTH_KIB;
        fine.then_some(()).ok_or_else(|| format!("leaked: {grown} KiB of the broker's"))
    }

    fn pid(&self, slot: usize) -> u32 {
        self.members[&slot].child.pid()
    }

    fn start(&mut self, slot: usize) {
        self.numbers += 1;
        let number = self.numbers;
        let arguments = [number, slot.saturating_sub(FIRST_SERVER) as u64].map(|n| n.to_string());
        let child = Child::spawn(role(slot), &self.socket, &arguments);
        let heard = [Instant::now(); THREADS];
        self.members
            .insert(slot, Member { child, number, ready: false, heard, whole: [0; THREADS] });
    }

    /// The broker is one in 40, the manager one in 20. A third of the others is mostly spared, so
    /// that some have been through much.
    fn victim(&mut self) -> usize {
        match self.rng.below(40) {
            0 => BROKER_SLOT,
            1 | 2 => MANAGER_SLOT,
            _ => {
                let slot = FIRST_SERVER + self.rng.below(SLOTS - FIRST_SERVER);
                let spared = slot.is_multiple_of(3) && !self.rng.percent(10);
                if spared { (slot + 1).min(SLOTS - 1) } else { slot }
            }
        }
    }

    fn kill(&mut self, slot: usize) -> Result {
        let member = self.members.remove(&slot).expect("everybody is there");
        match slot {
            BROKER_SLOT => self.without_broker.begin(),
            MANAGER_SLOT => self.without_manager.begin(),
            _ => {}
        }
        self.killed_at.insert(member.number, now_ns());
        *self.kills.entry(role(slot)).or_default() += 1;
        let lines = member.child.kill();
        lines.iter().try_for_each(|line| self.hear(slot, line))
    }

    fn hear_all(&mut self) -> Result {
        for slot in self.members.keys().copied().collect::<Vec<_>>() {
            let member = self.members.get_mut(&slot).expect("just found");
            let ended = member.child.ended();
            for line in member.child.heard() {
                self.hear(slot, &line)?;
            }
            if let Some(status) = ended {
                return Err(format!("ended by itself: a {}, {status}", role(slot)));
            }
            let member = &self.members[&slot];
            let quiet = (slot >= FIRST_CLIENT || !member.ready)
                .then(|| member.heard.iter().position(|heard| heard.elapsed() > PATIENCE));
            if let Some(thread) = quiet.flatten() {
                return Err(self.hung(slot, thread));
            }
        }
        Ok(())
    }

    fn hung(&self, slot: usize, thread: usize) -> String {
        for (other, member) in &self.members {
            if *other < FIRST_CLIENT || *other == slot {
                eprintln!("{} {} of pid {}:", role(*other), member.number, member.child.pid());
                vitals::print_waits(member.child.pid());
            }
        }
        let (role, pid) = (role(slot), self.pid(slot));
        format!("hung: the {role} of pid {pid}, thread {thread}: silent for {PATIENCE:?}")
    }

    /// A line of a process that is there, or of one that has just been killed.
    fn hear(&mut self, slot: usize, line: &str) -> Result {
        let words: Vec<&str> = line.split(' ').collect();
        let mut thread = 0..THREADS;
        match words[..] {
            ["waits"] => {}
            ["ready"] => match slot {
                // Of one that is dead by now, nothing follows.
                _ if !self.members.contains_key(&slot) => {}
                BROKER_SLOT => self.without_broker.end(),
                MANAGER_SLOT => self.without_manager.end(),
                _ => {}
            },
            ["whole", caller, lull] => {
                let caller: usize = caller.parse().expect("a thread");
                if let Some(member) = self.members.get_mut(&slot) {
                    member.whole[caller] = lull.parse().expect("a number");
                }
                thread = caller..caller + 1;
            }
            ["calls", caller, ..] => {
                let caller = caller.parse().expect("a thread");
                for (all, more) in self.calls.iter_mut().zip(&words[2..]) {
                    let digits = more.trim_matches(|c: char| !c.is_ascii_digit());
                    *all += digits.parse::<u64>().expect("a number");
                }
                thread = caller..caller + 1;
            }
            ["failed", kind, whom, by_broker, start, end, ..] => {
                let (whom, start, end) = (number(whom), number(start), number(end));
                // Who has died while an engine was without broker may be alive to it until the
                // next one's grace is over.
                let after = GRACE + REJOIN;
                let explained = self.killed_at.get(&whom).is_some_and(|&killed| killed <= end)
                    || whom == MANAGER && self.without_manager.touch(start, end, Duration::ZERO)
                    || by_broker == "true" && self.without_broker.touch(start, end, after);
                if !explained {
                    return Err(format!(
                        "unexplained: {} at slot {slot}: {line}; last without a manager {:?}, \
                         without a broker {:?}; {}",
                        role(slot),
                        self.without_manager.0.last(),
                        self.without_broker.0.last(),
                        self.brokers_view(slot)
                    ));
                }
                *self.errors.entry(kind.to_owned()).or_default() += 1;
            }
            _ => return Err(format!("{} at slot {slot}: {line}", role(slot))),
        }
        if let Some(member) = self.members.get_mut(&slot) {
            member.ready |= line == "ready";
            member.heard[thread].fill(Instant::now());
        }
        Ok(())
    }

    /// What the broker has of a process, and who manages the context.
    fn brokers_view(&self, slot: usize) -> String {
        let Some(pid) = self.members.get(&slot).map(|member| member.child.pid()) else {
            return "it is dead by now".to_owned();
        };
        let report = Observer::connect(&self.socket).map(|observer| observer.report());
        let Ok(Ok(report)) = report else { return "no broker to ask".to_owned() };
        let managed = report.contexts.iter().find(|context| context.manager.is_some());
        let mut all = report.contexts.iter().flat_map(|context| &context.processes);
        let process = all.find(|process| process.pid == pid);
        format!("manager {:?}, {process:?}", managed.and_then(|context| context.manager))
    }

    /// Nobody is killed until every thread of every client has been answered by every server, and
    /// the broker knows of nobody but those who live.
    fn await_all_well(&mut self) -> Result {
        self.lulls += 1;
        let lull = self.lulls;
        for slot in FIRST_CLIENT..SLOTS {
            self.members.get_mut(&slot).expect("there").child.tell(&lull.to_string());
        }
        let late = Instant::now() + PATIENCE;
        loop {
            self.hear_all()?;
            let mut unwell = self.members.iter().filter(|(slot, member)| {
                **slot >= FIRST_CLIENT && member.whole.iter().any(|whole| *whole < lull)
            });
            let Some((slot, member)) = unwell.next() else { break };
            if Instant::now() > late {
                let (slot, role, whole) = (*slot, role(*slot), member.whole);
                let waiting: Vec<usize> =
                    self.members.iter().filter(|m| !m.1.ready).map(|m| *m.0).collect();
                self.hung(slot, 0);
                return Err(format!(
                    "hung: the {role} at slot {slot} is not answered by all: {whole:?} of {lull}; \
                     not ready: {waiting:?}"
                ));
            }
            some_instant(&mut self.rng, 2_000_000);
        }
        self.await_no_others()
    }

    /// The broker's report has the living and no others, with nothing of the dead.
    fn await_no_others(&mut self) -> Result {
        let mut pids: Vec<u32> = self.members.values().map(|member| member.child.pid()).collect();
        pids.retain(|pid| *pid != self.pid(BROKER_SLOT));
        pids.sort_unstable();
        let observer = Observer::connect(&self.socket).map_err(|error| error.to_string())?;
        patiently(|| {
            let report = observer.report().map_err(|errno| format!("no report: {errno}"))?;
            let all: Vec<_> =
                report.contexts.iter().flat_map(|context| &context.processes).collect();
            let mut there: Vec<u32> = all.iter().map(|process| process.pid).collect();
            there.sort_unstable();
            let alive = |name: u64| all.iter().any(|process| process.process == name);
            let of_dead = all.iter().any(|process| {
                process.holdings.iter().any(|holding| !alive(holding.1))
                    || process.channels.iter().any(|channel| !alive(channel.1))
            });
            if there == pids && !of_dead {
                return Ok(());
            }
            Err(format!("leaked: the broker has {there:?}, alive are {pids:?}; {all:?}"))
        })
    }

    /// Kills all but broker and manager; nothing of the others is left at the broker.
    fn end_all_but_two(&mut self) -> Result {
        (FIRST_SERVER..SLOTS).try_for_each(|slot| self.kill(slot))?;
        self.await_no_others()
    }

    fn totals(&self) -> String {
        let calls: Vec<String> =
            KINDS.iter().zip(self.calls).map(|(kind, calls)| format!("{kind} {calls}")).collect();
        let (calls, sum) = (calls.join(", "), self.calls.iter().sum::<u64>());
        let kills = self.kills.values().sum::<u64>();
        let longest = [&self.without_manager, &self.without_broker].map(Outages::longest);
        let [manager, broker] = longest;
        format!(
            "{kills} kills {:?}, {sum} calls ({calls}), errors explained {:?}, longest without \
             a manager {manager} ms, a broker {broker} ms",
            self.kills, self.errors
        )
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Looks until it is so; then what is wrong after all.
fn patiently(mut look: impl FnMut() -> Result) -> Result {
    let late = Instant::now() + PATIENCE;
    loop {
        match look() {
            Err(fault) if Instant::now() > late => return Err(fault),
            Err(_) => std::thread::yield_now(),
            Ok(()) => return Ok(()),
        }
    }
}

fn vitals(pid: u32) -> Vitals {
    let (files, threads) = vitals::counts(pid);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    (files, threads, maps.lines().filter(|line| line.contains("memfd:")).count())
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    number(line.and_then(|line| line.split_whitespace().next()).expect("a size"))
}
