//! The host as a service sees it while it answers a call: the kernel's thread that it is, the other
//! services, and the call slot that it works for.

use crate::answer::Answer;
use crate::directory::Directory;
use crate::messages;
use crate::slot::Work;
use baton::{CallError, Parcel};
use baton_nucleus::{CurrentThread, Source, Timeout};
use rustix::io::Errno;

/// See the module.
pub(crate) struct HostContext<'a> {
    pub(crate) here: &'a mut CurrentThread,
    pub(crate) directory: &'a Directory,
    /// Whether the service waits for nothing outside of its host.
    pub(crate) stays: bool,
    /// The slot of the call that the service answers, or that its caller answers.
    pub(crate) slot: usize,
}

impl HostContext<'_> {
    /// Calls another service of the host. See [`Call::call`](crate::Call::call) for the errors.
    pub(crate) fn call<'t>(
        &mut self,
        service: usize,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Answer<'t>, CallError> {
        let HostContext { here, directory, stays, slot: number } = self;
        if *stays && !directory.stays(service) {
            return Err(CallError::Refused(Errno::PERM));
        }
        let slot = directory.queue.slot(*number);
        // SAFETY: the pending call is with the calling service.
        if unsafe { slot.pending_call() }.occupied >> service & 1 == 1 {
            return Err(CallError::Refused(Errno::DEADLK));
        }
        let thread = directory.thread(service).ok_or(CallError::DeadObject)?;
        let mut place = None;
        let mut message = messages::request(*number, code, parcel.data(), &raw mut place);
        if here.call(thread, &mut message).is_err() {
            directory.set_thread(service, None);
            // SAFETY: the called service has ended, so the pending call is with its caller again.
            unsafe { slot.pending_call() }.dead |= 1 << service;
            return Err(CallError::DeadObject);
        }
        messages::answered(&message, place)
    }

    /// Lets the looper of this call do `work` on its OS thread, and waits for it.
    pub(crate) fn run_on_looper(&mut self, work: &mut Work<'_>) {
        let (me, dispatcher) = (self.here.id(), self.directory.dispatcher());
        // SAFETY: the pending call is with the calling service, which waits below for the work.
        unsafe { self.directory.queue.slot(self.slot).send_work(me, work) };
        let told = self.here.receive(Source::Thread(dispatcher), Timeout::Never);
        told.expect("the dispatcher runs as long as a call is pending");
    }
}
