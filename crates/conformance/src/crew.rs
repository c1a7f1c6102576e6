//! The director's side of the actors: who there is, who is busy, and waiting until all is still.

use crate::actor::{self, Order};
use crate::arena::{self, Arena, PROCESSES, Slot};
use crate::stillness::{self, Look, Probe};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// All actors.
pub struct Crew {
    arena: Arena,
    members: [Option<Member>; PROCESSES],
    judged: Judged,
    /// The kernel's driver puts the end of a descriptor off to a worker.
    put_off: bool,
    workers: Vec<Probe>,
}

/// Whose answers these are.
pub enum Judged {
    /// The kernel's own driver: nothing runs but the threads that are in it, and its workers.
    Kernel,
    /// A driver in user space, with these processes beside the actors.
    UserSpace(Vec<Probe>),
}

struct Member {
    pid: u32,
    seats: Vec<Seat>,
    /// Threads that a driver in user space has started.
    helpers: Vec<Probe>,
}

struct Seat {
    slot: &'static Slot,
    probe: Option<Probe>,
    is_busy: bool,
    /// What it does has an end, whatever the others do.
    must_end: bool,
}

/// How long a step may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// A driver in user space may look again at a call that nobody took, so long after it has last done
/// anything.
const TIMERS: Duration = Duration::from_millis(2);

impl Crew {
    /// Nobody yet.
    pub fn new(judged: Judged) -> Crew {
        Crew {
            arena: Arena::new(),
            members: Default::default(),
            judged,
            put_off: false,
            workers: Vec::new(),
        }
    }

    fn member(&self, process: usize) -> &Member {
        self.members[process].as_ref().expect("the process has started")
    }

    /// A process begins.
    pub fn start(&mut self, process: usize, threads: usize) {
        let slots: Vec<_> = (0..threads).map(|thread| self.arena.slot(process, thread)).collect();
        slots.iter().for_each(|slot| slot.reset());
        let pid = actor::start(self.arena, process, threads) as u32;
        let mut seats = Vec::new();
        for slot in slots {
            while slot.tid.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let probe = Probe::thread(pid, slot.tid.load(Ordering::Relaxed));
            assert!(probe.is_some(), "/proc does not show the threads of actors");
            seats.push(Seat { slot, probe, is_busy: false, must_end: false });
        }
        self.members[process] = Some(Member { pid, seats, helpers: Vec::new() });
    }

    /// The slot of a thread.
    pub fn slot(&self, process: usize, thread: usize) -> &'static Slot {
        self.arena.slot(process, thread)
    }

    /// The process's id.
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
        let seat = &mut self.members[process].as_mut().expect("started").seats[thread];
        assert!(!seat.is_busy, "a busy thread takes no orders");
        seat.is_busy = true;
        seat.must_end = must_end;
        seat.slot.give(order as u32, arguments);
    }

    /// Interrupts a thread.
    pub fn signal(&self, process: usize, thread: usize) {
        let member = self.member(process);
        let tid = member.seats[thread].slot.tid.load(Ordering::Relaxed);
        // SAFETY: a system call without addresses.
        unsafe { libc::syscall(libc::SYS_tgkill, member.pid, tid, libc::SIGUSR1) };
    }

    /// Kills a process and waits for its end.
    pub fn kill(&mut self, process: usize) {
        // SAFETY: a system call without addresses, on a child that has not been waited for.
        unsafe { libc::kill(self.pid(process) as i32, libc::SIGKILL) };
        self.bury(process);
    }

    /// Waits for the end of a process that is about to end.
    pub fn bury(&mut self, process: usize) {
        let pid = self.pid(process) as i32;
        // SAFETY: no address is given.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        self.members[process] = None;
        self.put_off = true;
    }

    /// Waits until a process has executed the program that does nothing.
    pub fn executed(&mut self, process: usize) {
        let pid = self.pid(process);
        let pauses = format!("{} ", libc::SYS_pause);
        let until = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(format!("/proc/{pid}/syscall"))
            .is_ok_and(|call| call.starts_with(&pauses))
        {
            assert!(Instant::now() < until, "the executed program does not come to rest");
            std::thread::sleep(Duration::from_micros(200));
        }
        let member = self.members[process].as_mut().expect("started");
        member.seats.clear();
        member.helpers.clear();
        self.put_off = true;
    }

    /// Ends everybody.
    pub fn clear(&mut self) {
        for process in 0..PROCESSES {
            if let Some(member) = &self.members[process] {
                // SAFETY: as in `kill`.
                unsafe { libc::kill(member.pid as i32, libc::SIGKILL) };
            }
        }
        for process in 0..PROCESSES {
            if self.members[process].is_some() {
                self.bury(process);
            }
        }
    }

    /// Looks which threads a driver in user space has in the process now.
    pub fn find_helpers(&mut self, process: usize) {
        if matches!(self.judged, Judged::Kernel) {
            return;
        }
        let Some(member) = &mut self.members[process] else { return };
        let own = |tid: &u32| {
            member.seats.iter().any(|seat| seat.slot.tid.load(Ordering::Relaxed) == *tid)
        };
        let all = stillness::threads_of(member.pid).into_iter().filter(|tid| !own(tid));
        member.helpers = all.filter_map(|tid| Probe::thread(member.pid, tid)).collect();
    }

    /// Waits until all is still: the answers that have come, with who gives them. Whoever does not
    /// answer sleeps in the driver.
    ///
    /// # Errors
    /// Somebody is awake for too long; what has come so far is lost.
    pub fn settle(&mut self) -> Result<Vec<(usize, usize, i64)>, Stuck> {
        let until = Instant::now() + PATIENCE;
        let mut answers = Vec::new();
        if self.put_off && matches!(self.judged, Judged::Kernel) {
            self.workers = stillness::workers();
        }
        let mut rounds = 0;
        let mut still: Option<(Vec<Look>, Instant)> = None;
        loop {
            let seen = self.arena.answered().load(Ordering::Acquire);
            self.collect(&mut answers);
            let new = || self.arena.answered().load(Ordering::Acquire) != seen;
            if rounds == 0 && self.anybody_busy() && !new() {
                arena::wait(self.arena.answered(), seen, Some(Duration::from_micros(100)));
            } else if !self.anybody_must_end()
                && let Some(looks) = self.all_asleep()
                && !new()
            {
                // Since when nobody has run: a thread that came late has set its timer late.
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
            for (thread, seat) in member.iter_mut().flat_map(|m| m.seats.iter_mut().enumerate()) {
                if seat.is_busy
                    && let Some(result) = seat.slot.answer()
                {
                    seat.is_busy = false;
                    answers.push((process, thread, result));
                }
            }
        }
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> + Clone {
        self.members.iter().flatten().flat_map(|member| &member.seats)
    }

    fn anybody_busy(&self) -> bool {
        self.seats().any(|seat| seat.is_busy)
    }

    fn anybody_must_end(&self) -> bool {
        self.seats().any(|seat| seat.is_busy && seat.must_end)
    }

    fn all_asleep(&self) -> Option<Vec<Look>> {
        let busy = self.seats().filter(|seat| seat.is_busy);
        let helpers = self.members.iter().flatten().flat_map(|member| &member.helpers);
        let beside: &[Probe] = match &self.judged {
            Judged::Kernel => &self.workers,
            Judged::UserSpace(probes) => probes,
        };
        let busy = busy.filter_map(|seat| seat.probe.as_ref());
        stillness::all_asleep(busy.chain(helpers).chain(beside))
    }

    /// How long a timer may still be running that a driver in user space has set, if nobody has run
    /// since then.
    fn timers(&self, since: Instant) -> Option<Duration> {
        if matches!(self.judged, Judged::Kernel) || !self.anybody_busy() {
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

/// All is not still, and has not been for long.
#[derive(Debug)]
pub struct Stuck;
