//! Who is hosted, and the way in from outside.

use crate::call::Asked;
use crate::desk::Desk;
use crate::priority;
use crate::slot::Next;
use baton::{CallError, Parcel, Process, SchedPriority};
use baton_nucleus::variant::StrictPlus;
use baton_nucleus::{Portable, SignalStack, ThreadId};
use baton_shm::lock::Lock;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Services of one host, at most: a bit of a word for each.
pub(crate) const MOST_SERVICES: usize = 100;

thread_local! {
    /// For kernels that the calling OS thread runs.
    static GROUND: SignalStack = SignalStack::lay_for_good();
    /// What the calling OS thread does for services at this address's desk: which of them wait for
    /// it.
    static WAITING: Cell<(usize, u128)> = const { Cell::new((0, 0)) };
}

/// One service.
pub(crate) struct Hosted {
    pub(crate) name: String,
    pub(crate) process: Process,
    /// Whether it waits for nobody outside.
    pub(crate) stays: bool,
    /// Its thread's name as a word; 0: it has none.
    thread: AtomicU32,
}

/// See the module.
pub(crate) struct Directory {
    pub(crate) desk: Desk,
    /// Held by whoever runs it. `None` before it begins, and when it is over.
    pub(crate) kernel: Lock<Option<Portable<StrictPlus>>>,
    services: Box<[Hosted]>,
    reception: AtomicU32,
}

impl Hosted {
    pub(crate) fn new(name: String, process: Process, stays: bool) -> Hosted {
        Hosted { name, process, stays, thread: AtomicU32::new(0) }
    }
}

impl Directory {
    pub(crate) fn new(services: Box<[Hosted]>) -> Directory {
        let (desk, kernel, reception) = (Desk::new(), Lock::new(None), AtomicU32::new(0));
        Directory { desk, kernel, services, reception }
    }

    pub(crate) fn services(&self) -> &[Hosted] {
        &self.services
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.services.iter().position(|service| service.name == name)
    }

    pub(crate) fn name(&self, service: usize) -> &str {
        &self.services[service].name
    }

    /// Whether the service waits for nobody outside.
    pub(crate) fn stays(&self, service: usize) -> bool {
        self.services[service].stays
    }

    /// The service's thread, if it lives.
    pub(crate) fn thread(&self, service: usize) -> Option<ThreadId> {
        ThreadId::from_raw(self.services[service].thread.load(Ordering::Relaxed))
    }

    pub(crate) fn set_thread(&self, service: usize, thread: Option<ThreadId>) {
        self.services[service].thread.store(thread.map_or(0, ThreadId::raw), Ordering::Relaxed);
    }

    pub(crate) fn reception(&self) -> ThreadId {
        let reception = ThreadId::from_raw(self.reception.load(Ordering::Relaxed));
        reception.expect("it began before all others")
    }

    pub(crate) fn set_reception(&self, thread: ThreadId) {
        self.reception.store(thread.raw(), Ordering::Relaxed);
    }

    /// Has a service answer. The calling OS thread waits, and does what services have for it to do
    /// meanwhile.
    pub(crate) fn enter(
        &self,
        service: usize,
        asked: &Asked<'_>,
        caller: SchedPriority,
    ) -> Result<Parcel, CallError> {
        let desk = &self.desk;
        let (at, waiting) = WAITING.get();
        let occupied = if at == desk_address(desk) { waiting } else { 0 };
        if occupied >> service & 1 == 1 {
            return Err(CallError::Refused(Errno::DEADLK));
        }
        let is_real_time = caller.is_real_time();
        let number = desk.claim(is_real_time);
        if desk.is_closed() {
            desk.release(number);
            return Err(CallError::DeadObject);
        }
        let slot = desk.slot(number);
        // SAFETY: claimed, and `asked` is borrowed until this returns.
        unsafe { slot.fill(service, priority::of(caller), occupied, asked) };
        let mut begun = self.stays(service) && self.run_for(number);
        loop {
            if !begun {
                slot.begin(if is_real_time { desk.kernel() } else { 0 });
                desk.post(number);
            }
            begun = false;
            match slot.wait() {
                Next::Done => break,
                Next::Work => slot.do_work(|occupied, work| {
                    let before = WAITING.replace((desk_address(desk), occupied));
                    work();
                    WAITING.set(before);
                }),
            }
        }
        let (answer, dead) = slot.take();
        desk.release(number);
        self.bury(dead);
        answer
    }

    /// Runs the kernel for one slot, here and now. False if somebody else runs it.
    ///
    /// The service and whom it calls stay, so their part of this is done when this returns; all
    /// others wait for their loopers, who do not post meanwhile.
    fn run_for(&self, number: usize) -> bool {
        let Some(mut kernel) = self.kernel.try_lock() else { return false };
        let Some(portable) = &mut *kernel else { return false };
        self.desk.slot(number).begin(0);
        self.desk.borrow(number);
        GROUND.with(|ground| portable.run_on(ground));
        self.desk.give_back();
        true
    }

    /// The calling OS thread is the kernel's: it runs it until it is over.
    pub(crate) fn run(&self) {
        // Who holds a lock waits for the next one with priority inheritance: somebody more urgent
        // may wait for this thread.
        let none = Lock::new(());
        let _holds_one = none.lock();
        while !self.desk.has_ended() {
            if let Some(portable) = &mut *self.kernel.lock() {
                GROUND.with(|ground| portable.run_on(ground));
            }
            if !self.desk.has_ended() {
                self.desk.sleep();
            }
        }
        *self.kernel.lock() = None;
    }

    /// Processes of services that have ended go: their clients are told.
    fn bury(&self, mut dead: u128) {
        while dead != 0 {
            let service = &self.services[dead.trailing_zeros() as usize];
            tracing::error!(target: "host", "service {:?} has ended", service.name);
            service.process.close();
            dead &= dead - 1;
        }
    }
}

fn desk_address(desk: &Desk) -> usize {
    std::ptr::from_ref(desk).addr()
}
