//! The waits of a real-time caller of a raw server.

use super::Device;
use crate::engine::Engine;
use crate::runner::tests::broker;
use crate::sys::thread;
use baton::{Parcel, Process};
use baton_abi::control::ProcessId;
use baton_abi::uapi::*;
use baton_broker::Running;
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
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: changes how the calling thread is scheduled, by a structure of ours.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) == 0 }
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
        let mut at = 0;
        while at < exchange.read_consumed as usize {
            let command: u32 = pod_read_unaligned(&read[at..at + 4]);
            let bytes = payload_bytes(command);
            if command == BR_TRANSACTION {
                let told: TransactionData = pod_read_unaligned(&read[at + 4..at + 4 + bytes]);
                answer = u32::from(thread::is_real_time()).to_ne_bytes();
                let (data_size, buffer) = (4, answer.as_ptr() as u64);
                let reply = TransactionData { data_size, buffer, ..TransactionData::zeroed() };
                commands.extend(BC_FREE_BUFFER.to_ne_bytes());
                commands.extend(told.buffer.to_ne_bytes());
                commands.extend(BC_REPLY.to_ne_bytes());
                commands.extend(bytes_of(&reply));
            }
            at += 4 + bytes;
        }
    }
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
    _broker: (Running, tempfile::TempDir),
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
    let server = Device::open("binder", broker.0.socket()).unwrap();
    server.mapped(BASE, RECEIVE_BYTES);
    server.ioctl(BINDER_SET_CONTEXT_MGR, 0, false).unwrap();
    let odd = Arc::<Odd>::default();
    let looper = |_| {
        let (server, odd) = (Arc::clone(&server), Arc::clone(&odd));
        std::thread::spawn(move || serve(&server, &odd))
    };
    let loopers = (0..LOOPERS).map(looper).collect();
    let client = Process::open("binder", broker.0.socket()).unwrap();
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
