//! Threads that run Java, and how one of them stops all others.
//!
//! A thread is *running* or *safe*. A running thread may hold references that nobody else knows,
//! and looks at a flag of its own at every backward branch and call. A safe thread touches no
//! object: it waits, or runs code that knows none. To stop the world is to set the flags and wait
//! until no other thread runs. A collector that counts stops no thread, but brings each to its next
//! [`Stage`]: see [`handshake`].
//!
//! Orders: as in [`handshake`]. Whoever stops the world stores that, then each
//! thread's attention, and then loads the states.

use crate::cards::{Cards, Mutator, Stage};
use crate::handshake::{self, Handshake, Party};
use crate::monitors::Activity;
use crate::object::Ref;
use crate::parker::Parker;
use crate::pauses::{Cause, Pauses};
use crate::stack::Stack;
use rustix::thread::Pid;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// What other threads may know of a thread.
#[derive(Debug)]
pub struct ThreadState {
    /// A number that no other thread of the VM has at the same time, from 1 on.
    pub id: u32,
    /// The frames
    pub stack: Stack,
    /// The java.lang.Thread, null at first
    pub(crate) java: AtomicU32,
    /// The exception that is being thrown
    pub(crate) exception: AtomicU32,
    /// A result that is a reference, until an instruction takes it
    pub(crate) result: AtomicU32,
    /// An exception that nothing caught, while its handler runs
    uncaught: AtomicU32,
    /// Where the thread waits
    pub parker: Arc<Parker>,
    /// What it does: a [`Activity`]
    pub(crate) activity: AtomicU8,
    /// The VM does not wait for the end of this thread
    pub(crate) is_daemon: AtomicBool,
    /// The OS thread, which has another number in a child of fork
    tid: AtomicI32,
    /// What it has to do for collectors
    pub(crate) party: Party,
    /// See [`ThreadState::set_real_time`]
    pub(crate) is_real_time: AtomicBool,
    pub(crate) pauses: Pauses,
}

impl ThreadState {
    /// Whether the thread has to look at what is asked of it, by [`Threads::attend`].
    #[inline(always)]
    pub fn has_attention(&self) -> bool {
        self.party.has_attention()
    }

    /// Says whether the scheduler runs the thread before all ordinary ones: memory is reserved for
    /// such threads.
    pub fn set_real_time(&self, is_real_time: bool) {
        self.is_real_time.store(is_real_time, Relaxed);
    }

    /// The OS thread.
    pub fn tid(&self) -> Pid {
        Pid::from_raw(self.tid.load(Relaxed)).expect("a thread has a number")
    }

    /// The name of the OS thread, empty if it has ended.
    pub(crate) fn os_name(&self) -> String {
        let path = format!("/proc/self/task/{}/comm", self.tid().as_raw_nonzero());
        std::fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
    }

    /// Makes the calling thread the OS thread: it is what fork has left of that one.
    pub(crate) fn set_tid(&self) {
        self.tid.store(rustix::thread::gettid().as_raw_pid(), Relaxed);
    }

    /// What a collector that counts has to know; `None` with another one.
    pub(crate) fn mutator(&self) -> Option<&Arc<Mutator>> {
        self.party.mutator.as_ref()
    }

    /// Marks what the thread's stack refers to.
    fn scan(&self, cards: &Cards) {
        self.each_root(|root| cards.reach(root.address()));
    }

    /// The java.lang.Thread; null before it is set.
    pub fn java(&self) -> Ref {
        // SAFETY: the word holds a reference that the roots contain.
        unsafe { Ref::from_address(self.java.load(Relaxed)) }
    }

    /// Sets the java.lang.Thread.
    pub fn set_java(&self, thread: Ref) {
        self.java.store(thread.address(), Relaxed);
    }

    /// Keeps an exception that nothing caught.
    pub(crate) fn set_uncaught(&self, exception: Ref) {
        self.uncaught.store(exception.address(), Relaxed);
    }

    /// Calls `with` for each reference that the thread holds.
    pub fn each_root(&self, mut with: impl FnMut(Ref)) {
        self.stack.each_reference(&mut with);
        for word in [&self.java, &self.exception, &self.result, &self.uncaught] {
            // SAFETY: the word holds a reference that the thread wrote.
            with(unsafe { Ref::from_address(word.load(Relaxed)) });
        }
    }
}

/// All threads of a VM.
#[derive(Debug, Default)]
pub struct Threads {
    stopping: AtomicBool,
    handshake: Handshake,
    all: Mutex<Listed>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Listed {
    threads: Vec<Arc<ThreadState>>,
}

/// The world is stopped while this lives.
pub struct Stopped<'a> {
    threads: &'a Threads,
    listed: MutexGuard<'a, Listed>,
}

impl std::fmt::Debug for Stopped<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Stopped({})", self.listed.threads.len())
    }
}

impl Stopped<'_> {
    /// All threads, the caller's included.
    pub fn threads(&self) -> &[Arc<ThreadState>] {
        &self.listed.threads
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.threads.stopping.store(false, SeqCst);
        self.threads.changed.notify_all();
    }
}

impl Threads {
    /// Adds the calling thread, which is safe at first.
    pub fn attach(
        &self,
        n_slots: usize,
        cards: Option<&Arc<Cards>>,
        pauses: Pauses,
    ) -> Arc<ThreadState> {
        let mut listed = self.lock();
        // The collector asks for a stage before it looks at the list.
        let stage = self.stage();
        let mutator = |cards: &Arc<Cards>| Arc::new(Mutator::new(cards.clone(), stage));
        let is_free = |id: &u32| listed.threads.iter().all(|thread| thread.id != *id);
        let id = (1..).find(is_free).expect("fewer threads than numbers");
        let state = Arc::new(ThreadState {
            id,
            stack: Stack::new(n_slots),
            java: AtomicU32::new(0),
            exception: AtomicU32::new(0),
            result: AtomicU32::new(0),
            uncaught: AtomicU32::new(0),
            parker: Arc::default(),
            activity: AtomicU8::new(Activity::Running as u8),
            is_daemon: AtomicBool::new(false),
            tid: AtomicI32::new(rustix::thread::gettid().as_raw_pid()),
            party: Party::new(cards.map(mutator)),
            is_real_time: AtomicBool::new(false),
            pauses,
        });
        listed.threads.push(state.clone());
        state
    }

    /// Removes a safe thread.
    pub fn detach(&self, state: &Arc<ThreadState>) {
        assert!(state.party.is_safe());
        self.lock().threads.retain(|thread| !Arc::ptr_eq(thread, state));
        self.changed.notify_all();
    }

    /// Makes the calling thread a daemon. A thread in [`Threads::await_others`] looks again.
    pub fn make_daemon(&self, state: &ThreadState) {
        state.is_daemon.store(true, Relaxed);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits until all threads but the calling one, which is safe, are daemons or wait here, too.
    pub fn await_others(&self, own: &ThreadState) {
        let was_daemon = own.is_daemon.load(Relaxed);
        self.make_daemon(own);
        let mut listed = self.lock();
        while !listed.threads.iter().all(|thread| thread.is_daemon.load(Relaxed)) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
        own.is_daemon.store(was_daemon, Relaxed);
    }

    /// The threads at this moment.
    pub fn all(&self) -> Vec<Arc<ThreadState>> {
        self.lock().threads.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.all.lock().expect("no holder panics")
    }

    /// The stage that all threads are to reach, or have reached.
    pub(crate) fn stage(&self) -> Stage {
        self.handshake.stage()
    }

    /// Does what is asked of a running thread.
    #[cold]
    #[inline(never)]
    pub fn attend(&self, state: &ThreadState) {
        loop {
            let since = Instant::now();
            state.party.heed();
            if !self.stopping.load(SeqCst) {
                if self.handshake.reach_due(&state.party, |cards| state.scan(cards)) {
                    state.pauses.add(since, Cause::Stage);
                }
                return;
            }
            state.party.become_safe();
            self.tell(state);
            let mut listed = self.lock();
            while self.stopping.load(SeqCst) {
                listed = self.changed.wait(listed).expect("no holder panics");
            }
            drop(listed);
            state.pauses.add(since, Cause::Stop);
            state.party.become_running();
        }
    }

    /// Makes a running thread safe.
    #[inline]
    pub fn leave(&self, state: &ThreadState) {
        state.party.become_safe();
        if state.has_attention() {
            self.tell(state);
        }
    }

    /// Tells whoever waits for a thread that it is safe.
    #[cold]
    #[inline(never)]
    fn tell(&self, state: &ThreadState) {
        if self.stopping.load(SeqCst) {
            // Whoever stops holds the lock or waits: the notification is not lost.
            drop(self.lock());
            self.changed.notify_all();
        }
        self.handshake.tell(&state.party);
    }

    /// Makes a safe thread running, after a stop that is under way.
    #[inline]
    pub fn enter(&self, state: &ThreadState) {
        state.party.become_running();
        if state.has_attention() {
            self.attend(state);
        }
    }

    /// Makes the calling thread the one that waits in [`Threads::reach`].
    pub fn set_collector(&self) {
        self.handshake.set_collector();
    }

    /// Brings all threads to the next stage; the calling one is safe.
    pub fn reach(&self, stage: Stage) {
        self.handshake.ask(stage);
        let threads = self.all();
        threads.iter().for_each(|state| state.party.call());
        handshake::fence(threads.iter().map(|state| &state.party));
        // Those that sleep first: a real-time thread that wakes up meanwhile has nothing to do.
        for state in &threads {
            self.handshake.act_for(&state.party, |cards| state.scan(cards));
        }
        for state in threads {
            self.handshake.await_party(&state.party, |cards| state.scan(cards));
        }
    }

    /// Stops all threads but the calling one, which has to be safe.
    pub fn stop(&self, own: &ThreadState) -> Stopped<'_> {
        assert!(own.party.is_safe());
        let mut listed = self.lock();
        while self.stopping.load(SeqCst) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
        self.stopping.store(true, SeqCst);
        listed.threads.iter().for_each(|thread| thread.party.call());
        handshake::fence(listed.threads.iter().map(|thread| &thread.party));
        while !listed.threads.iter().all(|thread| thread.party.is_safe()) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
        Stopped { threads: self, listed }
    }
}
