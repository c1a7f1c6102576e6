//! The waits of a real-time caller of a raw server, and devices that follow each other.

use super::exchange::Written;
use super::{Closer, Device, PreparedDevice};
use crate::engine::Engine;
use crate::fast::tests::{LANE, Of};
use crate::fast::{self, FastRead};
use crate::runner::tests::{TestBroker, broker};
use crate::sys::thread;
use crate::sys::user::Source;
use baton::{Parcel, Process};
use baton_abi::control::{NodeId, ProcessId, Reply, Request};
use baton_abi::uapi::*;
use baton_shm::schedule;
use baton_shm::sync::AtomicU32;
use baton_state::State;
use baton_state::thread::Thread;
use baton_state::work::Tid;
use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the program says that it has mapped its receive buffer.
const BASE: usize = 0x7000_0000_0000;
const RECEIVE_BYTES: usize = 1 << 20;
/// Half of them may be dedicated.
const LOOPERS: usize = 3;
const PRIORITY: i32 = 30;
/// Room of a read that is not for the fast path.
const SHORT: u64 = 8 + size_of::<TransactionDataSecctx>() as u64;
/// Calls until one is served as it should be.
const PATIENCE: usize = 5_000_000;
/// Calls after which both ends know each other.
const WARM_UP: usize = 20;
/// Looks until a looper is taken for one that has been relieved.
const LOOKS: usize = 100_000;
/// How often the caller's server may have news in a bad moment.
const ATTEMPTS: usize = 5;

fn become_real_time() -> bool {
    schedule::set(0, libc::SCHED_FIFO, PRIORITY).is_ok()
}

/// A single unusual step of a looper.
#[derive(Default)]
struct Odd {
    /// At 2 the next read does not wait; the one after has little room.
    reads: AtomicU32,
    /// A read has ended with a signal.
    is_interrupted: AtomicBool,
}

/// A looper, which answers whether it has a real-time priority.
fn serve(device: &Device, odd: &Odd) {
    let mut commands = BC_ENTER_LOOPER.to_ne_bytes().to_vec();
    let mut answer: [u8; 4];
    loop {
        let mut read = [0u8; 256];
        let turn =
            odd.reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |odd| odd.checked_sub(1));
        let mut exchange = WriteRead {
            write_size: commands.len() as u64,
            write_consumed: 0,
            write_buffer: commands.as_ptr() as u64,
            read_size: if turn == Ok(1) { SHORT } else { read.len() as u64 },
            read_consumed: 0,
            read_buffer: read.as_mut_ptr() as u64,
        };
        let argument = std::ptr::from_mut(&mut exchange) as usize;
        match device.ioctl(BINDER_WRITE_READ, argument, turn == Ok(2)) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => odd.is_interrupted.store(true, Ordering::Release),
            Err(Errno::BADF) => return,
            Err(errno) => panic!("{errno}"),
        }
        commands.clear();
        for (command, payload) in returns(&read[..exchange.read_consumed as usize]) {
            if command == BR_TRANSACTION {
                let told: TransactionData = pod_read_unaligned(payload);
                answer = u32::from(thread::is_real_time()).to_ne_bytes();
                let (data_size, buffer) = (4, answer.as_ptr() as u64);
                let reply = TransactionData { data_size, buffer, ..TransactionData::zeroed() };
                commands.extend(BC_FREE_BUFFER.to_ne_bytes());
                commands.extend(told.buffer.to_ne_bytes());
                commands.extend(BC_REPLY.to_ne_bytes());
                commands.extend(bytes_of(&reply));
            }
        }
    }
}

/// The returns of a read buffer, each with its payload.
fn returns(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let (command, rest) = bytes.split_at_checked(4)?;
        let command = pod_read_unaligned(command);
        let payload;
        (payload, bytes) = rest.split_at(payload_bytes(command));
        Some((command, payload))
    })
}

/// A server, and a caller at a real-time priority of another process, for all that they know of
/// each other.
struct Stage {
    server: Arc<Device>,
    odd: Arc<Odd>,
    loopers: Vec<JoinHandle<()>>,
    caller: JoinHandle<()>,
    /// So many calls that are served at that priority.
    ask: mpsc::Sender<usize>,
    told: mpsc::Receiver<()>,
    _broker: TestBroker,
}

fn stage() -> Option<Stage> {
    if !std::thread::spawn(become_real_time).join().unwrap() {
        println!(
            "skipped: {} (no real-time priority here)",
            std::thread::current().name().unwrap_or_default()
        );
        return None;
    }
    let broker = broker();
    let server = Device::open("binder", broker.socket()).unwrap();
    server.mapped(BASE, RECEIVE_BYTES);
    server.ioctl(BINDER_SET_CONTEXT_MGR, 0, false).unwrap();
    let odd = Arc::<Odd>::default();
    let looper = |_| {
        let (server, odd) = (Arc::clone(&server), Arc::clone(&odd));
        std::thread::spawn(move || serve(&server, &odd))
    };
    let loopers = (0..LOOPERS).map(looper).collect();
    let client = Process::open("binder", broker.socket()).unwrap();
    let manager = client.context_manager().unwrap();
    let (ask, asked) = mpsc::channel::<usize>();
    let (tell, told) = mpsc::channel();
    let caller = std::thread::spawn(move || {
        assert!(become_real_time());
        let call = || manager.call(1, &Parcel::new()).unwrap().data() == [1, 0, 0, 0];
        for calls in asked {
            assert!((0..PATIENCE).filter(|_| call()).take(calls).count() == calls);
            tell.send(()).unwrap();
        }
        client.close();
    });
    Some(Stage { server, odd, loopers, caller, ask, told, _broker: broker })
}

impl Stage {
    /// The looper bypasses the state, if it has had no news since.
    fn activate(&self) {
        self.ask.send(WARM_UP).unwrap();
        self.told.recv().unwrap();
    }

    fn end(self) {
        drop(self.ask);
        self.caller.join().unwrap();
        self.server.engine.close();
        self.loopers.into_iter().for_each(|looper| looper.join().unwrap());
    }
}

/// Nobody holds the state for long, but ordinary threads hold it for what strangers cause, and as
/// often as those like.
#[test]
fn a_steady_real_time_call_waits_for_nobody_who_has_the_state() {
    let Some(stage) = stage() else { return };
    let is_served = (0..ATTEMPTS).any(|_| {
        stage.activate();
        let state = stage.server.engine.lock();
        stage.ask.send(1).unwrap();
        let served = stage.told.recv_timeout(Duration::from_secs(1)).is_ok();
        drop(state);
        if !served {
            stage.told.recv().unwrap();
        }
        served
    });
    stage.end();
    assert!(is_served, "each has waited for who had the state");
}

/// The validation of a slot's messages no longer holds.
#[test]
fn revoking_a_callers_route_takes_over_its_reserved_slot() {
    let Some(stage) = stage() else { return };
    let engine = &stage.server.engine;
    let slots = |state: &State| state.buffers.used().1 - state.room().1;
    type Revoke = fn(&Engine, &mut State, ProcessId);
    let revokes: [(&str, Revoke, usize); 3] = [
        ("another's", |engine, state, _| engine.revoke_with(state, ProcessId(u64::MAX)), 1),
        ("its own", |engine, state, peer| engine.revoke_with(state, peer), 0),
        ("everybody's", |engine, state, _| engine.revoke(state), 0),
    ];
    for (name, revoke, left) in revokes {
        let mut state = loop {
            stage.activate();
            // A looper that has been relieved has none.
            let state = engine.lock();
            if slots(&state) == 1 {
                break state;
            }
        };
        let peer = *state.peers.keys().next().unwrap();
        revoke(engine, &mut state, peer);
        assert_eq!(slots(&state), left, "{name}");
        engine.unlock(state);
    }
    stage.end();
}

extern "C" fn nothing(_: libc::c_int) {}

/// A thread that bypasses the state makes a read that is not for the fast path, and a signal ends
/// it. Threads with later work for this one have to know that it waits.
#[test]
fn a_thread_past_the_state_is_known_to_wait_after_a_read_that_was_interrupted() {
    let Some(stage) = stage() else { return };
    // SAFETY: plain data, of which zero is valid; the handler touches nothing. Waits end at it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    // Whether the state counts the dedicated thread as waiting, and by its own mark.
    let seen = || {
        std::thread::yield_now();
        let state = stage.server.engine.lock();
        let of = |(tid, thread): (Tid, &Thread)| {
            Some((tid, thread.waits_on(thread.dedicated_to?), thread.bypasses_state))
        };
        state.threads.iter().find_map(of)
    };
    let waiting = |_| seen().filter(|&(_, waits, bypasses_state)| waits && !bypasses_state);
    let (tid, ..) = (0..ATTEMPTS)
        .find_map(|_| {
            stage.activate();
            stage.odd.reads.store(2, Ordering::Relaxed);
            stage.ask.send(1).unwrap();
            stage.told.recv().unwrap();
            (0..LOOKS).find_map(waiting)
        })
        .expect("it waits by the general path");
    while !stage.odd.is_interrupted.load(Ordering::Acquire) {
        // SAFETY: a signal for a thread of this process. One that comes before it sleeps changes
        // nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, libc::SIGUSR2) };
        std::thread::yield_now();
    }
    let is_known = (0..PATIENCE).any(|_| matches!(seen(), Some((_, true, _))));
    stage.end();
    assert!(is_known, "it sleeps, and the state does not know");
}

/// One call by handle 0, and the read after it.
struct Exchange {
    transaction: TransactionData,
    /// Commands after it.
    rest: Vec<u8>,
    /// Place and length of the read buffer, and the part of it that is filled.
    read: (u64, u64, u64),
    nonblocking: bool,
    /// The read buffer, and the data.
    buffers: Box<([u8; 256], [u8; 4])>,
}

impl Exchange {
    fn new() -> Exchange {
        let mut buffers = Box::new(([0; 256], [1; 4]));
        let read = (buffers.0.as_mut_ptr() as u64, buffers.0.len() as u64, 0);
        let (data_size, buffer) = (buffers.1.len() as u64, buffers.1.as_ptr() as u64);
        let transaction = TransactionData { data_size, buffer, ..TransactionData::zeroed() };
        Exchange { transaction, rest: Vec::new(), read, nonblocking: false, buffers }
    }

    fn commands(&self) -> Vec<u8> {
        [bytes_of(&BC_TRANSACTION), bytes_of(&self.transaction), &self.rest].concat()
    }

    fn write_read(&self, commands: &[u8]) -> WriteRead {
        let (read_buffer, read_size, read_consumed) = self.read;
        WriteRead {
            write_size: commands.len() as u64,
            write_consumed: 0,
            write_buffer: commands.as_ptr() as u64,
            read_size,
            read_consumed,
            read_buffer,
        }
    }

    /// Writes the commands, and reads until this return comes.
    fn run_until(&self, device: &Device, awaited: u32) {
        let mut commands = self.commands();
        loop {
            let mut exchange = self.write_read(&commands);
            let argument = std::ptr::from_mut(&mut exchange) as usize;
            device.ioctl(BINDER_WRITE_READ, argument, false).unwrap();
            let read = &self.buffers.0[..exchange.read_consumed as usize];
            if returns(read).any(|(command, _)| command == awaited) {
                return;
            }
            commands.clear();
        }
    }

    /// Whether the command is run past the state.
    fn is_run_fast(&self, device: &Device) -> bool {
        let commands = self.commands();
        let (mut exchange, mut written) = (self.write_read(&commands), Written::Nothing);
        let (tid, nonblocking) = (thread::tid(), self.nonblocking);
        let source = Source::beginning(commands.as_ptr() as usize, commands.len());
        device.run_fast(tid, source, &mut exchange, nonblocking, &mut written).is_some()
    }

    /// Whether the read takes a request past the state.
    fn is_read_fast(&self, device: &Device) -> bool {
        let read = device.read_fast(thread::tid(), &self.write_read(&[]), self.nonblocking);
        matches!(read, FastRead::PendingReturn(..))
    }
}

type Change = (&'static str, fn(&mut Exchange));

/// Changes that concern calls and reads.
const READS: [Change; 3] = [
    ("a read buffer that cannot be written", |it| it.read.0 = READ_ONLY.as_ptr() as u64),
    ("a read buffer that is filled in part", |it| it.read.2 = 4),
    ("a nonblocking device", |it| it.nonblocking = true),
];

static READ_ONLY: [u8; 256] = [0; 256];

#[test]
fn a_call_that_is_not_plain_or_cannot_be_returned_at_once_is_left_to_the_state() {
    let broker = broker();
    let server = Device::open("binder", broker.socket()).unwrap();
    server.mapped(BASE, RECEIVE_BYTES);
    server.ioctl(BINDER_SET_CONTEXT_MGR, 0, false).unwrap();
    let looper = {
        let server = Arc::clone(&server);
        std::thread::spawn(move || serve(&server, &Odd::default()))
    };
    let client = Device::open("binder", broker.socket()).unwrap();
    client.mapped(BASE, RECEIVE_BYTES);
    let call = Exchange::new;
    for _ in 0..WARM_UP {
        call().run_until(&client, BR_REPLY);
    }
    let changes: [Change; 4] = [
        ("a command after it", |it| it.rest = BC_ENTER_LOOPER.to_ne_bytes().to_vec()),
        ("objects", |it| it.transaction.offsets_size = 8),
        ("one way", |it| it.transaction.flags = TF_ONE_WAY),
        ("data in the read buffer", |it| it.transaction.buffer = it.read.0),
    ];
    for (name, change) in changes.into_iter().chain(READS) {
        let mut call = call();
        change(&mut call);
        assert!(!call.is_run_fast(&client), "{name}");
    }
    // An event may have come just now.
    let is_run_fast = |_| {
        call().run_until(&client, BR_REPLY);
        call().is_run_fast(&client)
    };
    assert!((0..ATTEMPTS).any(is_run_fast));
    client.engine.close();
    server.engine.close();
    looper.join().unwrap();
}

#[test]
fn a_read_that_does_not_wait_or_has_no_room_is_left_to_the_state() {
    let stage = fast::tests::stage(Of::Pool);
    let server = Device { engine: Arc::clone(&stage.server), closer: Closer::Dropper };
    stage.post(LANE, &stage.message());
    for (name, change) in READS {
        let mut read = Exchange::new();
        change(&mut read);
        assert!(!read.is_read_fast(&server), "{name}");
    }
    assert!(Exchange::new().is_read_fast(&server));
}

#[test]
fn the_descriptors_that_woke_one_control_thread_wake_the_next_one() {
    let broker = broker();
    let mut spare = None;
    for _ in 0..3 {
        let prepared = PreparedDevice::new(broker.socket(), spare).unwrap();
        let asked = prepared.ask("binder", std::process::id()).unwrap();
        let (device, control) = Device::open_on_behalf(asked).unwrap();
        let thread = std::thread::spawn(move || control.run());
        // The control thread takes the events of the channel, which ends with the device.
        let server = Device::open("binder", broker.socket()).unwrap();
        let node = NodeId(1);
        let manage = Request::BecomeContextManager { node, flags: 0 };
        assert_eq!(server.engine.broker.ask(&manage), Ok(Reply::Done));
        assert!(device.engine.broker.ask(&Request::ContextManager).is_ok());
        while device.engine.pool.channels.all().is_empty() {
            std::thread::yield_now();
        }
        drop(device);
        spare = thread.join().unwrap();
        assert!(spare.is_some(), "nobody else uses the device");
        drop(server);
    }
}

/// As in the kernel: only the first ioctl of a thread returns without work, if it is a read.
#[test]
fn after_an_ioctl_that_only_writes_a_read_waits_for_work() {
    let broker = broker();
    let device = Device::open("binder", broker.socket()).unwrap();
    let ioctl = |commands: &[u8], returns: &mut [u8]| {
        let mut exchange = WriteRead {
            write_size: commands.len() as u64,
            write_consumed: 0,
            write_buffer: commands.as_ptr() as u64,
            read_size: returns.len() as u64,
            read_consumed: 0,
            read_buffer: returns.as_mut_ptr() as u64,
        };
        device.ioctl(BINDER_WRITE_READ, std::ptr::from_mut(&mut exchange) as usize, true)
    };
    let mut returns = [0; 256];
    assert_eq!(ioctl(&BC_ENTER_LOOPER.to_ne_bytes(), &mut []), Ok(0));
    assert_eq!(ioctl(&[], &mut returns), Err(Errno::AGAIN));
    device.descriptor_closed();
    assert_eq!(ioctl(&BC_EXIT_LOOPER.to_ne_bytes(), &mut []), Ok(0));
    assert_eq!(ioctl(&[], &mut returns), Err(Errno::AGAIN));
}
