//! What the children are: a broker, a service, a client, one who keeps to the bare protocol, and
//! one who lies in it.

use baton::{self, CallError, Handle, Parcel, Process};
use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::STATUS_BYTES;
use baton_broker::Config;
use baton_shm::mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::*;
use std::io::{BufRead, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The service answers with its object.
const GET: u32 = 1;
/// It keeps the object that comes.
const KEEP: u32 = 2;
/// It does nothing with it.
const LOOK: u32 = 3;

pub fn run(role: &str, socket: &Path) {
    match role {
        "broker" => broker(socket),
        "service" => service(socket),
        "client" => client(socket),
        "witness" | "liar" => bare(socket),
        other => panic!("{other}?"),
    }
}

fn say(line: &str) {
    println!("{line}");
}

fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

fn broker(socket: &Path) {
    let config = Config { grace: Duration::from_secs(3), ..Config::at(socket) };
    baton_broker::run(config, || say("ready")).expect("a broker");
}

fn service(socket: &Path) {
    let process = Process::open("binder", socket).expect("a broker");
    let given = process.object(|_| Ok(Parcel::new())).add();
    let known = Arc::new(AtomicU32::new(0));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let object = process
        .object(move |request| {
            let mut reply = Parcel::new();
            match request.code() {
                GET => {
                    reply.write_object(given);
                }
                KEEP => {
                    let handle = request.received.handle(0).ok_or(Errno::INVAL)?;
                    handle.link_to_death(|| say("client died"));
                    kept.lock().expect("no panic").push(handle);
                    let known = known.fetch_add(1, Ordering::Relaxed) + 1;
                    if known > 1 {
                        say(&format!("knows {known}"));
                    }
                }
                _ => {}
            }
            Ok(reply)
        })
        .add();
    process.become_context_manager(object).expect("there is no other");
    for _ in 0..2 {
        let serving = process.clone();
        std::thread::spawn(move || serving.serve());
    }
    say("ready");
    commands().for_each(drop);
}

#[derive(Clone)]
struct Client {
    process: Process,
    manager: Handle,
    own: baton::Object,
}

impl Client {
    fn with_object(&self, code: u32) -> Result<(), CallError> {
        let mut parcel = Parcel::new();
        parcel.write_object(self.own);
        self.manager.call(code, &parcel).map(drop)
    }
}

fn client(socket: &Path) {
    let process = Process::open("binder", socket).expect("a broker");
    let manager = process.context_manager().expect("a service");
    let own = process.object(|_| Ok(Parcel::new())).add();
    let client = Client { process, manager, own };
    let (process, manager) = (&client.process, &client.manager);
    let found = manager.call(GET, &Parcel::new()).expect("a service");
    let mut held = found.handle(0);
    drop(found);
    client.with_object(KEEP).expect("a service");
    manager.link_to_death(|| say("manager died"));
    let serving = process.clone();
    std::thread::spawn(move || serving.serve());
    say("ready");
    let busy = Arc::new(AtomicBool::new(false));
    let mut work = None;
    for command in commands() {
        match &command[..] {
            "call" => {
                let all = [Some(manager), held.as_ref()].into_iter().flatten();
                let done = all.map(|handle| handle.call(LOOK, &Parcel::new()).map(drop));
                let failed = done.filter_map(Result::err).next();
                say(&failed.map_or("called".to_owned(), |error| error.to_string()));
            }
            "introduce" => match client.with_object(LOOK) {
                Ok(()) => say("called"),
                Err(CallError::Refused(_) | CallError::BrokerGone) => say("refused"),
                Err(error) => say(&error.to_string()),
            },
            "drop" => {
                held = None;
                say("dropped");
            }
            "load" => {
                busy.store(true, Ordering::Release);
                let (client, busy) = (client.clone(), Arc::clone(&busy));
                work = Some(std::thread::spawn(move || load(&client, &busy)));
            }
            "quiet" => {
                busy.store(false, Ordering::Release);
                work.take().expect("it was loaded").join().expect("no panic");
                say("quiet");
            }
            other => panic!("{other}?"),
        }
    }
}

/// Calls of all kinds. Those without objects never fail; those with may for want of a broker.
fn load(client: &Client, busy: &AtomicBool) {
    let manager = &client.manager;
    while busy.load(Ordering::Acquire) {
        manager.call(LOOK, &[1; 100][..].into()).expect("a call without objects");
        match manager.call(GET, &Parcel::new()) {
            Ok(reply) => drop(reply.handle(0)),
            Err(CallError::Refused(_) | CallError::BrokerGone) => {}
            Err(error) => panic!("a reply with an object: {error}"),
        }
        match client.with_object(LOOK) {
            Ok(()) | Err(CallError::Refused(_) | CallError::BrokerGone) => {}
            Err(error) => panic!("a call with an object: {error}"),
        }
        let mut parcel = Parcel::new();
        parcel.write_object(client.own);
        match manager.one_way(LOOK, &parcel) {
            Ok(()) | Err(CallError::Refused(_) | CallError::BrokerGone) => {}
            Err(error) => panic!("a one-way call: {error}"),
        }
    }
}

/// An engine that is nothing but the control protocol.
fn bare(socket: &Path) {
    let page = mapping::create("front", STATUS_BYTES).expect("memory");
    let tally = mapping::create("tally", TALLY_FILE_BYTES).expect("memory");
    let pages = [page.as_fd(), tally.as_fd()];
    let mut raw = Raw::connect(socket).expect("a broker");
    let hello = Request::Hello {
        version: VERSION,
        context: "binder".to_owned(),
        channels: 4096,
        connection: 0,
    };
    // Whoever closes its events is gone.
    let (Some(Reply::Welcome { credential, .. }), events) = raw.ask(&hello, &pages) else {
        panic!("no welcome")
    };
    let mut kept = Vec::from_iter(events);
    say("ready");
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["credential"] => {
                say(&credential.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
            ["pose", credential] => {
                let byte =
                    |at| u8::from_str_radix(&credential[at..at + 2], 16).expect("hexadecimal");
                let stolen = (0..credential.len()).step_by(2).map(byte).collect();
                let (reply, _) = Raw::resume(socket, stolen, pages).1;
                let errno = Errno::KEYREJECTED.raw_os_error();
                assert_eq!(reply, Some(Reply::Refused { errno }));
                say("refused");
            }
            ["resume"] => {
                let (next, (_, events)) = Raw::resume(socket, credential.clone(), pages);
                raw = next;
                kept.push(events.expect("a welcome carries the event socket"));
                raw.tell(&Request::Rejoin { manages: Vec::new() }, &[]);
                say("welcome");
            }
            ["lie", owner, channel] => {
                let owner = ProcessId(owner.parse().expect("a number"));
                let channel = ChannelId(channel.parse().expect("a number"));
                lie(socket, credential.clone(), pages, owner, channel);
                say("nothing");
            }
            _ => panic!("{command}?"),
        }
    }
}

/// Says that it held what others hold, and tries to use it.
fn lie(
    socket: &Path,
    credential: Vec<u8>,
    pages: [BorrowedFd<'_>; 2],
    owner: ProcessId,
    channel: ChannelId,
) {
    let (raw, (_, events)) = Raw::resume(socket, credential, pages);
    let events = events.expect("a welcome carries the event socket");
    let handles =
        (1..=3).map(|number| Claim::Granted { owner, node: NodeId(number), strong: 1, grants: 1 });
    let mut claims: Vec<Claim> = handles.collect();
    claims.push(Claim::Channel { channel, end: End::Client, peer: owner });
    raw.tell(&Request::Claim { claims }, &[]);
    raw.tell(&Request::Rejoin { manages: vec![(NodeId(1), 0)] }, &[]);
    let mut denied = 0;
    while denied < 3 {
        let mut packet = vec![0; MAX_PACKET_BYTES];
        let (bytes, _) = recv(&events, &mut packet[..], RecvFlags::empty()).expect("an event");
        match decode(&packet[..bytes]).expect("an event") {
            Event::Denied { .. } => denied += 1,
            other => panic!("{other:?} for a liar"),
        }
    }
    let (node, strength) = (NodeId(1), Strength::Strong);
    let objects = vec![HeldNode { owner, node, strength, entry: Some(0) }];
    let requests = [
        Request::Introduce { target: owner, objects },
        Request::Introduce { target: owner, objects: Vec::new() },
        Request::IsFrozen { target: owner },
    ];
    for request in requests {
        let (reply, _) = raw.ask(&request, &[]);
        assert!(matches!(reply, Some(Reply::Refused { .. })), "{reply:?} to {request:?}");
    }
}

/// A connection to the broker, with nothing around it.
struct Raw(OwnedFd);

impl Raw {
    fn connect(path: &Path) -> Result<Raw, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Raw(socket))
    }

    /// A greeting with a credential; what came of it.
    fn resume(
        path: &Path,
        credential: Vec<u8>,
        pages: [BorrowedFd<'_>; 2],
    ) -> (Raw, (Option<Reply>, Option<OwnedFd>)) {
        let raw = Raw::connect(path).expect("a broker");
        let answer = raw.ask(
            &Request::Resume { version: VERSION, credential, channels: 4096, connection: 0 },
            &pages,
        );
        (raw, answer)
    }

    fn tell(&self, request: &Request, pages: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !pages.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(pages));
        }
        let packet = encode(request);
        sendmsg(&self.0, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL)
            .expect("it reads");
    }

    /// The answer and what came with it; none if it closed the connection.
    fn ask(&self, request: &Request, pages: &[BorrowedFd<'_>]) -> (Option<Reply>, Option<OwnedFd>) {
        self.tell(request, pages);
        let mut packet = vec![0; MAX_PACKET_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut packet)];
        let received = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut these) = message {
                descriptor = these.next();
            }
        }
        let bytes = received.map_or(0, |received| received.bytes);
        (decode(&packet[..bytes]), descriptor)
    }
}
