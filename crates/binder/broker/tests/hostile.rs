//! Violations cost an engine its connection and harm no other engine.

mod test_engine;

use baton_abi::control::*;
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::STATUS_BYTES;
use baton_broker::limits::Limits;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;
use test_engine::*;

fn hello() -> Request {
    Request::Hello { version: VERSION, context: "binder".into(), channels: 4096, connection: 0 }
}

fn memfd(bytes: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("front", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes as u64).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Sends a greeting that has to be refused, after which the broker closes the connection.
fn assert_refused(broker: &Running, request: Request, files: &[BorrowedFd<'_>], errno: Errno) {
    let socket = connect(broker.socket()).unwrap();
    let (reply, descriptors) = greet(&socket, &request, files).expect("an answer");
    assert_eq!(reply, Reply::Refused { errno: errno.raw_os_error() });
    assert!(descriptors.is_empty());
    assert!(receive(&socket).is_none());
}

#[test]
fn a_status_page_that_could_hurt_the_broker_is_refused() {
    let directory = Directory::new();
    let broker = Running::start(Config::at(directory.socket())).unwrap();
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let cases = [
        (memfd(TALLY_FILE_BYTES, SealFlags::empty()), Errno::INVAL),
        (memfd(TALLY_FILE_BYTES, SealFlags::SHRINK), Errno::INVAL),
        (memfd(TALLY_FILE_BYTES, SealFlags::GROW), Errno::INVAL),
        (memfd(STATUS_BYTES - 1, both), Errno::INVAL),
        (memfd(0, both), Errno::INVAL),
        (memfd(TALLY_FILE_BYTES, both | SealFlags::WRITE), Errno::PERM),
        (memfd(TALLY_FILE_BYTES, both | SealFlags::FUTURE_WRITE), Errno::PERM),
        (std::fs::File::open("/dev/zero").unwrap().into(), Errno::INVAL),
        (rustix::pipe::pipe().unwrap().0, Errno::INVAL),
    ];
    let (front, tally) = (status_page(), tally_page());
    for (number, (file, errno)) in cases.into_iter().enumerate() {
        eprintln!("case {number}");
        assert_refused(&broker, hello(), &[file.as_fd(), tally.as_fd()], errno);
        assert_refused(&broker, hello(), &[front.as_fd(), file.as_fd()], errno);
    }
    let short = memfd(TALLY_FILE_BYTES - 1, both);
    assert_refused(&broker, hello(), &[front.as_fd(), short.as_fd()], Errno::INVAL);
    // The broker must be able to seal the status page; the tally page stays writable.
    let no_seals = memfd(STATUS_BYTES, both | SealFlags::SEAL);
    assert_refused(&broker, hello(), &[no_seals.as_fd(), tally.as_fd()], Errno::PERM);
    assert_refused(&broker, hello(), &[], Errno::INVAL);
    // A larger file is also accepted.
    let socket = connect(broker.socket()).unwrap();
    let larger = memfd(2 * STATUS_BYTES, both);
    assert!(matches!(
        greet(&socket, &hello(), &[larger.as_fd(), tally.as_fd()]),
        Some((Reply::Welcome { .. }, _))
    ));
}

#[test]
fn an_invalid_greeting_is_refused() {
    let directory = Directory::new();
    let broker = Running::start(Config::at(directory.socket())).unwrap();
    let (page, tally) = (status_page(), tally_page());
    let pages = [page.as_fd(), tally.as_fd()];
    let unknown = Request::Hello {
        version: VERSION,
        context: "nothing".into(),
        channels: 4096,
        connection: 0,
    };
    assert_refused(&broker, unknown, &pages, Errno::NOENT);
    let newer = Request::Hello {
        version: VERSION + 1,
        context: "binder".into(),
        channels: 4096,
        connection: 0,
    };
    assert_refused(&broker, newer, &pages, Errno::PROTONOSUPPORT);
    let older = Request::Observe { version: VERSION - 1 };
    assert_refused(&broker, older, &[], Errno::PROTONOSUPPORT);
    assert_refused(&broker, Request::Observe { version: VERSION }, &pages, Errno::INVAL);
}

#[test]
fn a_malformed_packet_disconnects_only_its_sender() {
    let directory = Directory::new();
    let broker = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, _client) = manager_and_client(broker.socket());
    let page = status_page();
    let mut trailing = encode(&Request::ContextManager);
    trailing.push(0);
    let barrier = encode(&Request::Barrier { number: 1 });
    let (owner, node, strength) = (manager.id(), NodeId(1), Strength::Weak);
    let objects = vec![HeldNode { owner, node, strength, entry: None }; 10_000];
    let cut = encode(&Request::Introduce { target: manager.id(), objects });
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
        let hostile = TestEngine::open(broker.socket(), "binder").unwrap();
        assert_eq!(hostile.ask(open(&manager)), Some(Reply::Done));
        manager.events();
        send(&hostile.requests, bytes, descriptors).unwrap();
        assert!(hostile.is_disconnected());
        assert_eq!(manager.event(), Event::Dead { process: hostile.id() });
    }
    // Malformed packets end a connection before its greeting and after it.
    let socket = connect(broker.socket()).unwrap();
    assert_eq!(greet(&socket, &hello(), &[page.as_fd(); 3]).map(|(reply, _)| reply), None);
    for bytes in [&b"\xff\xff\xff\xff"[..], &barrier] {
        let socket = connect(broker.socket()).unwrap();
        send(&socket, bytes, &[]).unwrap();
        assert!(receive(&socket).is_none());
    }
    assert_eq!(manager.events(), []);
}

#[test]
fn a_violation_disconnects_the_violator() {
    let directory = Directory::new();
    let broker = Running::start(Config::at(directory.socket())).unwrap();
    let (manager, client) = manager_and_client(broker.socket());
    let (owner, node) = (manager.id(), NodeId(1));
    client
        .tell(Request::Release { released: vec![Released { owner, node, strong: 2, grants: 2 }] });
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
fn waiting_events_keep_their_order() {
    const COUNT: u64 = 20_000;
    let directory = Directory::new();
    let broker = Running::start(Config::at(directory.socket())).unwrap();
    let engine = TestEngine::open(broker.socket(), "binder").unwrap();
    for number in 0..COUNT {
        engine.tell(Request::Barrier { number });
    }
    // The reply comes after all events: some are in the socket, most in the broker.
    assert_eq!(engine.ask(Request::ContextManager), Some(Reply::Refused { errno: 3 }));
    for number in 0..COUNT {
        assert_eq!(engine.event(), Event::Barrier { number });
    }
    assert_eq!(engine.events(), []);
}

#[test]
fn an_engine_that_never_reads_its_barriers_is_disconnected() {
    let directory = Directory::new();
    let broker = with_queue(&directory, 100_000);
    let (manager, client) = manager_and_client(broker.socket());
    let mut number = 0;
    // The socket takes some hundred barriers, the broker a hundred more.
    while send(&client.requests, &encode(&Request::Barrier { number }), &[]).is_ok() {
        number += 1;
        assert!(number < 100_000, "it was let do");
    }
    assert_eq!(manager.event(), Event::Dead { process: client.id() });
}

#[test]
fn a_flood_does_not_disconnect_its_receiver() {
    let directory = Directory::new();
    let broker = with_queue(&directory, 100_000);
    let (manager, client) = manager_and_client(broker.socket());
    let bystander = TestEngine::open(broker.socket(), "binder").unwrap();
    let empty = Request::Introduce { target: manager.id(), objects: Vec::new() };
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
    let open = open(&manager);
    assert_eq!(bystander.ask(open.clone()), later);
    // The receiver of the flood reads on undisturbed.
    for expect in sent {
        assert!(matches!(manager.event(), Event::Ticket { ticket, .. } if ticket == expect));
    }
    assert_eq!(manager.events(), []);
    assert_eq!(bystander.ask(open), Some(Reply::Done));
    assert!(matches!(client.ask(empty), Some(Reply::Ticket { .. })));
}

#[test]
fn a_flood_of_cancelled_tickets_disconnects_its_sender() {
    let directory = Directory::new();
    let broker = with_queue(&directory, 1 << 20);
    let (manager, client) = manager_and_client(broker.socket());
    let cancel = Request::CancelTicket { target: manager.id(), ticket: TicketId(1) };
    while send(&client.requests, &encode(&cancel), &[]).is_ok() {}
    let after = std::iter::from_fn(|| Some(manager.event()))
        .find(|event| !matches!(event, Event::TicketCancelled { .. }));
    assert_eq!(after, Some(Event::Dead { process: client.id() }));
}

#[test]
fn exceeding_a_users_limit_is_refused_not_punished() {
    let directory = Directory::new();
    let mut limits = Limits::default();
    // The tests' own user is root or the broker's own.
    limits.all.processes = 2;
    limits.channels_per_server = 1;
    let broker = Running::start(Config { limits, ..Config::at(directory.socket()) }).unwrap();
    let (manager, client) = manager_and_client(broker.socket());
    let (page, tally) = (status_page(), tally_page());
    assert_refused(&broker, hello(), &[page.as_fd(), tally.as_fd()], Errno::DQUOT);
    let full = Some(Reply::Refused { errno: Errno::MFILE.raw_os_error() });
    assert_eq!(client.ask(open(&manager)), full);
    drop(client);
    assert!(matches!(manager.event(), Event::Dead { .. }));
    assert!(TestEngine::open(broker.socket(), "binder").is_ok());
}

/// A TCP socket whose last close waits for an hour, unless the other one is read or closed.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(3600))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 1 << 16]).is_ok() {}
    (socket, other)
}

/// Greets with these files. The reply is still to be read.
fn send_greeting(path: &Path, files: &[BorrowedFd<'_>]) -> OwnedFd {
    let socket = connect(path).unwrap();
    send(&socket, &encode(&hello()), files).unwrap();
    socket
}

/// All that strangers have sent is there before the broker starts, which is the only one to close
/// it.
#[test]
fn a_close_that_waits_for_a_stranger_holds_up_nobody() {
    let directory = Directory::new();
    std::fs::create_dir_all(directory.socket().parent().unwrap()).unwrap();
    let (path, listener) = (directory.socket(), Some(listen(&directory.socket())));
    let (page, tally) = (status_page(), tally_page());
    let pages = [page.as_fd(), tally.as_fd()];
    let (request, mut others) = (encode(&Request::ContextManager), Vec::new());
    let mut file = || {
        let (socket, other) = lingering();
        others.push(other);
        socket
    };
    let _malformed = connect(&path).unwrap();
    send(&_malformed, &request, &[file().as_fd()]).unwrap();
    let _surplus = send_greeting(&path, &[[file().as_fd()]; 40].concat());
    let in_place_of_pages = send_greeting(&path, &[page.as_fd(), file().as_fd()]);
    let engine = send_greeting(&path, &pages);
    send(&engine, &request, &[file().as_fd(), file().as_fd()]).unwrap();
    let never_read = send_greeting(&path, &[]);
    send(&never_read, &request, &[file().as_fd()]).unwrap();

    let broker = Running::start(Config { listener, ..Config::at(&path) }).unwrap();
    // The broker serves the connections of a user in turn.
    let bystander = TestEngine::open(&path, "binder").unwrap();
    assert_eq!(bystander.events(), []);
    for refused in [in_place_of_pages, never_read] {
        let (reply, _) = receive(&refused).expect("a reply");
        let errno = Errno::INVAL.raw_os_error();
        assert_eq!(decode(&reply), Some(Reply::Refused { errno }));
        assert!(receive(&refused).is_none());
    }
    assert!(receive(&engine).is_some() && receive(&engine).is_none());
    broker.stop().unwrap();
    drop(others);
}
