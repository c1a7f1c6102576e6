//! A thread's host_state of its kernel: what code that runs in a thread can do.
//!
//! **Preemption.** The tick takes the processor from a thread only at a system call, unless its
//! code has said that it may be interrupted anywhere ([`CurrentThread::preemptible`]). All threads
//! of a kernel are one OS thread to the C library and to `thread_local!`: code that was interrupted
//! within `malloc` must not see another thread enter it.

mod others;

use crate::host_state::{Failure, HostState};
use crate::kernel;
use crate::message::{Ipc, IpcError, Tag, Timeout, result_of_word};
use crate::request::Request;
use crate::switch::{self, EntryPoints};
use crate::tcb::{N_REGISTER_WORDS, N_WORDS, Tcb, Utcb};
use crate::thread_id::{N_INTERRUPTS, Sender, Source, ThreadId, raw};
use crate::timer;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::atomic::{Ordering, compiler_fence};

/// A message of up to eight words, which travels in machine registers. Further words are in
/// [`CurrentThread::more_words`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Label and length.
    pub tag: Tag,
    /// The first words.
    pub words: [u64; N_REGISTER_WORDS],
}

impl Message {
    /// A message of these words.
    pub const fn of<const N: usize>(words: [u64; N]) -> Message {
        const { assert!(N <= N_REGISTER_WORDS) };
        let mut message = Message { tag: Tag::of_length(N as u8), words: [0; N_REGISTER_WORDS] };
        let mut index = 0;
        while index < N {
            message.words[index] = words[index];
            index += 1;
        }
        message
    }
}

/// The kernel, as the thread sees it that has this.
#[derive(Debug)]
pub struct CurrentThread {
    entry_points: *const EntryPoints,
}

impl CurrentThread {
    /// # Safety
    /// The entry_points are those of a kernel that runs, the value is used by its current thread
    /// only, and one such value at a time.
    pub(crate) unsafe fn new(entry_points: *const EntryPoints) -> CurrentThread {
        CurrentThread { entry_points }
    }

    #[inline]
    fn entry_points(&self) -> &EntryPoints {
        // SAFETY: they live as long as the kernel runs (`new`).
        unsafe { &*self.entry_points }
    }

    #[inline]
    fn tcb(&self) -> *mut Tcb {
        self.entry_points().current_tcb.get()
    }

    #[inline]
    fn utcb(&self) -> *mut Utcb {
        // SAFETY: this thread's TCB; its kernel has given it a UTCB.
        unsafe { (*self.tcb()).utcb as *mut Utcb }
    }

    /// This thread's name.
    #[inline]
    pub fn id(&self) -> ThreadId {
        // SAFETY: this thread's TCB; it does not change while the thread runs.
        unsafe { (*self.tcb()).id }
    }

    /// The words of a message from the ninth on: of the last one that was received, and of the next
    /// one that is sent.
    #[inline]
    pub fn more_words(&mut self) -> &mut [u64; N_WORDS - N_REGISTER_WORDS] {
        // SAFETY: this thread's UTCB, which the kernel touches only while the thread is in an IPC:
        // then `self` is borrowed.
        let words = unsafe { &mut (*self.utcb()).words };
        words.last_chunk_mut().expect("there are more than eight")
    }

    /// Any IPC. `Ok(None)`: it was to receive nothing.
    #[inline(always)]
    pub fn ipc(&mut self, ipc: Ipc, message: &mut Message) -> Result<Option<Sender>, IpcError> {
        let (mut peer, receive) = ipc.raw();
        if let Some((_, timeout @ Timeout::At(_))) = ipc.send {
            // SAFETY: as in `more_words`.
            unsafe { (*self.utcb()).send_deadline_ns = timeout.deadline_ns() };
        }
        if let Some((_, timeout @ Timeout::At(_))) = ipc.receive {
            // SAFETY: as in `more_words`.
            unsafe { (*self.utcb()).receive_deadline_ns = timeout.deadline_ns() };
        }
        self.enter(&mut peer, receive, message);
        result_of_word(peer)
    }

    #[inline(always)]
    fn enter(&mut self, peer: &mut u64, receive: u64, message: &mut Message) {
        let mut tag = message.tag.raw();
        // SAFETY: this is the current thread of that kernel.
        unsafe { switch::ipc(self.entry_points, peer, receive, &mut tag, &mut message.words) };
        message.tag = Tag::from_raw(tag);
    }

    /// Sends a message and receives its answer.
    #[inline(always)]
    pub fn call(&mut self, to: ThreadId, message: &mut Message) -> Result<(), IpcError> {
        let mut peer = u64::from(to.raw());
        self.enter(&mut peer, u64::from(to.raw()), message);
        if peer >> 32 == 0 { Ok(()) } else { result_of_word(peer).map(drop) }
    }

    /// Answers a caller, if it waits for that, and receives what comes next.
    #[inline(always)]
    pub fn reply_and_wait(
        &mut self,
        to: ThreadId,
        message: &mut Message,
    ) -> Result<Sender, IpcError> {
        let (mut peer, receive) = Ipc::reply_and_wait(to).raw();
        self.enter(&mut peer, receive, message);
        if peer >> 32 == 0 {
            return Ok(Sender::from_raw(peer as u32));
        }
        result_of_word(peer).map(|sender| sender.expect("there is a receive phase"))
    }

    /// Sends a message.
    #[inline]
    pub fn send(
        &mut self,
        to: ThreadId,
        timeout: Timeout,
        message: &Message,
    ) -> Result<(), IpcError> {
        let ipc = Ipc { send: Some((to, timeout)), receive: None };
        self.ipc(ipc, &mut { *message }).map(drop)
    }

    /// Receives a message.
    #[inline]
    pub fn receive(
        &mut self,
        from: Source,
        timeout: Timeout,
    ) -> Result<(Sender, Message), IpcError> {
        let mut message = Message::default();
        let ipc = Ipc { send: None, receive: Some((from, timeout)) };
        let sender = self.ipc(ipc, &mut message)?;
        Ok((sender.expect("there is a receive phase"), message))
    }

    /// Asks the kernel for something else.
    pub fn request(&mut self, request: Request) -> Request {
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).request = request };
        self.enter(&mut u64::from(raw::REQUEST), 0, &mut Message::default());
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).request }
    }

    /// A new thread, which begins at once if it is higher than this one.
    ///
    /// # Errors
    /// `OutOfMemory` if there are as many as there may be; the system's, if it has no stack for us.
    pub fn spawn(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        let id = self.create(priority, body)?;
        self.request(Request::Start(id));
        Ok(id)
    }

    /// A new thread, which begins when it is started (`Request::Start`).
    ///
    /// # Errors
    /// As for `spawn`.
    pub fn create(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        let Request::Created(id) = self.request(Request::Create { priority }) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        self.hold(|here| {
            // SAFETY: the tick is held off, so nobody else is at the kernel's host_state.
            unsafe { kernel::furnish(here.entry_points(), id, Box::new(body)) }
        })?;
        Ok(id)
    }

    /// Does something that the tick must not interrupt.
    pub fn hold<R>(&mut self, act: impl FnOnce(&mut CurrentThread) -> R) -> R {
        let before = self.set_preemptible(false);
        let result = act(self);
        self.set_preemptible(before);
        result
    }

    /// Does something that the tick may interrupt anywhere, to let other threads run.
    ///
    /// # Safety
    /// What runs here, [`CurrentThread::hold`] apart, neither allocates nor frees, touches no
    /// `thread_local!`, and calls no function of a library that does, or that takes a lock.
    pub unsafe fn preemptible<R>(&mut self, act: impl FnOnce(&mut CurrentThread) -> R) -> R {
        let before = self.set_preemptible(true);
        let result = act(self);
        self.set_preemptible(before);
        result
    }

    fn set_preemptible(&mut self, preemptible: bool) -> bool {
        // SAFETY: this thread's TCB, of which nobody else writes this. Volatile: a signal handler
        // of this OS thread reads it.
        let before = unsafe {
            let place = &raw mut (*self.tcb()).preemptible;
            let before = place.read_volatile();
            place.write_volatile(preemptible);
            before
        };
        // Before the signal that it is there to ask for can be needed.
        let n_preemptible = &self.entry_points().knocker.n_preemptible;
        match (before, preemptible) {
            (false, true) => _ = n_preemptible.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = n_preemptible.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        // A signal from here on takes the processor itself. One that came before is noted only, and
        // there may be no system call for a long time.
        compiler_fence(Ordering::SeqCst);
        if preemptible && self.entry_points().knocker.pending.load(Ordering::Relaxed) != 0 {
            self.request(Request::None);
        }
        before
    }

    /// This thread has changed the control words of its floating-point unit (rounding, exceptions,
    /// flushing): from now on they are its own. Without this the kernel takes them for unchanged.
    pub fn float_control_changed(&mut self) {
        // SAFETY: this thread's TCB, of which the kernel reads this while another thread runs.
        unsafe { (*self.tcb()).float_control = switch::float_control() };
    }

    /// The kernel's clock.
    pub fn now_ns(&self) -> u64 {
        timer::now_ns()
    }

    fn host_state<R>(&mut self, act: impl FnOnce(&mut HostState) -> R) -> R {
        // SAFETY: the tick is held off, so nobody else is there.
        self.hold(|here| unsafe { act(&mut *here.entry_points().host_state.0.get()) })
    }

    /// An interrupt of this number comes to this thread at the time, once.
    pub fn set_timer(&mut self, number: u8, at_ns: u64) {
        assert!(number < N_INTERRUPTS, "interrupts are numbered from 0 to 63");
        self.host_state(|host_state| host_state.interrupts.set_time(number, at_ns));
        self.request(Request::Attach(number));
    }

    /// An interrupt of this number comes to this thread when the descriptor is readable, and again
    /// after each [`CurrentThread::acknowledge`].
    ///
    /// # Errors
    /// The system's, if the descriptor cannot be waited for.
    pub fn attach(&mut self, number: u8, fd: OwnedFd) -> io::Result<()> {
        assert!(number < N_INTERRUPTS, "interrupts are numbered from 0 to 63");
        self.host_state(|host_state| host_state.interrupts.set_descriptor(number, fd))?;
        self.request(Request::Attach(number));
        Ok(())
    }

    /// What was readable has been read.
    ///
    /// # Errors
    /// `NotFound` if no descriptor has this number.
    pub fn acknowledge(&mut self, number: u8) -> io::Result<()> {
        self.host_state(|host_state| host_state.interrupts.acknowledge(number))
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        let id = self.id();
        self.host_state(|host_state| host_state.failures.push((id, failure)));
    }

    pub(crate) fn end(mut self) -> ! {
        self.set_preemptible(false);
        self.request(Request::End);
        unreachable!("a thread that has ended does not run")
    }
}
