//! A process of another user that takes all it can get of a server: it is bounded, and others are
//! served.

#[path = "../restart/child.rs"]
#[allow(dead_code, reason = "another test's children say more")]
mod child;
#[path = "../support/rng.rs"]
#[allow(dead_code, reason = "children need it for what this test does not do")]
mod rng;
#[path = "../support/stranger.rs"]
mod stranger;

use baton::{CallError, Parcel, Process};
use baton_abi::control::*;
use baton_abi::holder_list::{Entry, Holding, TALLY_FILE_BYTES, entry_at};
use baton_abi::lane::STATUS_BYTES;
use baton_broker::Config;
use baton_shm::mapping;
use bytemuck::bytes_of;
use child::Child;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::*;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use stranger::{Stranger, receive, send_with};

/// Who takes all it can get.
const UID: u32 = 1000;
/// What one stranger may have in tickets of which no message has come.
const SHARE: u64 = 15 * 1024;
const OBJECTS: u64 = 64;
const TICKETS: u64 = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, role, socket] = &arguments[..]
        && hidden == "role"
    {
        return run(role, Path::new(socket));
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: accounts (a process of another user has to be started)");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).expect("our own directory");
    let socket = directory.path().join("broker.sock");
    let _broker = Child::start("broker", &socket);
    let _service = Child::start("service", &socket);
    let mut client = Child::start("client", &socket);
    client.ask("introduce", "called");
    let mut hoarder = Child::start("hoarder", &socket);
    hoarder.ask("hoard", "hoarded");
    client.ask("introduce", "called");
    // What is beyond its share comes back to it.
    hoarder.ask_until("count", &SHARE.to_string());
    client.ask("introduce", "called");
    drop(hoarder);
    client.ask("introduce", "called");
    println!("1 passed");
}

fn run(role: &str, socket: &Path) {
    match role {
        "broker" => {
            baton_broker::run(Config::at(socket), || println!("ready")).expect("a broker");
        }
        "service" => service(socket),
        "client" => client(socket),
        "hoarder" => hoarder(socket),
        other => panic!("{other}?"),
    }
}

fn commands() -> impl Iterator<Item = String> {
    println!("ready");
    std::io::stdin().lock().lines().map_while(Result::ok)
}

fn service(socket: &Path) {
    let process = Process::open("binder", socket).expect("a broker");
    let object = process.object(|_| Ok(Parcel::new())).add();
    process.become_context_manager(object).expect("there is no other");
    let serving = process.clone();
    std::thread::spawn(move || serving.serve());
    commands().for_each(drop);
}

fn client(socket: &Path) {
    let process = Process::open("binder", socket).expect("a broker");
    let manager = process.context_manager().expect("a service");
    let own = process.object(|_| Ok(Parcel::new())).add();
    for _ in commands() {
        let mut parcel = Parcel::new();
        parcel.write_object(own);
        match manager.call(1, &parcel) {
            Ok(_) => println!("called"),
            Err(CallError::Refused(errno)) => println!("refused: {errno}"),
            Err(error) => println!("{error}"),
        }
    }
}

/// Introduces the service to nodes of another process of its own, and sends no message.
fn hoarder(socket: &Path) {
    let uid = rustix::process::Uid::from_raw(UID);
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
    let owner = Owner::join(socket);
    let stranger = Stranger::join(socket);
    let _line = stranger.open_channel().expect("a channel");
    owner.list_all(other_of_user(&stranger, owner.id));
    let mut held = 0;
    for command in commands() {
        for ticket in 0..if command == "hoard" { TICKETS } else { 0 } {
            let objects = (ticket * OBJECTS..(ticket + 1) * OBJECTS).map(|at| owner.held(at));
            let objects = objects.collect();
            let request = Request::Introduce { target: stranger.manager, objects };
            // The service has yet to give back what is beyond the share, and its table is full.
            let full = Some(Reply::Refused { errno: Errno::MFILE.raw_os_error() });
            let mut reply = stranger.ask(&request);
            while reply == full {
                held -= owner.given_back();
                reply = stranger.ask(&request);
            }
            assert!(matches!(reply, Some(Reply::Ticket { .. })), "{reply:?}");
            held += OBJECTS;
            held -= owner.given_back();
        }
        held -= owner.given_back();
        println!("{}", if command == "hoard" { "hoarded".to_owned() } else { held.to_string() });
    }
}

/// The process of the stranger's user that is not this one.
fn other_of_user(stranger: &Stranger, owner: ProcessId) -> ProcessId {
    let from = Cursor::default();
    let Some(Reply::Report { page, .. }) = stranger.ask(&Request::Report { from }) else {
        panic!("an engine may ask for a report")
    };
    let all = page.contexts.iter().flat_map(|context| &context.processes);
    let mut others = all.map(|it| ProcessId(it.process)).filter(|id| *id != owner);
    others.next().expect("the stranger itself")
}

/// A process that has nodes, and a list of their holders.
struct Owner {
    _requests: OwnedFd,
    events: OwnedFd,
    tally: OwnedFd,
    id: ProcessId,
}

impl Owner {
    fn join(broker: &Path) -> Owner {
        let kind = SocketType::SEQPACKET;
        let requests = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&requests, &SocketAddrUnix::new(broker).unwrap()).unwrap();
        let [status, tally] = [("status", STATUS_BYTES), ("tally", TALLY_FILE_BYTES)]
            .map(|(name, bytes)| mapping::create(name, bytes).unwrap());
        let hello = Request::Hello {
            version: VERSION,
            context: "binder".into(),
            channels: 0,
            connection: 0,
        };
        send_with(&requests, &encode(&hello), &[status.as_fd(), tally.as_fd()]).unwrap();
        let (packet, fds) = receive(&requests, RecvFlags::empty()).expect("a welcome");
        let Some(Reply::Welcome { identity, .. }) = decode(&packet) else {
            panic!("the broker refuses an owner")
        };
        let events = fds.into_iter().next().expect("its events");
        Owner { _requests: requests, events, tally, id: identity.process }
    }

    /// Says that a process holds all nodes.
    fn list_all(&self, holder: ProcessId) {
        for at in 0..TICKETS * OBJECTS {
            let (node, strength) = (NodeId(at + 1), Strength::Strong);
            let entry = Entry::of(Holding { holder, node, flags: 0, strength });
            let place = entry_at(at as u32).expect("the list has more entries");
            rustix::io::pwrite(&self.tally, bytes_of(&entry), place as u64).unwrap();
        }
    }

    /// A node as the holder of its entry passes it on.
    fn held(&self, at: u64) -> HeldNode {
        let (node, strength, entry) = (NodeId(at + 1), Strength::Strong, Some(at as u32));
        HeldNode { owner: self.id, node, strength, entry }
    }

    /// How many nodes have lost their holder since the last look.
    fn given_back(&self) -> u64 {
        let next = || receive(&self.events, RecvFlags::DONTWAIT);
        let events = std::iter::from_fn(next).filter_map(|(packet, _)| decode(&packet));
        let is_one = |event: &Event| matches!(event, Event::References { holder: (_, None), .. });
        events.filter(is_one).count() as u64
    }
}
