//! The director's view of the actors: which exist, which are busy, and when all are still.

use crate::actor::{self, Order};
use crate::arena::{self, Arena, PROCESSES, Slot};
use crate::stillness::{self, Look, Probe};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// All actors.
pub struct Crew {
    arena: Arena,
    device: &'static CStr,
    members: [Option<Member>; PROCESSES],
    judged: Judged,
    /// The kernel's driver leaves the closing of a descriptor to a worker.
    put_off: bool,
    workers: Vec<Probe>,
}

/// The driver that the actors use.
pub enum Judged {
    /// The kernel's driver: only threads inside of it and its workers run.
    Kernel,
    /// A driver in user space, with the threads of these processes besides the actors.
    UserSpace(Vec<Beside>),
}

/// A process of a driver in user space, whose threads come and go.
#[derive(Debug)]
pub struct Beside {
    pid: u32,
    threads: BTreeMap<u32, Probe>,
}

impl Beside {
    /// The process with this id.
    pub fn new(pid: u32) -> Beside {
        Beside { pid, threads: BTreeMap::new() }
    }

    fn find_threads(&mut self) {
        let all = stillness::threads_of(self.pid);
        self.threads.retain(|tid, _| all.contains(tid));
        for tid in all {
            if let Entry::Vacant(place) = self.threads.entry(tid)
                && let Some(probe) = Probe::thread(self.pid, tid)
            {
                place.insert(probe);
            }
        }
    }
}

struct Member {
    pid: u32,
    threads: Vec<ActorThread>,
    /// Threads that a driver in user space has started.
    helpers: Vec<Probe>,
}

/// One thread of an actor, with its slot of the arena.
struct ActorThread {
    slot: &'static Slot,
    probe: Option<Probe>,
    is_busy: bool,
    /// The order ends whatever other threads do.
    must_end: bool,
}

/// Time after which a step counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after its last action in which a driver in user space may check again for a call that no
/// thread took.
const TIMERS: Duration = Duration::from_millis(2);

impl Crew {
    /// A crew without actors, that will open this device.
    pub fn new(judged: Judged, device: &'static CStr) -> Crew {
        Crew {
            arena: Arena::new(),
            device,
            members: Default::default(),
            judged,
            put_off: false,
            workers: Vec::new(),
        }
    }

    fn member(&self, process: usize) -> &Member {
        self.members[process].as_ref().expect("the process has started")
    }

    /// Starts a process.
    pub fn start(&mut self, process: usize, threads: usize) {
        let slots: Vec<_> = (0..threads).map(|thread| self.arena.slot(process, thread)).collect();
        slots.iter().for_each(|slot| slot.reset());
        let pid = actor::start(self.arena, self.device, process, threads) as u32;
        let mut threads = Vec::new();
        for slot in slots {
            while slot.tid.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let probe = Probe::thread(pid, slot.tid.load(Ordering::Relaxed));
            assert!(probe.is_some(), "/proc does not show the threads of actors");
            threads.push(ActorThread { slot, probe, is_busy: false, must_end: false });
        }
        self.members[process] = Some(Member { pid, threads, helpers: Vec::new() });
    }

    /// The slot of a thread.
    pub fn slot(&self, process: usize, thread: usize) -> &'static Slot {
        self.arena.slot(process, thread)
    }

    /// Id of a process.
    pub fn pid(&self, process: usize) -> u32 {
        self.member(process).pid
    }

    /// Gives an order to an idle thread. Only `BINDER_WRITE_READ` may wait for others.
    pub fn give(&mut self, process: usize, thread: usize, order: Order, arguments: [u64; 4]) {
        let exchange = u64::from(baton_abi::uapi::BINDER_WRITE_READ);
        let must_end = !(order == Order::Ioctl && arguments[1] == exchange);
        if order == Order::Close {
            self.put_off = true;
        }
        let thread = &mut self.members[process].as_mut().expect("started").threads[thread];
        assert!(!thread.is_busy, "a busy thread takes no orders");
        thread.is_busy = true;
        thread.must_end = must_end;
        thread.slot.give(order as u32, arguments);
    }

    /// Interrupts a thread.
    pub fn signal(&self, process: usize, thread: usize) {
        let member = self.member(process);
        let tid = member.threads[thread].slot.tid.load(Ordering::Relaxed);
        // SAFETY: a system call without addresses.
        unsafe { libc::syscall(libc::SYS_tgkill, member.pid, tid, libc::SIGUSR1) };
    }

    /// Kills a process and waits for its end.
    pub fn kill(&mut self, process: usize) {
        // SAFETY: a system call without addresses, on a child that has not been waited for.
        unsafe { libc::kill(self.pid(process) as i32, libc::SIGKILL) };
        self.wait_for_end(process);
    }

    /// Waits for the end of a process that is about to end.
    pub fn wait_for_end(&mut self, process: usize) {
        let pid = self.pid(process) as i32;
        // SAFETY: no address is given.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        self.members[process] = None;
        self.put_off = true;
    }

    /// Waits until a process has executed the idle program.
    pub fn executed(&mut self, process: usize) {
        let pid = self.pid(process);
        let rests = format!("{} ", libc::SYS_rt_sigsuspend);
        let until = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(format!("/proc/{pid}/syscall"))
            .is_ok_and(|call| call.starts_with(&rests))
        {
            assert!(Instant::now() < until, "the executed program does not come to rest");
            std::thread::sleep(Duration::from_micros(200));
        }
        let member = self.members[process].as_mut().expect("started");
        member.threads.clear();
        member.helpers.clear();
        self.put_off = true;
    }

    /// Kills all processes.
    pub fn clear(&mut self) {
        for process in 0..PROCESSES {
            if let Some(member) = &self.members[process] {
                // SAFETY: as in `kill`.
                unsafe { libc::kill(member.pid as i32, libc::SIGKILL) };
            }
        }
        for process in 0..PROCESSES {
            if self.members[process].is_some() {
                self.wait_for_end(process);
            }
        }
    }

    /// Finds the threads that a driver in user space has in a process.
    pub fn find_helpers(&mut self, process: usize) {
        if matches!(self.judged, Judged::Kernel) {
            return;
        }
        let Some(member) = &mut self.members[process] else { return };
        let own = |tid: &u32| {
            member.threads.iter().any(|thread| thread.slot.tid.load(Ordering::Relaxed) == *tid)
        };
        let all = stillness::threads_of(member.pid).into_iter().filter(|tid| !own(tid));
        member.helpers = all.filter_map(|tid| Probe::thread(member.pid, tid)).collect();
    }

    /// Waits until all actors are still. Returns the results that have come, with their threads. A
    /// thread without a result sleeps in the driver.
    ///
    /// # Errors
    /// Some thread is awake for too long; results so far are lost.
    pub fn await_stillness(&mut self) -> Result<Vec<(usize, usize, i64)>, Stuck> {
        let until = Instant::now() + PATIENCE;
        let mut answers = Vec::new();
        if self.put_off && matches!(self.judged, Judged::Kernel) {
            self.workers = stillness::workers();
        }
        let mut rounds = 0;
        let mut still: Option<(Vec<Look>, Instant)> = None;
        loop {
            let arena = self.arena;
            let seen = arena.answered().load(Ordering::Acquire);
            self.collect(&mut answers);
            let new = || arena.answered().load(Ordering::Acquire) != seen;
            if rounds == 0 && self.anybody_busy() && !new() {
                arena::wait(self.arena.answered(), seen, Some(Duration::from_micros(100)));
            } else if !self.anybody_must_end()
                && let Some(looks) = self.all_asleep()
                && !new()
            {
                // Start of the time in which no thread has run, since a thread that came late has
                // set its timer late.
                let since = still.take_if(|(before, _)| *before == looks).map(|(_, since)| since);
                let since = since.unwrap_or_else(Instant::now);
                match self.timers(since) {
                    None => break,
                    Some(rest) => arena::wait(self.arena.answered(), seen, Some(rest)),
                }
                still = Some((looks, since));
            } else if rounds > 20 {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::thread::yield_now();
            }
            rounds += 1;
            if Instant::now() > until {
                return Err(Stuck);
            }
        }
        self.put_off = false;
        self.workers.clear();
        answers.sort_unstable();
        Ok(answers)
    }

    fn collect(&mut self, answers: &mut Vec<(usize, usize, i64)>) {
        for (process, member) in self.members.iter_mut().enumerate() {
            for (number, thread) in member.iter_mut().flat_map(|m| m.threads.iter_mut().enumerate())
            {
                if thread.is_busy
                    && let Some(result) = thread.slot.answer()
                {
                    thread.is_busy = false;
                    answers.push((process, number, result));
                }
            }
        }
    }

    fn threads(&self) -> impl Iterator<Item = &ActorThread> + Clone {
        self.members.iter().flatten().flat_map(|member| &member.threads)
    }

    fn anybody_busy(&self) -> bool {
        self.threads().any(|thread| thread.is_busy)
    }

    fn anybody_must_end(&self) -> bool {
        self.threads().any(|thread| thread.is_busy && thread.must_end)
    }

    fn all_asleep(&mut self) -> Option<Vec<Look>> {
        if let Judged::UserSpace(beside) = &mut self.judged {
            beside.iter_mut().for_each(Beside::find_threads);
        }
        let busy = self.threads().filter(|thread| thread.is_busy);
        let helpers = self.members.iter().flatten().flat_map(|member| &member.helpers);
        let beside = match &self.judged {
            Judged::Kernel => [].as_slice(),
            Judged::UserSpace(beside) => beside,
        };
        let beside = self.workers.iter().chain(beside.iter().flat_map(|it| it.threads.values()));
        let busy = busy.filter_map(|thread| thread.probe.as_ref());
        stillness::all_asleep(busy.chain(helpers).chain(beside))
    }

    /// Time for which a timer of a driver in user space may still run, if no thread has run since.
    fn timers(&self, since: Instant) -> Option<Duration> {
        if matches!(self.judged, Judged::Kernel) {
            return None;
        }
        TIMERS.checked_sub(since.elapsed()).filter(|rest| !rest.is_zero())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The actors did not become still in time.
#[derive(Debug)]
pub struct Stuck;
