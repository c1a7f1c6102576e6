//! Sockets at which no broker can be: each command says in one sentence what is wrong, then what to
//! do, and leaves no file.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const BATON: &str = env!("CARGO_BIN_EXE_baton");
/// A user that runs nothing else.
const STRANGER: u32 = 54321;

/// The commands that need a broker, and the exit code where there is none.
const COMMANDS: [(&str, &[&str], i32); 3] =
    [("broker", &["broker"], 1), ("run", &["run", "--", "true"], 3), ("list", &["list"], 3)];

fn baton(socket: &Path, arguments: &[&str]) -> Command {
    command(Path::new(BATON), socket, arguments)
}

fn command(file: &Path, socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(file);
    command.env("BATON_SOCKET", socket).args(arguments);
    // No program here needs the interposer.
    command.env("BATON_PRELOAD_LIB", "/dev/null");
    command.env_remove("HOME").env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
    command
}

/// Checks the exit code, the sentence, and that one line of advice follows.
#[track_caller]
fn check(output: &Output, code: i32, sentence: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [reason, advice] = lines[..] else { panic!("not two lines: {said}") };
    assert!(reason.starts_with("baton: cannot ") && reason.contains(sentence), "{said}");
    assert!(advice.starts_with("  "), "{said}");
}

/// Ends a broker in order.
#[track_caller]
fn end(broker: &mut Child) {
    let pid = rustix::process::Pid::from_child(broker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(broker.wait().unwrap().success());
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_that_cannot_be_made() {
    for (_, arguments, code) in COMMANDS {
        let output = baton(Path::new("/proc/none/broker"), arguments).output().unwrap();
        let sentence = match arguments[0] {
            "list" => "no broker at /proc/none/broker: No such file",
            _ => "create directory /proc/none: No such file",
        };
        check(&output, code, sentence);
    }
}

#[test]
fn a_directory_that_is_not_writable() {
    for (_, arguments, code) in COMMANDS {
        let output = baton(Path::new("/proc/self/broker"), arguments).output().unwrap();
        let sentence = match arguments[0] {
            "list" => "no broker at /proc/self/broker: No such file",
            _ => "open /proc/self/broker.lock: ",
        };
        check(&output, code, sentence);
    }
}

#[test]
fn a_path_that_is_too_long() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("long".repeat(50)).join("broker");
    for (command, arguments, _) in COMMANDS {
        let output = baton(&socket, arguments).output().unwrap();
        check(&output, 1, &format!("{} is longer than ", socket.display()));
        assert_eq!(names_in(directory.path()), [""; 0], "{command}");
    }
    // A client may have a path of 107 bytes, a broker one of 101.
    let name = "x".repeat(102 - directory.path().as_os_str().as_bytes().len() - 1);
    let output = baton(&directory.path().join(name), &["run", "--", "true"]).output().unwrap();
    check(&output, 3, "is longer than a broker's socket may be");
}

#[test]
fn too_few_descriptors_for_a_broker() {
    let directory = tempfile::tempdir().unwrap();
    for (command, arguments, code) in &COMMANDS[..2] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 31; exec \"$@\"", "sh", BATON]).args(*arguments);
        shell.env("BATON_SOCKET", directory.path().join("broker"));
        shell.env("BATON_PRELOAD_LIB", "/dev/null").stdin(Stdio::null());
        let output = shell.output().unwrap();
        check(&output, *code, "a broker needs 32 descriptors, and RLIMIT_NOFILE is 31");
        assert_eq!(names_in(directory.path()), [""; 0], "{command}");
    }
}

#[test]
fn a_context_without_a_possible_name() {
    let directory = tempfile::tempdir().unwrap();
    let long = "x".repeat(256);
    for name in ["", "a/b", &long, ".", "..", "binder-control", "features"] {
        for arguments in [
            &["run", "--context", name, "--", "true"][..],
            &["manager", "--context", name],
            &["list", "--context", name],
            &["context", "add", name],
            &["mount", "--apart", name],
            &["mount", "--contexts", name],
            &["broker", "--context", name],
        ] {
            let output = baton(&directory.path().join("broker"), arguments).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("a context's name has 1 to 255 bytes and no slash"), "{said}");
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        }
    }
    assert_eq!(names_in(directory.path()), [""; 0]);
}

#[test]
fn a_mount_that_fails_leaves_no_context() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker");
    let mut broker = baton(&socket, &["broker"]).spawn().unwrap();
    while !socket.exists() {
        assert!(broker.try_wait().unwrap().is_none(), "the broker has ended");
        std::thread::yield_now();
    }
    for (arguments, code, sentence) in [
        (["--contexts", "one,two,one", "/"], 2, "context \"one\" is named twice"),
        (["--contexts", "one,two", "/nonexistent"], 1, "/nonexistent: No such file"),
    ] {
        let output = baton(&socket, &["mount"]).args(arguments).output().unwrap();
        check(&output, code, sentence);
    }
    let listed = baton(&socket, &["contexts"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "binder\nhwbinder\nvndbinder\n");
    end(&mut broker);
}

#[test]
fn wrong_usage_says_what_is_right() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["rt", "run", "--timer-slack", "0", "true"][..], "a number of nanoseconds, 1 or more"),
        (&["dump"], "baton dump [OPTIONS] <NAME> [ARGUMENT]..."),
        (&["dump", "-l", "echo"], "baton dump [OPTIONS] <NAME> [ARGUMENT]..."),
        (
            &["ping", "echo", "--timeout", "-1"],
            "'-1' for '--timeout <SECONDS>': a number of seconds, 0 or more",
        ),
        (&["ping", "echo", "-c", "-1"], "'-1' for '--count <N>'"),
        (&["am", "trim", "1", "-1"], "'-1' for '<LEVEL>'"),
        (&["am", "start", "org.example"], "a component is PACKAGE/CLASS"),
        (&["am", "stop", "-n", ""], "a component is PACKAGE/CLASS"),
        (&["am", "broadcast", "--ordered"], "neither an action nor data"),
        (&["logcat", "-v", "nonsense"], "`baton logcat --help` has the formats"),
    ] {
        let output = baton(&directory.path().join("broker"), arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_no_brokers_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker");
    std::fs::write(&socket, "precious").unwrap();
    for (command, arguments, code) in COMMANDS {
        let output = baton(&socket, arguments).output().unwrap();
        let sentence = match command {
            "list" => "no broker at ",
            _ => " is there and is no broker's socket",
        };
        check(&output, code, sentence);
        assert_eq!(names_in(directory.path()), ["broker"], "{command}");
    }
    assert_eq!(std::fs::read(&socket).unwrap(), b"precious");
}

#[test]
fn a_directory_in_which_others_could_replace_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let open: PathBuf = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&open, mode).unwrap();
    for (command, arguments, code) in &COMMANDS[..2] {
        let output = baton(&open.join("broker"), arguments).output().unwrap();
        check(&output, *code, "other users could replace a socket in ");
        assert_eq!(names_in(&open), [""; 0], "{command}");
    }
}

#[test]
fn stale_files_are_replaced_and_all_are_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker");
    mknodat(CWD, &socket, FileType::Socket, Mode::from_raw_mode(0o600), 0).unwrap();
    for name in ["broker.lock", "broker.aside", "broker.restart_state", "broker.processes"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    let output = baton(&socket, &["list"]).output().unwrap();
    check(&output, 3, "no broker at ");
    let output = baton(&socket, &["run", "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The broker ends with its last client, and removes the lock file last.
    while directory.path().join("broker.lock").exists() {
        std::thread::yield_now();
    }
    assert_eq!(names_in(directory.path()), [""; 0]);
}

/// A socket of another user: its broker serves only that user, and is not trusted.
#[test]
fn another_users_broker() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root has another user's processes");
    }
    let directory = tempfile::tempdir().unwrap();
    // Where every user may read it.
    let baton_file = directory.path().join("baton");
    // By another process: a child of another test could inherit the file that is being written, and
    // then nobody may execute it.
    assert!(Command::new("cp").args([Path::new(BATON), &baton_file]).status().unwrap().success());
    let owned = directory.path().join("owned");
    std::fs::create_dir(&owned).unwrap();
    std::os::unix::fs::chown(&owned, Some(STRANGER), Some(STRANGER)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    let socket = owned.join("broker");
    let run_as = |uid, arguments: &[&str]| {
        let mut command = command(&baton_file, &socket, arguments);
        command.uid(uid).gid(uid);
        command
    };
    let mut broker = run_as(STRANGER, &["broker"]).spawn().unwrap();
    while !socket.exists() {
        assert!(broker.try_wait().unwrap().is_none(), "the broker has ended");
        std::thread::yield_now();
    }
    for (_, arguments, _) in &COMMANDS[1..] {
        // Not even root trusts a broker of another user.
        let output = run_as(0, arguments).output().unwrap();
        check(&output, 1, "user 54321, who is neither root nor the own user, listens at ");
        let output = run_as(STRANGER + 1, arguments).output().unwrap();
        check(&output, 1, "no broker at ");
    }
    check(&run_as(STRANGER + 1, &["broker"]).output().unwrap(), 1, "other users could replace");
    check(&run_as(STRANGER, &["broker"]).output().unwrap(), 5, "already listening at ");
    end(&mut broker);
    assert_eq!(names_in(&owned), [""; 0]);
}

/// A user who may have no more threads, as in a container with a small pids.max.
#[test]
fn too_few_threads() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: root alone can be a user without other processes");
    }
    let directory = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    let baton_file = directory.path().join("baton");
    assert!(Command::new("cp").args([Path::new(BATON), &baton_file]).status().unwrap().success());
    let socket = directory.path().join("broker");
    let mut manager = baton(&socket, &["manager"]).stdout(Stdio::null()).spawn().unwrap();
    assert!(baton(&socket, &["wait", "manager"]).status().unwrap().success());
    let others = STRANGER + 2;
    for (limit, arguments) in [("2", &["dump", "manager"][..]), ("1", &["demo"])] {
        let mut command = command(Path::new("prlimit"), &socket, &[&format!("--nproc={limit}")]);
        command.arg(&baton_file).args(arguments).uid(others).gid(others);
        let output = command.output().unwrap();
        check(&output, 1, "start a thread: Resource temporarily unavailable");
    }
    end(&mut manager);
}

#[test]
fn a_read_only_run() {
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let script = "mount -t tmpfs -o ro none /run && exec \"$@\"";
    let possible = Command::new("unshare").args(namespaces).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return println!("skipped: no user namespaces here");
    }
    for (command, arguments, code) in COMMANDS {
        let mut shell = Command::new("unshare");
        shell.args(namespaces).args(["sh", "-c", script, "sh", BATON]).args(arguments);
        shell
            .env("BATON_PRELOAD_LIB", "/dev/null")
            .env_remove("BATON_SOCKET")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("HOME");
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let sentence = match command {
            "list" => "no broker at /run/baton/broker.sock: No such file",
            _ => "create directory /run/baton: Read-only file system",
        };
        check(&output, code, sentence);
    }
}

#[test]
fn a_run_of_nothing_or_with_a_directory_for_the_interposer() {
    let socket = Path::new("/proc/none/broker");
    let output = baton(socket, &["run", ""]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert_eq!(said, "baton: cannot run a program: its name is empty\n");
    let mut run = baton(socket, &["run", "true"]);
    let output = run.env("BATON_PRELOAD_LIB", "/proc").output().unwrap();
    check(&output, 1, "/proc is a directory");
}
