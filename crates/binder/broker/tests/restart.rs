//! A broker that succeeds another one at its socket, with honest and lying engines that rejoin.

mod test_engine;

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_abi::lane::status;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_engine::*;

/// Starts a broker whose time for rejoining outlasts the test.
fn start(directory: &Directory) -> Running {
    let grace = Duration::from_secs(3600);
    Running::start(Config { grace, ..Config::at(directory.socket()) }).unwrap()
}

fn held(holder: &TestEngine) -> Claim {
    Claim::Node { node: NodeId(1), flags: 0, strong: true, holder: holder.id() }
}

fn holds(owner: &TestEngine) -> Claim {
    let (owner, node) = (owner.id(), NodeId(1));
    Claim::Granted { owner, node, strong: 1, grants: 1 }
}

fn refused(errno: Errno) -> Option<Reply> {
    Some(Reply::Refused { errno: errno.raw_os_error() })
}

/// A manager and a client of one broker, both connected to the next one, which waits for another
/// engine.
fn restarted() -> (Directory, Running, TestEngine, TestEngine, TestEngine) {
    let directory = Directory::new();
    let first = start(&directory);
    let (manager, client) = manager_and_client(first.socket());
    let stranger = TestEngine::open(first.socket(), "binder").unwrap();
    let _absent = TestEngine::open(first.socket(), "binder").unwrap();
    first.stop().unwrap();
    let second = start(&directory);
    let [manager, client, stranger] =
        [manager, client, stranger].map(|engine| engine.resume(second.socket()).unwrap());
    (directory, second, manager, client, stranger)
}

#[test]
fn rejoined_engines_keep_identity_and_references() {
    let (_directory, broker, manager, client, stranger) = restarted();
    assert_eq!([&manager, &client, &stranger].map(|engine| engine.era), [1; 3]);
    let channel =
        |end, peer: &TestEngine| Claim::Channel { channel: ChannelId(1), end, peer: peer.id() };
    manager.rejoin(&[held(&client), channel(End::Server, &client)], &[(NodeId(1), 0)]);
    manager.events();
    client.rejoin(&[holds(&manager), channel(End::Client, &manager)], &[]);
    let thawed = |process: &TestEngine| Event::Frozen { process: process.id(), frozen: false };
    assert_eq!(client.events(), [thawed(&manager), thawed(&manager)], "of node and channel");
    assert_eq!(manager.events(), [thawed(&client)]);
    // The owner's list goes on, too.
    stranger.rejoin(&[], &[]);
    list(&stranger, 3, 4, &client, Strength::Weak);
    let (owner, node, strength) = (stranger.id(), NodeId(4), Strength::Weak);
    let objects = vec![HeldNode { owner, node, strength, entry: Some(3) }];
    stranger.events();
    let send = Request::Introduce { target: manager.id(), objects };
    assert!(matches!(client.ask(send), Some(Reply::Ticket { .. })));
    assert!(matches!(stranger.events()[..], [Event::References { .. }]));
    // A new engine finds the manager by its context, and gets an id that no engine had before.
    let new = TestEngine::open(broker.socket(), "binder").unwrap();
    assert_eq!(new.id().era(), 1);
    assert!(matches!(new.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
    assert_eq!(new.ask(open(&manager)), Some(Reply::Done));
    // Each engine is still a process of its own to the system: the broker learns of its end.
    let gone = manager.id();
    drop(manager);
    let all: Vec<Event> = std::iter::from_fn(|| Some(client.event()))
        .take_while(|event| *event != Event::Dead { process: gone })
        .collect();
    assert!(all.len() < 8, "{all:?}");
}

#[test]
fn the_time_to_rejoin_ends_when_all_are_back() {
    let directory = Directory::new();
    let first = start(&directory);
    let engines = [(); 2].map(|()| TestEngine::open(first.socket(), "binder").unwrap());
    first.stop().unwrap();
    let second = start(&directory);
    let [early, late] = engines.map(|engine| engine.resume(second.socket()).unwrap());
    let gone = || early.ask(Request::OpenChannel { target: ProcessId(999), entry: None });
    early.rejoin(&[], &[]);
    assert_eq!(gone(), refused(Errno::AGAIN), "the other one is awaited");
    late.rejoin(&[], &[]);
    while gone() == refused(Errno::AGAIN) {}
    assert_eq!(gone(), refused(Errno::SRCH));
}

/// Another process may be killed between its broker's end and the time that it has to rejoin.
#[test]
fn an_awaited_manager_that_ends_leaves_its_context_to_the_next() {
    let directory = Directory::new();
    let first = start(&directory);
    let mut process =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let connection = connect(first.socket()).unwrap();
    send(&connection, &encode(&Request::OnBehalf { pid: process.id() }), &[]).unwrap();
    let manager = BareEngine::open_on(connection, "binder").map(TestEngine).unwrap();
    let become_manager = || Request::BecomeContextManager { node: NodeId(1), flags: 0 };
    assert_eq!(manager.ask(become_manager()), Some(Reply::Done));
    // Its process lives, so that the time to rejoin goes on.
    let _absent = TestEngine::open(first.socket(), "binder").unwrap();
    first.stop().unwrap();
    let second = start(&directory);
    let next = TestEngine::open(second.socket(), "binder").unwrap();
    assert_eq!(next.ask(become_manager()), refused(Errno::BUSY), "the manager may come back");
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(next.ask(become_manager()), Some(Reply::Done));
}

#[test]
fn a_lying_engine_gains_nothing() {
    let (_directory, broker, manager, client, stranger) = restarted();
    let channel = Claim::Channel { channel: ChannelId(1), end: End::Client, peer: manager.id() };
    // The liar claims to be the client and the manager, before or after they rejoin.
    stranger.rejoin(&[holds(&manager), channel], &[(NodeId(1), 0)]);
    assert_eq!(stranger.ask(open(&manager)), refused(Errno::AGAIN));
    let ours = Claim::Channel { channel: ChannelId(1), end: End::Server, peer: client.id() };
    manager.rejoin(&[held(&client), ours], &[(NodeId(1), 0)]);
    client.rejoin(&[holds(&manager), channel], &[]);
    // All of an engine's requests have been carried out once a later one is answered.
    manager.events();
    client.events();
    assert_eq!(stranger.events(), [Event::Denied { owner: manager.id(), node: NodeId(1) }]);
    // Every process may call the manager of its context. Nothing else is left of the lie.
    let send = Request::Introduce { target: manager.id(), objects: Vec::new() };
    assert_eq!(stranger.ask(send.clone()), refused(Errno::AGAIN));
    assert_eq!(stranger.ask(open(&client)), refused(Errno::PERM));
    assert!(matches!(client.ask(send), Some(Reply::Ticket { .. })));
    let holders = |of: &TestEngine| {
        let Some(Reply::Report { page: report, .. }) = ask(observe(broker.socket()), &REPORT)
        else {
            panic!("no report")
        };
        let all = report.contexts.into_iter().flat_map(|context| context.processes);
        let its = all.filter(|process| process.process == of.id().0);
        its.flat_map(|process| process.holdings).collect::<Vec<_>>()
    };
    assert_eq!(holders(&manager), [(1, client.id().0, true)]);
}

#[test]
fn a_credential_is_valid_for_one_process_at_one_socket_for_a_time() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let first = start(&directory);
    let engine = TestEngine::open(first.socket(), "binder").unwrap();
    let credential = engine.credential.clone();
    let other = TestEngine::open(first.socket(), "binder").unwrap();
    // The broker that signed the credential is still alive.
    let early = other.resume(first.socket()).map(drop);
    assert_eq!(early, Err(Errno::KEYREJECTED));
    first.stop().unwrap();

    let second = start(&directory);
    let guest = || TestEngine::open(second.socket(), "binder").unwrap();
    let mut forged = credential.clone();
    forged[0] ^= 1; // The process's number.
    for bad in [forged, Vec::new(), credential[1..].to_vec(), vec![0; 4096]] {
        let result = guest().resume_as(second.socket(), bad).map(drop);
        assert_eq!(result, Err(Errno::KEYREJECTED));
    }
    let third = start(&elsewhere);
    let there = guest().resume_as(third.socket(), credential.clone()).map(drop);
    assert_eq!(there, Err(Errno::KEYREJECTED));
    let engine = engine.resume(second.socket()).unwrap();
    assert_eq!(engine.id(), ProcessId(1));
    // A credential cannot be used twice.
    assert_eq!(guest().resume_as(second.socket(), credential.clone()).map(drop), Err(Errno::BUSY));
    second.stop().unwrap();

    let config = Config { grace: Duration::ZERO, ..Config::at(directory.socket()) };
    let late = Running::start(config).unwrap();
    // A new greeting is answered only after the time for rejoining is over.
    drop(TestEngine::open(late.socket(), "binder").unwrap());
    assert_eq!(engine.resume(late.socket()).map(drop), Err(Errno::TIME));
}

#[test]
fn a_status_page_that_others_could_write_is_refused() {
    let directory = Directory::new();
    let first = start(&directory);
    let engine = TestEngine::open(first.socket(), "binder").unwrap();
    first.stop().unwrap();
    let second = start(&directory);
    let page = status_page();
    let resume = Request::Resume {
        version: VERSION,
        credential: engine.credential.clone(),
        channels: 4096,
        connection: 0,
    };
    let greeted = |descriptors: &[_]| {
        let reply = greet(connect(second.socket()).unwrap(), &resume, descriptors);
        reply.map(|(reply, _)| reply)
    };
    let [own, tally] = engine.pages.each_ref().map(AsFd::as_fd);
    assert_eq!(greeted(&[page.as_fd(), tally]), refused(Errno::INVAL));
    assert_eq!(greeted(&[own, own]), refused(Errno::INVAL), "it has no list");
    assert_eq!(greeted(&[]), refused(Errno::INVAL));
    assert!(matches!(greeted(&[own, tally]), Some(Reply::Welcome { .. })));
}

/// The next broker cannot write the page. It reports that calls may be open until the engine has
/// written it.
#[test]
fn a_freeze_is_complete_only_once_the_engine_has_seen_it() {
    let (_directory, _broker, manager, client, _stranger) = restarted();
    manager.rejoin(&[], &[]);
    manager.events();
    client.rejoin(&[], &[]);
    let pid = std::process::id();
    let freeze = Request::Freeze { pid, frozen: true };
    let outstanding = |reply| match reply {
        Some(Reply::Freeze { outstanding, .. }) => outstanding,
        other => panic!("{other:?}"),
    };
    // All three engines have this pid; the third has not made its claims.
    assert_eq!(outstanding(client.ask(freeze.clone())), 2);
    let told = Event::Frozen { process: manager.id(), frozen: true };
    assert_eq!(manager.event(), told);
    manager.status_page.word(status::FROZEN).store(1, Ordering::SeqCst);
    assert_eq!(outstanding(client.ask(freeze.clone())), 1);
    client.status_page.word(status::FROZEN).store(1, Ordering::SeqCst);
    assert_eq!(outstanding(client.ask(freeze)), 0);
}

#[test]
fn a_broker_without_engines_leaves_no_files() {
    let directory = Directory::new();
    let restart_state = directory.socket().with_file_name("broker.sock.restart_state");
    let first = start(&directory);
    let engine = TestEngine::open(first.socket(), "binder").unwrap();
    let observer = observe(first.socket());
    assert_eq!(ask(&observer, &Request::AddContext { name: "mine".into() }), Some(Reply::Done));
    first.stop().unwrap();
    assert!(restart_state.exists());
    let second = start(&directory);
    assert!(TestEngine::open(second.socket(), "mine").is_ok(), "contexts stay");
    drop(engine);
    second.stop().unwrap();
    let until_idle =
        Config { until_idle: true, grace: Duration::ZERO, ..Config::at(directory.socket()) };
    let mut third = Running::start(until_idle).unwrap();
    drop(TestEngine::open(third.socket(), "mine").unwrap());
    third.join().unwrap();
    assert!(!restart_state.exists());
    assert_eq!(TestEngine::open(start(&directory).socket(), "mine").map(drop), Err(Errno::NOENT));
}
