//! Java programs on this VM and on `java`: what they print has to be equal. Each runs under torture
//! with each collector. One stops the program and collects before each object that is made; the
//! other one counts, without a pause between collections. The heap is checked after each. Each
//! program runs in a VM of its own, and in a child of a zygote: there, for its time, the collector
//! that stops runs when it is due.
//!
//! javac and dx make the programs of `tests/programs` when the test runs. Each runs in a process of
//! its own, which is this test once more with a program's name in its environment.

use baton_vm::heap::Collector;
use baton_vm::runtime;
use baton_vm::vm::{Options, Program};
use baton_vm::zygote::Zygote;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tools::{build, files, library, output};

mod tools;

/// In the environment of a process that runs a program: its name, the library, its dex file, the
/// collector, and the way it starts.
const PROGRAM: [&str; 5] = [
    "BATON_VM_PROGRAM",
    "BATON_VM_LIBRARY",
    "BATON_VM_DEX",
    "BATON_VM_COLLECTOR",
    "BATON_VM_START",
];
const COLLECTORS: [&str; 2] = ["mark-sweep", "counting"];
const STARTS: [&str; 2] = ["own", "zygote"];
/// The program whose reports are looked at.
const REPORTED: &str = "References";

fn main() -> ExitCode {
    if let [Ok(program), Ok(library), Ok(dex), Ok(collector), Ok(start)] =
        PROGRAM.map(std::env::var)
    {
        return run(&program, library.into(), dex.into(), &collector, &start);
    }
    let directory = tempfile::tempdir().expect("a directory for classes");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let sources = files(&programs, "java");
    let library = library("library");
    let dex = build(&sources, "", directory.path());
    let (next, failed) = (Mutex::new(sources.iter()), AtomicBool::new(false));
    let take = || next.lock().expect("no holder panics").next();
    let compare_all = || {
        while let Some(source) = take() {
            if !compare(source, &library, &dex, directory.path()) {
                failed.store(true, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..n_threads).for_each(|_| _ = scope.spawn(compare_all));
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs a program in all ways. False if it prints something else than on `java`.
fn compare(source: &Path, library: &str, dex: &Path, classes: &Path) -> bool {
    let name = source.file_stem().and_then(|name| name.to_str()).expect("a name");
    let expected = output(Command::new("java").arg("-cp").arg(classes).arg(name));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let ways = COLLECTORS.iter().flat_map(|collector| STARTS.map(|start| (collector, start)));
    let mut are_same = true;
    for (collector, start) in ways {
        let this = std::env::current_exe().expect("this program has a path");
        // A VM that hangs is ended, and so has printed too little.
        let mut vm = Command::new("timeout");
        vm.args(["--kill-after=5", "120"]).arg(this);
        vm.env(PROGRAM[0], name).env(PROGRAM[1], library).env(PROGRAM[2], dex);
        vm.env(PROGRAM[3], collector).env(PROGRAM[4], start);
        let found = output(&mut vm);
        let same = text(&expected) == text(&found) && expected.status.code() == found.status.code();
        println!("{name}, {collector}, {start} ... {}", if same { "ok" } else { "FAILED" });
        if name == REPORTED && start == STARTS[0] {
            check_reports(dex, collector);
        }
        if !same {
            let errors = String::from_utf8_lossy(&found.stderr);
            let [expected, found] = [text(&expected), text(&found)];
            println!("java printed:\n{expected}\nthe VM printed:\n{found}{errors}");
            are_same = false;
        }
    }
    are_same
}

fn run(program: &str, library: PathBuf, dex: PathBuf, collector: &str, start: &str) -> ExitCode {
    let is_counting = collector == COLLECTORS[1];
    // The first program checks the library, the others find its record.
    let dex_cache = Some(dex.with_file_name("checked"));
    let options = Options {
        boot_class_path: vec![library],
        class_path: vec![dex.clone()],
        heap_bytes: 64 << 20,
        collector: if is_counting { Collector::Counting } else { Collector::MarkSweep },
        verify_heap: true,
        trace: Some(report(&dex, "trace", program, collector)),
        allocation_profile: Some(report(&dex, "profile", program, collector)),
        is_tortured: is_counting || start == STARTS[0],
        dex_cache,
        ..Options::default()
    };
    let class_path = options.class_path.clone();
    let started = match start {
        "own" => runtime::start(options),
        _ => Zygote::start(options, &["java.util.TreeMap".to_owned()]).and_then(|zygote| {
            // SAFETY: this process has one thread.
            if let Some(child) = Pid::from_raw(unsafe { libc::fork() }) {
                let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
                // No code of a program is 255.
                std::process::exit(status.exit_status().unwrap_or(255));
            }
            zygote.into_vm(Program { class_path, properties: Vec::new() })
        }),
    };
    match started {
        Ok(t) => ExitCode::from(runtime::run_main(&t, program, &[])),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A file for a report of a program, the last time that it ran with a collector.
fn report(dex: &Path, of: &str, program: &str, collector: &str) -> PathBuf {
    dex.with_file_name(format!("{of}-{program}-{collector}.json"))
}

/// Reports of a program that collects say so.
fn check_reports(dex: &Path, collector: &str) {
    let read = |of: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(report(dex, of, REPORTED, collector)).expect("a report");
        serde_json::from_str(&text).expect("a report is complete")
    };
    let trace = read("trace");
    let events = trace.as_array().expect("a trace is an array");
    let has = |name: &str| events.iter().any(|event| event["name"] == name);
    assert!(has(collector) && has("heap") && has("thread_name"), "{trace}");
    let is_collector = |event: &serde_json::Value| event["args"]["name"] == "collector";
    assert_eq!(events.iter().any(is_collector), collector == COLLECTORS[1], "a thread of its own");
    assert!(has("collection"), "System.gc is a pause: {trace}");
    assert_eq!(has("stage: scanned"), collector == COLLECTORS[1]);
    let profile = read("profile");
    let sites = profile["sites"].as_array().expect("a profile has sites");
    let bytes = |site: &serde_json::Value| site["bytes"].as_u64();
    assert!(sites.is_sorted_by_key(|site| std::cmp::Reverse(bytes(site))));
    if collector == COLLECTORS[0] {
        let n = |site: &serde_json::Value| site["objects"].as_u64().expect("a number");
        let n_objects: u64 = sites.iter().map(n).sum();
        let n_collections = events.iter().filter(|event| event["name"] == *collector).count();
        // Two threads that make an object at a time have one collection for both.
        assert!(n_collections as u64 > n_objects / 2, "{n_collections}, {n_objects}");
    }
    // References.make has one line that makes ten.
    let made = sites.iter().find(|it| it["class"] == "References").expect("its own site");
    assert_eq!(made["objects"], 10, "{made}");
    assert_eq!(made["method"], "References.make()V");
    assert!(made["at"].as_str().is_some_and(|at| at.starts_with("References.java:")), "{made}");
}
