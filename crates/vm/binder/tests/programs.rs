//! Java services and clients as processes, with a broker and a service manager of this test's own.
//!
//! javac and dx make the programs of `tests/programs` when the test runs. Each process that runs
//! one is this test once more, with the program in its environment.

use baton::android::{Reader, Write as _};
use baton::{CallError, Errno, Handle, Parcel, Process, ServiceManager};
use baton_broker::{Config, Running};
use baton_manager::{Manager, Policy, Release};
use baton_vm::heap::Collector;
use baton_vm::runtime;
use baton_vm::vm::Options;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Mutex;
use tools::{build, files, library};

#[path = "../../vm/tests/tools/mod.rs"]
mod tools;

/// In the environment of a process that runs a program: its class, its argument, the class library,
/// and the dex files of the class path.
const PROGRAM: [&str; 4] =
    ["BATON_VM_PROGRAM", "BATON_VM_ARGUMENT", "BATON_VM_LIBRARY", "BATON_VM_DEX"];
/// In the environment of a process that has a Java service watch an object: the service's name.
const WATCHED: &str = "BATON_VM_WATCHED";

/// The interface of the service `Echo`, and its methods.
const DESCRIPTOR: &str = "baton.test.IEcho";
const ECHO: u32 = 1;
const CALLER: u32 = 2;
const CALL_BACK: u32 = 3;
const WRITE_TO: u32 = 4;
const THROW: u32 = 5;
const WATCH: u32 = 6;
const PRIORITY: u32 = 7;
const LARGE: u32 = 8;
const READ_ALL: u32 = 9;
const NEW_OBJECT: u32 = 10;
const OBJECTS: u32 = 11;
/// How many reads READ_ALL knows.
const N_READS: i32 = 11;

/// A check and its name.
type Check = (&'static str, fn(&Place));

fn main() -> ExitCode {
    if let [Ok(program), Ok(argument), Ok(library), Ok(dex)] = PROGRAM.map(std::env::var) {
        return run(&program, argument, library.into(), &dex);
    }
    if let Ok(service) = std::env::var(WATCHED) {
        be_watched(&service);
    }
    let checks: [Check; 6] = [
        ("java_calls_java", java_calls_java),
        ("rust_calls_java", rust_calls_java),
        ("java_calls_rust", java_calls_rust),
        ("a_service_survives_hostile_requests", a_service_survives_hostile_requests),
        ("objects_are_given_back", objects_are_given_back),
        ("java_hears_of_a_killed_process", java_hears_of_a_killed_process),
    ];
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| name.contains(wanted));
    let place = Place::new();
    let mut failed = false;
    for (name, check) in checks.into_iter().filter(|(name, _)| is_wanted(name)) {
        let place = std::panic::AssertUnwindSafe(&place);
        let passed = std::panic::catch_unwind(|| check(&place)).is_ok();
        println!("{name} ... {}", if passed { "ok" } else { "FAILED" });
        failed |= !passed;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run(program: &str, argument: String, library: PathBuf, dex: &str) -> ExitCode {
    let options = Options {
        boot_class_path: vec![library],
        class_path: dex.split(':').map(PathBuf::from).collect(),
        natives: baton_vm_binder::natives(socket()),
        heap_bytes: 64 << 20,
        collector: Collector::Counting,
        ..Options::default()
    };
    match runtime::start(options) {
        Ok(t) => ExitCode::from(runtime::run_main(&t, program, &[argument])),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Has a Java service watch an object of this process, and waits to be killed.
fn be_watched(service: &str) -> ! {
    let process = Process::open("binder", &socket()).unwrap();
    let object = process.object(|_| Ok(Parcel::new())).add();
    let mut request = request();
    request.write_object(object).write(&12i32.to_le_bytes());
    request.write_string("the watched process is gone");
    let names = ServiceManager::find(&process).unwrap();
    let service = names.service(service).unwrap().unwrap();
    let reply = service.call(WATCH, &request).unwrap();
    assert_eq!(Reader::new(reply.data()).status(), Some(Ok(())));
    println!("watched");
    loop {
        std::thread::park();
    }
}

fn socket() -> PathBuf {
    std::env::var_os("BATON_SOCKET").expect("the test sets it").into()
}

/// What the processes of this test share.
struct Place {
    broker: Running,
    _manager: Manager,
    library: String,
    dex: String,
    /// Goes last
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let process = Process::open("binder", broker.socket()).unwrap();
        let manager = Manager::start(&process, Release::Sixteen, Policy::Everyone).unwrap();
        std::thread::spawn(move || process.serve());
        let (android, jar) = {
            let both = library("android");
            let (dex, jar) = both.split_once(':').expect("two paths");
            (dex.to_owned(), jar.to_owned())
        };
        let sources = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs"), "java");
        let classes = directory.path().join("classes");
        std::fs::create_dir(&classes).expect("a directory");
        let dex = format!("{android}:{}", build(&sources, &jar, &classes).display());
        Place { broker, _manager: manager, library: library("library"), dex, _directory: directory }
    }

    fn command(&self) -> Command {
        // A process that hangs is ended, and so has printed too little.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]).arg(std::env::current_exe().unwrap());
        command.env("BATON_SOCKET", self.broker.socket()).stdout(Stdio::piped());
        command
    }

    /// Starts a Java program with an argument.
    fn java(&self, class: &str, argument: &str) -> Started {
        let mut command = self.command();
        for (name, value) in PROGRAM.iter().zip([class, argument, &self.library, &self.dex]) {
            command.env(name, value);
        }
        // android.os.Debug does not initialize without it.
        command.env("EXTERNAL_STORAGE", "/sdcard");
        Started::start(command)
    }
}

/// A process of this test. It is killed when this is dropped.
struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Started {
    fn start(mut command: Command) -> Started {
        let mut child = command.spawn().expect("the process starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Started { child, lines }
    }

    /// Its output up to this line.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.lines.by_ref().map(|line| line.expect("text")) {
            if line == last {
                return lines;
            }
            lines.push(line);
        }
        panic!("the process ended without {last:?}: {lines:#?}");
    }

    /// Its output up to its end, which is a success.
    fn rest(mut self) -> Vec<String> {
        let lines = self.lines.by_ref().map(|line| line.expect("text")).collect();
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status} after {lines:#?}");
        lines
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The child is `timeout`, which passes the signal on; SIGKILL would leave its own child.
        if let Ok(None) = self.child.try_wait() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// The beginning of a request to the service `Echo`.
fn request() -> Parcel {
    let mut parcel = Parcel::new();
    parcel.write_token(DESCRIPTOR);
    parcel
}

/// A Java service, and a process that calls it.
struct JavaService {
    service: Handle,
    client: Process,
    process: Started,
}

impl JavaService {
    fn start(place: &Place, name: &str) -> JavaService {
        let mut process = place.java("Echo", name);
        process.until("ready");
        let client = Process::open("binder", place.broker.socket()).unwrap();
        let service = ServiceManager::find(&client).unwrap().service(name).unwrap().unwrap();
        JavaService { service, client, process }
    }

    /// Calls it; `read` gets what follows the status.
    fn call<T>(
        &self,
        code: u32,
        write: impl FnOnce(&mut Parcel),
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut request = request();
        write(&mut request);
        let reply = self.service.call(code, &request).unwrap();
        let mut reader = Reader::new(reply.data());
        assert_eq!(reader.status(), Some(Ok(())));
        read(&mut reader)
    }
}

/// All that a Java client sees of a Java service, and of its death by SIGKILL.
fn java_calls_java(place: &Place) {
    let name = "test.java";
    let mut service = place.java("Echo", name);
    service.until("ready");
    let mut client = place.java("Client", name);
    let echo = "echo: 7 true [1, -1] [1, 2, 3]";
    let expected = [
        "same proxy: true",
        "absent: null",
        "listed: true",
        "alive: true true",
        "interface: baton.test.IEcho",
        echo,
        echo,
        echo,
        "callback: 50",
        "thrown: java.lang.SecurityException: no",
        "thrown: java.lang.IllegalArgumentException: bad",
        "thrown: java.lang.IllegalStateException: late",
        "thrown: java.lang.NullPointerException: nothing",
        "an error: false",
        "unknown code: false",
        "too large: android.os.TransactionTooLargeException: null",
        "recycled: 10 parcels, 6 again, 0 bytes",
        "still there: 1",
        "pipe: to the pipe",
        "pipe: from Java",
        "intent: Intent { act=baton.test.ACTION cat=[baton.test.CATEGORY] dat=content://a/1 \
         (has extras) } value [1, 2] Client$Callback",
        "handler: first second",
        "link: true Death link does not exist",
    ];
    assert_eq!(client.until("ready"), expected);
    kill(&service);
    let expected = [
        "dead: false",
        "a call to the dead: android.os.DeadObjectException",
        "a link to the dead: android.os.DeadObjectException",
    ];
    assert_eq!(client.rest(), expected);
}

/// Kills the process that `timeout` runs.
fn kill(started: &Started) {
    let timeout = started.child.id();
    let children = format!("/proc/{timeout}/task/{timeout}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let pid: i32 = children.trim().parse().expect("one child");
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn rust_calls_java(place: &Place) {
    let java = JavaService::start(place, "test.rust-calls-java");
    let echoed = java.call(
        ECHO,
        |parcel| {
            parcel.write_i32(-5);
            parcel.write_string("text");
            parcel.write_i32(-1);
            parcel.write_bytes(b"12345");
        },
        |reader| {
            (reader.i32(), reader.string(), reader.i32(), reader.i32(), reader.rest().to_vec())
        },
    );
    let expected = (Some(-5), Some("text".into()), Some(-1), Some(5), b"12345\0\0\0".to_vec());
    assert_eq!(echoed, expected);

    let ids = java.call(CALLER, |_| {}, |reader| [(); 4].map(|()| reader.i32().unwrap()));
    let own = std::process::id() as i32;
    let uid = rustix::process::geteuid().as_raw() as i32;
    assert_eq!((ids[0], ids[1], ids[3]), (own, uid, own));
    assert_ne!(ids[2], own, "a service without its caller's identity is itself");

    let callback = java.client.object(|request| {
        let number = Reader::new(request.data()).i32().ok_or(Errno::BADMSG)?;
        Ok(Parcel::from(&(number * 3).to_le_bytes()[..]))
    });
    let callback = callback.add();
    let answer = java.call(
        CALL_BACK,
        |parcel| {
            parcel.write_object(callback);
            parcel.write_i32(12);
            parcel.write_i32(6);
        },
        |reader| reader.i32(),
    );
    assert_eq!(answer, Some(21));

    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut sent = request();
    sent.write_owned_fd(writer.into());
    sent.write_string("to the pipe");
    let reply = java.service.call(WRITE_TO, &sent).unwrap();
    assert_eq!(Reader::new(reply.data()).status(), Some(Ok(())));
    drop(sent);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "to the pipe", "and the service has closed its duplicates");
    let mut text = String::new();
    std::fs::File::from(reply.fd(0).unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "from Java");

    for (name, code, message) in [
        ("security", -1, "no"),
        ("argument", -3, "bad"),
        ("null", -4, "nothing"),
        ("state", -5, "late"),
    ] {
        let mut request = request();
        request.write_string(name);
        let reply = java.service.call(THROW, &request).unwrap();
        let exception = Reader::new(reply.data()).status().unwrap().unwrap_err();
        assert_eq!((exception.code, exception.message.as_str()), (code, message));
    }

    // The thread that serves takes over the priority of its caller.
    let priority = |java: &JavaService| java.call(PRIORITY, |_| {}, |reader| reader.i32());
    let own = rustix::process::getpriority_process(None).unwrap();
    let lower = (own + 4).min(19);
    let called_lower = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            rustix::process::setpriority_process(None, lower).unwrap();
            priority(&java)
        });
        caller.join().unwrap()
    });
    assert_eq!((priority(&java), called_lower), (Some(own), Some(lower)));

    let size = |n_bytes: i32| {
        let mut request = request();
        request.write_i32(n_bytes);
        java.service.call(LARGE, &request).map(|reply| reply.data().len())
    };
    assert_eq!(size(100_000), Ok(100_008));
    assert!(size(4 << 20).is_err(), "the reply fits into no receive buffer");
    assert_eq!(size(8), Ok(16));
}

/// A service in Rust, and what a Java client makes of its answers.
fn java_calls_rust(place: &Place) {
    let server = Process::open("binder", place.broker.socket()).unwrap();
    let kept: Mutex<Option<Handle>> = Mutex::new(None);
    let handler = move |request: &baton::Request<'_>| {
        let mut reader = Reader::new(request.data());
        if reader.token().as_deref() != Some("baton.test.IRust") {
            return Err(Errno::PERM);
        }
        let mut reply = Parcel::new();
        match request.code() {
            1 => reply.write_exception(-5, "from Rust"),
            2 => {
                // Kept until the next call, which comes from the client's main thread, too.
                *kept.lock().unwrap() = request.received.handle(0);
                reply.write_i32(0);
            }
            3 => {
                let callback = kept.lock().unwrap().take().ok_or(Errno::INVAL)?;
                let answer = callback.call(1, &Parcel::from(&4i32.to_le_bytes()[..]));
                let answer = answer.map_err(|_| Errno::IO)?;
                reply.write_i32(0);
                reply.write(answer.data());
            }
            4 => {
                let (reader, mut writer) = std::io::pipe().map_err(|_| Errno::MFILE)?;
                writer.write_all(b"from Rust").map_err(|_| Errno::IO)?;
                reply.write_i32(0);
                reply.write_owned_fd(reader.into());
            }
            5 => {
                let (pid, uid) = request.sender();
                reply.write_i32(0);
                reply.write_i32(pid as i32);
                reply.write_i32(uid as i32);
            }
            // An array that says it has more than the parcel.
            6 => [0, i32::MAX, 1].into_iter().for_each(|word| reply.write_i32(word)),
            _ => return Err(Errno::NOSYS),
        }
        Ok(reply)
    };
    let name = "test.java-calls-rust";
    let names = ServiceManager::find(&server).unwrap();
    names.publish(name, server.object(handler).add()).unwrap();
    let looper = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    let uid = rustix::process::geteuid().as_raw();
    let expected = [
        "java.lang.IllegalStateException: from Rust".to_owned(),
        "kept: null".to_owned(),
        "called back: 40".to_owned(),
        "descriptor: from Rust".to_owned(),
        format!("caller: true {uid}"),
        "bad array: null".to_owned(),
        "bad array lengths".to_owned(),
        "android.os.RemoteException: the driver or the object has refused the transaction"
            .to_owned(),
    ];
    assert_eq!(place.java("RustClient", name).rest(), expected);
    server.close();
    looper.join().unwrap();
}

/// Bad lengths, objects that are none, and bytes of no sense: each gets an answer or a refusal.
fn a_service_survives_hostile_requests(place: &Place) {
    let java = JavaService::start(place, "test.hostile");
    let no_token = java.service.call(ECHO, &Parcel::from(&[7; 64][..])).unwrap();
    let exception = Reader::new(no_token.data()).status().unwrap().unwrap_err();
    assert_eq!(exception.code, -1, "{exception:?}");
    drop(no_token);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for which in 0..=N_READS {
        for length in [0, -1, 1, 5, 0x7fff_ffff, i32::MIN, 0x4000_0000, 1_000_000] {
            let mut request = request();
            request.write_i32(which);
            request.write_i32(length);
            for _ in 0..next() % 16 {
                // Small numbers are tags and lengths, large ones are neither.
                let word = next();
                request.write_i32(if word % 2 == 0 {
                    (word >> 40) as i32 % 40
                } else {
                    word as i32
                });
            }
            if let Err(error @ CallError::DeadObject) = java.service.call(READ_ALL, &request) {
                panic!("read {which} of a length {length}: {error}");
            }
        }
    }
    let echoed = java.call(ECHO, |parcel| parcel.write_i32(9), |reader| reader.i32());
    assert_eq!(echoed, Some(9), "the service is still there");
}

/// Objects of either side that nobody holds any more are freed.
fn objects_are_given_back(place: &Place) {
    let java = JavaService::start(place, "test.given-back");
    let count = |java: &JavaService| {
        java.call(OBJECTS, |_| {}, |it| [it.i32().unwrap(), it.i32().unwrap()])
    };
    let before = count(&java);
    for _ in 0..50 {
        let reply = java.service.call(NEW_OBJECT, &request()).unwrap();
        let object = reply.handle(0).expect("an object");
        drop(reply);
        let alive = object.call(u32::from_be_bytes(*b"_PNG"), &Parcel::new()).unwrap();
        assert_eq!(alive.data(), [0; 4]);
    }
    let callback = java.client.object(|_| Ok(Parcel::from(&[0; 4][..])));
    let callback = callback.add();
    for _ in 0..50 {
        let mut request = request();
        request.write_object(callback);
        request.write_i32(12);
        request.write_i32(6);
        java.service.call(CALL_BACK, &request).unwrap();
    }
    // Handles are given back within milliseconds, and finalizers run after a collection.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let after = count(&java);
        if after[0] <= before[0] && after[1] <= before[1] {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{before:?} before, {after:?} now");
    }
}

fn java_hears_of_a_killed_process(place: &Place) {
    let name = "test.watching";
    let mut java = JavaService::start(place, name);
    let mut command = place.command();
    command.env(WATCHED, name);
    let mut watched = Started::start(command);
    watched.until("watched");
    kill(&watched);
    assert_eq!(java.process.until("the watched process is gone"), [""; 0]);
}
