//! `baton.rt` in a Java program: each setting with the right to it and without, and its end. A
//! directory stands for sysfs; all else is this machine's own.
//!
//! Each process that runs the program is this test once more, and so is the guardian of the
//! frequency lock.

#[path = "../../vm/tests/tools/mod.rs"]
mod tools;

use baton_rt::{Options, Paths, SchedPriority, frequency, guardian};
use baton_vm::heap::Collector;
use baton_vm::runtime;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// In the environment of a process that runs the program: the directory of the machine's files, the
/// class library, the dex file, and an argument.
const PROGRAM: [&str; 4] =
    ["BATON_VM_MACHINE", "BATON_VM_LIBRARY", "BATON_VM_DEX", "BATON_VM_ARGUMENT"];
/// A user without rights.
const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["rt", "guard", "--apart", watch] => {
            // Closes standard output, on which its starter waits.
            let ready =
                || _ = rustix::stdio::dup2_stdout(std::fs::File::open("/dev/null").unwrap());
            return ExitCode::from(u8::from(guardian::watch(watch, ready).is_err()));
        }
        ["rt", "guard", watch] => {
            return ExitCode::from(u8::from(guardian::detach(watch).is_err()));
        }
        _ => {}
    }
    if let [Ok(machine), Ok(library), Ok(dex), Ok(argument)] = PROGRAM.map(std::env::var) {
        return run(Path::new(&machine), library.into(), dex.into(), argument);
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = tools::files(&own.join("java/baton/rt"), "java");
    sources.push(own.join("tests/programs/Settings.java"));
    let dex = tools::build(&sources, "", directory.path());
    let is_root = rustix::process::geteuid().is_root();
    with_rights(directory.path(), &dex);
    without_rights(directory.path(), &dex, is_root);
    ExitCode::SUCCESS
}

fn run(machine: &Path, library: PathBuf, dex: PathBuf, argument: String) -> ExitCode {
    let options = Options::new().paths(paths(machine)).guardian(std::env::current_exe().unwrap());
    let options = baton_vm::vm::Options {
        boot_class_path: vec![library],
        class_path: vec![dex],
        heap_bytes: 16 << 20,
        // Only this one has a reserve.
        collector: Collector::Counting,
        natives: baton_vm_real_time::natives(options),
        ..Default::default()
    };
    let policy = policy(machine).display().to_string();
    let arguments = [policy, argument].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>();
    match runtime::start(options) {
        Ok(t) => ExitCode::from(runtime::run_main(&t, "Settings", &arguments)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn paths(machine: &Path) -> Paths {
    Paths { sysfs: machine.join("sys"), state: machine.join("state"), ..Paths::default() }
}

fn policy(machine: &Path) -> PathBuf {
    machine.join("sys/devices/system/cpu/cpufreq/policy0")
}

/// A machine with one frequency policy.
fn machine(directory: &Path, name: &str) -> PathBuf {
    let machine = directory.join(name);
    std::fs::create_dir_all(policy(&machine)).unwrap();
    for (file, text) in [
        ("affected_cpus", "0 1"),
        ("cpuinfo_min_freq", "400000"),
        ("cpuinfo_max_freq", "1800000"),
        ("scaling_available_governors", "schedutil performance"),
        ("scaling_available_frequencies", "400000 1800000"),
        ("scaling_governor", "schedutil"),
        ("scaling_min_freq", "500000"),
        ("scaling_max_freq", "1100000"),
    ] {
        std::fs::write(policy(&machine).join(file), format!("{text}\n")).unwrap();
    }
    machine
}

fn command(machine: &Path, dex: &Path, argument: &str, limits: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60", "prlimit"]).args(limits);
    command.arg(std::env::current_exe().unwrap());
    let library = tools::library("library");
    let values = [machine.as_os_str(), library.as_ref(), dex.as_os_str(), argument.as_ref()];
    command.envs(PROGRAM.iter().zip(values));
    command
}

fn with_rights(directory: &Path, dex: &Path) {
    let machine = machine(directory, "rights");
    let said = tools::succeed(&mut command(&machine, dex, "threads", &["--cpu=unlimited"]));
    // What this process may not do, the program may not, either.
    let may = |name: &str, options: Options| match options.hold() {
        Ok(_) => true,
        Err(error) => {
            println!("{name} ... skipped: {error}");
            false
        }
    };
    let priority = may("priority", Options::new().priority(SchedPriority::fifo(7)));
    let memory = may("memory", Options::new().lock_memory(0));
    let oom = may("oom", Options::new().oom_protect());
    let mut expected = vec![
        ("priority: 7 1 false 0 schedutil 1100000", priority),
        ("undone", true),
        ("highest: 0 0 false 0 performance 1800000", true),
        ("undone", true),
        ("frequency: 0 0 false 0 performance 400000", true),
        ("undone", true),
        ("memory: 0 0 true 0 schedutil 1100000", memory),
        ("undone", true),
        ("oom: 0 0 false -1000 schedutil 1100000", oom),
        ("undone", true),
        ("IllegalArgumentException", true),
        ("IllegalArgumentException", true),
        ("IllegalArgumentException", true),
        ("IllegalArgumentException", true),
        ("ended with its thread", true),
        ("another thread has made this setting", true),
        ("3 1 false 0 schedutil 1100000", priority),
    ];
    if priority {
        // The collector's thread has left, while the real-time one is bound to a processor; and has
        // come back.
        expected.extend([("reserve", true), ("as asked", true), ("as asked", true)]);
    }
    expected.extend([
        ("0 0 false 0 schedutil 1100000", true),
        ("0 0 false 0 performance 1800000", true),
    ]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, (expected, may)) in lines.into_iter().zip(expected) {
        match may {
            true => assert_eq!(line, expected, "{said}"),
            false => assert!(line.contains("SecurityException"), "{said}"),
        }
    }
    // What the guardian does if it is faster.
    frequency::repair(&paths(&machine)).unwrap();
    let left = std::fs::read_to_string(policy(&machine).join("scaling_governor")).unwrap();
    assert_eq!(left, "schedutil");
    println!("with_rights ... ok");
}

fn without_rights(directory: &Path, dex: &Path, is_root: bool) {
    let machine = machine(directory, "none");
    let mut command = command(&machine, dex, "", &["--memlock=65536", "--rtprio=0"]);
    if is_root {
        // The user cannot write the files that root has made.
        command.uid(NOBODY).gid(NOBODY);
    } else {
        let mode = PermissionsExt::from_mode(0o555);
        std::fs::set_permissions(&machine, mode).unwrap();
    }
    let said = tools::succeed(&mut command);
    std::fs::set_permissions(&machine, PermissionsExt::from_mode(0o755)).unwrap();
    let mut lines = said.lines();
    for (name, advice) in [
        ("priority", "ulimit -r 99"),
        ("highest", "run it as root"),
        ("frequency", "run it as root"),
        ("memory", "ulimit -l unlimited"),
        ("oom", "OOMScoreAdjust=-1000"),
    ] {
        let line = lines.next().unwrap();
        let begins = format!("{name}: java.lang.SecurityException: ");
        assert!(line.starts_with(&begins) && line.contains(advice), "{said}");
        assert_eq!(lines.next(), Some("undone"), "{said}");
    }
    println!("without_rights ... ok");
}
