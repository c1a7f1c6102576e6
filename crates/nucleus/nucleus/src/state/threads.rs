//! Thread control: threads begin and end, stop and go on, and change their priority.

use super::State;
use super::cluster_link::Cancelled;
use super::scheduler::Hint;
use crate::list::Slot;
use crate::message::{Cause, IpcError, Phase};
use crate::request::Request;
use crate::tcb::Status;
use crate::thread_id::{N_INTERRUPTS, ThreadId, raw};
use crate::variant::{Path, Switching, Variant};

impl<K: Variant> State<K> {
    /// Carries out a request of the current thread. The answer is in the thread's UTCB when it runs
    /// again.
    pub fn request(&mut self, request: Request) {
        let me = self.decision.current;
        let answer = self.answer_request(me, request);
        self.utcbs[me.index()].request = answer;
    }

    /// Makes a thread that is not started. `None`: all slots are in use.
    pub fn create(&mut self, priority: u8) -> Option<ThreadId> {
        let own = &mut self.tcbs.0[..self.utcbs.len()];
        let tcb = own.iter_mut().find(|tcb| tcb.status == Status::Free)?;
        tcb.create(priority, self.slice_ticks);
        let id = tcb.id;
        self.publish_name(id);
        self.utcbs[id.slot().index()].peer = u64::from(raw::NOBODY);
        Some(id)
    }

    /// Starts a created thread. `false`: there is no such thread, or it was started before.
    pub fn start(&mut self, id: ThreadId) -> bool {
        let created = self.find(id).filter(|&slot| self.tcbs[slot].status == Status::Created);
        if let Some(slot) = created {
            self.tcbs[slot].status = Status::Ready;
            self.wake(slot);
        }
        created.is_some()
    }

    fn answer_request(&mut self, me: Slot, request: Request) -> Request {
        let of_thread = |state: &mut Self, id, act: &mut dyn FnMut(&mut Self, Slot)| {
            let Some(slot) = state.find(id) else { return Request::Refused };
            act(state, slot);
            Request::Done
        };
        match request {
            Request::Create { priority } => {
                self.create(priority).map_or(Request::Full, Request::Created)
            }
            Request::Start(id) if self.start(id) => Request::Done,
            Request::Suspend(id) => of_thread(self, id, &mut Self::suspend),
            Request::Resume(id) => of_thread(self, id, &mut Self::resume),
            Request::SetPriority(id, priority) => {
                of_thread(self, id, &mut |state, slot| state.set_priority(slot, priority))
            }
            Request::Abort(id) if self.abort(id) => Request::Done,
            Request::SwitchTo(id) if self.switch_to(me, id) => Request::Done,
            Request::Yield => {
                self.rotate();
                Request::Done
            }
            Request::Notify(id, bits) if self.notify_remotely(id, bits) => Request::Done,
            Request::Notify(id, bits) => {
                of_thread(self, id, &mut |state, slot| state.notify(slot, bits))
            }
            Request::AcceptNotices(bits) => {
                self.accept_notices(me, bits);
                Request::Done
            }
            Request::ExchangeUserWord(id, word) => self.find(id).map_or(Request::Refused, |slot| {
                Request::Word(std::mem::replace(&mut self.tcbs[slot].user_word, word))
            }),
            Request::Attach(number) if number < N_INTERRUPTS => {
                self.attach(number, Some(self.tcbs[me].id));
                Request::Done
            }
            Request::End => {
                self.end(me);
                Request::Done
            }
            _ => Request::Refused,
        }
    }

    /// Schedules a thread that has become ready otherwise than by an IPC of the current thread.
    pub(super) fn wake(&mut self, slot: Slot) {
        if self.decision.current == Slot::NONE {
            self.enqueue(slot);
            self.schedule();
        } else {
            self.enqueue_schedule(slot, Hint::CurrentOrNew);
        }
    }

    fn suspend(&mut self, slot: Slot) {
        self.tcbs[slot].suspended = true;
        self.update_gate(slot);
        // Without the interface, lazy queueing leaves a suspended thread on the queue (section
        // 5.3.1).
        if K::PATH == Path::Interface || slot == self.decision.current {
            self.dequeue(slot);
        }
        if slot == self.decision.current {
            self.dequeue_schedule(slot, Hint::HighestPriority);
        }
    }

    fn resume(&mut self, slot: Slot) {
        let was_suspended = std::mem::replace(&mut self.tcbs[slot].suspended, false);
        self.update_gate(slot);
        if was_suspended && self.tcbs[slot].status == Status::Ready {
            self.wake(slot);
        }
    }

    fn set_priority(&mut self, slot: Slot, priority: u8) {
        self.tcbs[slot].base_priority = priority;
        self.update_priority(slot);
        self.schedule();
    }

    fn abort(&mut self, id: ThreadId) -> bool {
        let Some(slot) = self.find(id) else { return false };
        if self.waits_remotely(slot) && self.collect_remote_result(slot) {
            self.wake(slot);
            return false;
        }
        if self.waits_remotely(slot) {
            let end = self.fail_remote_wait(slot, Cause::Aborted);
            if let Cancelled::Now(_) = end {
                self.wake(slot);
            }
            return end != Cancelled::TooLate;
        }
        let phase = match self.tcbs[slot].status {
            Status::Sending => Phase::Send,
            Status::Receiving => Phase::Receive,
            _ => return false,
        };
        self.fail_wait(slot, IpcError { phase, cause: Cause::Aborted });
        self.wake(slot);
        true
    }

    /// Stops another thread: aborts its IPC, and cancels a receive phase that is still to come.
    /// `None`: there is no such thread, it is the current one, or another kernel is just writing
    /// its message.
    pub(crate) fn stop(&mut self, id: ThreadId) -> Option<Slot> {
        let slot = self.find(id).filter(|&slot| slot != self.decision.current)?;
        if matches!(self.tcbs[slot].status, Status::Sending | Status::Receiving) {
            self.abort(id);
        }
        let is_stopped = matches!(self.tcbs[slot].status, Status::Ready | Status::Created);
        self.tcbs[slot].continues &= !is_stopped;
        is_stopped.then_some(slot)
    }

    /// Gives the rest of the tick to a thread. In a strict kernel it may not be lower than `me`.
    fn switch_to(&mut self, me: Slot, id: ThreadId) -> bool {
        let Some(slot) = self.find(id).filter(|&slot| self.tcbs[slot].is_runnable()) else {
            return false;
        };
        let is_allowed = match K::SWITCHING {
            Switching::Direct => true,
            Switching::Strict => self.tcbs[slot].priority >= self.tcbs[me].priority,
        };
        if is_allowed {
            self.run(slot);
        }
        is_allowed
    }

    /// Ends a thread in any state. Partners that wait for it get `Ended`.
    pub(crate) fn end(&mut self, slot: Slot) {
        self.leave_send_queue(slot);
        if matches!(self.tcbs[slot].status, Status::Sending | Status::Receiving) {
            self.unblock(slot);
        }
        self.dequeue(slot);
        let id = self.tcbs[slot].id;
        self.tcbs[slot].status = Status::Free;
        self.tcbs[slot].continues = false;
        for handler in self.handlers.iter_mut().filter(|handler| **handler == Some(id)) {
            *handler = None;
        }
        for index in 0..self.tcbs.0.len() as u16 {
            self.fail_wait_if_partner(Slot::new(index), id);
        }
        self.withdraw_name(slot);
        self.tcbs[slot].id = id.next();
        self.tcbs[slot].inbox = 0;
        if slot == self.decision.current {
            self.decision.current = Slot::NONE;
        }
        self.schedule();
    }

    fn fail_wait_if_partner(&mut self, slot: Slot, ended: ThreadId) {
        if self.tcbs[slot].partner != ended.raw() {
            return;
        }
        let phase = match self.tcbs[slot].status {
            Status::Sending => Phase::Send,
            Status::Receiving => Phase::Receive,
            _ => return,
        };
        if self.is_proxy(slot) {
            return self.free_proxy(slot);
        }
        self.fail_wait(slot, IpcError { phase, cause: Cause::Ended });
        self.enqueue(slot);
    }

    /// Whether no thread can run until an interrupt comes or time passes.
    pub fn is_idle(&self) -> bool {
        self.decision.current == Slot::NONE
    }

    /// Whether an interrupt has a handler.
    pub(crate) fn has_handlers(&self) -> bool {
        self.handlers.iter().any(Option::is_some)
    }

    /// The partner of a thread's IPC: its destination while it sends, or else the thread from which
    /// it receives.
    pub fn partner(&self, id: ThreadId) -> Option<ThreadId> {
        let slot = self.find(id)?;
        ThreadId::from_raw(self.tcbs[slot].partner).filter(|id| id.raw() != raw::NOBODY)
    }
}
