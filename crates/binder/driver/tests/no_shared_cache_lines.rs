//! Two servers of one client have no memory in common that either can write: no cache line of one
//! is ever the other's.
//!
//! It starts this very program again for each server; hence a `main` of its own.

mod support;

use baton::{Parcel, Process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use support::Broker;

const CONTEXTS: [&str; 2] = ["binder", "hwbinder"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, context, socket] = &arguments[..]
        && hidden == "server"
    {
        return serve(context, Path::new(socket));
    }
    two_servers_share_no_memory();
    println!("1 passed");
}

/// Serves until its input ends.
fn serve(context: &str, socket: &Path) {
    let process = Process::open(context, socket).unwrap();
    let object = process.object(|request| Ok(Parcel::from(request.data()))).add();
    process.become_context_manager(object).unwrap();
    let serving = process.clone();
    thread::spawn(move || serving.serve());
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start(context: &str, socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["server", context]).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// A file, by device and inode.
type File = (String, String);

/// A process's maps of files that other processes can map, too: `7f00-7f10 rw-s 0 00:01 12 name`.
fn shared(pid: u32) -> BTreeSet<(File, Writes)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let file = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let rights = words.next()?;
        let file = (words.nth(1)?.to_owned(), words.next()?.to_owned());
        let writes = if rights.contains('w') { Writes::Yes } else { Writes::No };
        rights.contains('s').then_some((file, writes))
    };
    maps.lines().filter_map(file).collect()
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writes {
    Yes,
    No,
}

/// Files that one process writes and the other has, too.
fn in_common<'a>(
    writer: &'a BTreeSet<(File, Writes)>,
    other: &BTreeSet<(File, Writes)>,
) -> Vec<&'a File> {
    let written = writer.iter().filter(|(_, writes)| *writes == Writes::Yes);
    let written: Vec<&File> = written.map(|(file, _)| file).collect();
    // A status page, a tally, a receive buffer; the channel and its bell.
    assert!(written.len() >= 4, "{writer:?}");
    written.into_iter().filter(|file| other.iter().any(|(of_other, _)| of_other == *file)).collect()
}

fn two_servers_share_no_memory() {
    let broker = Broker::start();
    let mut servers = CONTEXTS.map(|context| start(context, &broker.socket));
    let clients = CONTEXTS.map(|context| Process::open(context, &broker.socket).unwrap());
    for client in &clients {
        let manager = client.context_manager().unwrap();
        // The second one on the fast path, where there is one.
        for _ in 0..2 {
            let reply = manager.call(1, &Parcel::from(&b"apart"[..])).unwrap();
            assert_eq!(reply.data(), b"apart");
        }
    }
    let [first, second] = servers.each_ref().map(|server| shared(server.id()));
    assert_eq!((in_common(&first, &second), in_common(&second, &first)), (vec![], vec![]));
    // The client shares files with both servers: the check can find shared files.
    let client = shared(std::process::id());
    assert!(!in_common(&first, &client).is_empty() && !in_common(&second, &client).is_empty());
    for server in &mut servers {
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
    }
}
