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
use baton_abi::control::{Event, NodeId, Object, Reply, Request, Strength};
use baton_broker::Config;
use child::Child;
use rustix::io::Errno;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use stranger::Stranger;

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

fn hoarder(socket: &Path) {
    let uid = rustix::process::Uid::from_raw(UID);
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
    let stranger = Stranger::join(socket);
    let _line = stranger.open_channel().expect("a channel");
    let mut held = 0;
    for command in commands() {
        for ticket in 0..if command == "hoard" { TICKETS } else { 0 } {
            let node = |nth| Object::Node {
                node: NodeId(ticket * OBJECTS + nth + 1),
                strength: Strength::Strong,
                flags: 0,
            };
            let objects = (0..OBJECTS).map(node).collect();
            let request = Request::Translate { target: stranger.manager, objects };
            // The service has yet to give back what is beyond the share, and its table is full.
            let full = Some(Reply::Refused { errno: Errno::MFILE.raw_os_error() });
            let mut reply = stranger.ask(&request);
            while reply == full {
                held -= given_back(&stranger);
                reply = stranger.ask(&request);
            }
            assert!(matches!(reply, Some(Reply::Ticket { .. })), "{reply:?}");
            held += OBJECTS;
            held -= given_back(&stranger);
        }
        held -= given_back(&stranger);
        println!("{}", if command == "hoard" { "hoarded".to_owned() } else { held.to_string() });
    }
}

fn given_back(stranger: &Stranger) -> u64 {
    let is_one = |event: &Event| matches!(event, Event::References { holder: (_, None), .. });
    stranger.events().filter(is_one).count() as u64
}
