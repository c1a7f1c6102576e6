//! Loopers: how they register, wait, are asked for and leave; and the end of a thread.

use crate::effect::Effect;
use crate::message::LaneId;
use crate::process::State;
use crate::thread::{Frame, FrameKind, Looper, Waiting};
use crate::work::{Tid, Work};

/// So many one-way transactions may wait for one looper whose handlers are short.
const FEW: usize = 32;

impl State {
    /// Notes on which word the thread sleeps, or that it does not. While loopers sleep the driver
    /// asks for no further ones.
    pub fn set_waiting(&mut self, tid: Tid, waiting: Waiting) {
        let thread = self.thread(tid);
        let before = std::mem::replace(&mut thread.waiting, waiting);
        thread.bypasses_state = false;
        match (before == Waiting::Bell, waiting == Waiting::Bell) {
            (false, true) => {
                self.sleepers += 1;
                self.watchdog.count_visit();
            }
            (true, false) => {
                self.sleepers -= 1;
                self.wakes_looper = false;
                if self.sleepers == 0 {
                    self.no_looper_waits();
                }
            }
            _ => {}
        }
    }

    /// Whether a looper that sleeps has to be woken: there is more of the process's work than the
    /// `n_taken` items that the calling thread takes itself. One is woken at a time, which wakes
    /// the next one if there is work left: by then it mostly has been done. `is_attentive` is asked
    /// only if that matters: a looper that is awake comes soon for [a few](FEW) ordinary one-way
    /// transactions.
    pub fn needs_looper(&self, n_taken: usize, is_attentive: impl FnOnce() -> bool) -> bool {
        let n_left = self.todo.len().saturating_sub(n_taken);
        let may_wait = || n_left <= FEW && self.todo.is_patient() && is_attentive();
        n_left > 0 && self.sleepers > 0 && !self.wakes_looper && !may_wait()
    }

    /// Notes that a looper is woken, which comes to look.
    pub fn wakes_looper(&mut self) {
        self.wakes_looper = true;
    }

    /// Forgets that a looper was woken: it has not come.
    pub fn forget_wake_up(&mut self) {
        self.wakes_looper = false;
    }

    /// Whether the thread's read is to ask for one more looper; if so, one is being asked for.
    #[inline]
    pub fn wants_looper(&mut self, tid: Tid) -> bool {
        let wants = self.pool.may_ask()
            && (self.sleepers == 0 || self.pool.lacks_loopers())
            && self.thread(tid).looper.serves();
        self.pool.requested += u32::from(wants);
        wants
    }

    /// BC_REGISTER_LOOPER.
    pub fn register_looper(&mut self, tid: Tid) {
        let requested = self.pool.requested > 0;
        let entered = self.thread(tid).looper.entered;
        self.change_looper(tid, |looper| looper.registered = true);
        if entered || !requested {
            let why = if entered { "after BC_ENTER_LOOPER" } else { "without request" };
            self.thread(tid).looper.invalid = true;
            self.complain(format!("BC_REGISTER_LOOPER called {why}"));
        } else {
            self.pool.requested -= 1;
            self.pool.started += 1;
        }
    }

    /// BC_ENTER_LOOPER.
    pub fn enter_looper(&mut self, tid: Tid) {
        self.change_looper(tid, |looper| looper.entered = true);
        let looper = &mut self.thread(tid).looper;
        if looper.registered {
            looper.invalid = true;
            self.complain("BC_ENTER_LOOPER called after BC_REGISTER_LOOPER".to_owned());
        }
    }

    /// BC_EXIT_LOOPER.
    pub fn exit_looper(&mut self, tid: Tid) {
        self.change_looper(tid, |looper| looper.exited = true);
    }

    fn change_looper(&mut self, tid: Tid, change: impl FnOnce(&mut Looper)) {
        let looper = &mut self.thread(tid).looper;
        let before = looper.is_present();
        change(looper);
        let after = looper.is_present();
        self.pool.n_present += usize::from(after);
        self.pool.n_present -= usize::from(before);
        if before && !after {
            self.vacate_of(tid);
            self.balance_dedicated();
        }
    }

    /// BINDER_THREAD_EXIT, and the end of a thread without it.
    pub fn thread_exit(&mut self, tid: Tid) {
        self.set_waiting(tid, Waiting::No);
        self.vacate_of(tid);
        self.give_one_ways_back(tid);
        let Some(mut thread) = self.threads.remove(tid) else { return };
        if let Some(via) = thread.relieved_of {
            self.effect(Effect::AnnounceRequest(via));
        }
        self.pool.n_present -= usize::from(thread.looper.is_present());
        self.balance_dedicated();
        let mut lanes: Vec<(LaneId, Vec<FrameKind>)> = Vec::new();
        let mut open = |via, kind| match lanes.iter_mut().find(|(lane, _)| *lane == via) {
            Some((_, kinds)) => kinds.push(kind),
            None => lanes.push((via, vec![kind])),
        };
        for work in thread.todo.drain() {
            if let Some(via) = self.discard(work) {
                open(via, FrameKind::Serving);
            }
        }
        for frame in thread.stack.into_iter().rev() {
            match frame {
                Frame::Serving(serving) => {
                    self.outstanding -= 1;
                    open(serving.via, FrameKind::Serving);
                }
                Frame::Calling(calling) => {
                    self.tokens.remove(&calling.token);
                    self.end_sending(calling.handle);
                    if !calling.dead {
                        open(calling.via, FrameKind::Calling);
                    }
                }
            }
        }
        for (via, kinds) in lanes {
            self.effect(Effect::Leave(via, kinds));
        }
    }

    /// Discards work that no thread will read. Returns the lane on which an answer to it is due.
    pub(crate) fn discard(&mut self, work: Work) -> Option<LaneId> {
        let mut owed = None;
        match work {
            Work::Transaction(incoming) | Work::Reply(incoming) => {
                match &incoming.serving {
                    Some(serving) => {
                        self.outstanding -= 1;
                        owed = Some(serving.via);
                    }
                    None if incoming.node.is_some() => self.unread_one_way -= 1,
                    None => self.unread_replies -= 1,
                }
                self.drop_buffer(incoming.buffer, None);
            }
            // As in the kernel, its program hears of it at the next change only.
            Work::Node(node) => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.queued = None;
                }
            }
            Work::Dead(_) | Work::DeathCleared(_) | Work::Frozen(_) | Work::FreezeCleared(_) => {
                self.push_process(work);
            }
            Work::Complete(_) | Work::Error(_) | Work::Refused(_) => {}
        }
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Incoming;
    use crate::priority::QueuePriority;
    use baton_abi::control::ProcessId;
    use baton_abi::sched_priority::SchedPriority;

    #[test]
    fn one_sleeper_at_a_time_is_woken_for_what_nobody_takes() {
        for (n_items, n_taken, n_sleepers, needs) in [
            (0, 0, 1, false),
            (1, 0, 1, true),
            (1, 1, 1, false),
            (2, 1, 1, true),
            (2, 1, 0, false),
            (5, 0, 3, true),
        ] {
            let mut state = State::new(ProcessId(1));
            (0..n_sleepers).for_each(|tid| state.set_waiting(tid, Waiting::Bell));
            (0..n_items).for_each(|_| state.push_process(Work::Error(0)));
            let case = format!("{n_items} {n_taken} {n_sleepers}");
            assert_eq!(state.needs_looper(n_taken, || false), needs, "{case}");
            state.wakes_looper();
            assert!(!state.needs_looper(n_taken, || false), "{case}: one is under way");
            if n_sleepers > 1 {
                state.set_waiting(1, Waiting::No);
                assert_eq!(state.needs_looper(n_taken, || false), needs, "{case}: it has come");
                state.wakes_looper();
                state.forget_wake_up();
                assert_eq!(
                    state.needs_looper(n_taken, || false),
                    needs,
                    "{case}: it will not come"
                );
            }
        }
    }

    #[test]
    fn few_ordinary_one_way_transactions_wait_for_a_looper_that_comes_soon() {
        let one_way = Incoming {
            buffer: 0,
            peer: ProcessId(2),
            node: None,
            code: 0,
            flags: 0,
            sizes: (0, 0),
            sender: (0, 0),
            label: None,
            min_priority: None,
            queue_priority: QueuePriority::default(),
            lane_sender: None,
            serving: None,
        };
        let min_priority = Some(SchedPriority::fifo(1));
        let urgent = Work::Transaction(Incoming { min_priority, ..one_way.clone() });
        for (n_one_ways, n_others, needs) in
            [(1, 0, false), (FEW, 0, false), (FEW + 1, 0, true), (1, 1, true), (0, 1, true)]
        {
            let mut state = State::new(ProcessId(1));
            state.set_waiting(1, Waiting::Bell);
            (0..n_one_ways).for_each(|_| state.push_process(Work::Transaction(one_way.clone())));
            (0..n_others).for_each(|_| state.push_process(urgent.clone()));
            assert!(state.needs_looper(0, || false));
            assert_eq!(state.needs_looper(0, || true), needs, "{n_one_ways} {n_others}");
        }
    }
}
