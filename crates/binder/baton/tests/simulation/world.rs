//! One history: a broker, some processes, and what happens to them.

use crate::member::Member;
use crate::simulated::{FIRST_PROCESS, MOST_SWITCHES, Seed, SimulatedBroker, WORKER};
use baton_driver::observer::Observer;
use baton_shm::blocking::pause;
use baton_shm::simulation::Machine;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Loopers of a process.
const LOOPERS: u64 = 3;

pub struct World {
    pub machine: Arc<Machine>,
    pub broker: SimulatedBroker,
    members: Mutex<Vec<Arc<Member>>>,
    last_process: AtomicU32,
    last_number: AtomicU64,
}

impl World {
    pub fn run(seed: u64) {
        let seed = Seed(seed);
        let machine = Machine::begin(seed.0, MOST_SWITCHES);
        machine.on_failure(seed.replay());
        let directory = tempfile::tempdir().expect("a directory");
        let world = Arc::new(World {
            broker: SimulatedBroker::new(&machine, directory.path().join("broker.sock")),
            machine: Arc::clone(&machine),
            members: Mutex::default(),
            last_process: AtomicU32::new(FIRST_PROCESS),
            last_number: AtomicU64::new(0),
        });
        if machine.below(3) == 0 {
            // Loopers borrow their callers' priorities.
            machine.refuse_to_schedule_others();
        }
        world.broker.start(world.next_process());
        world.live();
        world.come_to_rest();
        for member in world.members() {
            world.start_worker(&member, |member| member.give_back());
        }
        world.come_to_rest();
        for member in world.members() {
            let (number, left) = (member.number, member.n_counted());
            assert_eq!(left, 0, "objects of {number} that have not ended");
        }
        world.members().iter().for_each(|member| world.kill(member));
        world.machine.await_quiet();
        let report = Observer::connect(&world.broker.socket).expect("a broker").report();
        let contexts = report.expect("a report").contexts;
        let left: Vec<_> = contexts.iter().flat_map(|context| &context.processes).collect();
        assert!(left.is_empty(), "the broker is left with {left:?}");
        if std::env::var_os("SIM_TRACE").is_some() {
            println!("history {}: {}", seed.0, machine.summary());
        }
        machine.close();
    }

    /// Programs act, and processes come and go.
    fn live(self: &Arc<World>) {
        (0..2 + self.dice(2)).for_each(|_| self.spawn());
        let (kills, broker_dies) = (self.dice(5), self.dice(3) * 4);
        for _ in 0..20 + self.dice(60) {
            pause(Duration::from_micros(self.dice(2_000)));
            let members = self.members();
            if self.dice(400) < broker_dies {
                self.broker.restart(self.next_process());
            }
            if self.dice(100) < kills && !members.is_empty() {
                self.kill(&members[self.dice(members.len() as u64) as usize]);
            }
            if members.len() < 2 || members.len() < 5 && self.dice(100) < kills {
                self.spawn();
            }
            if let Some(member) = self.members().get(self.dice(5) as usize)
                && self.machine.n_alive(WORKER) < 6
            {
                let (world, often) = (Arc::clone(self), 1 + self.dice(20));
                self.start_worker(member, move |member| member.act(&world, often));
            }
        }
    }

    /// Waits until nothing is under way, and checks that nothing is kept for it.
    fn come_to_rest(&self) {
        self.machine.await_quiet();
        let n_workers = self.machine.n_alive(WORKER);
        assert_eq!(n_workers, 0, "threads that never end:{}", self.machine.describe());
        for member in self.members() {
            self.check(&member);
        }
    }

    fn check(&self, member: &Member) {
        let (number, engine) = (member.number, member.process.engine());
        let state = engine.lock();
        for (tid, thread) in state.threads.iter() {
            assert!(thread.stack.is_empty(), "{number}.{tid} is left with {:?}", thread.stack);
            assert!(!thread.todo.urgent, "{number}.{tid} sleeps over its work");
        }
        assert_eq!(state.outstanding, 0, "{number} owes answers");
        assert!(state.is_settled(), "{number} is left with tickets or notices: {:?}", *state);
        drop(state);
        for (tid, own) in member.loopers() {
            let schedule = self.machine.schedule(tid).expect("a thread of a process that lives");
            assert_eq!(schedule, own, "looper {tid} of {number} serves nobody");
        }
        for (lane, what) in engine.kept_for_real_time() {
            let is_in_use = what == "in use" || what == "served";
            assert!(!is_in_use, "{number} keeps {lane:?}: {what}");
        }
    }

    pub fn dice(&self, bound: u64) -> u64 {
        self.machine.below(bound)
    }

    /// A number that no other request has.
    pub fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn next_process(&self) -> u32 {
        self.last_process.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().expect("no panic under it").clone()
    }

    fn start_worker(
        self: &Arc<World>,
        member: &Arc<Member>,
        life: impl FnOnce(&Member) + Send + 'static,
    ) {
        let (number, member) = (member.number, Arc::clone(member));
        self.machine.spawn(number, WORKER, move || life(&member)).expect("a thread");
    }

    /// A process opens the device, on a thread of its own.
    fn spawn(self: &Arc<World>) {
        let (number, world) = (self.next_process(), Arc::clone(self));
        let open = move || {
            let Some(member) = Member::open(&world, number) else { return };
            let member = Arc::new(member);
            world.members.lock().expect("no panic under it").push(Arc::clone(&member));
            for _ in 0..1 + world.dice(LOOPERS) {
                let (of_looper, member) = (Arc::clone(&world), Arc::clone(&member));
                let serve = move || member.serve(&of_looper);
                world.machine.spawn(number, "looper", serve).expect("a thread");
            }
        };
        self.machine.spawn(number, WORKER, open).expect("a thread");
    }

    /// SIGKILL: its threads stop where they are, and its sockets close.
    fn kill(&self, member: &Arc<Member>) {
        let is_other = |other: &Arc<Member>| !Arc::ptr_eq(other, member);
        self.members.lock().expect("no panic under it").retain(is_other);
        self.machine.kill(member.number);
        member.process.engine().forked();
        // Its threads' stacks keep what they have.
        std::mem::forget(Arc::clone(member));
    }
}
