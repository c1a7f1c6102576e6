//! The servers of the workloads: a store of keys and values with a log, and a network with names
//! behind it.

use baton_nucleus::variant::Variant;
use baton_nucleus::{
    CurrentThread, Ipc, IpcError, Kernel, Message, Sender, Source, Tag, ThreadId, Timeout,
};
use bytemuck::cast;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Keys of the store, and names of the resolvers.
pub const N_KEYS: u64 = 10_000;
const VALUE_WORDS: usize = 32;
/// Records that go to the log's file together.
const LOG_RECORDS: usize = 64;
const N_RESOLVERS: usize = 3;
const DRIVER: u8 = 210;
const NETWORK: u8 = 200;
const STORE: u8 = 150;
const RESOLVER: u8 = 140;
/// A datagram that is not answered is lost.
const LOST_NS: u64 = 2_000_000_000;

const GET: u32 = 1;
const PUT: u32 = 2;
/// A key and then a value, beyond what registers hold.
const VALUE_LENGTH: u8 = (8 + VALUE_WORDS) as u8;

pub type Value = [u64; VALUE_WORDS];

/// The servers, as their callers know them.
pub struct Services {
    store: ThreadId,
    network: ThreadId,
    pub threads: Vec<ThreadId>,
}

pub fn start<K: Variant>(kernel: &mut Kernel<K>, n_clients: usize) -> io::Result<Services> {
    let log = tempfile::tempfile()?;
    let store = kernel.spawn(STORE, move |mut here| drop(keep(&mut here, log)))?;
    let mut threads = vec![store];
    for _ in 0..N_RESOLVERS {
        threads.push(kernel.spawn(RESOLVER, |mut here| {
            let _ = resolve(&mut here);
        })?);
    }
    let resolvers = threads[1..].to_vec();
    let driven = socket()?;
    let address = driven.local_addr()?;
    threads
        .push(kernel.spawn(DRIVER, move |mut here| drop(drive(&mut here, &driven, &resolvers)))?);
    let sockets: Vec<UdpSocket> = (0..n_clients).map(|_| socket()).collect::<io::Result<_>>()?;
    let network =
        kernel.spawn(NETWORK, move |mut here| drop(carry(&mut here, &sockets, address)))?;
    threads.push(network);
    Ok(Services { store, network, threads })
}

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn failed(error: IpcError) -> io::Error {
    io::Error::other(error)
}

impl Services {
    pub fn get(&self, here: &mut CurrentThread, key: u64) -> io::Result<Value> {
        let mut message = Message { tag: Tag::new(GET, 1), words: [key; 8] };
        here.call(self.store, &mut message).map_err(failed)?;
        Ok(*here.more_words().first_chunk().expect("there are more"))
    }

    pub fn put(&self, here: &mut CurrentThread, key: u64, value: &Value) -> io::Result<()> {
        let mut message = Message { tag: Tag::new(PUT, VALUE_LENGTH), words: [key; 8] };
        here.more_words()[..VALUE_WORDS].copy_from_slice(value);
        here.call(self.store, &mut message).map_err(failed)
    }

    /// Asks for a name's address, over the network.
    pub fn query(&self, here: &mut CurrentThread, client: usize, name: u64) -> io::Result<()> {
        let mut message = Message::of([client as u64, name]);
        let until = Timeout::At(here.now_ns() + LOST_NS);
        let ipc = Ipc {
            send: Some((self.network, Timeout::Never)),
            receive: Some((Source::Thread(self.network), until)),
        };
        here.ipc(ipc, &mut message).map_err(failed)?;
        let is_answer = message.words[1] == address_of(name);
        is_answer.then_some(()).ok_or_else(|| io::Error::other("the wrong address"))
    }
}

/// The store: what is asked of it, until it is aborted.
fn keep(here: &mut CurrentThread, mut log: File) -> io::Result<()> {
    let mut records: BTreeMap<u64, Value> =
        (0..N_KEYS).map(|key| (key, [key; VALUE_WORDS])).collect();
    let mut unwritten = Vec::new();
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never).map_err(failed)?;
    while let Sender::Thread(client) = sender {
        let key = message.words[0];
        if message.tag.label() == PUT {
            let value: Value = *here.more_words().first_chunk().expect("there are more");
            unwritten.extend(value.iter().flat_map(|word| word.to_ne_bytes()));
            records.insert(key, value);
            if unwritten.len() >= LOG_RECORDS * size_of::<Value>() {
                log.write_all(&unwritten)?;
                unwritten.clear();
            }
            message.tag = Tag::of_length(0);
        } else {
            let value = records.get(&key).copied().unwrap_or([0; VALUE_WORDS]);
            here.more_words()[..VALUE_WORDS].copy_from_slice(&value);
            message.tag = Tag::of_length(VALUE_LENGTH);
        }
        sender = here.reply_and_wait(client, &mut message).map_err(failed)?;
    }
    Ok(())
}

fn address_of(name: u64) -> u64 {
    name.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A resolver: names as text, and their addresses.
fn resolve(here: &mut CurrentThread) -> Result<(), IpcError> {
    let zone: HashMap<String, u64> =
        (0..N_KEYS).map(|name| (format!("host-{name}.example"), address_of(name))).collect();
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never)?;
    while let Sender::Thread(client) = sender {
        let name = format!("host-{}.example", message.words[0]);
        message.words[1] = zone.get(&name).copied().unwrap_or(0);
        sender = here.reply_and_wait(client, &mut message)?;
    }
    Ok(())
}

/// The driver of the server's socket: each datagram is a resolver's in turn.
fn drive(here: &mut CurrentThread, socket: &UdpSocket, resolvers: &[ThreadId]) -> io::Result<()> {
    here.attach(0, socket.try_clone()?.into())?;
    let mut turn = resolvers.iter().cycle();
    let mut datagram = [0; 16];
    loop {
        here.receive(Source::Interrupt(0), Timeout::Never).map_err(failed)?;
        while let Ok((_, peer)) = socket.recv_from(&mut datagram) {
            let [name, _] = cast::<[u8; 16], [u64; 2]>(datagram);
            let mut message = Message::of([name, 0]);
            let resolver = turn.next().copied().ok_or(io::ErrorKind::NotFound)?;
            here.call(resolver, &mut message).map_err(failed)?;
            socket.send_to(&cast::<[u64; 2], [u8; 16]>([name, message.words[1]]), peer)?;
        }
        here.acknowledge(0)?;
    }
}

/// The network: clients' queries out, and answers in. Each client has a socket, and an interrupt.
fn carry(here: &mut CurrentThread, sockets: &[UdpSocket], server: SocketAddr) -> io::Result<()> {
    for (number, socket) in sockets.iter().enumerate() {
        here.attach(number as u8 + 1, socket.try_clone()?.into())?;
    }
    let mut waiting: Vec<Option<ThreadId>> = vec![None; sockets.len()];
    loop {
        let (sender, message) = here.receive(Source::Any, Timeout::Never).map_err(failed)?;
        match sender {
            Sender::Thread(client) => {
                let number = message.words[0] as usize;
                waiting[number] = Some(client);
                sockets[number]
                    .send_to(&cast::<[u64; 2], [u8; 16]>([message.words[1], 0]), server)?;
            }
            Sender::Interrupt(interrupt) => {
                let number = usize::from(interrupt) - 1;
                let mut datagram = [0; 16];
                while sockets[number].recv(&mut datagram).is_ok() {
                    let client = waiting[number].take().ok_or(io::ErrorKind::NotFound)?;
                    let answer = Message::of(cast::<[u8; 16], [u64; 2]>(datagram));
                    here.send(client, Timeout::Zero, &answer).map_err(failed)?;
                }
                here.acknowledge(interrupt)?;
            }
            Sender::Notices => {}
        }
    }
}
