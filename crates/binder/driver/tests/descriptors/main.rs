//! Processes whose descriptor table is full: calls that need none go on, whoever needs some is told
//! so, and everybody is served once there is room again; across a broker's restart, too.

#[path = "../restart/child.rs"]
#[allow(dead_code, reason = "another test's children say more")]
mod child;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/rng.rs"]
#[allow(dead_code, reason = "children need it for what this test does not do")]
mod rng;
#[path = "../support/stranger.rs"]
mod stranger;

use baton::{CallError, Handle, Parcel, Process};
use baton_broker::Config;
use child::Child;
use program::{Commands, Program};
use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::cell::OnceCell;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;
use stranger::{Line, Stranger};

/// What a child may have open.
const DESCRIPTORS: u64 = 128;
const CALLS: usize = 20;
/// The descriptors of a server for a channel.
const CHANNEL: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, role, socket] = &arguments[..]
        && hidden == "role"
    {
        return run(role, Path::new(socket));
    }
    for service in ["typed", "raw"] {
        for test in [
            its_own_fault,
            a_clients_own_fault,
            descriptors_for_messages_that_never_come,
            many_channels,
            across_a_restart,
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let socket = directory.path().join("broker.sock");
            let broker = Child::start("broker", &socket);
            let service = Child::start(service, &socket);
            let mut client = Child::start("client", &socket);
            client.ask("call", "called");
            test(&socket, broker, service, client);
        }
    }
    println!("10 passed");
}

/// A server that has filled its table.
fn its_own_fault(socket: &Path, _broker: Child, mut service: Child, mut client: Child) {
    service.ask("fill", "full");
    let mut newcomer = Child::start("client", socket);
    for _ in 0..CALLS {
        client.ask("call", "called");
        newcomer.ask("call", "refused");
        client.ask("descriptor", "refused");
    }
    service.ask("free", "empty");
    newcomer.ask("call", "called");
    client.ask("descriptor", "called");
}

/// A client that has filled its table.
fn a_clients_own_fault(socket: &Path, _broker: Child, _service: Child, mut client: Child) {
    client.ask("fill", "full");
    let mut newcomer = Child::start("client", socket);
    newcomer.ask("fill", "full");
    for _ in 0..CALLS {
        client.ask("call", "called");
        newcomer.ask("call", "refused");
    }
    newcomer.ask("open", "refused");
    newcomer.ask("free", "empty");
    newcomer.ask("call", "called");
    newcomer.ask("open", "opened");
}

fn descriptors_for_messages_that_never_come(
    socket: &Path,
    _broker: Child,
    mut service: Child,
    mut client: Child,
) {
    let before = number(&mut service);
    let stranger = Stranger::join(socket);
    let line = stranger.open_channel().expect("a channel");
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let many = [null.as_fd(); 16];
    // What an ordinary user has in flight counts for all of the user's processes, the newcomer too.
    let most = if rustix::process::geteuid().is_root() { 62 } else { DESCRIPTORS as u32 / 16 + 1 };
    let sent = (0..most).take_while(|&number| line.send(number, 16, &many).is_ok()).count();
    assert!(sent > DESCRIPTORS as usize / 16, "{sent} packets fill no table");
    let mut newcomer = Child::start("client", socket);
    for _ in 0..CALLS {
        client.ask("call", "called");
        newcomer.ask("call", "called");
        newcomer.ask("descriptor", "called");
    }
    let stashed = number(&mut service) - before;
    assert_eq!(stashed, 2 * CHANNEL, "descriptors for nothing");
    drop((line, stranger));
    service.ask_until("count", &(before + CHANNEL).to_string());
}

fn many_channels(socket: &Path, _broker: Child, mut service: Child, mut client: Child) {
    let mut strangers: Vec<(Stranger, Vec<Line>)> = Vec::new();
    let all = |strangers: &[(Stranger, Vec<Line>)]| -> usize {
        strangers.iter().map(|(_, lines)| lines.len()).sum()
    };
    // The service has said for how many it has descriptors.
    loop {
        let stranger = Stranger::join(socket);
        let lines: Vec<Line> = (0..DESCRIPTORS).map_while(|_| stranger.open_channel()).collect();
        if lines.is_empty() {
            break;
        }
        strangers.push((stranger, lines));
    }
    assert!(all(&strangers) + 2 >= DESCRIPTORS as usize / 6);
    let mut newcomer = Child::start("client", socket);
    for _ in 0..CALLS {
        client.ask("call", "called");
        newcomer.ask("call", "refused");
    }
    assert!(number(&mut service) <= DESCRIPTORS as usize * 3 / 4);
    drop(strangers);
    newcomer.ask_until("call", "called");
}

fn across_a_restart(socket: &Path, broker: Child, mut service: Child, mut client: Child) {
    service.ask("fill", "full");
    client.ask("fill", "full");
    broker.kill();
    client.ask("call", "called");
    let _broker = Child::start("broker", socket);
    client.ask("call", "called");
    let mut newcomer = Child::start("client", socket);
    newcomer.ask("call", "refused");
    service.ask("free", "empty");
    client.ask("call", "called");
    newcomer.ask_until("call", "called");
}

fn number(service: &mut Child) -> usize {
    service.question("count").parse().expect("a number")
}

fn run(role: &str, socket: &Path) {
    match role {
        "broker" => {
            let config = Config { grace: Duration::from_secs(20), ..Config::at(socket) };
            baton_broker::run(config, || println!("ready")).expect("a broker");
        }
        "typed" => typed(socket),
        "raw" => raw(socket),
        "client" => client(socket),
        other => panic!("{other}?"),
    }
}

fn limit() {
    let few = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, few).expect("less is always allowed");
}

fn typed(socket: &Path) {
    limit();
    let process = Process::open("binder", socket).expect("a broker");
    let object = process.object(|_| Ok(Parcel::new())).add();
    process.become_context_manager(object).expect("there is no other");
    let serving = process.clone();
    std::thread::spawn(move || serving.serve());
    obey(|_| None);
}

fn raw(socket: &Path) {
    use baton_abi::uapi::*;
    limit();
    let program = Program::open(socket);
    // It takes descriptors.
    let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
    let object = FlatObject { kind: BINDER_TYPE_BINDER, flags, binder: 0, cookie: 0 };
    let object = std::ptr::from_ref(&object) as usize;
    program.device.ioctl(BINDER_SET_CONTEXT_MGR_EXT, object, false).expect("there is no other");
    std::thread::spawn(move || {
        let mut commands = Commands::default().put(BC_ENTER_LOOPER, &[]);
        loop {
            let message = program.await_message(commands);
            if let Some(fd) = message.data.get(8..12) {
                let fd = i32::from_ne_bytes(fd.try_into().expect("four bytes"));
                // SAFETY: it came with the message, for this program to keep.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            commands = Commands::default().free(&message).reply(&[]);
        }
    });
    obey(|_| None);
}

fn client(socket: &Path) {
    limit();
    let process = Process::open("binder", socket).expect("a broker");
    // The first lookup also opens a channel: a client that fills its table before has none.
    let manager = OnceCell::new();
    let manager = || manager.get_or_init(|| find_manager(&process));
    let null: OwnedFd = std::fs::File::open("/dev/null").expect("it is there").into();
    obey(|command| {
        Some(match command {
            "call" => outcome(manager(), &Parcel::new()),
            "descriptor" => {
                let mut parcel = Parcel::new();
                parcel.write_fd(null.as_fd());
                outcome(manager(), &parcel)
            }
            "open" => match Process::open("binder", socket) {
                Ok(_) => "opened".to_owned(),
                Err(error) if error.errno() == rustix::io::Errno::MFILE => "refused".to_owned(),
                Err(error) => error.to_string(),
            },
            other => panic!("{other}?"),
        })
    });
}

fn find_manager(process: &Process) -> Handle {
    loop {
        match process.context_manager() {
            // After a restart it may not be back yet.
            Err(CallError::NoManager | CallError::BrokerGone) => std::thread::yield_now(),
            found => return found.expect("a service"),
        }
    }
}

fn outcome(manager: &Handle, parcel: &Parcel) -> String {
    match manager.call(1, parcel) {
        Ok(_) => "called".to_owned(),
        Err(CallError::Refused(_)) => "refused".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Does as it is told: all children can fill their table.
fn obey(mut otherwise: impl FnMut(&str) -> Option<String>) {
    println!("ready");
    let mut filling: Vec<OwnedFd> = Vec::with_capacity(DESCRIPTORS as usize);
    for command in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = match &command[..] {
            "fill" => {
                let input = std::io::stdin();
                while let Ok(another) = rustix::io::dup(&input) {
                    filling.push(another);
                }
                Some("full".to_owned())
            }
            "free" => {
                filling.clear();
                Some("empty".to_owned())
            }
            "count" => {
                let all = std::fs::read_dir("/proc/self/fd").expect("it is there");
                Some((all.count() - 1).to_string())
            }
            other => otherwise(other),
        };
        println!("{}", answer.as_deref().unwrap_or("what?"));
    }
}
