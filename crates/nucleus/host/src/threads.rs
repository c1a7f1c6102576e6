//! The threads of the kernel: the dispatcher, which admits posted calls; a forwarder for each slot,
//! which calls a service at the priority of the slot's caller; and the services.
//!
//! **Invariant**: one thread at a time uses a pending call: its forwarder until that calls the
//! service, and then the service that was called last. These threads are on the OS thread that runs
//! the kernel. A service that may wait outside runs only on the kernel's own OS thread.

use crate::call::Call;
use crate::call_queue::{CALL_INTERRUPT, N_SLOTS};
use crate::directory::Directory;
use crate::host_context::HostContext;
use crate::incoming::Incoming;
use crate::messages::{self, Memory, ServiceMessage};
use crate::service::{self, Service};
use baton::{CallError, Parcel};
use baton_nucleus::request::Request;
use baton_nucleus::{CurrentThread, Message, Sender, Source, ThreadId, Timeout};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Threads of the kernel besides the services.
pub(crate) const N_INTERNAL_THREADS: usize = N_SLOTS + 1;

/// Admits posted calls until the queue is closed and all slots are free. Then ends all threads.
pub(crate) fn dispatch(mut here: CurrentThread, directory: &Arc<Directory>) {
    let queue = &directory.queue;
    let mut forwarders = [None; N_SLOTS];
    here.request(Request::Attach(CALL_INTERRUPT));
    loop {
        let mut posted = queue.take_posted();
        while posted != 0 {
            let number = posted.trailing_zeros() as usize;
            admit(&mut here, directory, &mut forwarders[number], number);
            posted &= posted - 1;
        }
        if queue.is_over() {
            break;
        }
        let signalled = here.receive(Source::Interrupt(CALL_INTERRUPT), Timeout::Never);
        signalled.expect("nobody aborts this thread");
    }
    let services = (0..directory.services().len()).filter_map(|number| directory.thread(number));
    for thread in forwarders.into_iter().flatten().chain(services) {
        // A thread that has failed gets no message.
        let _ = here.send(thread, Timeout::Zero, &messages::end());
    }
    queue.end();
}

fn admit(
    here: &mut CurrentThread,
    directory: &Arc<Directory>,
    forwarder: &mut Option<ThreadId>,
    number: usize,
) {
    // SAFETY: posted, and no other thread of the kernel has got the call yet.
    let pending_call = unsafe { directory.queue.slot(number).pending_call() };
    let thread = match (pending_call.waits.take(), *forwarder) {
        (Some(waits), _) => waits,
        (None, Some(forwarder)) => {
            here.request(Request::SetPriority(forwarder, pending_call.priority));
            forwarder
        }
        (None, None) => {
            let its = Arc::clone(directory);
            let spawned =
                here.spawn(pending_call.priority, move |here| forward(here, &its, number));
            match spawned {
                Ok(thread) => *forwarder = Some(thread),
                Err(_) => {
                    pending_call.answer = Some(Err(CallError::Refused(Errno::NOMEM)));
                    directory.queue.slot(number).finish();
                }
            }
            return;
        }
    };
    let told = here.send(thread, Timeout::Zero, &messages::go_on());
    told.expect("it waits for that and nothing else");
}

/// The body of a forwarder: calls services for the callers that have posted this slot.
fn forward(mut here: CurrentThread, directory: &Directory, number: usize) {
    let slot = directory.queue.slot(number);
    loop {
        // SAFETY: the dispatcher has handed the call to this thread.
        let service = unsafe { slot.pending_call() }.service;
        let called = match directory.thread(service) {
            Some(thread) => here.call(thread, &mut messages::forwarded(number)).is_ok(),
            None => false,
        };
        // SAFETY: the service has answered or ended, so the call is with this thread again.
        let pending_call = unsafe { slot.pending_call() };
        if !called {
            directory.set_thread(service, None);
            pending_call.dead |= 1 << service;
            pending_call.answer = Some(Err(CallError::DeadObject));
        }
        slot.finish();
        let next = here.receive(Source::Thread(directory.dispatcher()), Timeout::Never);
        if next.is_ok_and(|(_, message)| messages::is_end(&message)) {
            return;
        }
    }
}

/// The body of a service's thread: answers calls until the host ends or the service panics.
pub(crate) fn serve(
    mut here: CurrentThread,
    directory: &Directory,
    me: usize,
    mut service: Box<dyn Service>,
) {
    let mut memory = Memory::new();
    let mut waiting = None;
    loop {
        let received = match waiting.take() {
            Some((caller, mut message)) => {
                let received = here.reply_and_wait(caller, &mut message);
                received.map(|sender| (sender, message))
            }
            None => here.receive(Source::Any, Timeout::Never),
        };
        let Ok((Sender::Thread(caller), message)) = received else { continue };
        let mut thread = ServiceThread { directory, me, service: &mut *service };
        match thread.answer(&mut here, &message, &mut memory) {
            Some(answer) => waiting = Some((caller, answer)),
            None => return,
        }
    }
}

struct ServiceThread<'a> {
    directory: &'a Directory,
    me: usize,
    service: &'a mut dyn Service,
}

impl ServiceThread<'_> {
    /// Answers one message. `None`: the service ends.
    fn answer(
        &mut self,
        here: &mut CurrentThread,
        message: &Message,
        memory: &mut Memory,
    ) -> Option<Message> {
        let number = messages::slot(message);
        let slot = self.directory.queue.slot(number);
        match messages::read(message, memory) {
            ServiceMessage::End => None,
            ServiceMessage::Forwarded => {
                // SAFETY: the forwarder has called, and waits for the answer.
                let answer = self.handle(here, unsafe { slot.incoming() }, number)?;
                // SAFETY: the forwarder waits, and all services that this one has called have
                // answered.
                unsafe { slot.pending_call() }.answer = Some(answer.map_err(CallError::Refused));
                Some(messages::placed())
            }
            ServiceMessage::Request { data, code, place } => {
                let answer = self.handle(here, &Incoming::Local { code, data }, number)?;
                // SAFETY: `place` is that of the message that is answered.
                Some(unsafe { messages::answer(answer, place) })
            }
        }
    }

    fn handle(
        &mut self,
        here: &mut CurrentThread,
        incoming: &Incoming<'_>,
        number: usize,
    ) -> Option<Result<Parcel, Errno>> {
        let slot = self.directory.queue.slot(number);
        let mine = 1 << self.me;
        // SAFETY: the caller of this service waits for the answer.
        unsafe { slot.pending_call() }.occupied |= mine;
        let hosted = &self.directory.services()[self.me];
        hosted.is_handling.store(true, Ordering::Relaxed);
        let stays = hosted.stays;
        let context = HostContext { here, directory: self.directory, stays, slot: number };
        let mut call = Call::hosted(incoming, &hosted.process, context);
        // AssertUnwindSafe: a service that has panicked is not used again.
        let answer = catch_unwind(AssertUnwindSafe(|| service::answer(self.service, &mut call)));
        hosted.is_handling.store(false, Ordering::Relaxed);
        // SAFETY: all services that this one has called have answered.
        unsafe { slot.pending_call() }.occupied &= !mine;
        // The panic hook has reported the panic. The payload's drop may panic once more.
        answer.map_err(std::mem::forget).ok()
    }
}
