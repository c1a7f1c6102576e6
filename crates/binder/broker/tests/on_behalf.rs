//! Engines of servers that speak for another process: who may, for whom, and until when. The
//! servers and processes are of several users, so the tests need root.

mod test_engine;

use baton_abi::control::*;
use baton_broker::Policy;
use baton_shm::socket::peer_pidfd;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use test_engine::*;

const ROOT: u32 = 0;
const USER: u32 = 60_001;
const OTHER: u32 = 60_002;
/// A group of nobody but the processes that a test gives it.
const GROUP: u32 = 60_003;

/// Whether this test may act as several users. Says so if not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: needs root");
    }
    is_root
}

/// Whether threads of this test may act as other users than their process. Before Linux 6.5 the
/// broker looks the user of a connection up by its process. Says so if not.
fn has_users() -> bool {
    let (socket, _peer) = UnixStream::pair().unwrap();
    let has_pidfds = peer_pidfd(&socket).is_ok();
    if !has_pidfds {
        println!("skipped: needs Linux 6.5");
    }
    has_pidfds && is_root()
}

fn start(directory: &Directory) -> Running {
    // Time for rejoining that outlasts the test.
    let grace = Duration::from_secs(3600);
    Running::start(Config { grace, ..Config::at(directory.socket()) }).unwrap()
}

/// A process that opens nothing and does nothing, killed at the end.
struct Process(Child);

impl Process {
    /// A process with these real and effective users, effective group and further groups.
    fn with_groups(real: u32, effective: u32, group: u32, groups: &[u32]) -> Process {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let groups = groups.to_vec();
        let become_user = move || {
            // SAFETY: system calls that change this process, before exec.
            let results = unsafe {
                [
                    libc::setgroups(groups.len(), groups.as_ptr()),
                    libc::setresgid(group, group, group),
                    libc::setresuid(real, effective, effective),
                ]
            };
            let is_done = results.iter().all(|result| *result == 0);
            if is_done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: system calls only, on memory that was allocated before the fork.
        Process(unsafe { command.pre_exec(become_user) }.spawn().unwrap())
    }

    fn of(user: u32) -> Process {
        Process::with_groups(user, user, user, &[])
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process, which stays a zombie.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        let pid = Pid::from_child(&self.0);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection of a server with this effective user, and this process's groups.
fn connect_as(user: u32, path: &Path) -> OwnedFd {
    // SAFETY: changes the effective user of this thread alone.
    let become_user = |user: u32| unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
    assert_eq!(become_user(user), 0);
    let connection = connect(path);
    assert_eq!(become_user(ROOT), 0);
    connection.unwrap()
}

fn say_on_behalf(connection: &OwnedFd, pid: u32) {
    send(connection, &encode(&Request::OnBehalf { pid }), &[]).unwrap();
}

/// The engine that a server of this user opens for a process.
fn open_for(pid: u32, server: u32, path: &Path, context: &str) -> Result<TestEngine, Errno> {
    let connection = connect_as(server, path);
    say_on_behalf(&connection, pid);
    BareEngine::open_on(connection, context).map(TestEngine)
}

/// The engine that root opens for a process and resumes at the next broker.
fn resume_for(pid: u32, engine: &TestEngine, path: &Path) -> Result<TestEngine, Errno> {
    let connection = connect(path).unwrap();
    say_on_behalf(&connection, pid);
    engine.0.resume_on(connection, engine.credential.clone()).map(TestEngine)
}

#[test]
fn root_serves_every_process_and_others_their_own_users() {
    if !has_users() {
        return;
    }
    let directory = Directory::new();
    let broker = start(&directory);
    for (server, real, effective, expect) in [
        (ROOT, ROOT, ROOT, Ok(())),
        (ROOT, USER, USER, Ok(())),
        (ROOT, USER, OTHER, Ok(())),
        (USER, USER, USER, Ok(())),
        (USER, OTHER, USER, Ok(())),
        (USER, USER, OTHER, Err(Errno::PERM)),
        (USER, OTHER, OTHER, Err(Errno::PERM)),
        (USER, USER, ROOT, Err(Errno::PERM)),
        (USER, ROOT, ROOT, Err(Errno::PERM)),
    ] {
        let process = Process::with_groups(real, effective, effective, &[]);
        let open = || open_for(process.pid(), server, broker.socket(), "binder");
        let (opened, again) = (open(), open());
        let expect = expect.map(|()| (process.pid(), effective));
        for opened in [&opened, &again] {
            let identity = opened.as_ref().map(|engine| (engine.identity.pid, engine.identity.uid));
            let identity = identity.map_err(|errno| *errno);
            assert_eq!(identity, expect, "{server} for {real}, {effective}");
        }
        if let Ok(engine) = opened {
            let label = std::fs::read_to_string(format!("/proc/{}/attr/current", process.pid()));
            let label = label.unwrap_or_default();
            let label = label.trim_end_matches(['\0', '\n']);
            let expect = if label.is_empty() { "unconfined" } else { label };
            assert_eq!(engine.identity.security_context, expect);
            // Root alone may say that a process has another user by now.
            assert_eq!(engine.identity.is_served_by_root, server == ROOT);
        }
    }
}

#[test]
fn a_process_served_by_root_has_its_own_groups_and_one_served_by_a_user_has_the_servers() {
    if !has_users() {
        return;
    }
    let directory = Directory::new();
    let servers = rustix::process::getegid().as_raw();
    let policy = format!(
        "[[context]]\nname = 'group'\nmanagers = [{{ gid = {GROUP} }}]\n\
         [[context]]\nname = 'server'\nmanagers = [{{ gid = {servers} }}]"
    );
    let policy = Policy::parse(&policy).unwrap();
    let broker = Running::start(Config { policy, ..Config::at(directory.socket()) }).unwrap();
    for (server, group, groups, context, expect) in [
        (ROOT, GROUP, &[][..], "group", true),
        (ROOT, USER, &[OTHER, GROUP], "group", true),
        (ROOT, USER, &[OTHER], "group", false),
        (ROOT, USER, &[], "server", false),
        (USER, GROUP, &[GROUP], "group", false),
        (USER, GROUP, &[GROUP], "server", true),
    ] {
        let process = Process::with_groups(USER, USER, group, groups);
        // The groups of a process that the broker has just looked up count, too.
        let _first = open_for(process.pid(), server, broker.socket(), context).unwrap();
        let engine = open_for(process.pid(), server, broker.socket(), context).unwrap();
        let asked = engine.ask(Request::BecomeContextManager { node: NodeId(1), flags: 0 });
        let refused = Reply::Refused { errno: libc::EPERM };
        let expect = if expect { Reply::Done } else { refused };
        assert_eq!(asked, Some(expect), "{server}, {group}, {groups:?}, {context}");
    }
}

#[test]
fn a_pid_without_a_living_process_is_refused() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let broker = start(&directory);
    let open = |pid| {
        let connection = connect(broker.socket()).unwrap();
        say_on_behalf(&connection, pid);
        BareEngine::open_on(connection, "binder").map(|engine| engine.identity.pid)
    };
    let mut zombie = Process::of(USER);
    assert_eq!(open(zombie.pid()), Ok(zombie.pid()));
    zombie.kill();
    for pid in [0, zombie.pid(), i32::MAX.cast_unsigned(), 1 << 31, u32::MAX] {
        assert_eq!(open(pid), Err(Errno::SRCH), "{pid}");
    }
    // A thread is no process.
    let of_thread = || open(rustix::thread::gettid().as_raw_pid().cast_unsigned());
    let opened = std::thread::scope(|scope| scope.spawn(of_thread).join().unwrap());
    assert_eq!(opened, Err(Errno::SRCH));
    assert_eq!(open(std::process::id()), Ok(std::process::id()));
}

#[test]
fn an_engine_outlives_its_process_but_not_its_broker() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let first = start(&directory);
    let path = directory.socket();
    let manager = TestEngine::open(&path, "binder").unwrap();
    let become_manager = Request::BecomeContextManager { node: NodeId(1), flags: 0 };
    assert_eq!(manager.ask(become_manager), Some(Reply::Done));
    let [one, mut two, three] = [USER, USER, USER].map(Process::of);
    let [one_of, two_of, three_of] =
        [&one, &two, &three].map(|process| open_for(process.pid(), ROOT, &path, "binder").unwrap());
    two.kill();
    // The connection counts, as a descriptor of the device would that another process holds.
    assert!(matches!(two_of.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
    let has_called = |event: &Event| matches!(event, Event::Channel { .. });
    assert!(manager.events().iter().any(has_called));
    assert!(matches!(three_of.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
    manager.events();
    let gone = three_of.id();
    drop(three_of);
    assert_eq!(manager.event(), Event::Dead { process: gone });

    first.stop().unwrap();
    let second = start(&directory);
    let path = second.socket();
    let resumed = resume_for(one.pid(), &one_of, path).unwrap();
    assert_eq!(resumed.identity, one_of.identity);
    drop(resumed);
    let refused = |resumed: Result<TestEngine, Errno>| resumed.map(drop).unwrap_err();
    assert_eq!(refused(resume_for(two.pid(), &two_of, path)), Errno::SRCH);
    // A credential is of one process: neither another one's nor the server's own.
    assert_eq!(refused(resume_for(three.pid(), &one_of, path)), Errno::KEYREJECTED);
    assert_eq!(refused(one_of.resume(path)), Errno::KEYREJECTED);
}

/// Another process with the pid of one that has ended. `None` where nobody can choose a pid.
fn with_pid(pid: u32) -> Option<Process> {
    // Others may start processes meanwhile.
    for _ in 0..1000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let process = Process::of(USER);
        if process.pid() == pid {
            return Some(process);
        }
    }
    None
}

#[test]
fn a_process_is_not_the_one_that_had_its_pid_before() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let first = start(&directory);
    let path = directory.socket();
    let process = Process::of(USER);
    let pid = process.pid();
    let engine = open_for(pid, ROOT, &path, "binder").unwrap();
    drop(process);
    let Some(_other) = with_pid(pid) else { return println!("skipped: no pid can be chosen") };
    // Whoever looks up the pid while the first engine is there finds the other process.
    let other = open_for(pid, ROOT, &path, "binder").unwrap();
    assert_eq!((other.identity.pid, other.identity.uid), (pid, USER));
    assert_ne!(other.id(), engine.id());
    first.stop().unwrap();
    let second = start(&directory);
    let refused = resume_for(pid, &engine, second.socket()).map(drop);
    assert_eq!(refused, Err(Errno::KEYREJECTED), "the process has ended");
    let resumed = resume_for(pid, &other, second.socket()).unwrap();
    assert_eq!(resumed.identity, other.identity);
}

#[test]
fn each_connection_of_a_process_has_the_user_that_the_process_had_then() {
    if !has_users() {
        return;
    }
    let directory = Directory::new();
    let broker = start(&directory);
    let mut engines = Vec::new();
    for user in [ROOT, USER, OTHER, USER, ROOT] {
        let connection = connect_as(user, broker.socket());
        let engine = BareEngine::open_on(connection, "binder").map(TestEngine).unwrap();
        let Identity { pid, uid, .. } = engine.identity;
        assert_eq!((pid, uid), (std::process::id(), user));
        engines.push(engine);
    }
}

/// The child process of the next test. Does nothing when it runs alone.
#[test]
fn child_that_becomes_other_users() {
    if std::env::var_os("BATON_TEST_USERS").is_none() {
        return;
    }
    println!("\nready");
    for (line, user) in std::io::stdin().lines().zip([USER, ROOT]) {
        line.unwrap();
        // SAFETY: changes the effective user of this process, which does nothing else.
        assert_eq!(unsafe { libc::seteuid(user) }, 0);
        println!("\nready");
    }
}

#[test]
fn a_served_process_has_the_user_that_it_has_at_each_open() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let broker = start(&directory);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_becomes_other_users", "--nocapture"])
        .env("BATON_TEST_USERS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut asks = child.stdin.take().unwrap();
    let pid = child.id();
    for user in [ROOT, USER, ROOT] {
        assert!(lines.any(|line| line.unwrap() == "ready"));
        let engine = open_for(pid, ROOT, broker.socket(), "binder").unwrap();
        assert_eq!((engine.identity.pid, engine.identity.uid), (pid, user));
        writeln!(asks).unwrap();
    }
    drop(asks);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_user_of_the_process_pays() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let broker = start(&directory);
    let observer = observe(broker.socket());
    let taken = |user: u32, name: &str| {
        let Some(Reply::Accounts { accounts, .. }) = ask(&observer, &Request::Accounts { from: 0 })
        else {
            panic!("no accounts")
        };
        let shares = accounts.into_iter().filter(|account| account.uid == user);
        shares.flat_map(|it| it.shares).find(|it| it.name == name).map_or(0, |it| it.taken)
    };
    let before = taken(ROOT, "descriptors");
    let process = Process::of(USER);
    let engine = open_for(process.pid(), ROOT, broker.socket(), "binder").unwrap();
    assert_eq!(taken(USER, "processes"), 1);
    // A connection, a pidfd, an event socket, and two files of pages.
    assert_eq!(taken(USER, "descriptors"), 5);
    assert_eq!(taken(ROOT, "descriptors"), before);
    drop(engine);
    // The broker is asked until it has seen the end.
    while taken(USER, "processes") != 0 {
        std::thread::yield_now();
    }
    let unseen = open_for(process.pid(), ROOT, broker.socket(), "binder").unwrap();
    assert_eq!(taken(USER, "descriptors"), 5);
    drop(unseen);
}

/// The broker process of the next test. Does nothing when it runs alone.
#[test]
fn broker_with_few_descriptors() {
    let Some(path) = std::env::var_os("BATON_TEST_BROKER") else { return };
    let few = Rlimit { current: Some(60), maximum: Some(60) };
    setrlimit(Resource::Nofile, few).unwrap();
    let config = Config { until_idle: true, ..Config::at(Path::new(&path)) };
    baton_broker::run(config, || println!("\nready")).unwrap();
}

#[test]
fn a_server_takes_no_more_for_a_user_than_that_users_share() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let mut broker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "broker_with_few_descriptors", "--nocapture"])
        .env("BATON_TEST_BROKER", directory.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(broker.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let process = Process::of(USER);
    let mut all = Vec::new();
    let refused = loop {
        let connection = connect(&directory.socket()).unwrap();
        say_on_behalf(&connection, process.pid());
        match ask(&connection, &Request::Observe { version: VERSION }) {
            Some(Reply::Done) => all.push(connection),
            other => break other,
        }
    };
    assert_eq!(refused, Some(Reply::Refused { errno: libc::EMFILE }), "after {}", all.len());
    let own = TestEngine::open(&directory.socket(), "binder").unwrap();
    drop((all, own));
    assert!(broker.wait().unwrap().success());
}

#[test]
fn the_request_comes_once_and_first_and_alone() {
    let directory = Directory::new();
    let broker = start(&directory);
    let path = broker.socket();
    let observe_now = Request::Observe { version: VERSION };
    // The request has no reply. The next one would have one.
    let is_closed_by = |connection, descriptors: &[BorrowedFd<'_>], next: &Request| {
        let connection: &OwnedFd = connection;
        let on_behalf = Request::OnBehalf { pid: std::process::id() };
        send(connection, &encode(&on_behalf), descriptors).unwrap();
        let _ = send(connection, &encode(next), &[]);
        receive(connection).is_none()
    };
    // Before a greeting: an observer's is one as well.
    let connection = connect(path).unwrap();
    say_on_behalf(&connection, std::process::id());
    assert_eq!(ask(&connection, &observe_now), Some(Reply::Done));
    assert!(is_closed_by(&connection, &[], &Request::Contexts), "of an observer");
    let connection = connect(path).unwrap();
    say_on_behalf(&connection, 0);
    let refused = Some(Reply::Refused { errno: libc::ESRCH });
    assert_eq!(ask(&connection, &observe_now), refused, "an observer for nobody");

    let connection = connect(path).unwrap();
    say_on_behalf(&connection, std::process::id());
    assert!(is_closed_by(&connection, &[], &observe_now), "a second one");
    // A greeting may follow in the packet, and nothing else.
    let own = Some(std::process::id());
    let again = Request::OnBehalf { pid: std::process::id() };
    for (pid, greeting, expect) in [
        (own, &observe_now, Some(Reply::Done)),
        (Some(0), &observe_now, refused),
        (own, &again, None),
        (own, &Request::Contexts, None),
    ] {
        let connection = connect(path).unwrap();
        send(&connection, &encode_on_behalf(pid, greeting), &[]).unwrap();
        let reply = receive(&connection).and_then(|(packet, _)| decode(&packet));
        assert_eq!(reply, expect, "{pid:?}, {greeting:?}");
        // Once somebody has been greeted, none comes.
        if reply == Some(Reply::Done) {
            let _ = send(&connection, &encode_on_behalf(pid, greeting), &[]);
            assert!(receive(&connection).is_none(), "{greeting:?} again");
        }
    }
    let page = status_page();
    let pages = [page.as_fd(), page.as_fd()];
    let connection = connect(path).unwrap();
    assert!(is_closed_by(&connection, &pages, &observe_now), "one with descriptors");
    let engine = TestEngine::open(path, "binder").unwrap();
    assert!(is_closed_by(&engine.requests, &[], &Request::Contexts), "of an engine");
}

/// The child process of the next test, in a pid namespace of its own. Does nothing when it runs
/// alone.
#[test]
fn child_that_asks_from_another_namespace() {
    let Some(path) = std::env::var_os("BATON_TEST_BROKER") else { return };
    let pid = std::env::var("BATON_TEST_PID").unwrap().parse().unwrap();
    let connection = connect(Path::new(&path)).unwrap();
    say_on_behalf(&connection, pid);
    let opened = BareEngine::open_on(connection, "binder").map(drop);
    assert_eq!(opened, Err(Errno::PERM));
}

#[test]
fn a_server_of_another_pid_namespace_is_refused() {
    if !is_root() {
        return;
    }
    let namespace = ["--pid", "--fork", "--kill-child"];
    let possible = Command::new("unshare").args(namespace).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        return println!("skipped: no pid namespace can be made");
    }
    let directory = Directory::new();
    let broker = start(&directory);
    let process = Process::of(ROOT);
    // The pid is one of the broker's namespace, and 1 is one of both.
    for pid in [process.pid(), 1] {
        let child = Command::new("unshare")
            .args(namespace)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_asks_from_another_namespace"])
            .env("BATON_TEST_BROKER", broker.socket())
            .env("BATON_TEST_PID", pid.to_string())
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
    }
}
