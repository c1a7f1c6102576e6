//! What an engine does wrong costs it its connection, and nobody else anything.

mod fake;

use baton_abi::control::*;
use baton_abi::lane::{FRONT_BYTES, TALLY_BYTES};
use baton_broker::limits::Limits;
use fake::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

fn hello() -> Request {
    Request::Hello { version: VERSION, context: "binder".into(), channels: 4096 }
}

fn memfd(bytes: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("front", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes as u64).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Refused, and then closed.
fn assert_refused(daemon: &Running, request: Request, files: &[BorrowedFd<'_>], errno: Errno) {
    let socket = connect(daemon.socket()).unwrap();
    let (reply, descriptors) = greet(&socket, &request, files).expect("an answer");
    assert_eq!(reply, Reply::Refused { errno: errno.raw_os_error() });
    assert!(descriptors.is_empty());
    assert!(receive(&socket).is_none());
}

#[test]
fn a_front_page_that_could_hurt_the_broker_is_refused() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let cases = [
        (memfd(FRONT_BYTES, SealFlags::empty()), Errno::INVAL),
        (memfd(FRONT_BYTES, SealFlags::SHRINK), Errno::INVAL),
        (memfd(FRONT_BYTES, SealFlags::GROW), Errno::INVAL),
        (memfd(TALLY_BYTES - 1, both), Errno::INVAL),
        (memfd(0, both), Errno::INVAL),
        (memfd(FRONT_BYTES, both | SealFlags::WRITE), Errno::PERM),
        (memfd(FRONT_BYTES, both | SealFlags::FUTURE_WRITE), Errno::PERM),
        (std::fs::File::open("/dev/zero").unwrap().into(), Errno::INVAL),
        (rustix::pipe::pipe().unwrap().0, Errno::INVAL),
    ];
    let (front, tally) = (front_page(), tally_page());
    for (number, (file, errno)) in cases.into_iter().enumerate() {
        eprintln!("case {number}");
        assert_refused(&daemon, hello(), &[file.as_fd(), tally.as_fd()], errno);
        assert_refused(&daemon, hello(), &[front.as_fd(), file.as_fd()], errno);
    }
    // The one page has to be sealed by the broker, the other not.
    let no_seals = memfd(FRONT_BYTES, both | SealFlags::SEAL);
    assert_refused(&daemon, hello(), &[no_seals.as_fd(), tally.as_fd()], Errno::PERM);
    assert_refused(&daemon, hello(), &[], Errno::INVAL);
    // More than a page is as good.
    let socket = connect(daemon.socket()).unwrap();
    let larger = memfd(2 * FRONT_BYTES, both);
    assert!(matches!(
        greet(&socket, &hello(), &[larger.as_fd(), tally.as_fd()]),
        Some((Reply::Welcome { .. }, _))
    ));
}

#[test]
fn a_greeting_that_does_not_fit_is_refused() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (page, tally) = (front_page(), tally_page());
    let pages = [page.as_fd(), tally.as_fd()];
    let unknown = Request::Hello { version: VERSION, context: "nothing".into(), channels: 4096 };
    assert_refused(&daemon, unknown, &pages, Errno::NOENT);
    let newer = Request::Hello { version: VERSION + 1, context: "binder".into(), channels: 4096 };
    assert_refused(&daemon, newer, &pages, Errno::PROTONOSUPPORT);
    let older = Request::Observe { version: VERSION - 1 };
    assert_refused(&daemon, older, &[], Errno::PROTONOSUPPORT);
    assert_refused(&daemon, Request::Observe { version: VERSION }, &pages, Errno::INVAL);
}

#[test]
fn a_malformed_packet_ends_its_sender_alone() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, _client) = manager_and_client(daemon.socket());
    let page = front_page();
    let mut trailing = encode(&Request::ContextManager);
    trailing.push(0);
    let barrier = encode(&Request::Barrier { number: 1 });
    let objects = vec![Object::Handle { handle: 1, strength: Strength::Weak }; 10_000];
    let cut = encode(&Request::Translate { target: manager.id(), objects });
    let cases: [(&[u8], &[BorrowedFd<'_>]); 9] = [
        (b"\xff\xff\xff\xff", &[]),
        (&trailing, &[]),
        (&barrier[..1], &[]),
        (&cut[..cut.len() - 1], &[]),
        (&[0; MAX_PACKET_BYTES + 1], &[]),
        (&barrier, &[page.as_fd()]),
        (&barrier, &[page.as_fd(), page.as_fd()]),
        (&encode(&hello()), &[]),
        (b"", &[]),
    ];
    for (number, (bytes, descriptors)) in cases.into_iter().enumerate() {
        eprintln!("case {number}");
        let hostile = Fake::open(daemon.socket(), "binder").unwrap();
        assert_eq!(hostile.ask(Request::OpenChannel { target: manager.id() }), Some(Reply::Done));
        manager.events();
        send(&hostile.requests, bytes, descriptors).unwrap();
        assert!(hostile.is_disconnected());
        assert_eq!(manager.event(), Event::Dead { process: hostile.id() });
    }
    // Before the greeting as after it.
    let socket = connect(daemon.socket()).unwrap();
    assert_eq!(greet(&socket, &hello(), &[page.as_fd(); 3]).map(|(reply, _)| reply), None);
    for bytes in [&b"\xff\xff\xff\xff"[..], &barrier] {
        let socket = connect(daemon.socket()).unwrap();
        send(&socket, bytes, &[]).unwrap();
        assert!(receive(&socket).is_none());
    }
    assert_eq!(manager.events(), []);
}

#[test]
fn a_violation_ends_the_violator() {
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    client.tell(Request::Release { handle: 0, strong: 2, grants: 2 });
    assert!(client.is_disconnected());
    assert_eq!(manager.event(), Event::Dead { process: client.id() });
    let holder = (client.id(), None);
    let gone = Event::References { node: NodeId(1), strong: false, held: false, holder };
    assert_eq!(manager.events(), [gone]);
}

fn with_queue(directory: &Directory, queued_bytes: u64) -> Running {
    let limits = Limits { queued_bytes, queued_barriers: 100, ..Limits::default() };
    Running::start(Config { limits, ..Config::at(directory.socket()) }).unwrap()
}

#[test]
fn events_that_wait_keep_their_order() {
    const COUNT: u64 = 20_000;
    let directory = Directory::new();
    let daemon = Running::start(Config::at(directory.socket())).unwrap();
    let engine = Fake::open(daemon.socket(), "binder").unwrap();
    for number in 0..COUNT {
        engine.tell(Request::Barrier { number });
    }
    // Answered after all of them: they are in the socket, and most in the broker.
    assert_eq!(engine.ask(Request::ContextManager), Some(Reply::Refused { errno: 3 }));
    for number in 0..COUNT {
        assert_eq!(engine.event(), Event::Barrier { number });
    }
    assert_eq!(engine.events(), []);
}

#[test]
fn who_does_not_read_its_events_is_disconnected() {
    let directory = Directory::new();
    let daemon = with_queue(&directory, 100_000);
    let (manager, client) = manager_and_client(daemon.socket());
    let mut number = 0;
    // The socket takes some hundreds, the broker a hundred more.
    while send(&client.requests, &encode(&Request::Barrier { number }), &[]).is_ok() {
        number += 1;
        assert!(number < 100_000, "it was let do");
    }
    assert_eq!(manager.event(), Event::Dead { process: client.id() });
}

#[test]
fn nobody_has_another_disconnected_by_a_flood() {
    let directory = Directory::new();
    let daemon = with_queue(&directory, 100_000);
    let (manager, client) = manager_and_client(daemon.socket());
    let bystander = Fake::open(daemon.socket(), "binder").unwrap();
    let empty = Request::Translate { target: manager.id(), objects: Vec::new() };
    let mut sent = Vec::new();
    let refused = loop {
        match client.ask(empty.clone()) {
            Some(Reply::Ticket { ticket }) => sent.push(ticket),
            other => break other,
        }
    };
    let no_space = Some(Reply::Refused { errno: Errno::NOSPC.raw_os_error() });
    assert_eq!(refused, no_space);
    let later = Some(Reply::Refused { errno: Errno::AGAIN.raw_os_error() });
    assert_eq!(bystander.ask(Request::ContextManager), later);
    let open = Request::OpenChannel { target: manager.id() };
    assert_eq!(bystander.ask(open.clone()), later);
    // The flooded one reads on as if nothing had been.
    for expect in sent {
        assert!(matches!(manager.event(), Event::Ticket { ticket, .. } if ticket == expect));
    }
    assert_eq!(manager.events(), []);
    assert_eq!(bystander.ask(open), Some(Reply::Done));
    assert!(matches!(client.ask(empty), Some(Reply::Ticket { .. })));
}

#[test]
fn a_flood_of_cancelled_tickets_ends_its_sender() {
    let directory = Directory::new();
    let daemon = with_queue(&directory, 1 << 20);
    let (manager, client) = manager_and_client(daemon.socket());
    let cancel = Request::CancelTicket { target: manager.id(), ticket: TicketId(1) };
    while send(&client.requests, &encode(&cancel), &[]).is_ok() {}
    let after = std::iter::from_fn(|| Some(manager.event()))
        .find(|event| !matches!(event, Event::TicketCancelled { .. }));
    assert_eq!(after, Some(Event::Dead { process: client.id() }));
}

#[test]
fn the_limit_of_a_user_is_an_answer() {
    let directory = Directory::new();
    let mut limits = Limits::default();
    // Root's, or the broker's own user's: the tests' own.
    limits.all.processes = 2;
    limits.channels_per_server = 1;
    let daemon = Running::start(Config { limits, ..Config::at(directory.socket()) }).unwrap();
    let (manager, client) = manager_and_client(daemon.socket());
    let (page, tally) = (front_page(), tally_page());
    assert_refused(&daemon, hello(), &[page.as_fd(), tally.as_fd()], Errno::DQUOT);
    let full = Some(Reply::Refused { errno: Errno::MFILE.raw_os_error() });
    assert_eq!(client.ask(Request::OpenChannel { target: manager.id() }), full);
    drop(client);
    assert!(matches!(manager.event(), Event::Dead { .. }));
    assert!(Fake::open(daemon.socket(), "binder").is_ok());
}
