//! The thread's end of the kernel: the system calls of the code that runs in a thread.
//!
//! **Preemption.** The tick takes the processor from a thread only at a system call, unless its
//! code has said that it may be interrupted anywhere ([`CurrentThread::preemptible`]). To the C
//! library and to `thread_local!`, all threads of a kernel are one OS thread. A thread that was
//! interrupted within `malloc` must not see another thread enter `malloc`.

mod other_threads;

use crate::entry_points::EntryPoints;
use crate::host_state::{Failure, HostState};
use crate::message::{Ipc, IpcError, N_REGISTER_WORDS, N_WORDS, Tag, Timeout, result_of_word};
use crate::request::Request;
use crate::stack::Stack;
use crate::switch;
use crate::tcb::{Tcb, Utcb};
use crate::thread_id::{N_INTERRUPTS, Sender, Source, ThreadId, raw};
use crate::timer;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::atomic::{Ordering, compiler_fence};

/// A message's tag and its first eight words, which travel in machine registers. Further words are
/// in [`CurrentThread::more_words`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The label, and the number of words.
    pub tag: Tag,
    /// The first eight words. Those beyond the length mean nothing.
    pub words: [u64; N_REGISTER_WORDS],
}

impl Message {
    /// A message of these words, at most eight, with the label 0.
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

/// The code of a thread, from its first to its last instruction.
pub(crate) type ThreadBody = Box<dyn FnOnce(CurrentThread)>;

/// The kernel's services for the thread that runs. A thread's body gets one, and cannot send it to
/// another thread.
#[derive(Debug)]
pub struct CurrentThread {
    entry_points: *const EntryPoints,
}

impl CurrentThread {
    /// # Safety
    /// The entry points are those of a kernel that runs. Only the kernel's current thread uses the
    /// value, and one such value at a time.
    pub(crate) unsafe fn new(entry_points: *const EntryPoints) -> CurrentThread {
        CurrentThread { entry_points }
    }

    #[inline]
    fn entry_points(&self) -> &EntryPoints {
        // SAFETY: the entry points live as long as the kernel runs (`new`).
        unsafe { &*self.entry_points }
    }

    #[inline]
    fn tcb(&self) -> *mut Tcb {
        self.entry_points().current_tcb.get()
    }

    #[inline]
    fn utcb(&self) -> *mut Utcb {
        // SAFETY: this thread's TCB, to which the kernel has given a UTCB.
        unsafe { (*self.tcb()).utcb as *mut Utcb }
    }

    /// This thread's id.
    #[inline]
    pub fn id(&self) -> ThreadId {
        // SAFETY: this thread's TCB, whose id does not change while the thread runs.
        unsafe { (*self.tcb()).id }
    }

    /// Words 8 to 63 of the message that was received last, and of the message that is sent next.
    #[inline]
    pub fn more_words(&mut self) -> &mut [u64; N_WORDS - N_REGISTER_WORDS] {
        // SAFETY: this thread's UTCB, which the kernel uses only during a system call, and a system
        // call borrows `self`.
        let words = unsafe { &mut (*self.utcb()).words };
        words.last_chunk_mut().expect("there are more than eight")
    }

    /// Makes any IPC: sends `message` if `ipc` has a send phase, and replaces it by the message
    /// that the receive phase gets. Returns the sender of that one, or `None` without a receive
    /// phase.
    ///
    /// # Errors
    /// See [`Cause`](crate::Cause). After an error of the receive phase the message was sent.
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

    /// Sends a message, receives its answer into `message`, and waits for both without a timeout.
    ///
    /// # Errors
    /// `NoPartner`: there is no thread `to`. `Ended`: `to` has ended or failed before it answered.
    /// `Aborted`: another thread has ended the wait.
    #[inline(always)]
    pub fn call(&mut self, to: ThreadId, message: &mut Message) -> Result<(), IpcError> {
        let mut peer = u64::from(to.raw());
        self.enter(&mut peer, u64::from(to.raw()), message);
        if peer >> 32 == 0 { Ok(()) } else { result_of_word(peer).map(drop) }
    }

    /// Sends an answer to a caller and receives the next message of any sender into `message`.
    ///
    /// # Errors
    /// In the send phase, `Timeout` if `to` does not wait for a message of this thread, and
    /// `NoPartner` if there is no thread `to`: nothing was received then.
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
    ///
    /// # Errors
    /// See [`Cause`](crate::Cause).
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
    ///
    /// # Errors
    /// See [`Cause`](crate::Cause).
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

    /// Makes a request of the kernel and returns its answer.
    pub fn request(&mut self, request: Request) -> Request {
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).request = request };
        self.enter(&mut u64::from(raw::REQUEST), 0, &mut Message::default());
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).request }
    }

    /// Makes a thread that is ready to run. It runs at once if its priority is above this thread's.
    ///
    /// # Errors
    /// `OutOfMemory` if the kernel has as many threads as it can have; the system's, if it has no
    /// memory for a stack.
    pub fn spawn(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        let id = self.create(priority, body)?;
        self.request(Request::Start(id));
        Ok(id)
    }

    /// Makes a thread that begins when it is started ([`Request::Start`]).
    ///
    /// # Errors
    /// The errors of [`CurrentThread::spawn`].
    pub fn create(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        self.hold(|this| {
            let stack = this.host_state(HostState::new_stack)?;
            let Request::Created(id) = this.request(Request::Create { priority }) else {
                this.host_state(|host_state| host_state.pool.push(stack));
                return Err(io::ErrorKind::OutOfMemory.into());
            };
            // SAFETY: this thread is not preemptible, so nobody else uses the host state. A thread
            // without code is not started.
            unsafe { prepare_thread(this.entry_points(), id, stack, Box::new(body)) };
            Ok(id)
        })
    }

    /// Calls `act`, in which the tick does not interrupt this thread.
    pub fn hold<R>(&mut self, act: impl FnOnce(&mut CurrentThread) -> R) -> R {
        let before = self.set_preemptible(false);
        let result = act(self);
        self.set_preemptible(before);
        result
    }

    /// Calls `act`, in which the kernel may interrupt this thread anywhere to let others run.
    ///
    /// # Safety
    /// Outside of [`CurrentThread::hold`], `act` allocates and frees no memory, uses no
    /// `thread_local!`, takes no lock, and calls no library function that does any of these.
    pub unsafe fn preemptible<R>(&mut self, act: impl FnOnce(&mut CurrentThread) -> R) -> R {
        let before = self.set_preemptible(true);
        let result = act(self);
        self.set_preemptible(before);
        result
    }

    fn set_preemptible(&mut self, preemptible: bool) -> bool {
        // SAFETY: a field of this thread's TCB that nobody else writes while the thread runs.
        // Volatile: a signal handler of this OS thread reads it.
        let before = unsafe {
            let flag = &raw mut (*self.tcb()).preemptible;
            let before = flag.read_volatile();
            flag.write_volatile(preemptible);
            before
        };
        // Counted before `pending` is read below: see `interrupt_line`.
        let interrupt_line = &self.entry_points().interrupt_line;
        match (before, preemptible) {
            (false, true) => interrupt_line.add_preemptible(),
            (true, false) => _ = interrupt_line.n_preemptible.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        // A later signal enters the kernel from its handler. An earlier one has only set `pending`,
        // and the next system call may be far away.
        compiler_fence(Ordering::SeqCst);
        if preemptible && interrupt_line.pending.load(Ordering::Relaxed) != 0 {
            self.request(Request::None);
        }
        before
    }

    /// Makes the current control words of the floating-point unit (rounding, exceptions, flushing)
    /// this thread's own. The kernel takes them for unchanged otherwise.
    pub fn float_control_changed(&mut self) {
        // SAFETY: a field of this thread's TCB that the kernel reads while another thread runs.
        unsafe { (*self.tcb()).float_control = switch::float_control() };
    }

    /// The time of the kernel's clock, in nanoseconds (CLOCK_MONOTONIC).
    pub fn now_ns(&self) -> u64 {
        timer::now_ns()
    }

    fn host_state<R>(&mut self, act: impl FnOnce(&mut HostState) -> R) -> R {
        // SAFETY: this thread is not preemptible in `hold`, so nobody else uses the host state.
        self.hold(|this| unsafe { act(&mut *this.entry_points().host_state.0.get()) })
    }

    /// Makes this thread the handler of an interrupt that comes once, at the given time of the
    /// kernel's clock. A second call moves the time.
    ///
    /// # Panics
    /// If `number` is above 63.
    pub fn set_timer(&mut self, number: u8, at_ns: u64) {
        assert!(number < N_INTERRUPTS, "interrupts are numbered from 0 to 63");
        self.host_state(|host_state| host_state.interrupts.set_time(number, at_ns));
        self.request(Request::Attach(number));
    }

    /// Makes this thread the handler of an interrupt that comes when the descriptor is readable. It
    /// comes again only after [`CurrentThread::acknowledge`].
    ///
    /// # Errors
    /// The system's, if `epoll` does not take the descriptor.
    ///
    /// # Panics
    /// If `number` is above 63.
    pub fn attach(&mut self, number: u8, fd: OwnedFd) -> io::Result<()> {
        assert!(number < N_INTERRUPTS, "interrupts are numbered from 0 to 63");
        self.host_state(|host_state| host_state.interrupts.set_descriptor(number, fd))?;
        self.request(Request::Attach(number));
        Ok(())
    }

    /// Lets an interrupt of a descriptor come again. The handler calls it after it has read.
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

/// Gives a created thread a stack and a body.
///
/// # Safety
/// `id` is a thread of this kernel that has not been started, and nobody else uses the kernel's
/// host state.
pub(crate) unsafe fn prepare_thread(
    entry_points: &EntryPoints,
    id: ThreadId,
    stack: Stack,
    body: ThreadBody,
) {
    // SAFETY: the caller's promise.
    let host_state = unsafe { &mut *entry_points.host_state.0.get() };
    // SAFETY: `id` is of this kernel, so it names one of its TCBs; the thread does not run.
    let tcb = unsafe { &mut *entry_points.tcbs.add(id.slot().index()) };
    tcb.stack_pointer = stack.top();
    tcb.resume = entry_points.thread_start;
    tcb.float_control = switch::float_control();
    let body = Box::into_raw(Box::new(body));
    // SAFETY: the thread's UTCB, which nobody else uses before the thread runs.
    unsafe { (*(tcb.utcb as *mut Utcb)).words[0] = body as u64 };
    host_state.stacks[id.slot().index()] = Some(stack);
}
