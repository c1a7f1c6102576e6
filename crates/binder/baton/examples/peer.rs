//! The two ends of a conversation, for the tests of `tests/containers`. Each line says what an end
//! has seen.
//!
//! ```text
//!   peer serve     manages the context and answers     ready
//!   peer call      calls, once more for each line      called as PID, seen as PID by UID
//!                  of its input, and waits for the     dead
//!                  server's death at the input's end
//! ```

use baton::{CallError, Handle, Object, Parcel, Process};
use rustix::fd::AsFd;
use std::error::Error;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};

/// Answers with the caller's pid and user id.
const WHO: u32 = 1;
/// Calls the object that comes with it, and answers with its answer.
const CALL_BACK: u32 = 2;
/// Writes its data to the descriptor that comes with it.
const WRITE: u32 = 3;
/// Calls of each kind, so that most take the fast path.
const CALLS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let socket = baton_abi::place::socket_path(rustix::process::geteuid().as_raw());
    let process = Process::open("binder", &socket)?;
    let serving = process.clone();
    std::thread::spawn(move || serving.serve());
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve(&process),
        Some("call") => call(&process),
        _ => Err("usage: peer serve|call".into()),
    }
}

fn serve(process: &Process) -> Result<(), Box<dyn Error>> {
    let object = process.object(|request| {
        let refused = baton::Errno::INVAL;
        // The object or descriptor stands behind the number.
        let number = request.data().get(..size_of::<usize>()).unwrap_or_default();
        match request.code() {
            WHO => {
                let (pid, uid) = request.sender();
                Ok(Parcel::from([pid, uid].map(u32::to_ne_bytes).as_flattened()))
            }
            CALL_BACK => {
                let back = request.received.handle(0).ok_or(refused)?;
                let answer = back.call(0, &Parcel::from(number));
                Ok(Parcel::from(answer.map_err(CallError::errno)?.data()))
            }
            WRITE => {
                let file = request.received.take_fd(0).ok_or(refused)?;
                rustix::io::write(&file, number)?;
                Ok(Parcel::new())
            }
            _ => Err(refused),
        }
    });
    process.become_context_manager(object.add())?;
    say("ready")?;
    loop {
        std::thread::park();
    }
}

fn call(process: &Process) -> Result<(), Box<dyn Error>> {
    let back = process.object(|request| Ok(Parcel::from(request.data()))).add();
    let mut lines = std::io::stdin().lines();
    loop {
        let manager = process.context_manager()?;
        let death = death_of(&manager);
        round(&manager, back)?;
        if lines.next().transpose()?.is_none() {
            death.recv()?;
            return Ok(say("dead")?);
        }
    }
}

fn death_of(handle: &Handle) -> Receiver<()> {
    let (tell, told) = channel();
    handle.link_to_death(move || _ = tell.send(()));
    told
}

/// Calls, with objects and descriptors. An error if anything comes back other than it was sent.
fn round(manager: &Handle, back: Object) -> Result<(), Box<dyn Error>> {
    let mut seen = None;
    for number in (0..CALLS).map(usize::to_ne_bytes) {
        let who = manager.call(WHO, &Parcel::new())?;
        let who: [u8; 8] = who.data().try_into()?;
        let sender = [0, 4].map(|at| u32::from_ne_bytes(who[at..at + 4].try_into().unwrap()));
        if seen.replace(sender).is_some_and(|before| before != sender) {
            return Err("the server sees another caller than before".into());
        }
        let mut parcel = Parcel::from(&number[..]);
        if manager.call(CALL_BACK, parcel.write_object(back))?.data() != number {
            return Err("another answer than the callback's".into());
        }
        let (reader, writer) = rustix::pipe::pipe()?;
        let mut parcel = Parcel::from(&number[..]);
        manager.call(WRITE, parcel.write_fd(writer.as_fd()))?;
        drop(writer);
        let mut written = Vec::new();
        std::fs::File::from(reader).read_to_end(&mut written)?;
        if written != number {
            return Err("another text than was sent with the descriptor".into());
        }
    }
    let [pid, uid] = seen.ok_or("no call")?;
    Ok(say(&format!("called as {}, seen as {pid} by {uid}", std::process::id()))?)
}

fn say(line: &str) -> Result<(), std::io::Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
