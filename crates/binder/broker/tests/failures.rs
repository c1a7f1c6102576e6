//! A broker whose system calls fail at random, with honest engines of several users. Every request
//! is answered or refused. No connection is lost, and no event is lost or reordered. Once calls no
//! longer fail, everything works. Arguments are the number of steps and the seed.
//!
//! The broker is another process of this program. Seccomp notifies this process of the broker's
//! calls, and this process decides which fail. It also lowers the broker's limit of descriptors.

#![expect(unsafe_code, reason = "seccomp, prlimit, and connecting as another user")]

mod model;
mod test_engine;

use baton_abi::control::*;
use baton_abi::holder_list::Holding;
use model::{EngineRecord, Rng};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use test_engine::*;

/// Number of steps without an argument.
const N_STEPS: u64 = 300;
const MOST_ENGINES: usize = 8;
/// Argument that makes this program the broker, with a socket as standard input.
const BROKER: &str = "--broker";
/// From `asm-generic/socket.h`, since Linux 6.5.
const SO_PEERPIDFD: u64 = 77;
const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;

/// The calls that may fail, each with errors that the kernel can return.
const FAILURES: [(libc::c_long, &[i32]); 10] = [
    (
        libc::SYS_sendmsg,
        &[libc::ENOMEM, libc::ENOBUFS, libc::ETOOMANYREFS, libc::EAGAIN, libc::EINTR],
    ),
    (libc::SYS_recvmsg, &[libc::ENOMEM, libc::ENOBUFS, libc::EINTR]),
    (
        libc::SYS_accept4,
        &[libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR],
    ),
    (libc::SYS_socketpair, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
    (libc::SYS_memfd_create, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
    (libc::SYS_fcntl, &[libc::EMFILE]),
    (libc::SYS_epoll_ctl, &[libc::ENOMEM, libc::ENOSPC]),
    (libc::SYS_getsockopt, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
    (libc::SYS_pidfd_open, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
    (libc::SYS_openat, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
];

/// The errors with which a call may fail. Empty if it must succeed.
fn may_fail(call: &libc::seccomp_data) -> &'static [i32] {
    let number = libc::c_long::from(call.nr);
    let is_meant = match number {
        libc::SYS_fcntl => call.args[1] == libc::F_DUPFD_CLOEXEC as u64,
        libc::SYS_epoll_ctl => call.args[1] == libc::EPOLL_CTL_ADD as u64,
        libc::SYS_getsockopt => call.args[2] == SO_PEERPIDFD,
        libc::SYS_mmap => return &[libc::ENOMEM],
        _ => true,
    };
    let known = FAILURES.iter().find(|(name, _)| *name == number && is_meant);
    known.map_or(&[], |(_, errnos)| errnos)
}

/// A seccomp filter that reports the calls of `FAILURES`, except for those on standard input.
fn filter() -> Vec<libc::sock_filter> {
    let op = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |at: usize| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32, 0, 0);
    let equal = |k: i64, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k as u32, jt, jf);
    let answer = |k: u32| op(libc::BPF_RET | libc::BPF_K, k, 0, 0);
    let argument = |number: usize| 16 + 8 * number;
    let n_calls = FAILURES.len();
    let mut program = vec![load(0), equal(libc::SYS_mmap, n_calls + 1, 0)];
    for (at, (number, _)) in FAILURES.iter().enumerate() {
        program.push(equal(*number, n_calls - at + 2, 0));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    // Only shared mappings may fail: a program ends when its allocator gets no memory.
    program.push(load(argument(3)));
    let shared = libc::MAP_SHARED as u32;
    program.push(op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, shared, 3, 2));
    program.push(load(argument(0)));
    program.push(equal(0, 0, 1));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Runs the broker: installs the filter, sends its notification descriptor, and serves until
/// standard input is closed.
fn run_broker(path: &str) {
    let program = filter();
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program lives through the call, and has as many instructions as it says.
    let notifications = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    assert!(notifications >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: standard input is open, and the other descriptor is new and used by no other code.
    let (control, notifications) = unsafe {
        use rustix::fd::{BorrowedFd, FromRawFd};
        (BorrowedFd::borrow_raw(0), OwnedFd::from_raw_fd(notifications as RawFd))
    };
    send(control, b"listener", &[rustix::fd::AsFd::as_fd(&notifications)]).unwrap();
    drop(notifications);
    let stop = rustix::io::fcntl_dupfd_cloexec(control, 3).unwrap();
    let config = Config { stop: Some(stop), ..Config::at(path) };
    let ready = || send(control, b"ready", &[]).unwrap();
    baton_broker::run(config, ready).unwrap();
}

/// The broker's process, and how often its calls fail.
struct Broker {
    child: Child,
    /// Closed, it ends the broker.
    control: Option<OwnedFd>,
    /// Once in so many calls; 0 for never.
    rate: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    injector: Option<std::thread::JoinHandle<()>>,
}

impl Broker {
    fn start(path: &Path, seed: u64) -> Broker {
        let (control, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.arg(BROKER).arg(path).stdin(Stdio::from(theirs)).spawn().unwrap();
        drop(command);
        let (_, descriptors) = receive(&control).expect("the broker has sent its filter");
        let notifications = descriptors.into_iter().next().expect("with its descriptor");
        let (rate, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (of_injector, counted) = (Arc::clone(&rate), Arc::clone(&failed));
        let rng = Rng(seed);
        let injector = std::thread::spawn(move || {
            inject(&notifications, rng, &of_injector, &counted);
        });
        assert_eq!(receive(&control).expect("it is ready").0, b"ready");
        let (control, injector) = (Some(control), Some(injector));
        Broker { child, control, rate, failed, injector }
    }

    fn fail_once_in(&self, rate: u64) {
        self.rate.store(rate, Ordering::SeqCst);
    }

    fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).unwrap().count()
    }

    /// Sets the limit of the broker's descriptors.
    fn limit_descriptors(&self, most: u64) {
        let pid = self.child.id().cast_signed();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads and writes a structure of ours.
        unsafe {
            let null = std::ptr::null();
            assert_eq!(libc::prlimit(pid, libc::RLIMIT_NOFILE, null, &raw mut limit), 0);
            limit.rlim_cur = most.min(limit.rlim_max);
            let old = std::ptr::null_mut();
            assert_eq!(libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, old), 0);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.fail_once_in(0);
        self.control = None;
        let _ = self.child.wait();
        let _ = self.injector.take().map(std::thread::JoinHandle::join);
    }
}

/// Answers the notifications until the broker has ended.
fn inject(notifications: &OwnedFd, mut rng: Rng, rate: &AtomicU64, failed: &AtomicU64) {
    let fd = notifications.as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: structures of ours, of the sizes that these calls have.
        unsafe {
            libc::poll(&raw mut poll, 1, -1);
            if poll.revents & libc::POLLIN == 0 {
                return;
            }
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(fd, NOTIF_RECV as _, &raw mut call) != 0 {
                continue; // Interrupted, or it has ended.
            }
            let rate = rate.load(Ordering::SeqCst);
            let errno = match may_fail(&call.data) {
                errnos if rate > 0 && rng.once_in(rate) => rng.pick(errnos),
                _ => None,
            };
            failed.fetch_add(u64::from(errno.is_some()), Ordering::Relaxed);
            let goes_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            let mut answer = libc::seccomp_notif_resp {
                id: call.id,
                val: 0,
                error: errno.map_or(0, |errno| -errno),
                flags: if errno.is_some() { 0 } else { goes_on },
            };
            libc::ioctl(fd, NOTIF_SEND as _, &raw mut answer);
        }
    }
}

/// Errors with which the request that meets a failure may be refused.
const REFUSALS: [Errno; 7] = [
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::NOBUFS,
    Errno::NOSPC,
    Errno::TOOMANYREFS,
    Errno::AGAIN,
];

/// Does something as another user, where we may.
fn as_user<T>(uid: u32, what: impl FnOnce() -> T) -> T {
    let become_user = |uid: u32| {
        if uid != u32::MAX {
            // SAFETY: changes the effective user of this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) }, 0);
        }
    };
    become_user(uid);
    let result = what();
    become_user(if uid == u32::MAX { uid } else { 0 });
    result
}

struct Engine {
    fake: TestEngine,
    record: EngineRecord,
}

struct Run<'a> {
    broker: &'a Broker,
    path: &'a Path,
    rng: Rng,
    engines: BTreeMap<ProcessId, Engine>,
    users: Vec<u32>,
    refused: u64,
}

impl Run<'_> {
    fn step(&mut self) {
        let all: Vec<ProcessId> = self.engines.keys().copied().collect();
        let Some(who) = self.rng.pick(&all) else { return self.open() };
        let record = self.engines[&who].record.clone();
        let grants: Vec<(ProcessId, NodeId)> = record.held.keys().copied().collect();
        let owners: Vec<ProcessId> = grants.iter().map(|(owner, _)| *owner).collect();
        let channels: Vec<ChannelId> = record.channels.keys().copied().collect();
        let peers: Vec<ProcessId> = record.channels.values().map(|(_, peer)| *peer).collect();
        match self.rng.below(16) {
            0 | 1 if self.engines.len() < MOST_ENGINES => self.open(),
            2 if self.rng.once_in(3) => self.close(who),
            3 => {
                let node = NodeId(1);
                self.ask(who, Request::BecomeContextManager { node, flags: 0 });
            }
            4 | 5 => self.ask(who, Request::ContextManager),
            6 | 7 => {
                let Some(target) = self.rng.pick(&owners) else { return };
                self.ask(who, Request::OpenChannel { target, entry: None });
            }
            8..12 => {
                let Some(target) = self.rng.pick(&peers) else { return };
                let strength = Strength::Weak;
                let third = all.iter().filter(|id| ![who, target].contains(id));
                let third: Vec<ProcessId> = third.copied().collect();
                let others = grants.iter().filter(|(owner, _)| *owner != target);
                let others: Vec<_> = others.copied().collect();
                let object = match (self.rng.pick(&others), self.rng.pick(&third)) {
                    (Some((owner, node)), _) if self.rng.once_in(2) => {
                        HeldNode { owner, node, strength, entry: None }
                    }
                    // The owner grants a node itself before.
                    (_, Some(owner)) => {
                        let (node, entry) = (NodeId(self.rng.below(6)), self.rng.below(9) as u32);
                        let holding = Holding { holder: who, node, flags: 0, strength };
                        self.engines[&owner].fake.list(entry, Some(holding)).unwrap();
                        HeldNode { owner, node, strength, entry: Some(entry) }
                    }
                    _ => return,
                };
                self.ask(who, Request::Introduce { target, objects: vec![object; 2] });
            }
            12 => {
                let Some(node) = self.rng.pick(&grants) else { return };
                let held = record.held[&node];
                let (strong, grants) = (held.strong, held.grants);
                let engine = self.engines.get_mut(&who).expect("it is alive");
                let (owner, id) = node;
                let released = vec![Released { owner, node: id, strong, grants }];
                engine.fake.tell(Request::Release { released });
                engine.record.return_grants(node, strong, grants);
                // The request has no reply: other engines would ask for their barriers before it is
                // served.
                engine.hear_all();
            }
            13 => {
                let Some(channel) = self.rng.pick(&channels) else { return };
                let engine = self.engines.get_mut(&who).expect("it is alive");
                engine.fake.tell(Request::CloseChannel { channel });
                engine.hear_all();
                self.engines.values_mut().for_each(|it| _ = it.record.channels.remove(&channel));
            }
            14 => {
                let engine = &self.engines[&who];
                let shown = engine.fake.ask(REPORT);
                assert!(matches!(shown, Some(Reply::Report { .. })), "{shown:?}");
            }
            _ => {
                let pid = std::process::id();
                let frozen = self.rng.once_in(2);
                self.ask(who, Request::Freeze { pid, frozen });
            }
        }
    }

    fn open(&mut self) {
        let uid = self.rng.pick(&self.users).expect("there is one");
        // Opening waits until all of its calls succeed, so it only takes longer.
        self.broker.limit_descriptors(1 << 20);
        self.broker.fail_once_in(8 + self.rng.below(24));
        match as_user(uid, || TestEngine::open(self.path, "binder")) {
            Ok(fake) => {
                let new = Engine { fake, record: EngineRecord::default() };
                self.engines.insert(new.fake.id(), new);
            }
            Err(errno) => self.is_refused(errno, "Hello"),
        }
    }

    fn is_refused(&mut self, errno: Errno, what: &str) {
        assert!(REFUSALS.contains(&errno), "{what} was refused: {errno}");
        self.refused += 1;
    }

    fn ask(&mut self, who: ProcessId, request: Request) {
        let what = format!("{request:?}");
        let reply = self.engines[&who].fake.ask(request);
        match reply.unwrap_or_else(|| panic!("{who:?} was disconnected for {what}")) {
            Reply::Refused { errno } => {
                let errno = Errno::from_raw_os_error(errno);
                let legal = match what.split([' ', '{']).next() {
                    Some("BecomeContextManager") => &[Errno::BUSY, Errno::PERM][..],
                    Some("ContextManager") => &[Errno::SRCH, Errno::INVAL],
                    Some("OpenChannel") => &[Errno::SRCH],
                    Some("Freeze") => &[Errno::PERM],
                    _ => &[],
                };
                if !legal.contains(&errno) {
                    self.is_refused(errno, &what);
                }
            }
            Reply::Done | Reply::Ticket { .. } | Reply::Freeze { .. } => {}
            other => panic!("{what}: {other:?}"),
        }
    }

    /// Ends a process, and waits for the events of related engines.
    fn close(&mut self, who: ProcessId) {
        drop(self.engines.remove(&who));
        for engine in self.engines.values_mut() {
            // Engines that hold its nodes or had channels with it get the death, others the
            // end of its holdings.
            let told = engine.record.must_learn_death_of(who);
            while told && !engine.record.deaths.contains(&who) || engine.record.is_held_by(who) {
                engine.hear();
            }
        }
    }

    /// Checks that all events have come in order and agree.
    fn check(&mut self) {
        self.engines.values_mut().for_each(Engine::hear_all);
        for (id, engine) in &self.engines {
            for ((owner, node), held) in &engine.record.held {
                let owner = &self.engines[owner];
                let told = owner.record.nodes.get(node);
                let told = told.and_then(|told| told.holders.get(id));
                assert_eq!(told, Some(&held.strength()), "{id:?} {node:?}");
            }
            for (channel, (end, peer)) in &engine.record.channels {
                let theirs = self.engines.get(peer).and_then(|it| it.record.channels.get(channel));
                let other = if *end == End::Client { End::Server } else { End::Client };
                assert_eq!(theirs, Some(&(other, *id)), "{channel:?} of {id:?}");
            }
            let holders =
                engine.record.nodes.values().map(|told| told.holders.len()).sum::<usize>();
            let held = self.engines.values().flat_map(|it| it.record.held.keys());
            assert_eq!(held.filter(|(owner, _)| owner == id).count(), holders, "{id:?}");
        }
    }
}

impl Engine {
    fn hear_all(&mut self) {
        let number = 77;
        self.fake.tell(Request::Barrier { number });
        while self.hear() != (Event::Barrier { number }) {}
    }

    fn hear(&mut self) -> Event {
        let (event, descriptors) = self.fake.event_with_descriptors();
        let id = self.fake.id();
        match &event {
            Event::Ticket { objects, .. } => {
                objects.iter().for_each(|granted| self.record.add_grant(id, granted));
            }
            Event::References { .. } => assert!(self.record.add_references(&event), "{event:?}"),
            Event::Channel { channel, end, peer } => {
                let expect = if *end == End::Client { 4 } else { 3 };
                assert_eq!(descriptors.len(), expect, "descriptors of {event:?}");
                self.record.add_channel(*channel, *end, peer.process);
            }
            Event::Dead { process } => self.record.add_death(*process),
            Event::Frozen { .. } | Event::Barrier { .. } => {}
            other => panic!("{other:?}"),
        }
        event
    }
}

fn play(n_steps: u64, seed: u64) {
    let directory = Directory::new();
    let path = directory.socket();
    let broker = Broker::start(&path, seed);
    let at_first = broker.descriptors();
    let is_root = rustix::process::geteuid().is_root();
    let users = if is_root { vec![0, 1001, 1002] } else { vec![u32::MAX] };
    if !is_root {
        println!("skipped: several users (not root)");
    }
    let (rng, engines) = (Rng(!seed), BTreeMap::new());
    let mut run = Run { broker: &broker, path: &path, rng, engines, users, refused: 0 };
    for number in 0..n_steps {
        run.broker.fail_once_in(2 + run.rng.below(8));
        if number.is_multiple_of(8) {
            let few = run.rng.once_in(3);
            let most = if few { broker.descriptors() as u64 + run.rng.below(8) } else { 1 << 20 };
            broker.limit_descriptors(most);
        }
        run.step();
        run.broker.fail_once_in(4);
        run.check();
    }
    broker.fail_once_in(0);
    broker.limit_descriptors(1 << 20);
    let refused = run.refused;
    run.check();
    let all: Vec<ProcessId> = run.engines.keys().copied().collect();
    all.into_iter().for_each(|who| run.close(who));
    let (manager, client) = manager_and_client(&path);
    drop((manager, client));
    // The broker closes everything once it has learned of the deaths, which takes some rounds.
    let observer = observe(&path);
    let with_observer = at_first + 2;
    let mut rounds = 0;
    while broker.descriptors() != with_observer {
        assert!(ask(&observer, &REPORT).is_some());
        rounds += 1;
        assert!(rounds < 100_000, "{} descriptors, not {with_observer}", broker.descriptors());
    }
    // Without room for the descriptors of a greeting, the broker refuses the greeting.
    let late = connect(&path).unwrap();
    while broker.descriptors() != with_observer + 2 {
        assert!(ask(&observer, &REPORT).is_some());
    }
    // The second of them may have been a file that the broker read while it accepted `late`. Its
    // next reply comes after that.
    assert!(ask(&observer, &REPORT).is_some());
    broker.limit_descriptors(with_observer as u64);
    let (page, tally) = (status_page(), tally_page());
    let hello =
        Request::Hello { version: VERSION, context: "binder".into(), channels: 16, connection: 0 };
    let pages = [&page, &tally].map(rustix::fd::AsFd::as_fd);
    let reply = greet(&late, &hello, &pages).map(|(reply, _)| reply);
    assert_eq!(reply, Some(Reply::Refused { errno: libc::EMFILE }));
    broker.limit_descriptors(1 << 20);
    let failed = broker.failed.load(Ordering::Relaxed);
    println!("seed {seed}: {n_steps} steps, {failed} calls failed, {refused} requests refused");
    assert!(failed > n_steps / 8, "hardly anything failed");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|argument| argument == BROKER) {
        return run_broker(&arguments[2]);
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let n_steps = numbers.next().unwrap_or(N_STEPS);
    let seed = numbers.next().unwrap_or(1);
    play(n_steps, seed);
}
