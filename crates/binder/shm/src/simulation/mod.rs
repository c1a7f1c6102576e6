//! A machine that runs one thread at a time, in an order that a seed decides (`--cfg simulated`).
//!
//! The threads are the operating system's, and so are memory, sockets and descriptors. The machine
//! decides who runs, how long a wait takes, and what time it is. A thread runs until its next
//! switch, which any access to an atomic word may be, or until it waits: on a futex, for a
//! descriptor, or for a time. All of that goes through [`crate::futex`], [`crate::blocking`],
//! [`crate::clock`], [`crate::schedule`] and [`crate::sync`], so the code above is the code that
//! ships. Threads that no machine has started wait and run as ever.
//!
//! Time passes with each switch, and leaps to the next deadline when nobody can run. Processes are
//! numbers. Threads of a process that [`Machine::kill`] ends never run again; whoever owns its
//! descriptors closes them.
//!
//! **Invariant**: at most one thread of a machine runs, so a machine's data needs no order of its
//! own: the mutex is for the compiler, and for the hand-over.

pub mod atomics;
mod place;
mod schedule;

pub use schedule::Schedule;

pub(crate) use place::{forget_mapping, note_mapping};

use crate::futex::{Lent, WAITERS, Wait};
use atomics::AtomicU32;
use core::cell::RefCell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};
use core::time::Duration;
use place::Place;
use rustix::event::EventfdFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Switches per access to a word: one in so many, on average.
const STEPS_A_SWITCH: u64 = 40;
/// How far a deadline may be ahead that passes although threads could run: they were slow.
const SLOWNESS_NS: u64 = 20_000_000;
/// A waiter for quiet goes on if nothing is due within this time.
const QUIET_NS: u64 = 30_000_000_000;
/// Processors of a machine, as far as threads ask.
pub const PROCESSORS: usize = 2;
/// The pid of process 0 for brokers; the kernel has none as high.
pub const FIRST_PID: u32 = 1 << 30;
/// Id of a machine's first thread.
const FIRST_ID: u32 = 1_000;
/// Stack of a simulated thread in bytes.
const STACK_BYTES: usize = 1 << 20;

/// One simulated machine.
pub struct Machine {
    inner: Mutex<Inner>,
    /// The thread that runs.
    running: AtomicUsize,
    /// Accesses until the next switch.
    countdown: AtomicU64,
    now_ns: AtomicU64,
    begun: Instant,
}

struct Inner {
    threads: Vec<Thread>,
    random: u64,
    /// Times at which a descriptor becomes readable.
    timers: Vec<(u64, OwnedFd)>,
    /// The processes that have connected to a broker, which has not asked who they are.
    connections: VecDeque<u32>,
    switches: u64,
    /// The history fails if it takes more switches.
    most_switches: u64,
    on_failure: String,
    refuses_to_schedule_others: bool,
}

struct Thread {
    name: String,
    process: u32,
    state: State,
    outcome: Outcome,
    /// Other words on which a woken thread has slept: until it runs, the kernel counts it as a
    /// sleeper there, too.
    queued: Vec<Place>,
    handle: Option<std::thread::Thread>,
    may_be_doomed: bool,
    schedule: Schedule,
}

#[derive(Debug, PartialEq)]
enum State {
    Ready,
    /// Waits for one of these.
    Waits(Waits),
    Ended,
    Killed,
}

#[derive(Debug, Default, PartialEq)]
struct Waits {
    words: Vec<Place>,
    descriptor: Option<(RawFd, PollFlags)>,
    deadline_ns: Option<u64>,
    /// Until nothing else can happen.
    for_quiet: bool,
    /// The thread that runs at the waiter's priority meanwhile.
    lends_to: Option<u32>,
}

/// Why a thread runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// By the word of this index.
    Word(usize),
    Descriptor,
    TimedOut,
    Quiet,
}

/// Ends a thread's process at a point at which its stack can be unwound.
struct Doom;

struct Current {
    machine: Arc<Machine>,
    number: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The calling thread's machine and number.
fn current() -> Option<(Arc<Machine>, usize)> {
    let of = |current: &RefCell<Option<Current>>| {
        current.borrow().as_ref().map(|it| (Arc::clone(&it.machine), it.number))
    };
    // A thread whose locals are gone has ended for its machine.
    CURRENT.try_with(of).ok().flatten()
}

/// Whether the calling thread belongs to a machine.
pub fn is_simulated() -> bool {
    CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false)
}

/// A point at which another thread may run.
#[inline]
pub fn step() {
    let _ = CURRENT
        .try_with(|current| {
            // A borrowed cell: the machine itself is at work.
            let Ok(current) = current.try_borrow() else { return None };
            let Current { machine, number } = current.as_ref()?;
            let left = machine.countdown.load(Relaxed);
            machine.countdown.store(left.saturating_sub(1), Relaxed);
            (left == 0).then(|| (Arc::clone(machine), *number))
        })
        .ok()
        .flatten()
        .inspect(|(machine, number)| machine.switch(*number, None));
}

/// Lets another thread run, if any can.
pub fn relinquish() {
    match current() {
        Some((machine, number)) => machine.switch(number, None),
        None => std::thread::yield_now(),
    }
}

impl Drop for Current {
    /// The thread's last local goes: the thread has ended.
    fn drop(&mut self) {
        self.machine.end(self.number);
    }
}

impl Machine {
    /// A machine whose first thread, of process 0, is the calling one. The seed decides everything
    /// that this module decides.
    ///
    /// # Panics
    /// Panics if the thread belongs to a machine, or later, once there were `most_switches`.
    pub fn begin(seed: u64, most_switches: u64) -> Arc<Machine> {
        let machine = Arc::new(Machine {
            inner: Mutex::new(Inner {
                threads: Vec::new(),
                random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                timers: Vec::new(),
                connections: VecDeque::new(),
                switches: 0,
                most_switches,
                on_failure: String::new(),
                refuses_to_schedule_others: false,
            }),
            running: AtomicUsize::new(0),
            countdown: AtomicU64::new(0),
            now_ns: AtomicU64::new(1_000_000_000),
            begun: Instant::now(),
        });
        machine.lock().threads.push(Thread::new("main", 0));
        machine.attach(0);
        machine
    }

    fn attach(self: &Arc<Machine>, number: usize) {
        crate::thread::set_id(FIRST_ID + number as u32);
        self.lock().threads[number].handle = Some(std::thread::current());
        CURRENT.with(|current| {
            let before = current.replace(Some(Current { machine: Arc::clone(self), number }));
            assert!(before.is_none(), "a thread belongs to one machine");
        });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Starts a thread of a process.
    pub fn spawn(
        self: &Arc<Machine>,
        process: u32,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let number = {
            let mut inner = self.lock();
            let starter = inner.threads[self.running.load(Relaxed)].schedule;
            inner.threads.push(Thread::new(name, process));
            let number = inner.threads.len() - 1;
            inner.threads[number].schedule = starter.of_child();
            number
        };
        let machine = Arc::clone(self);
        let body = move || {
            machine.attach(number);
            machine.await_turn(number);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            let machine = current().expect("attached").0;
            if let Err(reason) = result
                && !reason.is::<Doom>()
            {
                // The history has failed; the other threads are of no interest any more.
                eprintln!("{}", machine.lock().on_failure);
                std::process::exit(101);
            }
        };
        let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        builder.spawn(body).map(drop)?;
        step();
        Ok(())
    }

    /// Ends the machine: its other threads never run again, and the calling one is an ordinary
    /// thread.
    pub fn close(&self) {
        self.lock().threads.iter_mut().for_each(|thread| thread.state = State::Killed);
        drop(CURRENT.with(|current| current.take()));
    }

    /// The processor on which the calling thread says that it runs.
    pub fn processor(&self) -> u32 {
        let number = self.running.load(Relaxed) as u64;
        // It moves now and then.
        let number = if self.below(16) == 0 { number + 1 } else { number };
        (number % PROCESSORS as u64) as u32
    }

    /// The calling thread's process has connected to the broker.
    pub fn note_connection(&self) {
        let process = self.process();
        self.lock().connections.push_back(process);
    }

    /// The pid of the process whose connection is accepted now: the kernel keeps their order, and
    /// knows only one process.
    pub fn take_connection(&self) -> Option<u32> {
        Some(FIRST_PID + self.lock().connections.pop_front()?)
    }

    /// The broker is gone, and with it the connections that it has not accepted.
    pub fn drop_connections(&self) {
        self.lock().connections.clear();
    }

    /// The process of the calling thread.
    pub fn process(&self) -> u32 {
        self.lock().threads[self.running.load(Relaxed)].process
    }

    /// Kills a process: its threads never run again. Their locals and stacks stay as they are.
    ///
    /// # Panics
    /// Panics if the calling thread is one of them.
    pub fn kill(&self, process: u32) {
        let running = self.running.load(Relaxed);
        let mut inner = self.lock();
        assert_ne!(inner.threads[running].process, process, "a thread cannot kill its own process");
        let of_process = inner.threads.iter_mut().filter(|thread| thread.process == process);
        let alive = of_process.filter(|thread| thread.state != State::Ended);
        alive.for_each(|thread| thread.state = State::Killed);
    }

    /// Threads of this name that have neither ended nor been killed.
    pub fn n_alive(&self, name: &str) -> usize {
        let inner = self.lock();
        let ends = |thread: &&Thread| matches!(thread.state, State::Ended | State::Killed);
        inner.threads.iter().filter(|thread| thread.name == name && !ends(thread)).count()
    }

    /// A line for standard error if a thread of this machine panics.
    pub fn on_failure(&self, line: String) {
        self.lock().on_failure = line;
    }

    /// Ends a process whose threads hold nothing that a destructor may not let go: each unwinds
    /// when it runs next and waits or asks the kernel for something.
    pub fn doom(&self, process: u32) {
        let mut inner = self.lock();
        for thread in inner.threads.iter_mut().filter(|thread| thread.process == process) {
            thread.may_be_doomed = true;
            if matches!(thread.state, State::Waits(_)) {
                thread.state = State::Ready;
            }
        }
    }

    /// Whether all threads of a process have ended.
    pub fn has_ended(&self, process: u32) -> bool {
        let inner = self.lock();
        let mut threads = inner.threads.iter().filter(|thread| thread.process == process);
        threads.all(|thread| matches!(thread.state, State::Ended | State::Killed))
    }

    /// Waits until no thread can run and nothing is due within half a minute.
    pub fn await_quiet(&self) {
        self.wait(Waits { for_quiet: true, ..Waits::default() });
    }

    /// The time of this machine.
    pub fn now(&self) -> Instant {
        self.begun + Duration::from_nanos(self.now_ns())
    }

    /// Nanoseconds of this machine's time: more at each call.
    pub fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(1, Relaxed) + 1
    }

    /// A number below `bound`, by the seed.
    pub fn below(&self, bound: u64) -> u64 {
        self.lock().below(bound)
    }

    /// What each thread that has not ended is about.
    pub fn describe(&self) -> String {
        self.lock().describe()
    }

    /// How long it has run so far: the same again for the same seed.
    pub fn summary(&self) -> String {
        let inner = self.lock();
        let (threads, switches) = (inner.threads.len(), inner.switches);
        format!("{threads} threads, {switches} switches, {} ns", self.now_ns.load(Relaxed))
    }

    fn wait(&self, waits: Waits) -> Outcome {
        let number = self.running.load(Relaxed);
        self.switch(number, Some(waits));
        let thread = &mut self.lock().threads[number];
        thread.queued.clear();
        thread.outcome
    }

    /// Makes a descriptor of [`signal`] readable after a time.
    pub(crate) fn signal_after(&self, after: Duration, signal: &OwnedFd) {
        let deadline = self.deadline(Some(after)).unwrap_or(0);
        if let Ok(signal) = signal.try_clone() {
            self.lock().timers.push((deadline, signal));
        }
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<u64> {
        let timeout = timeout.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2));
        timeout.map(|timeout| self.now_ns().saturating_add(timeout))
    }

    /// Lets another thread run, which may be the same one.
    fn switch(&self, number: usize, waits: Option<Waits>) {
        if std::thread::panicking() {
            return;
        }
        debug_assert_eq!(self.running.load(Relaxed), number);
        let next = {
            let mut inner = self.lock();
            if let Some(waits) = waits {
                if inner.threads[number].may_be_doomed {
                    drop(inner);
                    std::panic::resume_unwind(Box::new(Doom));
                }
                inner.threads[number].state = State::Waits(waits);
            }
            self.choose(&mut inner)
        };
        self.hand_over(next);
        if next != number {
            self.await_turn(number);
        }
        let doomed = self.lock().threads[number].may_be_doomed;
        if doomed && crate::thread::held().with(|held| held.get()) == 0 {
            std::panic::resume_unwind(Box::new(Doom));
        }
    }

    fn hand_over(&self, next: usize) {
        self.running.store(next, Relaxed);
        let handle = self.lock().threads[next].handle.clone();
        // A thread that is just being started looks at `running` first.
        handle.inspect(std::thread::Thread::unpark);
    }

    fn await_turn(&self, number: usize) {
        while self.running.load(core::sync::atomic::Ordering::Acquire) != number {
            std::thread::park();
        }
    }

    fn end(&self, number: usize) {
        if std::thread::panicking() && self.running.load(Relaxed) != number {
            return;
        }
        let next = {
            let mut inner = self.lock();
            inner.threads[number].state = State::Ended;
            if number == 0 {
                return;
            }
            self.choose(&mut inner)
        };
        self.hand_over(next);
    }

    /// The next thread to run, which is ready then.
    fn choose(&self, inner: &mut Inner) -> usize {
        inner.switches += 1;
        if inner.switches > inner.most_switches {
            panic!("no end after {} switches:{}", inner.switches, inner.describe());
        }
        let countdown = 1 + inner.below(2 * STEPS_A_SWITCH);
        self.countdown.store(countdown, Relaxed);
        let passed = 1 + inner.below(2_000);
        self.now_ns.fetch_add(passed, Relaxed);
        if inner.below(64) == 0 {
            self.leap(inner, SLOWNESS_NS);
        }
        loop {
            inner.look_at_time(self.now_ns.load(Relaxed));
            inner.look_at_descriptors();
            let candidates = inner.candidates();
            if !candidates.is_empty() {
                return candidates[inner.below(candidates.len() as u64) as usize];
            }
            if !self.leap(inner, QUIET_NS) {
                let quiet = inner
                    .threads
                    .iter_mut()
                    .find(|t| matches!(&t.state, State::Waits(waits) if waits.for_quiet));
                let Some(quiet) = quiet else {
                    panic!("nobody can run:{}", inner.describe());
                };
                (quiet.state, quiet.outcome) = (State::Ready, Outcome::Quiet);
            }
        }
    }

    /// Time passes to the next deadline, if that is within `at_most`.
    fn leap(&self, inner: &Inner, at_most: u64) -> bool {
        let now = self.now_ns.load(Relaxed);
        let deadlines = inner.threads.iter().filter_map(|thread| match &thread.state {
            State::Waits(waits) => waits.deadline_ns,
            _ => None,
        });
        let timers = inner.timers.iter().map(|(deadline, _)| *deadline);
        let Some(next) =
            deadlines.chain(timers).min().filter(|next| next.saturating_sub(now) <= at_most)
        else {
            return false;
        };
        self.now_ns.fetch_max(next, Relaxed);
        true
    }
}

impl core::fmt::Debug for Machine {
    fn fmt(&self, form: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        form.debug_struct("Machine").finish_non_exhaustive()
    }
}

impl Thread {
    fn new(name: &str, process: u32) -> Thread {
        Thread {
            name: name.to_owned(),
            process,
            state: State::Ready,
            outcome: Outcome::Quiet,
            queued: Vec::new(),
            handle: None,
            may_be_doomed: false,
            schedule: Schedule::default(),
        }
    }
}

impl Inner {
    /// Xorshift64*.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound.max(1)
    }

    /// The number of the thread of this id, if that lives.
    fn number_of(&self, id: u32) -> Option<usize> {
        let number = id.checked_sub(FIRST_ID)? as usize;
        let thread = self.threads.get(number)?;
        (!matches!(thread.state, State::Ended | State::Killed)).then_some(number)
    }

    fn ready(&self) -> impl Iterator<Item = usize> {
        let threads = self.threads.iter().enumerate();
        threads.filter(|(_, thread)| thread.state == State::Ready).map(|(number, _)| number)
    }

    fn look_at_descriptors(&mut self) {
        let mut polled = Vec::new();
        let mut owners = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            let State::Waits(waits) = &thread.state else { continue };
            let Some((fd, flags)) = waits.descriptor else { continue };
            // SAFETY: the thread that waits for the descriptor has borrowed it.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            polled.push(PollFd::from_borrowed_fd(fd, flags));
            owners.push(number);
        }
        if polled.is_empty() || poll(&mut polled, Some(&Timespec::default())) == Ok(0) {
            return;
        }
        for (fd, number) in polled.iter().zip(owners) {
            if !fd.revents().is_empty() {
                let thread = &mut self.threads[number];
                (thread.state, thread.outcome) = (State::Ready, Outcome::Descriptor);
            }
        }
    }

    fn look_at_time(&mut self, now: u64) {
        for (_, signal) in self.timers.extract_if(.., |(deadline, _)| *deadline <= now) {
            let _ = rustix::io::write(signal, &1u64.to_ne_bytes());
        }
        for thread in &mut self.threads {
            let State::Waits(waits) = &thread.state else { continue };
            if waits.deadline_ns.is_some_and(|deadline| deadline <= now) {
                (thread.state, thread.outcome) = (State::Ready, Outcome::TimedOut);
            }
        }
    }

    fn describe(&self) -> String {
        let alive =
            self.threads.iter().filter(|t| !matches!(t.state, State::Ended | State::Killed));
        alive.map(|t| format!("\n  {} of {}: {:?}", t.name, t.process, t.state)).collect()
    }
}

/// The calling thread's machine, if it has one, and is not about to end by a panic.
pub fn machine() -> Option<Arc<Machine>> {
    current().map(|(machine, _)| machine)
}

/// Sleeps while all words contain what is expected.
pub(crate) fn wait(
    machine: &Machine,
    words: &[(&AtomicU32, u32)],
    timeout: Option<Duration>,
) -> (Wait, Option<usize>) {
    wait_for(machine, words, timeout, None)
}

/// Like [`wait`]. A thread runs at the calling one's priority meanwhile.
fn wait_for(
    machine: &Machine,
    words: &[(&AtomicU32, u32)],
    timeout: Option<Duration>,
    lends_to: Option<u32>,
) -> (Wait, Option<usize>) {
    if words.iter().any(|(word, expected)| word.inner().load(Relaxed) != *expected) {
        return (Wait::Woken, None);
    }
    let words = words.iter().map(|(word, _)| Place::of(word.as_ptr() as usize)).collect();
    let deadline_ns = machine.deadline(timeout);
    match machine.wait(Waits { words, deadline_ns, lends_to, ..Waits::default() }) {
        Outcome::TimedOut => (Wait::TimedOut, None),
        Outcome::Word(index) => (Wait::Woken, Some(index)),
        Outcome::Descriptor | Outcome::Quiet => (Wait::Woken, None),
    }
}

/// Wakes up to `n` sleepers, chosen by the seed: the kernel promises no order.
pub(crate) fn wake(machine: &Machine, word: &AtomicU32, n: u32) -> usize {
    let place = Place::of(word.as_ptr() as usize);
    let mut inner = machine.lock();
    let mut woken = 0;
    while woken < n as usize {
        let sleepers: Vec<(usize, usize)> = (0..inner.threads.len())
            .filter_map(|number| {
                let thread = &inner.threads[number];
                let words = match &thread.state {
                    State::Waits(waits) => &waits.words,
                    State::Ready => &thread.queued,
                    State::Ended | State::Killed => return None,
                };
                Some((number, words.iter().position(|word| *word == place)?))
            })
            .collect();
        if sleepers.is_empty() {
            break;
        }
        let (number, index) = sleepers[inner.below(sleepers.len() as u64) as usize];
        let thread = &mut inner.threads[number];
        if let State::Waits(waits) = std::mem::replace(&mut thread.state, State::Ready) {
            (thread.outcome, thread.queued) = (Outcome::Word(index), waits.words);
        }
        thread.queued.retain(|word| *word != place);
        woken += 1;
    }
    drop(inner);
    step();
    woken
}

/// Takes a priority-inheriting word: the holder's id, or 0.
pub(crate) fn lock(machine: &Machine, word: &AtomicU32, holder: u32) {
    loop {
        if word.compare_exchange(0, holder, Relaxed, Relaxed).is_ok() {
            return;
        }
        let held = word.fetch_or(WAITERS, Relaxed) | WAITERS;
        if held != WAITERS {
            wait_for(machine, &[(word, held)], None, Some(held & !WAITERS));
        } else {
            word.store(holder, Relaxed);
            return;
        }
    }
}

/// Releases a word that has waiters.
pub(crate) fn unlock(machine: &Machine, word: &AtomicU32) {
    word.store(0, Relaxed);
    wake(machine, word, u32::MAX);
}

/// Waits until the owner, a thread that lives, has given a word back.
pub(crate) fn lend(machine: &Machine, word: &AtomicU32, timeout: Duration) -> Lent {
    let deadline = machine.deadline(Some(timeout));
    loop {
        let owner = word.load(Relaxed);
        let (me, lives) = (crate::thread::id(), machine.lives(owner & !WAITERS));
        if owner & !WAITERS == 0 {
            if word.compare_exchange(owner, me, Relaxed, Relaxed).is_ok() {
                return Lent::Over;
            }
            continue;
        }
        if !lives || owner & !WAITERS == me {
            return Lent::Refused;
        }
        if word.compare_exchange(owner, owner | WAITERS, Relaxed, Relaxed).is_err() {
            continue;
        }
        let now = machine.now_ns();
        let left = deadline.map_or(0, |deadline| deadline.saturating_sub(now));
        if left == 0 {
            return Lent::Late;
        }
        let (timeout, lends_to) = (Duration::from_nanos(left), Some(owner & !WAITERS));
        wait_for(machine, &[(word, owner | WAITERS)], Some(timeout), lends_to);
    }
}

/// Releases a lock whose holder was killed: what a child of fork, or an heir, finds locked.
pub(crate) fn release_of_the_dead(word: &AtomicU32) {
    let holder = word.load(Relaxed) & !WAITERS;
    if holder != 0 && machine().is_some_and(|machine| !machine.lives(holder)) {
        word.store(0, Relaxed);
    }
}

impl Machine {
    /// Whether there is a thread of this id.
    pub fn lives(&self, id: u32) -> bool {
        self.lock().number_of(id).is_some()
    }

    /// The process of a thread that lives.
    pub fn process_of(&self, id: u32) -> Option<u32> {
        let inner = self.lock();
        inner.number_of(id).map(|number| inner.threads[number].process)
    }

    /// Whether a thread could run.
    pub fn is_ready(&self, id: u32) -> bool {
        let number = id.checked_sub(FIRST_ID).map_or(usize::MAX, |number| number as usize);
        self.lock().threads.get(number).is_some_and(|thread| thread.state == State::Ready)
    }
}

/// A descriptor that [`Machine::signal_after`] makes readable.
pub(crate) fn signal() -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Waits for a descriptor, or for a time.
pub(crate) fn await_descriptor(
    machine: &Machine,
    descriptor: Option<(BorrowedFd<'_>, PollFlags)>,
    timeout: Option<Duration>,
) {
    let deadline_ns = machine.deadline(timeout);
    let descriptor = descriptor.map(|(fd, flags)| (fd.as_raw_fd(), flags));
    machine.wait(Waits { descriptor, deadline_ns, ..Waits::default() });
}
