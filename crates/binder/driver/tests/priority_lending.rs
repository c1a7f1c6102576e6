//! Where the broker may not set priorities, a real-time caller lends its own to the looper that it
//! waits for. The tests run every thread on one processor and check which thread comes first.
//!
//! It starts this very program again for a server that is killed; hence a `main` of its own.

mod support;

use baton::{CallError, Handle, Parcel, Process};
use baton_driver::observer::Observer;
use baton_shm::schedule;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CpuSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use support::Broker;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);
/// The hog's computation.
const WORK: u64 = 30_000_000;

const ECHO: u32 = 1;
const BACK: u32 = 2;
const STAY: u32 = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, socket] = &arguments[..]
        && role == "server"
    {
        return serve(Path::new(socket));
    }
    if !become_real_time(1) {
        println!("skipped: lending (no real-time priority here)");
        return;
    }
    assert!(become_real_time(0));
    on_one_processor();
    for (name, test) in [
        ("a_looper_runs_before_those_who_are_below_its_caller", a_looper_runs_before as fn(&Scene)),
        ("a_call_back_reaches_the_caller", a_call_back_reaches_the_caller),
        ("a_looper_that_dies_ends_its_callers_call", a_looper_that_dies_ends_its_callers_call),
    ] {
        println!("test {name}");
        let scene = Scene::new();
        thread::scope(|scope| scope.spawn(|| test(&scene)).join().unwrap());
    }
}

fn become_real_time(priority: i32) -> bool {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    schedule::set(0, policy, priority).is_ok()
}

fn on_one_processor() {
    let mut first = CpuSet::new();
    first.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &first).unwrap();
}

/// Takes the calling thread, and the threads that it starts, the right to set real-time priorities.
fn give_up_priorities() {
    let no = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Rtprio, no).unwrap();
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_NICE);
    sets.permitted.remove(CapabilitySet::SYS_NICE);
    rustix::thread::set_capabilities(None, sets).unwrap();
    assert!(!become_real_time(1));
}

/// A broker that may not set priorities.
struct Scene {
    broker: Broker,
}

impl Scene {
    fn new() -> Scene {
        let broker = thread::spawn(|| {
            give_up_priorities();
            Broker::start()
        });
        Scene { broker: broker.join().unwrap() }
    }

    /// Runs in this process, on threads without that right.
    fn server(&self) -> Process {
        let socket = self.broker.socket.clone();
        thread::spawn(move || {
            give_up_priorities();
            server(&socket)
        })
        .join()
        .unwrap()
    }

    /// The calling thread is a real-time one, and has its looper.
    fn caller(&self) -> (Process, Handle) {
        let client = Process::open("binder", &self.broker.socket).unwrap();
        let manager = client.context_manager().unwrap();
        // A server that does not serve yet has no such loopers.
        call(&manager, ECHO, b"").unwrap();
        assert!(become_real_time(80));
        assert_eq!(manager.prepare(LONG), Ok(true));
        (client, manager)
    }
}

fn server(socket: &Path) -> Process {
    let process = Process::open("binder", socket).unwrap();
    let object = process
        .object(move |request| match request.code() {
            BACK => {
                let callback = request.received.handle(0).ok_or(Errno::INVAL)?;
                let reply = callback.call(ECHO, &Parcel::new()).map_err(|_| Errno::IO)?;
                Ok(Parcel::from(reply.data()))
            }
            STAY => {
                println!("taken");
                loop {
                    thread::park();
                }
            }
            _ => Ok(Parcel::from(request.data())),
        })
        .add();
    process.become_context_manager(object).unwrap();
    let serving = process.clone();
    thread::spawn(move || serving.serve());
    process
}

fn call(to: &Handle, code: u32, data: &[u8]) -> Result<Vec<u8>, CallError> {
    to.call(code, &Parcel::from(data)).map(|reply| reply.data().to_vec())
}

fn a_looper_runs_before(scene: &Scene) {
    let server = scene.server();
    let (_client, manager) = scene.caller();
    let report = Observer::connect(&scene.broker.socket).unwrap().report().unwrap();
    let processes = report.contexts.into_iter().flat_map(|context| context.processes);
    let lanes: Vec<_> = processes.flat_map(|process| process.real_time).collect();
    let unpromoted = |looper: &baton_abi::control::LooperReport| !looper.promoted;
    assert!(lanes.len() == 1 && lanes[0].looper.as_ref().is_some_and(unpromoted), "{lanes:?}");
    // By the general path, by the fast one several times, and again.
    for bytes in [4, 4, 4, 4, 70_000, 4, 4] {
        let data = vec![7; bytes];
        let ended = Arc::new(AtomicUsize::new(0));
        let hog = hog(&ended);
        let answer = call(&manager, ECHO, &data);
        let place = ended.fetch_add(1, Ordering::SeqCst);
        assert_eq!(answer, Ok(data));
        hog.join().unwrap();
        assert_eq!(place, 0, "a call of {bytes} bytes, after what is below it");
    }
    server.close();
}

/// A thread between the caller and its server, which computes for as long as it can.
fn hog(ended: &Arc<AtomicUsize>) -> thread::JoinHandle<()> {
    let ended = ended.clone();
    let (told, ready) = std::sync::mpsc::channel();
    let hog = thread::spawn(move || {
        assert!(become_real_time(50));
        told.send(()).unwrap();
        // It goes on as soon as the waiting thread waits for another thread.
        let sum = AtomicU64::new(0);
        (0..WORK).for_each(|number| _ = sum.fetch_add(number, Ordering::Relaxed));
        ended.fetch_add(1, Ordering::SeqCst);
    });
    ready.recv().unwrap();
    hog
}

fn a_call_back_reaches_the_caller(scene: &Scene) {
    let server = scene.server();
    let (client, manager) = scene.caller();
    let callback = client.object(|_| Ok(Parcel::from(&b"from below"[..]))).add();
    for _ in 0..20 {
        let mut parcel = Parcel::new();
        parcel.write_object(callback);
        let reply = manager.call(BACK, &parcel).unwrap();
        assert_eq!(reply.data(), b"from below");
        assert_eq!(call(&manager, ECHO, b"plain"), Ok(b"plain".to_vec()));
    }
    server.close();
}

fn a_looper_that_dies_ends_its_callers_call(scene: &Scene) {
    let mut server = start(&scene.broker.socket);
    let mut output = BufReader::new(server.stdout.take().unwrap());
    await_line(&mut output, "ready");
    let killer = thread::spawn(move || {
        await_line(&mut output, "taken");
        server.kill().unwrap();
        server.wait().unwrap();
    });
    let (_client, manager) = scene.caller();
    assert_eq!(call(&manager, ECHO, b"once"), Ok(b"once".to_vec()));
    assert_eq!(call(&manager, STAY, b""), Err(CallError::DeadObject));
    killer.join().unwrap();
}

fn start(socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("server").arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn await_line(output: &mut impl BufRead, expected: &str) {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), expected);
}

fn serve(socket: &Path) {
    give_up_priorities();
    let _server = server(socket);
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
