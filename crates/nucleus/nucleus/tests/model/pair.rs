//! A kernel's state and the model of it, which take equal steps.

use super::{Model, Step};
use baton_nucleus::Sender;
use baton_nucleus::ThreadId;
use baton_nucleus::state::State;
use baton_nucleus::tcb::Status;
use baton_nucleus::variant::{Switching, Variant};
use std::collections::BTreeSet;

const SLICE_TICKS: u32 = 3;

/// See the module.
#[derive(Clone)]
pub struct Pair<K: Variant> {
    pub state: State<K>,
    pub model: Model,
    steps: Vec<Step>,
    /// How often a thread ran while a higher one could.
    pub n_inversions: u64,
}

impl<K: Variant> Drop for Pair<K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.steps[self.steps.len().saturating_sub(12)..];
            eprintln!("the last steps: {last:#?}\non {:#?}", self.model);
        }
    }
}

impl<K: Variant> Pair<K> {
    /// Threads with these priorities, of which the first two handle an interrupt each. `is_started`
    /// says whether each is started.
    pub fn new(
        n_threads: usize,
        priorities: impl IntoIterator<Item = u8>,
        mut is_started: impl FnMut() -> bool,
    ) -> Pair<K> {
        let mut pair = Pair {
            state: State::new(n_threads, SLICE_TICKS),
            model: Model::new::<K>(SLICE_TICKS),
            steps: Vec::new(),
            n_inversions: 0,
        };
        for priority in priorities {
            pair.add(priority, is_started());
        }
        for number in 0..2 {
            let handler = *pair.model.threads.keys().nth(number).unwrap();
            pair.state.attach(number as u8, Some(handler));
            pair.model.handlers.insert(number as u8, handler);
        }
        pair
    }

    /// Adds a thread, if there is room.
    pub fn add(&mut self, priority: u8, is_started: bool) {
        let Some(id) = self.state.create(priority) else { return };
        self.model.create(id, priority);
        if is_started {
            assert!(self.state.start(id));
            let choice = self.model.start(id);
            self.adopt(&choice);
        }
    }

    fn adopt(&mut self, choice: &BTreeSet<Option<ThreadId>>) {
        let chosen = self.state.current();
        assert!(choice.contains(&chosen), "{chosen:?} runs, not one of {choice:?}");
        self.model.current = chosen;
    }

    /// Lets both take the step, and compares.
    pub fn step_and_compare(&mut self, step: &Step) {
        self.steps.push(step.clone());
        let me = self.model.current;
        match step {
            Step::Ipc(ipc, tag, words) => {
                self.state.set_ipc(*ipc, *tag, words);
                self.state.ipc();
            }
            Step::Request(request) => self.state.request(*request),
            Step::Continue => assert!(self.state.continue_current()),
            Step::Interrupt(number) => self.state.interrupt(*number),
            Step::Expire(now_ns) => self.state.expire(*now_ns),
            Step::Tick => self.state.tick(),
        }
        self.model.taken = match me.map(|me| self.state.result(me)) {
            Some(Ok(Some(Sender::Thread(sender)))) => Some(sender),
            _ => None,
        };
        let choice = self.model.step(step);
        self.adopt(&choice);
        if let (Step::Request(_), Some(me)) = (step, me)
            && let Some(utcb) = self.state.utcb(me)
        {
            assert_eq!(Some(utcb.request), self.model.threads[&me].answer);
        }
        self.compare();
        self.check_for_inversion();
    }

    /// Checks the promise of a strict kernel: no thread runs while a higher one could.
    fn check_for_inversion(&mut self) {
        let Some(current) = self.model.current else { return };
        let priority = self.model.priority(current);
        let mut ids = self.model.threads.keys().copied();
        if ids.any(|id| self.model.is_runnable(id) && self.model.priority(id) > priority) {
            assert_eq!(K::SWITCHING, Switching::Direct, "{}: a lower thread runs", K::NAME);
            self.n_inversions += 1;
        }
    }

    fn compare(&self) {
        assert_eq!(self.state.n_threads(), self.model.threads.len());
        for (&id, thread) in &self.model.threads {
            assert_eq!(self.state.status(id), thread.status, "{id:?}");
            // Threads that call each other in a circle keep lent priorities until one of the calls
            // ends.
            if !self.model.is_deadlocked(id) {
                let priority = i32::from(self.model.priority(id));
                assert_eq!(self.state.priority(id), priority, "{id:?}");
            }
            if thread.status == Status::Ready && !thread.continues {
                assert_eq!(self.state.result(id), thread.outcome, "{id:?}");
                if matches!(thread.outcome, Ok(Some(_))) {
                    let (tag, words) = self.state.message(id);
                    assert_eq!((tag, words), (thread.message.0, &thread.message.1[..]), "{id:?}");
                }
            }
        }
    }
}
