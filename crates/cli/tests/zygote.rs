//! `baton zygote`, and programs that it starts, with real processes that are killed. javac and dx
//! make the program when the test runs.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;
#[path = "../../vm/vm/tests/tools/mod.rs"]
mod tools;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use support::Broker;
use tempfile::TempDir;

const BATON: &str = env!("CARGO_BIN_EXE_baton");
const COLLECTORS: [&str; 2] = ["-Xgc:mark-sweep", "-Xgc:counting"];
/// A user without rights.
const NOBODY: u32 = 65_534;

/// The program, once for all tests. Other users may read it.
static PROGRAM: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let sources = ["Child", "Starter"]
        .map(|name| format!("{}/tests/programs/{name}.java", env!("CARGO_MANIFEST_DIR")).into());
    let dex = tools::build(&sources, "", directory.path());
    (directory, dex)
});

/// A broker, a service manager and a zygote.
struct Place {
    broker: Broker,
    cache: TempDir,
    zygote: Child,
    _manager: Killed,
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    fn new(options: &[&str]) -> Place {
        let broker = Broker::start();
        // Strangers come here, too.
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(broker.socket.parent().unwrap(), mode).unwrap();
        let cache = tempfile::tempdir().unwrap();
        std::fs::set_permissions(cache.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut manager = Command::new(BATON);
        manager.arg("--socket").arg(&broker.socket).arg("manager").stdout(Stdio::null());
        let manager = Killed(manager.spawn().unwrap());
        let mut zygote = Command::new(BATON);
        zygote.arg("--socket").arg(&broker.socket).args([
            "zygote",
            "--preload",
            "java.util.TreeSet",
        ]);
        zygote.arg(format!("-Xbootclasspath:{}", tools::library("library"))).args(options);
        zygote.env("XDG_CACHE_HOME", cache.path()).stdout(Stdio::piped());
        let mut zygote = zygote.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(zygote.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "Starting programs as \"zygote\" in \"binder\"\n");
        Place { broker, cache, zygote, _manager: manager }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BATON);
        command.arg("--socket").arg(&self.broker.socket).arg("dalvikvm").args(words);
        command.env("XDG_CACHE_HOME", self.cache.path());
        command
    }

    /// The program from the zygote.
    fn forked(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.command(&["--from-zygote", "zygote"]);
        command.args(options).arg("-cp").arg(&PROGRAM.1).arg("Child").args(arguments);
        command
    }

    /// A program that has told its pid and waits.
    fn waiting(&self) -> Waiting {
        let mut client = self.forked(&[], &["wait"]);
        let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Waiting { client: Killed(client), pid, pidfd }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.zygote), Signal::TERM);
        let _ = self.zygote.wait();
    }
}

struct Waiting {
    client: Killed,
    pid: Pid,
    pidfd: OwnedFd,
}

impl Waiting {
    /// Waits for the program's end. A hang ends with the test.
    fn await_end(&self) {
        poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], None).unwrap();
    }

    /// The exit code of the client, and what it says.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.client.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.client.0.wait().unwrap().code(), said)
    }

    fn parent(&self) -> Pid {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid()));
        let status = status.unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        Pid::from_raw(parent.trim().parse().unwrap()).unwrap()
    }
}

fn with_input(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that reads nothing closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn a_program_has_all_from_its_client_and_nothing_else() {
    for collector in COLLECTORS {
        let place = Place::new(&[collector]);
        let directory = tempfile::tempdir().unwrap();
        let library = format!("-Xbootclasspath:{}", tools::library("library"));
        let outputs =
            [[collector, &library], ["--from-zygote", "zygote"], ["--from-zygote", "zygote"]].map(
                |options| {
                    let mut command = place.command(&options);
                    command.args(["-Dgiven=a value", "-cp"]).arg(&PROGRAM.1);
                    command.args(["Child", "tell", "ä b"]).current_dir(directory.path());
                    command.env("ANOTHER", "one=two").env("TMPDIR", "/here");
                    with_input(command, "a line\nrest")
                },
            );
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
        for output in &outputs {
            assert_eq!(output.status.code(), Some(7), "{output:?}");
            assert_eq!(text(&output.stdout), text(&outputs[0].stdout));
            assert_eq!(text(&output.stderr), "an error\n");
        }
        assert!(text(&outputs[0].stdout).contains("one=two"));
    }
}

#[test]
fn garbage_of_a_child_is_collected() {
    for collector in COLLECTORS {
        let options = &[collector, "--verify-heap", "--torture"];
        let place = Place::new(options);
        for _ in 0..2 {
            let output = place.forked(&[], &["collect"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said, "value 4, true, null\n", "{options:?}: {output:?}");
        }
    }
}

#[test]
fn a_child_calls_a_library_in_c() {
    let place = Place::new(&[]);
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("child.c");
    let text = "#include <jni.h>\n\
                jint Java_Child_count(JNIEnv *env, jclass own, jstring text)\n\
                { return (*env)->GetStringLength(env, text); }\n";
    std::fs::write(&source, text).unwrap();
    let javac = tools::succeed(Command::new("sh").args(["-c", "readlink -f $(command -v javac)"]));
    let jdk = std::path::Path::new(&javac).ancestors().nth(2).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(directory.path().join("libchild.so")).arg(source);
    tools::succeed(cc.arg("-I").arg(jdk.join("include")).arg("-I").arg(jdk.join("include/linux")));
    let path = format!("-Djava.library.path={}", directory.path().display());
    let output = place.forked(&[&path], &["native"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "8\n", "{output:?}");
    // Each child loads its own.
    let mut command = place.forked(&[], &["native"]);
    let output = command.env("LD_LIBRARY_PATH", directory.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "8\n", "{output:?}");
}

#[test]
fn signals_and_ends_are_passed_on() {
    let place = Place::new(&[]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::USR1, 138), (Signal::USR2, 140)] {
        let mut waiting = place.waiting();
        kill_process(Pid::from_child(&waiting.client.0), signal).unwrap();
        waiting.await_end();
        assert_eq!(waiting.end(), (Some(code), String::new()));
    }
    let mut waiting = place.waiting();
    kill_process(waiting.pid, Signal::KILL).unwrap();
    assert_eq!(waiting.end(), (Some(137), String::new()));
}

#[test]
fn a_program_dies_with_its_client() {
    let place = Place::new(&[]);
    let other = place.waiting();
    let mut waiting = place.waiting();
    waiting.client.0.kill().unwrap();
    waiting.await_end();
    assert!(std::fs::exists(format!("/proc/{}/stat", other.pid.as_raw_pid())).unwrap());
}

#[test]
fn a_machine_that_dies_is_replaced_and_takes_its_programs_along() {
    let place = Place::new(&[]);
    let mut waiting = place.waiting();
    kill_process(waiting.parent(), Signal::KILL).unwrap();
    waiting.await_end();
    let (code, said) = waiting.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ended together with the zygote's machine"), "{said}");
    place.waiting();
}

#[test]
fn programs_die_with_the_zygote() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut place = Place::new(&[]);
        let mut waiting = place.waiting();
        kill_process(Pid::from_child(&place.zygote), signal).unwrap();
        place.zygote.wait().unwrap();
        waiting.await_end();
        let (code, said) = waiting.end();
        assert_eq!(code, Some(1), "{said}");
    }
}

#[test]
fn strangers_get_nothing_and_root_may_start_as_another_user() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: it needs root, to become another user");
    }
    let place = Place::new(&[]);
    let mut stranger = place.forked(&[], &["tell"]);
    let output = stranger.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("only user 0 and root may start processes here"), "{said}");
    let mut command = place.forked(&["--user", "65534"], &["tell"]);
    let output = command.current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\nuser 65534\n"), "{output:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::new(&[]);
    let check = |command: &mut Command, code: i32, words: &str| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    check(&mut place.forked(&["-Xmx1m"], &["tell"]), 2, "-Xmx1m is for the zygote to say");
    check(&mut place.command(&["--from-zygote", "zygote"]), 2, "ARGUMENT");
    check(&mut place.command(&["--from-zygote", "none", "M"]), 1, "no service of this name");
    check(&mut place.command(&["--from-zygote", "zygote", "-cp", "none.dex", "M"]), 1, "none.dex");
    check(&mut place.command(&["--from-zygote", "zygote", "M"]), 1, "ClassNotFoundException");
    let long = "x".repeat(100 << 10);
    check(place.forked(&[], &["tell"]).env("LONG", &long).env("LONG2", &long), 1, "128 KiB");
    let zygote = |words: &[&str]| {
        let mut command = Command::new(BATON);
        command.arg("--socket").arg(&place.broker.socket).args(["zygote", "--name", "other"]);
        let library =
            format!("-Xbootclasspath:{}:{}", tools::library("library"), PROGRAM.1.display());
        command.args(words).args((words[0] == "--preload").then_some(library));
        command.env("XDG_CACHE_HOME", place.cache.path());
        command
    };
    check(&mut zygote(&["-cp", "a.dex"]), 2, "belong to a program");
    check(&mut zygote(&["--preload", "none.Such"]), 1, "class none.Such cannot be initialized");
    check(&mut zygote(&["--preload", "Starter"]), 1, "has started threads");
}
