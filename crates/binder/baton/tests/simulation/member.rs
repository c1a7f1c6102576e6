//! One process of a history, and what its threads do.

use crate::world::World;
use baton::{CallError, CountedObject, Errno, Handle, Object, Parcel, Process, Request};
use baton_shm::blocking::pause;
use baton_shm::lock::Lock;
use baton_shm::schedule;
use baton_shm::simulation::Schedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Answers with the bytes of the request.
const ECHO: u32 = 1;
/// Calls the object that the request brings with the request's number, and answers with the answer.
const CALL_BACK: u32 = 2;
/// Keeps the object that the request brings, for others to find.
const REGISTER: u32 = 3;
/// Answers with an object that was registered, if there is one.
const FIND: u32 = 4;

/// Bytes of the number with which a request begins.
const NUMBER_BYTES: usize = 8;
/// The highest real-time priority of a thread.
const MOST_PRIORITY: u64 = 5;
/// Objects that a process keeps for others, at most.
const MOST_KEPT: usize = 4;

pub struct Member {
    pub number: u32,
    pub process: Process,
    object: Object,
    /// Handles of other processes' objects.
    kept: Arc<Lock<Vec<Handle>>>,
    /// Its objects that end before it.
    counted: Lock<Vec<CountedObject>>,
    /// Refers to the handlers of all such objects.
    handlers: Arc<()>,
    /// Its loopers, each with its own priority.
    loopers: Lock<BTreeMap<u32, Schedule>>,
}

impl Member {
    /// `None` if there is no broker at this moment.
    pub fn open(world: &Arc<World>, number: u32) -> Option<Member> {
        let process = Process::open("binder", &world.broker.socket).ok()?;
        let kept = Arc::new(Lock::default());
        let (objects, of_handler) = (Arc::clone(&kept), Arc::clone(world));
        let object = process.object(move |request| serve(&of_handler, &objects, request)).add();
        let (counted, handlers, loopers) = <_>::default();
        Some(Member { number, process, object, kept, counted, handlers, loopers })
    }

    pub fn loopers(&self) -> BTreeMap<u32, Schedule> {
        self.loopers.lock().clone()
    }

    /// Serves until the process ends.
    pub fn serve(&self, world: &World) {
        if world.dice(6) == 0 {
            become_real_time(world);
        }
        let own = world.machine.schedule(0).expect("the calling thread");
        self.loopers.lock().insert(baton_shm::thread::id(), own);
        self.process.serve();
    }

    /// Some acts of a thread that ends then.
    pub fn act(&self, world: &Arc<World>, often: u64) {
        for _ in 0..often {
            match world.dice(100) {
                0..10 => become_real_time(world),
                10..20 => become_ordinary(),
                20..30 => pause(Duration::from_micros(world.dice(2_000))),
                30..35 => _ = self.process.become_context_manager(self.object),
                35..40 => drop(self.kept.lock().pop()),
                40..45 => self.add_counted(world),
                _ => self.use_handle(world),
            }
        }
    }

    /// Gives every handle back, and its own references to objects that end before it.
    pub fn give_back(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        let counted = std::mem::take(&mut *self.counted.lock());
        drop((kept, counted));
    }

    /// How many of its objects that end before it have not ended.
    pub fn n_counted(&self) -> usize {
        Arc::strong_count(&self.handlers) - 1
    }

    /// Adds an object that ends before the process, and forgets one.
    fn add_counted(&self, world: &Arc<World>) {
        let (world, kept) = (Arc::clone(world), Arc::clone(&self.kept));
        let counts = Arc::clone(&self.handlers);
        let object = self.process.object(move |request| {
            let _ = &counts;
            serve(&world, &kept, request)
        });
        let object = object.add_counted();
        let mut counted = self.counted.lock();
        counted.push(object);
        let is_full = counted.len() > MOST_KEPT;
        let oldest = is_full.then(|| counted.remove(0));
        drop((counted, oldest));
    }

    fn use_handle(&self, world: &World) {
        let manager = match self.process.context_manager() {
            Ok(manager) => Some(manager),
            // This process manages the context itself.
            Err(CallError::Refused(Errno::INVAL)) => None,
            Err(CallError::NoManager | CallError::BrokerGone) => None,
            Err(error) => panic!("the manager: {error:?}"),
        };
        match (world.dice(10), &manager) {
            (0..2, Some(manager)) => self.register(world, manager),
            (2..5, Some(manager)) => self.find(world, manager),
            _ => {}
        }
        let found = self.kept.lock().last().cloned();
        let Some(target) = found.or(manager) else { return };
        match world.dice(10) {
            0 => {
                let link = target.link_to_death(|| ());
                // The target may be dead by now, and the recipient be called.
                let _ = world.dice(2) == 0 && target.unlink_to_death(link);
            }
            1 => {
                let (parcel, longest) = (request(world), world.dice(1_000));
                let answer = target.call_within(ECHO, &parcel, Duration::from_micros(longest));
                let answer = answer.map(|answer| assert_eq!(answer.data(), parcel.data()));
                if answer != Err(CallError::TimedOut) {
                    expect_end(&target, answer);
                }
            }
            2 => expect_end(&target, target.one_way(ECHO, &request(world))),
            3 => self.call_back(world, &target),
            4 => {
                let longest = Duration::from_micros(world.dice(3_000));
                expect_end(&target, target.prepare(longest).map(drop));
            }
            _ => (0..1 + world.dice(8)).for_each(|_| echo(world, &target)),
        }
    }

    fn register(&self, world: &World, manager: &Handle) {
        let mut parcel = request(world);
        match self.counted.lock().last() {
            Some(object) if world.dice(2) == 0 => parcel.write_counted_object(object),
            _ => parcel.write_object(self.object),
        };
        expect_end(manager, manager.call(REGISTER, &parcel).map(drop));
    }

    fn find(&self, world: &World, manager: &Handle) {
        let found = manager.call(FIND, &request(world)).map(|answer| answer.handle(0));
        expect_end(manager, found.map(|handle| self.kept.lock().extend(handle)));
    }

    /// The target calls this process's object while this thread waits.
    fn call_back(&self, world: &World, target: &Handle) {
        let mut parcel = request(world);
        let number = number(parcel.data()).to_vec();
        parcel.write_object(self.object);
        let answer = target.call(CALL_BACK, &parcel);
        match answer {
            // The target has become the manager, as which this process's object is known to it.
            Err(CallError::Refused(Errno::INVAL)) => {}
            answer => expect_end(target, answer.map(|answer| assert_eq!(answer.data(), number))),
        }
    }
}

fn echo(world: &World, target: &Handle) {
    let parcel = request(world);
    let answer = target.call(ECHO, &parcel);
    expect_end(target, answer.map(|answer| assert_eq!(answer.data(), parcel.data())));
}

/// A call ends well, or because its object's process, the manager or the broker is gone: then a
/// handle may be of a dead object, and the next broker waits for processes that may still come. A
/// process that has become the manager cannot call the manager.
fn expect_end(target: &Handle, result: Result<(), CallError>) {
    let gone = [Errno::PIPE, Errno::CONNREFUSED, Errno::SRCH, Errno::AGAIN];
    match result {
        Ok(()) | Err(CallError::DeadObject | CallError::NoManager | CallError::BrokerGone) => {}
        // Also of a handler whose own call has failed so.
        Err(CallError::Refused(errno)) if gone.contains(&errno) => {}
        Err(CallError::Refused(Errno::INVAL)) if format!("{target:?}") == "Handle(0)" => {}
        Err(error) => panic!("{target:?}: {error:?}"),
    }
}

/// A number that no other request has, and some more bytes.
fn request(world: &World) -> Parcel {
    let mut bytes = world.next_number().to_ne_bytes().to_vec();
    bytes.resize(NUMBER_BYTES + 4 * world.dice(100) as usize, 7);
    Parcel::from(&bytes[..])
}

fn number(data: &[u8]) -> &[u8] {
    &data[..NUMBER_BYTES]
}

fn become_real_time(world: &World) {
    let policy = [libc::SCHED_FIFO, libc::SCHED_RR][world.dice(2) as usize];
    let priority = 1 + world.dice(MOST_PRIORITY) as i32;
    schedule::set(0, policy, priority).expect("the calling thread");
    baton::priority_changed();
}

fn become_ordinary() {
    schedule::set(0, libc::SCHED_OTHER, 0).expect("the calling thread");
    baton::priority_changed();
}

/// The handler of the process's object: answers a request by its code.
fn serve(world: &World, kept: &Lock<Vec<Handle>>, request: &Request<'_>) -> Result<Parcel, Errno> {
    match request.code() {
        ECHO => Ok(Parcel::from(request.data())),
        CALL_BACK => {
            let back = Parcel::from(number(request.data()));
            match request.received.handle(0) {
                Some(handle) => {
                    let answer = handle.call(ECHO, &back).map_err(CallError::errno)?;
                    Ok(Parcel::from(answer.data()))
                }
                // The object is of this process.
                None => Ok(back),
            }
        }
        REGISTER => {
            let mut kept = kept.lock();
            kept.extend(request.received.handle(0));
            let is_full = kept.len() > MOST_KEPT;
            let oldest = is_full.then(|| kept.remove(0));
            drop((kept, oldest));
            Ok(Parcel::new())
        }
        FIND => {
            let mut answer = Parcel::new();
            let kept = kept.lock();
            if !kept.is_empty() {
                answer.write_handle(&kept[world.dice(kept.len() as u64) as usize]);
            }
            Ok(answer)
        }
        other => panic!("code {other}"),
    }
}
