//! The kernel's threads: the reception, which takes in what was posted; porters, one for each slot,
//! which call a service for somebody outside, at his priority; and services.
//!
//! **Invariant**: only the thread that an errand has got to uses it: its porter until that calls,
//! and then the service that was called last. All of them are on the OS thread that runs the
//! kernel. A service that does not stay is called and goes on on the kernel's own.

use crate::call::{Answer, Asked, Call, Inside};
use crate::desk::{BELL, N_SLOTS};
use crate::directory::Directory;
use crate::service::{self, Service};
use crate::slot::Work;
use crate::words::{self, Asking, Memory};
use baton::{CallError, Parcel};
use baton_nucleus::request::Request;
use baton_nucleus::{CurrentThread, Message, Sender, Source, ThreadId, Timeout};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Threads of a kernel: these, and a service each.
pub(crate) const N_OTHERS: usize = N_SLOTS + 1;

/// Takes in what was posted, until the desk is closed and nobody is in.
pub(crate) fn receive(mut here: CurrentThread, directory: &Arc<Directory>) {
    let desk = &directory.desk;
    let mut porters = [None; N_SLOTS];
    here.request(Request::Attach(BELL));
    loop {
        let mut posted = desk.take_posted();
        while posted != 0 {
            let number = posted.trailing_zeros() as usize;
            admit(&mut here, directory, &mut porters[number], number);
            posted &= posted - 1;
        }
        if desk.is_over() {
            break;
        }
        let rung = here.receive(Source::Interrupt(BELL), Timeout::Never);
        rung.expect("nobody aborts this thread");
    }
    let services = (0..directory.services().len()).filter_map(|number| directory.thread(number));
    for thread in porters.into_iter().flatten().chain(services) {
        // One that has failed is told nothing.
        let _ = here.send(thread, Timeout::Zero, &words::end());
    }
    desk.end();
}

fn admit(
    here: &mut CurrentThread,
    directory: &Arc<Directory>,
    porter: &mut Option<ThreadId>,
    number: usize,
) {
    // SAFETY: posted, and nobody else has got it yet.
    let errand = unsafe { directory.desk.slot(number).errand() };
    let thread = match (errand.waits.take(), *porter) {
        (Some(waits), _) => waits,
        (None, Some(porter)) => {
            here.request(Request::SetPriority(porter, errand.priority));
            porter
        }
        (None, None) => {
            let its = Arc::clone(directory);
            let spawned = here.spawn(errand.priority, move |here| carry(here, &its, number));
            match spawned {
                Ok(thread) => *porter = Some(thread),
                Err(_) => {
                    errand.answer = Some(Err(CallError::Refused(Errno::NOMEM)));
                    directory.desk.slot(number).finish();
                }
            }
            return;
        }
    };
    let told = here.send(thread, Timeout::Zero, &words::go_on());
    told.expect("it waits for that and nothing else");
}

/// A porter: calls for those who have posted this slot.
fn carry(mut here: CurrentThread, directory: &Directory, number: usize) {
    let slot = directory.desk.slot(number);
    loop {
        // SAFETY: the reception has handed it on.
        let service = unsafe { slot.errand() }.service;
        let called = match directory.thread(service) {
            Some(thread) => here.call(thread, &mut words::from_outside(number)).is_ok(),
            None => false,
        };
        // SAFETY: the service has answered, or is no more.
        let errand = unsafe { slot.errand() };
        if !called {
            directory.set_thread(service, None);
            errand.dead |= 1 << service;
            errand.answer = Some(Err(CallError::DeadObject));
        }
        slot.finish();
        let next = here.receive(Source::Thread(directory.reception()), Timeout::Never);
        if next.is_ok_and(|(_, message)| words::is_end(&message)) {
            return;
        }
    }
}

/// A service: answers until it is over, or panics.
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
        let mut serving = Serving { directory, me, service: &mut *service };
        match serving.answer(&mut here, &message, &mut memory) {
            Some(answer) => waiting = Some((caller, answer)),
            None => return,
        }
    }
}

struct Serving<'a> {
    directory: &'a Directory,
    me: usize,
    service: &'a mut dyn Service,
}

impl Serving<'_> {
    /// `None`: the service ends.
    fn answer(
        &mut self,
        here: &mut CurrentThread,
        message: &Message,
        memory: &mut Memory,
    ) -> Option<Message> {
        let number = words::slot(message);
        let slot = self.directory.desk.slot(number);
        match words::read(message, memory) {
            Asking::End => None,
            Asking::FromOutside => {
                // SAFETY: its porter has called, and waits for the answer.
                let answer = self.handle(here, unsafe { slot.asked() }, number)?;
                // SAFETY: the same; all that this service has called have answered.
                unsafe { slot.errand() }.answer = Some(answer.map_err(CallError::Refused));
                Some(words::placed())
            }
            Asking::Inside { data, code, place } => {
                let answer = self.handle(here, &Asked::Local { code, data }, number)?;
                // SAFETY: this is the answer to that request.
                Some(unsafe { words::answer(answer, place) })
            }
        }
    }

    fn handle(
        &mut self,
        here: &mut CurrentThread,
        asked: &Asked<'_>,
        number: usize,
    ) -> Option<Result<Parcel, Errno>> {
        let slot = self.directory.desk.slot(number);
        let mine = 1 << self.me;
        // SAFETY: whoever called waits for the answer.
        unsafe { slot.errand() }.occupied |= mine;
        let hosted = &self.directory.services()[self.me];
        let stays = hosted.stays;
        let inside = Inside { here, directory: self.directory, stays, slot: number };
        let mut call = Call::hosted(asked, &hosted.process, inside);
        // AssertUnwindSafe: what is broken is not used again.
        let answer = catch_unwind(AssertUnwindSafe(|| service::answer(self.service, &mut call)));
        // SAFETY: all that this service has called have answered.
        unsafe { slot.errand() }.occupied &= !mine;
        // The panic hook has told of it. Its payload may panic once more when it is dropped.
        answer.map_err(std::mem::forget).ok()
    }
}

/// A service calls another one.
pub(crate) fn call<'t>(
    inside: &mut Inside<'_>,
    service: usize,
    code: u32,
    parcel: &Parcel,
) -> Result<Answer<'t>, CallError> {
    let Inside { here, directory, stays, slot: number } = inside;
    if *stays && !directory.stays(service) {
        return Err(CallError::Refused(Errno::PERM));
    }
    let slot = directory.desk.slot(*number);
    // SAFETY: the calling service has got the errand.
    if unsafe { slot.errand() }.occupied >> service & 1 == 1 {
        return Err(CallError::Refused(Errno::DEADLK));
    }
    let thread = directory.thread(service).ok_or(CallError::DeadObject)?;
    let mut place = None;
    let mut message = words::ask(*number, code, parcel.data(), &raw mut place);
    if here.call(thread, &mut message).is_err() {
        directory.set_thread(service, None);
        // SAFETY: the one that was called is no more.
        unsafe { slot.errand() }.dead |= 1 << service;
        return Err(CallError::DeadObject);
    }
    words::answered(&message, place)
}

/// A service has work done by the OS thread for which it serves.
pub(crate) fn away(inside: &mut Inside<'_>, work: &mut Work<'_>) {
    let (me, reception) = (inside.here.id(), inside.directory.reception());
    // SAFETY: the calling service has got the errand, and waits below until the work is done.
    unsafe { inside.directory.desk.slot(inside.slot).send_away(me, work) };
    let told = inside.here.receive(Source::Thread(reception), Timeout::Never);
    told.expect("the reception stays as long as somebody is in");
}
