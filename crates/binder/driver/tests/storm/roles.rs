//! The children: a broker, a service manager, servers, and clients that check every answer.
//!
//! Each has a number of its own that no other process of the storm ever has. An answer is a
//! function of that number and of the request, so a client knows which bytes have to come back, and
//! from whom.

use crate::child::{PATIENCE, some_instant};
use crate::rng::Rng;
use crate::{GRACE, MANAGER, SERVERS, THREADS};
use baton::{CallError, Handle, Object, Parcel, Process, Request};
use baton_broker::Config;
use baton_shm::clock::now_ns;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Codes of calls, and what the parent counts them as.
pub const KINDS: [&str; 10] =
    ["plain", "back", "gift", "file", "mark", "count", "lookup", "attach", "register", "find"];
/// Answers the data.
const PLAIN: usize = 0;
/// Calls the object that comes with it back, and answers that one's answer.
const BACK: usize = 1;
/// Answers with an object of the server's.
const GIFT: usize = 2;
/// Answers a file's content, with another file.
const FILE: usize = 3;
/// One-way: the sender's number and how many it has sent before.
const MARK: usize = 4;
/// Answers how many marks of a sender have come.
const COUNT: usize = 5;
/// The manager answers with the server of an index.
const LOOKUP: usize = 6;
/// The manager keeps the object until its process dies.
const ATTACH: usize = 7;
/// The manager keeps the object as the server of an index.
const REGISTER: usize = 8;
/// No call: whether there is a manager.
const FIND: usize = 9;

/// What the gift of a server answers with, beside the server's number.
const GIFT_BIT: u64 = 1 << 63;
/// What the content of a file is made of, beside its maker's number.
const FILE_BIT: u64 = 1 << 62;

pub fn run(role: &str, socket: &Path, number: u64, index: u64) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    if role == "broker" {
        let stop = Some(rustix::io::dup(std::io::stdin()).expect("a descriptor"));
        let config = Config { grace: GRACE, stop, ..Config::at(socket) };
        return baton_broker::run(config, || say("ready")).expect("a broker");
    }
    let mut rng = Rng::new(number);
    let process = until(&mut rng, || Process::open("binder", socket).ok());
    let asked = Arc::new(AtomicU64::new(0));
    match role {
        "manager" => manager(&process, &mut rng),
        "server" => server(&process, number, index, rng),
        "client" => client(&process, number, &asked),
        other => panic!("{other}?"),
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        asked.store(line.parse().expect("a number"), Ordering::Release);
    }
}

fn say(line: &str) {
    println!("{line}");
}

/// Tries again until there is something, as it is with a broker or a manager that is gone.
fn until<T>(rng: &mut Rng, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        say("waits");
        some_instant(rng, 20_000_000);
    }
}

fn start_loopers(process: &Process, loopers: usize) {
    for _ in 0..loopers {
        let process = process.clone();
        std::thread::spawn(move || process.serve());
    }
}

/// What `who` answers to a request: 0 to 4096 bytes.
fn answer(who: u64, request: &[u8]) -> Vec<u8> {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    some_bytes(&mut Rng::new(request.iter().fold(who, mix)))
}

fn some_bytes(rng: &mut Rng) -> Vec<u8> {
    let bits = rng.below(13);
    let bytes = if rng.percent(5) { 4096 } else { rng.below(1 << bits) };
    (0..bytes).map(|_| rng.next() as u8).collect()
}

fn file(content: &[u8]) -> OwnedFd {
    let fd = rustix::fs::memfd_create("storm", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    let mut file = File::from(fd);
    file.write_all(content).expect("memory");
    file.into()
}

fn content(fd: OwnedFd) -> Vec<u8> {
    let (mut file, mut content) = (File::from(fd), Vec::new());
    file.rewind().expect("a file");
    file.read_to_end(&mut content).expect("a file");
    content
}

fn words(data: &[u8]) -> Vec<u64> {
    data.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect()
}

fn parcel(words: &[u64]) -> Parcel {
    let mut parcel = Parcel::new();
    words.iter().for_each(|word| _ = parcel.write(&word.to_ne_bytes()));
    parcel
}

// ---- serving ------------------------------------------------------------------------------------

/// Keeps a handle under a key, until its process dies.
fn keep<T: Send + 'static>(
    all: &Arc<Mutex<BTreeMap<u64, (u64, T)>>>,
    (key, number): (u64, u64),
    handle: &Handle,
    kept: T,
) {
    let before = all.lock().expect("no panic").insert(key, (number, kept));
    drop(before);
    let weak = Arc::downgrade(all);
    handle.link_to_death(move || {
        let Some(all) = weak.upgrade() else { return };
        let mut all = all.lock().expect("no panic");
        let gone = all.get(&key).is_some_and(|kept| kept.0 == number).then(|| all.remove(&key));
        drop(all);
        drop(gone);
    });
}

fn manager(process: &Process, rng: &mut Rng) {
    let (servers, clients) = (Arc::default(), Arc::default());
    let object = process
        .object(move |request| {
            let (data, object) = (request.data(), request.received.handle(0));
            let mut reply = Parcel::new();
            match (request.code() as usize, object) {
                (LOOKUP, None) => {
                    let all: std::sync::MutexGuard<'_, BTreeMap<u64, (u64, Handle)>> =
                        Mutex::lock(&servers).expect("no panic");
                    if let Some((number, handle)) = all.get(&words(data)[0]) {
                        reply.write(&number.to_ne_bytes()).write_handle(handle);
                    }
                }
                (code @ (ATTACH | REGISTER), Some(object)) => {
                    let (index, number) = (words(data)[0], words(data)[1]);
                    let (all, key) =
                        if code == ATTACH { (&clients, number) } else { (&servers, index) };
                    keep(all, (key, number), &object, object.clone());
                    reply.write(&answer(MANAGER, &data[..16]));
                }
                _ => return Err(Errno::INVAL),
            }
            Ok(reply)
        })
        .add();
    start_loopers(process, 2);
    until(rng, || process.become_context_manager(object).ok());
    say("ready");
}

struct Server {
    number: u64,
    gift: Object,
    /// How many marks have come, by sender.
    marks: Mutex<HashMap<u64, u64>>,
}

fn server(process: &Process, number: u64, index: u64, mut rng: Rng) {
    let gift = process
        .object(move |request| Ok((&*answer(number | GIFT_BIT, request.data())).into()))
        .add();
    let server = Server { number, gift, marks: Mutex::default() };
    let object = process.object(move |request| server.serve(request)).add();
    start_loopers(process, 2);
    let process = process.clone();
    std::thread::spawn(move || {
        loop {
            let (start, (tell, dead)) = (now_ns(), channel::<()>());
            let registered = process.context_manager().and_then(|manager| {
                manager.link_to_death(move || drop(tell));
                let mut parcel = parcel(&[index, number]);
                manager.call(REGISTER as u32, parcel.write_object(object))?;
                Ok(manager)
            });
            match registered {
                Ok(_manager) => {
                    say("ready");
                    // Ends when the notice of the manager's death is dropped.
                    let _ = dead.recv();
                }
                Err(error) => say_failed(REGISTER, MANAGER, true, start, error),
            }
            some_instant(&mut rng, 5_000_000);
        }
    });
}

impl Server {
    fn serve(&self, request: &Request<'_>) -> Result<Parcel, Errno> {
        let (data, received) = (request.data(), &request.received);
        let mut reply = Parcel::new();
        match request.code() as usize {
            PLAIN => {
                reply.write(&answer(self.number, data));
            }
            BACK => {
                let object = received.handle(0).ok_or(Errno::INVAL)?;
                let told = object.call(PLAIN as u32, &data[..8].into());
                reply.write(&answer(self.number, told.map_err(|_| Errno::PIPE)?.data()));
            }
            GIFT => {
                reply.write(&answer(self.number, data)).write_object(self.gift);
            }
            FILE => {
                let content = content(received.fd(0).ok_or(Errno::INVAL)?);
                reply.write(&answer(self.number, &content));
                reply.write_owned_fd(file(&answer(self.number | FILE_BIT, &content)));
            }
            MARK => {
                let (sender, mark) = (words(data)[0], words(data)[1]);
                let mut marks = self.marks.lock().expect("no panic");
                let next = marks.entry(sender).or_default();
                if *next != mark {
                    say(&format!("wrong mark {mark} of sender {sender} instead of {next}"));
                }
                *next = mark + 1;
            }
            COUNT => {
                let marks = self.marks.lock().expect("no panic");
                let count = marks.get(&words(data)[0]).copied().unwrap_or(0);
                reply.write(&count.to_ne_bytes());
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(reply)
    }
}

// ---- calling ------------------------------------------------------------------------------------

fn client(process: &Process, number: u64, asked: &Arc<AtomicU64>) {
    let own = process.object(move |request| Ok((&*answer(number, request.data())).into())).add();
    start_loopers(process, 1);
    for thread in 0..THREADS {
        let caller = Caller {
            process: process.clone(),
            asked: Arc::clone(asked),
            number,
            thread,
            own,
            rng: Rng::new(number << 8 | thread as u64),
            known: BTreeMap::new(),
            sent: HashMap::new(),
            calls: [0; KINDS.len()],
        };
        std::thread::spawn(move || caller.work());
    }
}

/// An error of a call, with the process called; the manager is [`MANAGER`]. Whether the broker
/// takes part in such a call.
struct Failure(usize, u64, bool, CallError);

fn say_failed(kind: usize, whom: u64, by_broker: bool, start: u64, error: CallError) {
    let kind = KINDS[kind];
    say(&format!("failed {kind} {whom} {by_broker} {start} {} {error}", now_ns()));
}

/// One thread of a client.
struct Caller {
    process: Process,
    /// Which question of the parent's is to be answered.
    asked: Arc<AtomicU64>,
    number: u64,
    thread: usize,
    own: Object,
    rng: Rng,
    /// Servers by index: number, handle, whether a call has been answered.
    known: BTreeMap<usize, (u64, Handle, bool)>,
    /// Marks sent, by the server's number.
    sent: HashMap<u64, u64>,
    calls: [u64; KINDS.len()],
}

impl Caller {
    /// Calls without end. Whenever the parent asks, it is told once every server has answered
    /// since.
    fn work(mut self) {
        let (mut asked, mut answered) = (0, BTreeSet::new());
        loop {
            let now = self.asked.load(Ordering::Acquire);
            if now != asked {
                (asked, answered) = (now, BTreeSet::new());
            }
            let (index, start) = (self.rng.below(SERVERS), now_ns());
            match self.converse(index) {
                Ok(true) => {
                    if answered.insert(index) && answered.len() == SERVERS {
                        say(&format!("whole {} {asked}", self.thread));
                    }
                }
                Ok(false) => some_instant(&mut self.rng, 2_000_000),
                Err(Failure(kind, whom, by_broker, error)) => {
                    say_failed(kind, whom, by_broker, start, error);
                    self.known.remove(&index);
                    some_instant(&mut self.rng, 2_000_000);
                }
            }
        }
    }

    /// Says from time to time that it is alive.
    fn count(&mut self, kind: usize) {
        self.calls[kind] += 1;
        if self.calls.iter().sum::<u64>() >= 50 {
            say(&format!("calls {} {:?}", self.thread, std::mem::take(&mut self.calls)));
        }
    }

    fn check(&self, what: &str, whom: u64, asked: &[u8], got: &[u8], wanted: &[u8]) {
        if got != wanted {
            let client = self.number;
            say(&format!(
                "wrong {what}: client {client} asked {whom} {asked:?}: {got:?}, not {wanted:?}"
            ));
        }
    }

    /// Some calls to the server of an index; false if the manager knows none.
    fn converse(&mut self, index: usize) -> Result<bool, Failure> {
        if self.rng.percent(2) {
            self.known.remove(&index);
        }
        if !self.known.contains_key(&index) {
            self.count(LOOKUP);
            let Some((number, handle)) = self.look_up(index as u64)? else { return Ok(false) };
            self.known.insert(index, (number, handle, false));
        }
        let (number, handle, proven) = self.known[&index].clone();
        let kind = self.rng.below(COUNT);
        self.count(kind);
        let failed = |by_broker| move |error| Failure(kind, number, by_broker || !proven, error);
        let bytes = some_bytes(&mut self.rng);
        let seed = self.rng.next().to_ne_bytes();
        let call = |parcel: &Parcel| handle.call(kind as u32, parcel);
        match kind {
            PLAIN => {
                let got = call(&bytes[..].into()).map_err(failed(false))?;
                self.check("plain", number, &bytes, got.data(), &answer(number, &bytes));
            }
            BACK => {
                let mut parcel = Parcel::from(&seed[..]);
                let got = call(parcel.write_object(self.own)).map_err(failed(true))?;
                let wanted = answer(number, &answer(self.number, &seed));
                self.check("back", number, &seed, got.data(), &wanted);
            }
            GIFT => {
                let got = call(&bytes[..].into()).map_err(failed(true))?;
                let wanted = answer(number, &bytes);
                let told = &got.data()[..wanted.len().min(got.data().len())];
                self.check("gift", number, &bytes, told, &wanted);
                let Some(gift) = got.handle(0) else {
                    say(&format!("wrong gift of {number}: none"));
                    return Ok(true);
                };
                let got = gift.call(PLAIN as u32, &seed[..].into());
                let got = got.map_err(failed(true))?;
                let wanted = answer(number | GIFT_BIT, &seed);
                self.check("given object", number, &seed, got.data(), &wanted);
            }
            FILE => {
                let mut parcel = Parcel::new();
                let got = call(parcel.write_owned_fd(file(&bytes))).map_err(failed(false))?;
                let wanted = answer(number, &bytes);
                let told = &got.data()[..wanted.len().min(got.data().len())];
                self.check("file", number, &bytes, told, &wanted);
                let came = got.fd(0).map(content).unwrap_or_default();
                let wanted = answer(number | FILE_BIT, &bytes);
                self.check("file that came", number, &bytes, &came, &wanted);
            }
            _ => self.send_marks(number, &handle, failed)?,
        }
        if let Some(known) = self.known.get_mut(&index) {
            known.2 = true;
        }
        Ok(true)
    }

    fn look_up(&mut self, index: u64) -> Result<Option<(u64, Handle)>, Failure> {
        let process = self.process.clone();
        let failed = |kind| move |error| Failure(kind, MANAGER, true, error);
        let manager = process.context_manager().map_err(failed(FIND))?;
        if self.rng.percent(20) {
            self.count(ATTACH);
            let mut parcel = parcel(&[0, self.number]);
            let call = manager.call(ATTACH as u32, parcel.write_object(self.own));
            let (asked, got) = (&parcel.data()[..16], call.map_err(failed(ATTACH))?);
            self.check("attach", MANAGER, asked, got.data(), &answer(MANAGER, asked));
        }
        let found = manager.call(LOOKUP as u32, &parcel(&[index]));
        let found = found.map_err(failed(LOOKUP))?;
        Ok(found.handle(0).map(|handle| (words(found.data())[0], handle)))
    }

    /// One-way calls, and whether all of them come.
    fn send_marks<F: FnOnce(CallError) -> Failure>(
        &mut self,
        server: u64,
        handle: &Handle,
        failed: impl Fn(bool) -> F,
    ) -> Result<(), Failure> {
        let sender = self.number << 8 | self.thread as u64;
        let mut sent = self.sent.get(&server).copied().unwrap_or(0);
        for _ in 0..=self.rng.below(16) {
            match handle.one_way(MARK as u32, &parcel(&[sender, sent])) {
                Ok(()) => sent += 1,
                // A flood is refused, not an error.
                Err(CallError::NoRoom) => break,
                Err(error) => return Err(failed(false)(error)),
            }
            self.sent.insert(server, sent);
        }
        let late = Instant::now() + PATIENCE / 2;
        loop {
            self.count(COUNT);
            let come = handle.call(COUNT as u32, &parcel(&[sender]));
            let come = words(come.map_err(failed(false))?.data());
            if come == [sent] {
                return Ok(());
            }
            if come[..] > [sent][..] || Instant::now() > late {
                say(&format!("wrong count of sender {sender} at {server}: {come:?} of {sent}"));
                return Ok(());
            }
            std::thread::yield_now();
        }
    }
}
