//! Honest processes that use the typed API: a server, a client that stays, and one that calls once.

use crate::attacker::CONTEXT;
use crate::starter::say;
use baton::{CallError, Handle, Parcel, Process};
use baton_abi::control::MAX_OBJECTS;
use baton_shm::clock::now_ns;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The server replies with the data of the request.
pub const ECHO: u32 = 1;
/// The server calls the object in the request with its bytes, and forwards the reply.
pub const CALL_BACK: u32 = 2;
/// The server keeps the object in the request under the number in the first byte.
pub const KEEP: u32 = 3;
/// The server replies with the object that it keeps under a number.
pub const GET: u32 = 4;
/// The server keeps all objects in the request until their owner dies.
pub const KEEP_ALL: u32 = 5;
/// The server replies with as many of its own objects as the first two bytes say. They reply with
/// the data of the request.
pub const LEND: u32 = 6;
/// Objects that the server lends.
pub const LENT: usize = MAX_OBJECTS;
/// Looper threads of the server.
const N_LOOPERS: usize = 4;
/// Bytes of a call's data.
const PAYLOAD_BYTES: usize = 16;

/// Amount that the client's object adds to each byte.
const STEP: u8 = 1;

fn commands() -> impl Iterator<Item = String> {
    io::stdin().lock().lines().map_while(Result::ok).take_while(|line| line != "leave")
}

/// Handles that the server keeps for its clients, by a number of their own.
#[derive(Default)]
struct KeptForClients {
    by_number: BTreeMap<u64, Vec<Handle>>,
    last: u64,
}

/// Keeps handles of one client until the client dies.
fn keep_all(kept: &Arc<Mutex<KeptForClients>>, handles: Vec<Handle>) {
    let Some(first) = handles.first().cloned() else { return };
    let number = {
        let mut kept = kept.lock().expect("no panic");
        kept.last += 1;
        let number = kept.last;
        kept.by_number.insert(number, handles);
        number
    };
    let kept = Arc::clone(kept);
    first.link_to_death(move || {
        let handles = kept.lock().expect("no panic").by_number.remove(&number);
        drop(handles);
    });
}

/// Serves as the context's manager until its input is closed.
pub fn serve(socket: &Path) -> io::Result<()> {
    let process = Process::open(CONTEXT, socket).map_err(io::Error::other)?;
    // A service manager keeps objects of any client too.
    let kept = Mutex::new(BTreeMap::new());
    let kept_for_clients = Arc::<Mutex<KeptForClients>>::default();
    let echo = || process.object(|request| Ok(Parcel::from(request.data()))).add();
    let lent: Vec<_> = (0..LENT).map(|_| echo()).collect();
    let object = process
        .object(move |request| match request.code() {
            ECHO => Ok(Parcel::from(request.data())),
            CALL_BACK => {
                let object = request.received.handle(0).ok_or(Errno::INVAL)?;
                let bytes = request.data().get(..PAYLOAD_BYTES).ok_or(Errno::INVAL)?;
                let answer = object.call(ECHO, &Parcel::from(bytes));
                answer.map(|answer| Parcel::from(answer.data())).map_err(|_| Errno::IO)
            }
            KEEP => {
                let object = request.received.handle(0).ok_or(Errno::INVAL)?;
                let number = *request.data().first().ok_or(Errno::INVAL)?;
                kept.lock().expect("no panic").insert(number, object);
                Ok(Parcel::new())
            }
            GET => {
                let number = request.data().first().ok_or(Errno::INVAL)?;
                let kept = kept.lock().expect("no panic");
                let mut reply = Parcel::new();
                reply.write_handle(kept.get(number).ok_or(Errno::NOENT)?);
                Ok(reply)
            }
            KEEP_ALL => {
                keep_all(
                    &kept_for_clients,
                    (0..).map_while(|nth| request.received.handle(nth)).collect(),
                );
                Ok(Parcel::new())
            }
            LEND => {
                let n = request.data().first_chunk().ok_or(Errno::INVAL)?;
                let mut reply = Parcel::new();
                for object in lent.iter().take(u16::from_ne_bytes(*n).into()) {
                    reply.write_object(*object);
                }
                Ok(reply)
            }
            _ => Err(Errno::NOSYS),
        })
        .add();
    process.become_context_manager(object)?;
    for _ in 0..N_LOOPERS {
        let serving = process.clone();
        std::thread::spawn(move || serving.serve());
    }
    say("ready");
    let mut files = Vec::new();
    for command in commands() {
        match &command[..] {
            "exhaust" => {
                while let Ok(file) = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 0) {
                    files.push(file);
                }
                say(&format!("exhausted {}", files.len()));
            }
            "relax" => {
                files.clear();
                say("relaxed");
            }
            _ => say("failed what?"),
        }
    }
    Ok(())
}

/// A client's engine with a reference to the server's object.
struct Client {
    process: Process,
    server: Handle,
}

impl Client {
    fn open(socket: &Path) -> Result<Client, String> {
        let tried = |what| move |error: &dyn std::fmt::Display| format!("{what}: {error}");
        let process = Process::open(CONTEXT, socket).map_err(|error| tried("open")(&error))?;
        let server =
            process.context_manager().map_err(|error| tried("look up handle 0")(&error))?;
        Ok(Client { process, server })
    }

    /// Makes a call without objects.
    fn plain(&self, number: u64) -> Result<(), String> {
        let bytes = payload(number);
        let answer = self.server.call(ECHO, &Parcel::from(&bytes[..]));
        let answer = answer.map_err(|error| format!("a plain call: {error}"))?;
        (answer.data() == bytes).then_some(()).ok_or("a plain call: wrong answer".to_owned())
    }

    /// Gets an object of the server's and calls it.
    fn lent(&self, number: u64) -> Result<(), String> {
        let answer = self.server.call(LEND, &Parcel::from(&1u16.to_ne_bytes()[..]));
        let answer = answer.map_err(|error| format!("a call for an object: {error}"))?;
        let object = answer.handle(0).ok_or("a call for an object: there is none")?;
        let bytes = payload(number);
        let answer = object.call(ECHO, &Parcel::from(&bytes[..]));
        let answer = answer.map_err(|error| format!("a call of a new object: {error}"))?;
        (answer.data() == bytes).then_some(()).ok_or("a new object: wrong answer".to_owned())
    }

    /// Gets an object that the server keeps, and which is dead.
    fn dead(&self, number: u64) -> Result<(), String> {
        let answer = self.server.call(GET, &Parcel::from(&[number as u8][..]));
        let answer = answer.map_err(|error| format!("a call for object {number}: {error}"))?;
        let object = answer.handle(0).ok_or(format!("object {number}: there is none"))?;
        match object.call(ECHO, &Parcel::new()) {
            Err(CallError::DeadObject) => Ok(()),
            Err(error) => Err(format!("object {number}: {error}")),
            Ok(_) => Err(format!("object {number} lives")),
        }
    }

    /// Makes a call with a new object, which the server calls.
    fn object(&self, number: u64) -> Result<(), String> {
        let bytes = payload(number);
        let mut parcel = Parcel::from(&bytes[..]);
        parcel.write_object(
            self.process
                .object(|request| {
                    let bytes: Vec<u8> =
                        request.data().iter().map(|byte| byte.wrapping_add(STEP)).collect();
                    Ok(Parcel::from(&bytes[..]))
                })
                .add(),
        );
        let answer = self.server.call(CALL_BACK, &parcel);
        let answer = answer.map_err(|error| format!("a call with an object: {error}"))?;
        let expected = bytes.map(|byte| byte.wrapping_add(STEP));
        let right = answer.data() == expected;
        right.then_some(()).ok_or("a call with an object: wrong answer".to_owned())
    }
}

fn payload(number: u64) -> [u8; PAYLOAD_BYTES] {
    let mut bytes = [0xA5; PAYLOAD_BYTES];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// The number of a client's calls: at least `n`, and for at least a time.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    pub n: u64,
    pub milliseconds: u64,
}

impl Amount {
    /// A fixed number of calls, however long they take.
    pub const fn of(n: u64) -> Amount {
        Amount { n, milliseconds: 0 }
    }

    fn parse(words: &str) -> Option<Amount> {
        let (n, milliseconds) = words.split_once(' ')?;
        Some(Amount { n: n.parse().ok()?, milliseconds: milliseconds.parse().ok()? })
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.n, self.milliseconds)
    }
}

/// Makes calls and returns their times in nanoseconds.
fn times(amount: Amount, mut one: impl FnMut(u64) -> Result<(), String>) -> Result<String, String> {
    let begin = now_ns();
    let mut words = String::new();
    for number in 0.. {
        let before = now_ns();
        if number >= amount.n && before - begin >= amount.milliseconds * 1_000_000 {
            break;
        }
        one(number)?;
        words += &format!(" {}", now_ns() - before);
    }
    Ok(words)
}

/// Makes the kind and number of calls that the run requests, and sends their times.
pub fn call_as_told(socket: &Path) -> io::Result<()> {
    let client = Client::open(socket).map_err(io::Error::other)?;
    client.server.link_to_death(|| say("server-died"));
    let serving = client.process.clone();
    std::thread::spawn(move || serving.serve());
    say("ready");
    for command in commands() {
        let (kind, amount) = command.split_once(' ').unwrap_or((&command, ""));
        let amount = Amount::parse(amount).unwrap_or(Amount::of(1));
        let called = match kind {
            "plain" => times(amount, |number| client.plain(number)),
            "object" => times(amount, |number| client.object(number)),
            "lent" => times(amount, |number| client.lent(number)),
            "dead" => times(amount, |number| client.dead(number)),
            "open" => times(amount, |number| {
                let other = Client::open(socket)?;
                other.plain(number)?;
                other.process.close();
                Ok(())
            }),
            _ => Err("what?".to_owned()),
        };
        say(&match called {
            Ok(times) => format!("called{times}"),
            Err(why) => format!("refused {why}"),
        });
    }
    Ok(())
}

/// Opens the device, looks up handle 0, makes a call with and without an object, and sends the time
/// that this took.
pub fn come_and_go(socket: &Path) -> io::Result<()> {
    let before = now_ns();
    let called = Client::open(socket).and_then(|client| {
        client.plain(1)?;
        let first_call_ns = now_ns() - before;
        client.object(2)?;
        Ok(first_call_ns)
    });
    say(&match called {
        Ok(first_call_ns) => format!("called {first_call_ns}"),
        Err(why) => format!("refused {why}"),
    });
    Ok(())
}
