//! The services of a host by number and name, and the way of calls into the kernel.

use crate::call_queue::CallQueue;
use crate::incoming::Incoming;
use crate::priority;
use crate::slot::Next;
use baton::{CallError, Parcel, Process, SchedPriority};
use baton_nucleus::variant::StrictPlus;
use baton_nucleus::{Portable, SignalStack, ThreadId};
use baton_shm::lock::Lock;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Services of one host, at most: each is a bit of a `u128`, and each slot needs a thread, too.
pub(crate) const MAX_SERVICES: usize = 100;

thread_local! {
    /// The signal stack of the calling OS thread, for the kernels that it runs.
    static SIGNAL_STACK: SignalStack = SignalStack::install_for_good();
    /// The queue (by address) for whose services the calling OS thread does work, and the services
    /// that wait for it, by number.
    static WAITING: Cell<(usize, u128)> = const { Cell::new((0, 0)) };
}

/// One service.
pub(crate) struct HostedService {
    pub(crate) name: String,
    pub(crate) process: Process,
    /// Whether the service waits for nothing outside of its host.
    pub(crate) stays: bool,
    /// The service's thread as a word; 0: it has ended.
    thread: AtomicU32,
    /// Whether the service's handler runs. Only a report reads this, in no order with other words.
    pub(crate) is_handling: AtomicBool,
}

/// See the module.
pub(crate) struct Directory {
    pub(crate) queue: CallQueue,
    /// The thread that runs the kernel holds this lock. `None` before the kernel begins and after
    /// its end.
    pub(crate) kernel: Lock<Option<Portable<StrictPlus>>>,
    services: Box<[HostedService]>,
    dispatcher: AtomicU32,
}

impl HostedService {
    pub(crate) fn new(name: String, process: Process, stays: bool) -> HostedService {
        let (thread, is_handling) = (AtomicU32::new(0), AtomicBool::new(false));
        HostedService { name, process, stays, thread, is_handling }
    }
}

impl Directory {
    pub(crate) fn new(services: Box<[HostedService]>) -> Directory {
        let (queue, kernel, dispatcher) = (CallQueue::new(), Lock::new(None), AtomicU32::new(0));
        Directory { queue, kernel, services, dispatcher }
    }

    pub(crate) fn services(&self) -> &[HostedService] {
        &self.services
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.services.iter().position(|service| service.name == name)
    }

    pub(crate) fn name(&self, service: usize) -> &str {
        &self.services[service].name
    }

    /// Whether the service waits for nothing outside of its host.
    pub(crate) fn stays(&self, service: usize) -> bool {
        self.services[service].stays
    }

    /// The service's thread, unless it has ended.
    pub(crate) fn thread(&self, service: usize) -> Option<ThreadId> {
        ThreadId::from_raw(self.services[service].thread.load(Ordering::Relaxed))
    }

    pub(crate) fn set_thread(&self, service: usize, thread: Option<ThreadId>) {
        self.services[service].thread.store(thread.map_or(0, ThreadId::raw), Ordering::Relaxed);
    }

    /// The names of services whose handlers run.
    pub(crate) fn handling(&self) -> Vec<&str> {
        // A handler that overflows its stack does not return, but its thread ends.
        let handling = |(number, hosted): &(usize, &HostedService)| {
            self.thread(*number).is_some() && hosted.is_handling.load(Ordering::Relaxed)
        };
        let services = self.services.iter().enumerate().filter(handling);
        services.map(|(_, hosted)| &*hosted.name).collect()
    }

    pub(crate) fn dispatcher(&self) -> ThreadId {
        let dispatcher = ThreadId::from_raw(self.dispatcher.load(Ordering::Relaxed));
        dispatcher.expect("the dispatcher began before all others")
    }

    pub(crate) fn set_dispatcher(&self, thread: ThreadId) {
        self.dispatcher.store(thread.raw(), Ordering::Relaxed);
    }

    /// Calls a service. The calling OS thread waits for the answer, and does the services' work
    /// meanwhile.
    pub(crate) fn call(
        &self,
        service: usize,
        incoming: &Incoming<'_>,
        caller: SchedPriority,
    ) -> Result<Parcel, CallError> {
        let queue = &self.queue;
        let (at, waiting) = WAITING.get();
        let occupied = if at == address_of(queue) { waiting } else { 0 };
        if occupied >> service & 1 == 1 {
            return Err(CallError::Refused(Errno::DEADLK));
        }
        let is_real_time = caller.is_real_time();
        let number = queue.claim(is_real_time);
        if queue.is_closed() {
            queue.release(number);
            return Err(CallError::DeadObject);
        }
        let slot = queue.slot(number);
        // SAFETY: this thread has claimed the slot, and `incoming` is borrowed until this returns.
        unsafe { slot.fill(service, priority::of(caller), occupied, incoming) };
        let mut begun = self.stays(service) && self.run_kernel_for(number);
        loop {
            if !begun {
                slot.begin(if is_real_time { queue.kernel() } else { 0 });
                queue.post(number);
            }
            begun = false;
            match slot.wait() {
                Next::Done => break,
                Next::Work => slot.do_work(|occupied, work| {
                    let before = WAITING.replace((address_of(queue), occupied));
                    work();
                    WAITING.set(before);
                }),
            }
        }
        let (answer, dead) = slot.take();
        queue.release(number);
        self.close_dead(dead);
        answer
    }

    /// Runs the kernel on the calling thread for the call in one slot. False: another thread runs
    /// it.
    ///
    /// The called service and those that it calls wait for nothing outside, so the call is done
    /// when this returns. All other services wait for their loopers, whose posts are not admitted
    /// meanwhile.
    fn run_kernel_for(&self, number: usize) -> bool {
        let Some(mut kernel) = self.kernel.try_lock() else { return false };
        let Some(portable) = &mut *kernel else { return false };
        self.queue.slot(number).begin(0);
        self.queue.begin_direct_run(number);
        SIGNAL_STACK.with(|signal_stack| portable.run_on(signal_stack));
        self.queue.end_direct_run();
        true
    }

    /// Runs the kernel on the calling OS thread until the host has ended.
    pub(crate) fn run(&self) {
        // A thread that holds a lock takes the next one with priority inheritance. A more urgent
        // looper may be waiting for this thread when it takes the kernel's lock.
        let none = Lock::new(());
        let _holds_one = none.lock();
        while !self.queue.has_ended() {
            if let Some(portable) = &mut *self.kernel.lock() {
                SIGNAL_STACK.with(|signal_stack| portable.run_on(signal_stack));
            }
            if !self.queue.has_ended() {
                self.queue.sleep();
            }
        }
        *self.kernel.lock() = None;
    }

    /// Closes the processes of services that have ended, so that their clients are notified.
    fn close_dead(&self, mut dead: u128) {
        while dead != 0 {
            let service = &self.services[dead.trailing_zeros() as usize];
            tracing::error!(target: "host", "service {:?} has ended", service.name);
            service.process.close();
            dead &= dead - 1;
        }
    }
}

fn address_of(queue: &CallQueue) -> usize {
    std::ptr::from_ref(queue).addr()
}
