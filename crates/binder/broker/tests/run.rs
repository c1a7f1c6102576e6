//! The runner with real sockets, and engines that speak the control protocol and nothing else.

mod test_engine;

use baton_abi::control::*;
use baton_abi::holder_list::{ENTRIES, Holding, entry_at};
use baton_abi::lane::{CHANNEL_BYTES, STATUS_BYTES, status};
use baton_shm::mapping::{Access, Mapping};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::process::Command;
use std::sync::atomic::Ordering;
use test_engine::*;

fn broker(directory: &Directory) -> Running {
    Running::start(Config::at(directory.socket())).unwrap()
}

/// Passes a node on that the owner has granted to the sender itself, at this entry of its list.
fn pass_on(owner: &TestEngine, entry: u32, node: u64, target: &TestEngine) -> Request {
    let (owner, node, strength) = (owner.id(), NodeId(node), Strength::Strong);
    let objects = vec![HeldNode { owner, node, strength, entry: Some(entry) }];
    Request::Introduce { target: target.id(), objects }
}

fn references(node: u64, held: bool, holder: &TestEngine) -> Event {
    let holder = (holder.id(), held.then_some(Strength::Strong));
    Event::References { node: NodeId(node), strong: held, held, holder }
}

#[test]
fn a_hello_gets_an_identity_and_an_event_stream() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let engine = TestEngine::open(broker.socket(), "binder").unwrap();
    assert_eq!(engine.identity.pid, std::process::id());
    assert_eq!(engine.identity.uid, rustix::process::geteuid().as_raw());
    assert!(!engine.identity.security_context.is_empty());
    assert_ne!(engine.id(), ProcessId::BROKER);
    assert_eq!(engine.events(), []);
    let flags = rustix::io::fcntl_getfd(&engine.events).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    broker.stop().unwrap();
    assert!(!directory.socket().exists());
    assert!(engine.is_disconnected());
    assert!(receive(&engine.events).is_none());
}

#[test]
fn a_first_lookup_of_the_manager_brings_a_channel_and_a_second_one_none() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let manager = TestEngine::open(broker.socket(), "binder").unwrap();
    let become_manager = Request::BecomeContextManager { node: NodeId(1), flags: 0 };
    assert_eq!(manager.ask(become_manager), Some(Reply::Done));
    let client = TestEngine::open(broker.socket(), "binder").unwrap();
    for brings_channel in [true, false] {
        assert!(matches!(client.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
        let events = client.events();
        let expected = match &events[..] {
            [Event::Ticket { from, .. }, Event::Channel { end: End::Client, peer, .. }] => {
                *from == ProcessId::BROKER && peer.process == manager.id() && brings_channel
            }
            [Event::Ticket { from, .. }] => *from == ProcessId::BROKER && !brings_channel,
            _ => false,
        };
        assert!(expected, "{events:?}");
    }
    let opened = |event: &Event| matches!(event, Event::Channel { end: End::Server, .. });
    assert_eq!(manager.events().iter().filter(|event| opened(event)).count(), 1);
}

#[test]
fn a_channel_is_shared_memory_two_sockets_and_the_servers_status_page() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    assert_eq!(client.ask(open(&manager)), Some(Reply::Done));

    let (to_server, at_server) = manager.event_with_descriptors();
    let (to_client, at_client) = client.event_with_descriptors();
    let (Event::Channel { channel, end: End::Server, peer }, [memory, socket, descriptors]) =
        (to_server, &at_server[..])
    else {
        panic!("no channel for the server")
    };
    assert_eq!(peer, client.identity);
    let (
        Event::Channel { channel: same, end: End::Client, peer },
        [client_memory, client_socket, client_descriptors, page],
    ) = (to_client, &at_client[..])
    else {
        panic!("no channel for the client")
    };
    assert_eq!((same, peer), (channel, manager.identity.clone()));

    let ours = Mapping::<CHANNEL_BYTES>::new(memory, Access::ReadWrite).unwrap();
    let theirs = Mapping::<CHANNEL_BYTES>::new(client_memory, Access::ReadWrite).unwrap();
    ours.word(CHANNEL_BYTES - 4).store(7, Ordering::SeqCst);
    assert_eq!(theirs.word(CHANNEL_BYTES - 4).load(Ordering::SeqCst), 7);
    // Neither end can shrink or grow the memory.
    assert_eq!(rustix::fs::ftruncate(memory, 0), Err(Errno::PERM));
    let seal = rustix::fs::SealFlags::FUTURE_WRITE;
    assert_eq!(rustix::fs::fcntl_add_seals(memory, seal), Err(Errno::PERM));
    for (from, to) in [(client_socket, socket), (client_descriptors, descriptors)] {
        send(from, b"hello", &[]).unwrap();
        assert_eq!(receive(to).unwrap().0, b"hello");
    }

    // The status page belongs to the server; the client can only read it.
    manager.status_page.word(status::SLEEPERS).store(9, Ordering::SeqCst);
    let seen = Mapping::<STATUS_BYTES>::new(page, Access::Read).unwrap();
    assert_eq!(seen.word(status::SLEEPERS).load(Ordering::SeqCst), 9);
    assert_eq!(Mapping::<STATUS_BYTES>::new(page, Access::ReadWrite).unwrap_err(), Errno::PERM);
    assert!(rustix::io::pwrite(page, &[1], 0).is_err());
    for descriptor in at_server.iter().chain(&at_client) {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn events_are_in_their_streams_before_the_reply() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let owner = TestEngine::open(broker.socket(), "binder").unwrap();
    for node in 1..100 {
        list(&owner, node as u32, node, &client, Strength::Strong);
        let reply = client.ask(pass_on(&owner, node as u32, node, &manager));
        let Some(Reply::Ticket { ticket }) = reply else { panic!("{reply:?}") };
        let (there, told) = (manager.event_now().unwrap(), owner.event_now().unwrap());
        assert!(matches!(there, Event::Ticket { ticket: it, .. } if it == ticket), "{there:?}");
        assert_eq!(told, references(node, true, &manager));
    }
}

#[test]
fn a_death_is_announced_to_the_other_end_of_a_channel() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let dead = client.id();
    drop(client);
    assert_eq!(manager.event(), Event::Dead { process: dead });
    let holder = (dead, None);
    let gone = Event::References { node: NodeId(1), strong: false, held: false, holder };
    assert_eq!(manager.event(), gone);
    assert_eq!(manager.events(), []);
}

#[test]
fn closing_either_socket_ends_an_engine() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let BareEngine { requests, events, identity, .. } = client.0;
    drop(events);
    assert_eq!(manager.event(), Event::Dead { process: identity.process });
    assert!(receive(&requests).is_none());
}

#[test]
fn requests_sent_before_a_death_count() {
    let directory = Directory::new();
    let broker = broker(&directory);
    for _ in 0..50 {
        let (manager, client) = manager_and_client(broker.socket());
        let owner = TestEngine::open(broker.socket(), "binder").unwrap();
        for node in 1..20 {
            list(&owner, node as u32, node, &client, Strength::Strong);
            client.tell(pass_on(&owner, node as u32, node, &manager));
        }
        let dead = client.id();
        drop(client);
        let tickets = std::iter::from_fn(|| Some(manager.event()))
            .take_while(|event| *event != Event::Dead { process: dead })
            .filter(|event| matches!(event, Event::Ticket { .. }));
        assert_eq!(tickets.count(), 19);
        drop((manager, owner));
        // The manager of the next round needs the context.
        wait_for_no_manager(&broker);
    }
}

#[test]
fn requests_sent_before_closing_the_event_socket_count() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let BareEngine { requests, events, identity, .. } = client.0;
    for ticket in (1..=500).map(TicketId) {
        let cancel = Request::CancelTicket { target: manager.id(), ticket };
        send(&requests, &encode(&cancel), &[]).unwrap();
    }
    drop(events);
    for ticket in (1..=500).map(TicketId) {
        assert_eq!(manager.event(), Event::TicketCancelled { from: identity.process, ticket });
    }
    assert_eq!(manager.event(), Event::Dead { process: identity.process });
}

fn wait_for_no_manager(broker: &Running) {
    let observer = observe(broker.socket());
    loop {
        let Some(Reply::Report { page: report, .. }) = ask(&observer, &REPORT) else { panic!() };
        if report.contexts.iter().all(|context| context.processes.is_empty()) {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn freezing_sets_the_status_page_and_counts_open_transactions() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let other = TestEngine::open(broker.socket(), "binder").unwrap();
    let elsewhere = TestEngine::open(broker.socket(), "hwbinder").unwrap();
    let open = |fake: &TestEngine, count| {
        fake.status_page.word(status::OUTSTANDING).store(count, Ordering::SeqCst)
    };
    open(&manager, 2);
    open(&other, 3);
    open(&elsewhere, 100);
    let pid = std::process::id();
    let freeze = |frozen| Request::Freeze { pid, frozen };
    let expect = |outstanding| {
        Some(Reply::Freeze { outstanding, two_way_received: false, one_way_received: false })
    };
    let frozen = |fake: &TestEngine| fake.status_page.word(status::FROZEN).load(Ordering::SeqCst);
    assert_eq!(client.ask(freeze(true)), expect(5));
    assert_eq!([&manager, &other, &elsewhere].map(frozen), [1, 1, 0]);
    let told = |process| Event::Frozen { process, frozen: true };
    assert_eq!(manager.event(), told(manager.id()));
    assert_eq!(client.events(), [manager.id(), client.id()].map(told));
    // A false count is reported as it is, but cannot overflow the sum.
    for liar in [&manager, &client, &other] {
        open(liar, u32::MAX);
    }
    let Some(Reply::Freeze { outstanding, .. }) = client.ask(Request::FrozenInfo { pid }) else {
        panic!()
    };
    assert_eq!(outstanding, 3 << 25);
    assert!(matches!(client.ask(freeze(false)), Some(Reply::Freeze { .. })));
    assert_eq!([&manager, &other, &elsewhere].map(frozen), [0, 0, 0]);
}

#[test]
fn an_observer_may_only_ask_for_reports() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    manager.status_page.word(status::LOOPERS).store(4, Ordering::SeqCst);
    manager.status_page.double_word(status::TRANSACTIONS).store(1 << 40, Ordering::SeqCst);
    let observer = observe(broker.socket());
    let Some(Reply::Report { page: report, .. }) = ask(&observer, &REPORT) else { panic!() };
    let binder = &report.contexts[0];
    assert_eq!((binder.name.as_str(), binder.manager), ("binder", Some(manager.id().0)));
    let engine = &binder.processes[0].engine;
    assert_eq!((engine.loopers, engine.transactions), (4, 1 << 40));
    assert_eq!(client.ask(REPORT), Some(Reply::Report { page: report, next: None }));
    let add = Request::AddContext { name: "mine".into() };
    assert_eq!(ask(&observer, &add), Some(Reply::Done));
    assert!(TestEngine::open(broker.socket(), "mine").is_ok());
    assert_eq!(ask(&observer, &Request::ContextManager), None);
    assert!(
        matches!(client.ask(Request::Contexts), Some(Reply::Contexts { names }) if names.len() == 4)
    );
}

#[test]
fn a_long_report_comes_in_several_packets() {
    const ROUNDS: u64 = 16;
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let owner = TestEngine::open(broker.socket(), "binder").unwrap();
    for round in 0..ROUNDS {
        let object = |number: u64| {
            let node = (round + 1) << 40 | number;
            let entry = (round * 2000 + number) as u32;
            list(&owner, entry, node, &client, Strength::Weak);
            let (owner, node, strength) = (owner.id(), NodeId(node), Strength::Weak);
            HeldNode { owner, node, strength, entry: Some(entry) }
        };
        let objects = (0..2000).map(object).collect();
        let introduce = Request::Introduce { target: manager.id(), objects };
        assert!(matches!(client.ask(introduce), Some(Reply::Ticket { .. })));
        manager.events();
        owner.events();
    }
    let (by_book, by_list) = (manager.id().0, client.id().0);
    let observer = observe(broker.socket());
    let (mut report, mut from, mut pages) = (Report::default(), Some(Cursor::default()), 0);
    while let Some(begin) = from {
        let asked = ask(&observer, &Request::Report { from: begin });
        let Some(Reply::Report { page, next }) = asked else { panic!("{asked:?}") };
        report.add_page(page);
        (from, pages) = (next, pages + 1);
    }
    let [manager, client, owner] = &report.contexts[0].processes[..] else { panic!("{report:?}") };
    let nodes = (1..=ROUNDS).flat_map(|round| (0..2000).map(move |number| round << 40 | number));
    let expect = nodes.flat_map(|node| [by_book, by_list].map(|holder| (node, holder, false)));
    assert!(owner.holdings.iter().copied().eq(expect));
    assert_eq!((manager.channels.len(), client.channels.len()), (1, 1));
    assert!(pages > 2 * ROUNDS * 2000 / PAGE_ENTRIES as u64, "{pages}");
}

#[test]
fn the_broker_reads_an_owners_list_wherever_the_owner_has_written() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, client) = manager_and_client(broker.socket());
    let owner = TestEngine::open(broker.socket(), "binder").unwrap();
    let entries = [0, 127, 128, 5000, ENTRIES - 1];
    for (node, entry) in (1..).zip(entries) {
        list(&owner, entry, node, &client, Strength::Strong);
    }
    // An entry that the owner was writing says nothing.
    let torn =
        Holding { holder: manager.id(), node: NodeId(1), flags: 0, strength: Strength::Strong };
    owner.list(7, Some(torn)).unwrap();
    rustix::io::pwrite(&owner.pages[1], &[9], entry_at(7).unwrap() as u64).unwrap();
    let shown = |socket: &OwnedFd| {
        let Some(Reply::Report { page: report, .. }) = ask(socket, &REPORT) else { panic!() };
        let mut processes = report.contexts.into_iter().flat_map(|context| context.processes);
        processes.find(|process| process.process == owner.id().0).unwrap().holdings
    };
    let expect: Vec<_> = (1..=5).map(|node| (node, client.id().0, true)).collect();
    assert_eq!(shown(&observe(broker.socket())), expect);
    let info = |node| Request::NodeInfo { owner: owner.id(), node: NodeId(node) };
    assert_eq!(manager.ask(info(5)), Some(Reply::Counts { strong: 1, weak: 0 }));
    assert_eq!(manager.ask(info(6)), Some(Reply::Refused { errno: libc::EINVAL }));
    for (node, entry) in (1..).zip(entries) {
        assert!(matches!(
            client.ask(pass_on(&owner, entry, node, &manager)),
            Some(Reply::Ticket { .. })
        ));
        assert_eq!(owner.event(), references(node, true, &manager), "entry {entry}");
    }
    for entry in [1, 7, ENTRIES, u32::MAX] {
        manager.events();
        assert!(matches!(
            client.ask(pass_on(&owner, entry, 1, &manager)),
            Some(Reply::Ticket { .. })
        ));
        let Event::Ticket { objects, .. } = manager.event() else { panic!("no ticket") };
        assert_eq!(objects[0].owner, ProcessId::BROKER, "entry {entry}");
    }
    let open_by = |entry| Request::OpenChannel { target: owner.id(), entry };
    assert_eq!(client.ask(open_by(None)), Some(Reply::Refused { errno: libc::EPERM }));
    assert_eq!(client.ask(open_by(Some(ENTRIES - 1))), Some(Reply::Done));
    owner.list(ENTRIES - 1, None).unwrap();
    let refused = Some(Reply::Refused { errno: libc::EPERM });
    assert_eq!(client.ask(open_by(Some(ENTRIES - 1))), refused);
}

/// The child process of the next test. Does nothing when it runs alone.
#[test]
fn child_that_sends_its_sockets_away() {
    let Some(path) = std::env::var_os("BATON_TEST_BROKER") else { return };
    let path = std::path::PathBuf::from(path);
    let engine = TestEngine::open(&path, "binder").unwrap();
    assert_eq!(
        engine.ask(Request::OpenChannel { target: ProcessId(1), entry: None }),
        Some(Reply::Done)
    );
    let handover = connect(&path.with_extension("handover")).unwrap();
    let sockets = [engine.requests.as_fd(), engine.events.as_fd()];
    send(&handover, &engine.id().0.to_ne_bytes(), &sockets).unwrap();
    receive(&handover); // Until it is killed.
}

#[test]
fn a_killed_process_is_dead_while_its_sockets_are_open_elsewhere() {
    let directory = Directory::new();
    let broker = broker(&directory);
    let (manager, _client) = manager_and_client(broker.socket());
    let handover = listen(&broker.socket().with_extension("handover"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_sends_its_sockets_away"])
        .env("BATON_TEST_BROKER", broker.socket())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let connection: OwnedFd = rustix::net::accept(&handover).unwrap();
    let (id, sockets) = receive(&connection).unwrap();
    let process = ProcessId(u64::from_ne_bytes(id.try_into().unwrap()));
    assert_eq!(sockets.len(), 2);
    assert!(matches!(manager.events()[..], [Event::Channel { .. }]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(manager.event(), Event::Dead { process });
    assert!(receive(&sockets[0]).is_none());
}
