//! `baton logcat` and `baton log` in everyday use: between processes, and with files that fill a
//! disk.

mod support;

use baton_log::{Buffer, Options, Priority};
use baton_logcat::entry::{Body, Level};
use baton_logcat::wire::Entries;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, ChildStdout, Command, Stdio};
use support::{BATON, Log};

/// A logcat that follows the log.
struct Following {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn new(mut command: Command) -> Following {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Following { process, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn logged_entries_are_shown() {
    let log = Log::new();
    log.print("log -p w -t Sensors three of them");
    log.print("log -b system quietly");
    log.print("log -b crash -p F -t Dead gone");
    let expected = "--------- beginning of main\nW/Sensors : three of them\n\
                    --------- beginning of system\nI/log     : quietly\n\
                    --------- beginning of crash\nF/Dead    : gone\n";
    assert_eq!(log.print("logcat -d -v tag"), expected);
    assert_eq!(log.print("logcat -d -v raw -b crash"), "--------- beginning of crash\ngone\n");
    let quiet = "--------- beginning of system\nquietly\n";
    assert_eq!(log.print("logcat -d -v raw -s log:I"), quiet);
    assert_eq!(log.print("logcat -d -v raw -e ^qu.*ly$"), quiet);
    assert_eq!(log.print("logcat -t 1 -v raw *:I"), "--------- beginning of crash\ngone\n");
    assert_eq!(log.print("logcat -d -v raw -m 1"), "--------- beginning of main\nthree of them\n");
    assert_eq!(log.print("logcat -d -b radio"), "");
    assert_eq!(log.print("logcat -d --pid 1"), "");
    let environment = log.command(&["logcat", "-d"]).env("ANDROID_LOG_TAGS", "*:F").output();
    assert!(environment.unwrap().stdout.ends_with(b" F Dead    : gone\n"));
}

#[test]
fn entries_can_be_selected_by_time() {
    let log = Log::new();
    log.write(&["one".to_owned(), "two".to_owned(), "three".to_owned()]);
    let lines = log.print("logcat -d -v threadtime,epoch,nsec");
    let times: Vec<&str> =
        lines.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    let since = log.print(&format!("logcat -v raw -t {}", times[1]));
    assert_eq!(since, "--------- beginning of main\ntwo\nthree\n");
}

#[test]
fn a_following_logcat_shows_new_entries() {
    let log = Log::new();
    // The log does not exist yet.
    let mut following = Following::new(log.command(&["logcat", "-v", "raw"]));
    log.print("log first");
    assert_eq!(following.line(), "--------- beginning of main\n");
    assert_eq!(following.line(), "first\n");
    log.print("log -b system second");
    assert_eq!(following.line(), "--------- beginning of system\n");
    assert_eq!(following.line(), "second\n");
    let mut counting = Following::new(log.command(&["logcat", "-v", "raw", "-T", "1", "-m", "2"]));
    assert_eq!(
        (counting.line(), counting.line()),
        ("--------- beginning of system\n".to_owned(), "second\n".to_owned())
    );
    log.print("log third");
    assert_eq!(
        (counting.line(), counting.line()),
        ("--------- beginning of main\n".to_owned(), "third\n".to_owned())
    );
    assert!(counting.process.wait().unwrap().success());
    assert_eq!(following.line(), "third\n");
}

#[test]
fn clearing_hides_only_earlier_entries() {
    let log = Log::new();
    log.print("log old");
    log.print("log -b system kept");
    log.print("logcat -c -b main");
    log.print("log new");
    let expected = "--------- beginning of system\nkept\n--------- beginning of main\nnew\n";
    assert_eq!(log.print("logcat -d -v raw"), expected);
}

#[test]
fn files_are_continued_without_repetition() {
    let log = Log::new();
    let file = log.path("file");
    let line = format!("logcat -d -v raw,threadtime,usec -f {}", file.display());
    log.write(&["one".to_owned(), "two".to_owned()]);
    log.print(&line);
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(first.lines().count(), 3);
    log.print(&line);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first, "nothing is new");
    log.write(&["three".to_owned()]);
    log.print(&line);
    let second = std::fs::read_to_string(&file).unwrap();
    let added = second.strip_prefix(&first).unwrap();
    assert!(added.ends_with(": three\n") && added.lines().count() == 2, "{added}");
    log.print(&format!("logcat -c -f {}", file.display()));
    assert!(!file.exists());
}

#[test]
fn a_pipe_gets_all_entries_and_is_not_read() {
    let log = Log::new();
    log.print("log words");
    let pipe = log.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut command = log.command(&["logcat", "-d", "-v", "raw", "-f", pipe.to_str().unwrap()]);
    let mut process = command.spawn().unwrap();
    let shown = std::fs::read_to_string(&pipe).unwrap();
    assert_eq!(shown, "--------- beginning of main\nwords\n");
    assert!(process.wait().unwrap().success());
    for arguments in ["-c", "-d -r 1", "-d --id 7"] {
        std::fs::write(log.path("pipe.id"), "6").unwrap();
        let output = log.run(&format!("logcat {arguments} -f {}", pipe.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("it is no regular file"), "{arguments}: {said}");
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(pipe.exists());
    }
}

#[test]
fn a_device_that_never_ends_is_not_read() {
    let log = Log::new();
    log.print("log words");
    let output = log.run("logcat -d -f /dev/full");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
}

#[test]
fn files_are_rotated() {
    let log = Log::new();
    let file = log.path("file");
    let words: Vec<String> = (0..100).map(|index| format!("{index:0>100}")).collect();
    log.write(&words);
    log.print(&format!("logcat -d -v raw -f {} -r 2 -n 2", file.display()));
    let read = |name: &str| std::fs::read_to_string(log.path(name)).unwrap();
    let kept = read("file.2") + &read("file.1") + &read("file");
    assert!(!log.path("file.3").exists());
    let last = words[100 - kept.lines().count()..].join("\n") + "\n";
    assert_eq!(kept, last);
    assert!((2048..2200).contains(&read("file.1").len()));
}

#[test]
fn a_full_disk_is_reported_and_keeps_whole_entries() {
    let log = Log::new();
    let file = log.path("file");
    let words: Vec<String> = (0..100).map(|index| format!("{index:0>100}")).collect();
    log.write(&words);
    // A limit on a file's size, in blocks of 512 bytes, stands for the disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 6; exec {BATON} logcat -d -v threadtime,nsec -f {}",
        file.display()
    );
    let full = Command::new("sh")
        .args(["-c", &script])
        .env("BATON_LOG_DIR", log.path("log"))
        .env("TZ", "UTC0")
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(
        said.starts_with("baton: cannot write the log to ") && said.contains("too large"),
        "{said}"
    );
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.ends_with('\n') && kept.len() > 2500 && kept.len() <= 3072, "{}", kept.len());
    // Once there is room, the rest is written.
    log.print(&format!("logcat -d -v threadtime,nsec -f {}", file.display()));
    let all = std::fs::read_to_string(&file).unwrap();
    let messages: Vec<&str> = all
        .lines()
        .filter_map(|line| line.rsplit_once("T       : "))
        .map(|(_, message)| message)
        .collect();
    assert_eq!(messages, words);
}

#[test]
fn binary_entries_can_be_shown_again() {
    let log = Log::new();
    let options = Options::new().directory(log.path("log"));
    let logger = options.open();
    logger.writer().write(Buffer::Main, Priority::Error, b"Tag", b"words");
    logger.writer().write_event(Buffer::Events, 42, &[0, 5, 0, 0, 0]);
    let output = log.run("logcat -d -B -b all");
    let entries: Vec<_> = Entries::new(&output.stdout).collect();
    let text = Body::Text { level: Level::ERROR, tag: b"Tag".into(), message: b"words".into() };
    let event = Body::Event { tag: 42, payload: vec![0, 5, 0, 0, 0] };
    assert_eq!(entries.iter().map(|entry| &entry.body).collect::<Vec<_>>(), [&text, &event]);
    assert!(entries.iter().all(|entry| entry.pid == std::process::id()));
    std::fs::write(log.path("pmsg"), &output.stdout[5..]).unwrap();
    std::fs::write(log.path("tags"), "42 answer (value|1|2)\n").unwrap();
    let line = "logcat -L -b events,main -v tag,descriptive";
    let files = format!(
        "--last-file {} --event-log-tags {}",
        log.path("pmsg").display(),
        log.path("tags").display()
    );
    let expected = "--------- beginning of events\nI/answer  : value=5B\n";
    assert_eq!(log.print(&format!("{line} {files}")), expected);
    let none = log.run("logcat -L --last-file /nonexistent");
    assert_eq!(
        String::from_utf8_lossy(&none.stderr),
        "baton: cannot read /nonexistent: No such file or directory (os error 2)\n"
    );
}

#[test]
fn sizes_and_statistics_are_shown() {
    let log = Log::new();
    log.print("logcat -G 128K -b main");
    log.write(&["words".to_owned(), "more".to_owned()]);
    assert_eq!(
        log.print("logcat -g -b main"),
        "main: ring buffer is 128 KiB (128 KiB consumed, 73 B readable), max entry is 5120 B, \
         max payload is 4068 B\n"
    );
    let statistics: serde_json::Value =
        serde_json::from_str(&log.print("logcat -S --json")).unwrap();
    let expected = serde_json::json!({
        "entries": 2, "bytes": 73, "lost": 0, "damaged_rings": 0, "unread_files": 0,
    });
    assert_eq!((&statistics["tags"]["T"], &statistics["buffers"]["main"]), (&expected, &expected));
    let uid = rustix::process::getuid().as_raw().to_string();
    assert_eq!(statistics["users"][uid], expected);
    // A new size is for threads that come.
    log.print("logcat -G 256K -b main");
    let shown = log.print("logcat -g -b main");
    assert!(shown.starts_with("main: ring buffer is 256 KiB (128 KiB consumed, "), "{shown}");
    log.write(&["words".to_owned()]);
    let shown = log.print("logcat -g -b main");
    assert!(shown.starts_with("main: ring buffer is 256 KiB (384 KiB consumed, "), "{shown}");
    log.print("logcat -c -b main");
    let shown = log.print("logcat -g -b main");
    assert!(shown.contains(" (384 KiB consumed, 0 B readable), "), "{shown}");
}

#[test]
fn several_actions_are_all_carried_out() {
    let log = Log::new();
    log.write(&["words".to_owned()]);
    let shown = log.print("logcat -c -G 128K -g -p -b main");
    assert!(shown.starts_with("main: ring buffer is 128 KiB (64 KiB consumed, 0 B readable)"));
    assert!(shown.ends_with(" B\n\n"), "{shown}");
}

#[test]
fn a_signal_ends_a_trace_that_follows() {
    let log = Log::new();
    log.write(&["words".to_owned()]);
    let path = log.path("trace");
    let trace = ["logcat", "--trace", path.to_str().unwrap()];
    let mut process = log.command(&trace).stdin(Stdio::null()).spawn().unwrap();
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("words")) {
        assert!(process.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    terminate(&mut process);
    let events: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(events.len(), 2);
}

/// Bytes are logged as they are, whether they come by the command line or by standard input.
#[test]
fn a_text_need_not_be_utf8() {
    let log = Log::new();
    let mut command = log.command(&["log", "-t"]);
    let words = [b"T\xff", &b"caf\xe9"[..], b"words"].map(std::ffi::OsStr::from_bytes);
    assert!(command.args(words).status().unwrap().success());
    let output = log.run("logcat -d -v tag");
    assert_eq!(output.stdout, b"--------- beginning of main\nI/T\xff      : caf\xe9 words\n");
}

#[test]
fn impossible_requests_are_explained() {
    let log = Log::new();
    for (line, code, words) in [
        ("logcat -d", 1, "nobody has logged there"),
        ("logcat -b kernel", 2, "there is no buffer 'kernel'"),
        ("logcat Tag:x", 2, "'Tag:x' is no filter"),
        ("logcat -G 2G", 2, "a ring has at most 1 GiB"),
        ("logcat -v nonsense/words", 2, "'nonsense/words' is no format"),
        ("logcat -t never", 2, "'never' is neither a count nor a time"),
        ("logcat -e (", 2, "regex"),
        ("log -p X words", 2, "one of V, D, I, W, E and F"),
        ("log -b events words", 2, "one of main, system, radio and crash"),
        ("log --log-directory /proc/nowhere words", 1, "log: /proc/nowhere: No such file"),
        ("log --log-directory /proc/version words", 1, "log: /proc/version: Not a directory"),
        ("logcat -L --last-file /proc/version", 1, "it has no entry in binary"),
    ] {
        let output = log.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{line}: {said}");
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    }
}

/// A bridge that has reported that it accepts datagrams.
fn bridge(log: &Log) -> Child {
    let notified = log.path("notify");
    let _ = std::fs::remove_file(&notified);
    let notifications = UnixDatagram::bind(&notified).unwrap();
    let socket = log.path("syslog");
    let mut command = log.command(&["log", "--syslog", socket.to_str().unwrap()]);
    let process = command.env("NOTIFY_SOCKET", &notified).spawn().unwrap();
    let mut said = [0; 64];
    let n_bytes = notifications.recv(&mut said).unwrap();
    assert_eq!(&said[..n_bytes], b"READY=1\n");
    process
}

#[test]
fn messages_to_syslog_are_logged() {
    let log = Log::new();
    // A stale socket from before.
    drop(UnixDatagram::bind(log.path("syslog")).unwrap());
    let mut process = bridge(&log);
    let mut following = Following::new(log.command(&["logcat", "-v", "tag"]));
    let me = std::process::id();
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(log.path("syslog")).unwrap();
    for (said, expected) in [
        (
            "<12>Feb  5 17:32:18 app[1]: words\n",
            ["--------- beginning of main\n", "W/app[ME]: words\n"],
        ),
        (
            "<27>1 2003-10-11T22:14:15.003Z host app - - - others",
            ["--------- beginning of system\n", "E/app[ME]: others\n"],
        ),
    ] {
        sender.send(said.as_bytes()).unwrap();
        for expected in expected {
            assert_eq!(following.line(), expected.replace("ME", &me.to_string()));
        }
    }
    let second = log.run(&format!("log --syslog {}", log.path("syslog").display()));
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("somebody takes datagrams there already")
    );
    terminate(&mut process);
    assert!(!log.path("syslog").exists());
}

/// Ends a process with SIGTERM, which it takes for a request to end.
fn terminate(process: &mut Child) {
    let pid = rustix::process::Pid::from_child(process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn a_bridge_of_syslog_removes_no_file_that_is_not_its_socket() {
    let log = Log::new();
    let path = log.path("syslog");
    let refused = |code: i32, words: &str| {
        let output = log.run(&format!("log --syslog {}", path.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
    };
    std::fs::write(&path, "precious").unwrap();
    refused(2, "is there and is no socket of syslog");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
    // The link may lead to a socket, as /dev/log does; it is no socket to remove.
    std::os::unix::fs::symlink(log.path("elsewhere"), &path).unwrap();
    refused(2, "is there and is no socket of syslog");
    assert!(path.is_symlink());
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    refused(1, "Protocol wrong type for socket");
    assert!(path.exists());
    drop(other);
    // Another file takes the path of a bridge.
    let mut process = bridge(&log);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    terminate(&mut process);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// A broker that gets an invalid message. Returns its standard error.
fn broker_with_invalid_client(log: &Log, directory: &std::path::Path) -> String {
    let socket = log.path("broker");
    let notified = log.path("notify");
    let _ = std::fs::remove_file(&notified);
    let notifications = UnixDatagram::bind(&notified).unwrap();
    let mut command =
        log.command(&["broker", "--until-idle", "--socket", socket.to_str().unwrap()]);
    command.env("BATON_LOG_DIR", directory).env("NOTIFY_SOCKET", &notified);
    let mut broker = command.stderr(Stdio::piped()).spawn().unwrap();
    notifications.recv(&mut [0; 64]).unwrap();
    let client = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&client, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
    rustix::net::send(&client, b"nonsense", SendFlags::empty()).unwrap();
    let mut line = String::new();
    BufReader::new(broker.stderr.take().unwrap()).read_line(&mut line).unwrap();
    terminate(&mut broker);
    line
}

#[test]
fn the_broker_writes_its_messages_to_the_log_too() {
    let log = Log::new();
    log.print("logcat -G 1M -b system");
    let said = broker_with_invalid_client(&log, &log.path("log"));
    let (_, words) = said.trim_end().split_once("WARN ").unwrap();
    let logged = log.print("logcat -d -b system -v tag");
    assert_eq!(logged, format!("--------- beginning of system\nW/baton-broker: {words}\n"));
    assert!(words.starts_with("closed a connection that "), "{words}");
    let shown = log.print("logcat -g -b system");
    assert!(shown.starts_with("system: ring buffer is 1 MiB (64 KiB consumed, "), "{shown}");
    // Without a log the broker works as before.
    assert!(
        broker_with_invalid_client(&log, "/proc/nowhere".as_ref())
            .contains(words.split(" pid=").next().unwrap())
    );
}
