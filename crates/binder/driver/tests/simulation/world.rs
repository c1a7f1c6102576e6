//! One history: a broker, some processes, and what happens to them.

use crate::check;
use crate::grants::HostileProcesses;
use crate::model::Model;
use crate::program::{Program, RECEIVE_BYTES};
use crate::simulated::{FIRST_PROCESS, MOST_SWITCHES, Seed, SimulatedBroker, WORKER};
use crate::worker::Worker;
use baton_abi::uapi::{BC_ENTER_LOOPER, BINDER_SET_MAX_THREADS};
use baton_driver::device::Device;
use baton_shm::blocking::pause;
use baton_shm::simulation::{Machine, Schedule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Loopers that a driver may ask a program to start.
const MOST_LOOPERS: u32 = 3;

pub struct World {
    pub machine: Arc<Machine>,
    peers: Mutex<Vec<Arc<Peer>>>,
    pub hostile: HostileProcesses,
    dead: Mutex<BTreeSet<u64>>,
    last_process: AtomicU32,
    last_nonce: AtomicU64,
    pub broker: SimulatedBroker,
    /// Whether processes come, go and freeze each other.
    is_busy: AtomicBool,
}

/// One process.
pub struct Peer {
    pub process: u32,
    pub program: Program,
    model: Mutex<Model>,
    /// Its loopers, by their ids, each with the priority of its own.
    loopers: Mutex<BTreeMap<u32, Schedule>>,
}

impl Peer {
    /// What the program has. No step while it is borrowed.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn id(&self) -> u64 {
        self.process.into()
    }

    /// A thread is a looper from now on, and has this priority while it serves nobody.
    pub fn note_looper(&self, tid: u32, own: Schedule) {
        self.loopers.lock().expect("no panic under it").insert(tid, own);
    }

    pub fn loopers(&self) -> BTreeMap<u32, Schedule> {
        self.loopers.lock().expect("no panic under it").clone()
    }

    /// Another looper of the pool.
    pub fn start_looper(self: &Arc<Peer>, world: &Arc<World>, command: u32) {
        let worker = Worker::new(world, self);
        world.start(self.process, "looper", move || worker.serve(command));
    }
}

impl World {
    pub fn run(seed: u64) {
        let name = Seed(seed);
        let machine = Machine::begin(seed, MOST_SWITCHES);
        machine.on_failure(name.replay());
        let directory = tempfile::tempdir().expect("a directory");
        let world = Arc::new(World {
            machine: Arc::clone(&machine),
            peers: Mutex::default(),
            hostile: HostileProcesses::default(),
            dead: Mutex::default(),
            last_process: AtomicU32::new(FIRST_PROCESS),
            last_nonce: AtomicU64::new(0),
            broker: SimulatedBroker::new(&machine, directory.path().join("broker.sock")),
            is_busy: AtomicBool::new(true),
        });
        if machine.below(8) == 0 {
            machine.refuse_to_schedule_others();
        }
        world.broker.start(world.next_process());
        world.live();
        world.end_hostile_processes();
        world.come_to_rest();
        world.is_busy.store(false, Ordering::Relaxed);
        for peer in world.peers() {
            world.start_worker(&peer, Worker::thaw);
        }
        world.come_to_rest();
        check::at_rest(&world);
        for peer in world.peers() {
            world.start_worker(&peer, Worker::check_handles);
        }
        world.come_to_rest();
        check::at_rest(&world);
        for peer in world.peers() {
            world.start_worker(&peer, Worker::give_back);
        }
        world.come_to_rest();
        check::at_rest(&world);
        check::given_back(&world);
        world.peers().iter().for_each(|peer| world.kill(peer));
        world.come_to_rest();
        check::nobody_left(&world);
        if std::env::var_os("SIM_TRACE").is_some() {
            println!("history {seed}: {}, {}", machine.summary(), world.hostile.summary());
        }
        machine.close();
    }

    /// Programs act, and processes come and go.
    fn live(self: &Arc<World>) {
        let dice = |bound| self.machine.below(bound);
        (0..2 + dice(3)).for_each(|_| self.spawn());
        let (kills, broker_dies) = (dice(6), dice(3) * 4);
        let has_hostile = dice(2) == 0;
        for _ in 0..20 + dice(100) {
            pause(Duration::from_micros(dice(2_000)));
            let peers = self.peers();
            if has_hostile {
                self.disturb();
            }
            if dice(400) < broker_dies {
                self.broker.restart(self.next_process());
            }
            if dice(100) < kills && !peers.is_empty() {
                self.kill(&peers[dice(peers.len() as u64) as usize]);
            }
            if peers.len() < 2 || peers.len() < 6 && dice(100) < kills {
                self.spawn();
            }
            if let Some(peer) = self.peers().get(dice(6) as usize)
                && self.machine.n_alive(WORKER) < 8
            {
                let often = 1 + dice(30);
                self.start_worker(peer, move |worker| worker.act_often(often));
            }
        }
    }

    fn come_to_rest(&self) {
        self.machine.await_quiet();
        let n_workers = self.machine.n_alive(WORKER);
        assert_eq!(n_workers, 0, "threads that never end:{}", self.machine.describe());
    }

    pub fn next_process(&self) -> u32 {
        self.last_process.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    pub fn next_nonce(&self) -> u64 {
        self.last_nonce.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.lock().expect("no panic under it").clone()
    }

    pub fn is_dead(&self, process: u64) -> bool {
        self.dead.lock().expect("no panic under it").contains(&process)
    }

    pub fn start(&self, process: u32, name: &str, body: impl FnOnce() + Send + 'static) {
        self.machine.spawn(process, name, body).expect("a thread");
    }

    /// A thread that is no looper, and ends.
    fn start_worker(
        self: &Arc<World>,
        peer: &Arc<Peer>,
        life: impl FnOnce(Worker) + Send + 'static,
    ) {
        let worker = Worker::new(self, peer);
        self.start(peer.process, WORKER, move || life(worker));
    }

    /// A process opens the device, on a thread of its own.
    fn spawn(self: &Arc<World>) {
        let (process, world) = (self.next_process(), Arc::clone(self));
        self.start(process, WORKER, move || {
            // There may be no broker at this moment.
            if let Ok(device) = Device::open("binder", &world.broker.socket) {
                device.mapped(crate::program::BASE, RECEIVE_BYTES);
                let most = MOST_LOOPERS;
                let argument = std::ptr::from_ref(&most) as usize;
                device.ioctl(BINDER_SET_MAX_THREADS, argument, false).expect("a number");
                let program = Program { device };
                let (model, loopers) = Default::default();
                let peer = Arc::new(Peer { process, program, model, loopers });
                world.peers.lock().expect("no panic under it").push(Arc::clone(&peer));
                peer.start_looper(&world, BC_ENTER_LOOPER);
            }
        });
    }

    pub fn note_death(&self, process: u32) {
        self.dead.lock().expect("no panic under it").insert(process.into());
    }

    /// SIGKILL: its threads stop where they are, and its sockets close.
    fn kill(&self, peer: &Arc<Peer>) {
        self.note_death(peer.process);
        self.peers.lock().expect("no panic under it").retain(|other| !Arc::ptr_eq(other, peer));
        self.machine.kill(peer.process);
        peer.program.device.forked();
    }
}
