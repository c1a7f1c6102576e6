//! Three workloads in the image of Re-aim's `complete`, `database` and `udpserver` (Greenaway 2007,
//! table 4.2): five workers, and the servers that do for them what a system does.
//!
//! ```text
//!  workers --call--> store: keys and values, with a log in a file
//!          --call--> network --UDP--> driver --call--> resolvers: names
//!                       ^---------UDP---'
//! ```

use crate::service::now_ns;
use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{
    CurrentThread, Ipc, IpcError, Kernel, Message, Options, Sender, Source, Tag, ThreadId, Timeout,
};
use bytemuck::cast;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// What the workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Workload {
    Complete,
    /// Transactions, and what a program computes between them.
    Database,
    Udpserver,
}

pub const WORKLOADS: [Workload; 3] = [Workload::Complete, Workload::Database, Workload::Udpserver];

/// What a worker does at once.
#[derive(Clone, Copy)]
enum Task {
    Compute,
    Get,
    Change,
    Query,
    File,
    Pipe,
}

/// Who calls; as many processes as Re-aim was run with.
const WORKERS: usize = 5;
const WORKER: u8 = 100;

impl Workload {
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Each as often as it stands here.
    fn tasks(self) -> &'static [Task] {
        use Task::{Change, Compute, File, Get, Pipe, Query};
        match self {
            Workload::Complete => &[Compute, Compute, Compute, Get, Change, Query, File, Pipe],
            Workload::Database => &[Compute, Compute, Get, Get, Change],
            Workload::Udpserver => &[Query, Query, Query, Query, Query, Query, Query, Compute],
        }
    }

    /// Each worker does so many tasks. How long it took, in nanoseconds, and what the kernel has
    /// counted.
    pub fn run<K: Variant>(self, n_tasks: u64) -> io::Result<(u64, K::Statistics)> {
        let mut kernel = Kernel::<K>::new(Options { n_threads: 32, ..Options::default() })?;
        let services = Rc::new(start(&mut kernel, WORKERS)?);
        let (n_left, n_failed) = (Rc::new(Cell::new(WORKERS)), Rc::new(Cell::new(0)));
        for number in 0..WORKERS {
            let (services, n_left) = (Rc::clone(&services), Rc::clone(&n_left));
            let n_failed = Rc::clone(&n_failed);
            kernel.spawn(WORKER, move |mut here| {
                if work(&mut here, self, number, n_tasks, &services).is_err() {
                    n_failed.set(n_failed.get() + 1);
                }
                n_left.set(n_left.get() - 1);
                if n_left.get() == 0 {
                    end(&mut here, &services.threads);
                }
            })?;
        }
        let start_ns = now_ns();
        let summary = kernel.run();
        let took_ns = now_ns() - start_ns;
        if n_failed.get() > 0 || !summary.failures.is_empty() {
            return Err(io::Error::other(format!("{}: a thread has failed", self.name())));
        }
        Ok((took_ns, kernel.state().statistics().clone()))
    }
}

/// Servers that nobody calls any more.
fn end(here: &mut CurrentThread, threads: &[ThreadId]) {
    for &thread in threads {
        here.request(Request::Abort(thread));
    }
}

struct Worker {
    random: u64,
    numbers: Vec<u64>,
    file: std::fs::File,
    pipe: (io::PipeReader, io::PipeWriter),
}

impl Worker {
    fn new(number: usize) -> io::Result<Worker> {
        let (file, pipe) = (tempfile::tempfile()?, io::pipe()?);
        Ok(Worker { random: number as u64 + 1, numbers: vec![0; 512], file, pipe })
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 20
    }

    /// A sum of what was sorted.
    fn compute(&mut self) -> u64 {
        for index in 0..self.numbers.len() {
            self.numbers[index] = self.random();
        }
        self.numbers.sort_unstable();
        self.numbers.iter().fold(0, |sum: u64, number| sum.rotate_left(5) ^ number)
    }
}

fn work(
    here: &mut CurrentThread,
    workload: Workload,
    number: usize,
    n_tasks: u64,
    services: &Services,
) -> io::Result<()> {
    let mut worker = Worker::new(number)?;
    let tasks = workload.tasks();
    for _ in 0..n_tasks {
        let key = worker.random() % N_KEYS;
        match tasks[worker.random() as usize % tasks.len()] {
            Task::Compute => drop(std::hint::black_box(worker.compute())),
            Task::Get => drop(services.get(here, key)?),
            Task::Change => {
                let mut value = services.get(here, key)?;
                value.iter_mut().for_each(|word| *word = word.wrapping_add(1));
                services.put(here, key, &value)?;
            }
            Task::Query => services.query(here, number, key)?,
            Task::File => {
                let mut bytes = [7; 4096];
                worker.file.write_all_at(&bytes, key % 16 * 4096)?;
                worker.file.read_exact_at(&mut bytes, key % 16 * 4096)?;
            }
            Task::Pipe => {
                let mut bytes = [9; 512];
                worker.pipe.1.write_all(&bytes)?;
                worker.pipe.0.read_exact(&mut bytes)?;
            }
        }
    }
    Ok(())
}

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
