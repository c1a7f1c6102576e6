//! Kernels of a cluster and one model of all their threads, which take equal steps.

use super::{Model, Step};
use baton_nucleus::request::Request;
use baton_nucleus::state::State;
use baton_nucleus::tcb::Status;
use baton_nucleus::variant::{Switching, Variant};
use baton_nucleus::{Cluster, Membership, Sender, ThreadId};

const SLICE_TICKS: u32 = 3;

/// See the module.
pub struct Members<K: Variant> {
    pub states: Vec<State<K>>,
    pub model: Model,
    steps: Vec<(usize, Step)>,
    _memberships: Vec<Membership>,
}

impl<K: Variant> Drop for Members<K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.steps[self.steps.len().saturating_sub(12)..];
            eprintln!("the last steps: {last:#?}\non {:#?}", self.model);
        }
    }
}

impl<K: Variant> Members<K> {
    /// Kernels with room for `n_threads` threads each.
    pub fn new(n_kernels: usize, n_threads: usize) -> Members<K> {
        let memberships = Cluster::memberships(n_kernels, n_threads).unwrap();
        Members {
            states: memberships
                .iter()
                .map(|membership| State::in_cluster(membership, SLICE_TICKS))
                .collect(),
            model: Model::new::<K>(SLICE_TICKS),
            steps: Vec::new(),
            _memberships: memberships,
        }
    }

    /// Adds a thread, if there is room. The first thread of a kernel handles an interrupt.
    pub fn add(&mut self, kernel: usize, priority: u8, is_started: bool) {
        let Some(id) = self.states[kernel].create(priority) else { return };
        self.model.create(id, priority);
        if let std::collections::btree_map::Entry::Vacant(entry) =
            self.model.handlers.entry(kernel as u8)
        {
            entry.insert(id);
            self.states[kernel].attach(kernel as u8, Some(id));
        }
        if is_started {
            assert!(self.states[kernel].start(id));
            self.model.start(id);
        }
    }

    /// Makes this kernel's current thread the model's.
    pub fn turn_to(&mut self, kernel: usize) {
        self.model.current = self.states[kernel].current();
    }

    /// Lets one kernel take the step, without any kernel reading its inbox.
    pub fn step(&mut self, kernel: usize, step: &Step) {
        self.steps.push((kernel, step.clone()));
        let state = &mut self.states[kernel];
        match step {
            Step::Ipc(ipc, tag, words) => {
                state.set_ipc(*ipc, *tag, words);
                state.ipc();
            }
            Step::Request(request) => state.request(*request),
            Step::Continue => assert!(state.continue_current()),
            Step::Interrupt(number) => state.interrupt(*number),
            Step::Expire(now_ns) => state.expire(*now_ns),
            Step::Tick => state.tick(),
        }
    }

    /// Lets all kernels read their inboxes until these are empty.
    pub fn read_inboxes(&mut self) {
        for _ in 0..1000 {
            self.states.iter_mut().for_each(State::read_inbox);
            let wakeups: u64 = self.states.iter_mut().map(State::take_wakeups).sum();
            if wakeups == 0 {
                return;
            }
        }
        panic!("{}: the kernels write to each other for ever", K::NAME);
    }

    /// Lets the kernel and the model take the step and all kernels read their inboxes, and
    /// compares.
    pub fn step_and_compare(&mut self, kernel: usize, step: &Step) {
        let me = self.states[kernel].current();
        self.step(kernel, step);
        self.model.taken = match me.map(|me| self.states[kernel].result(me)) {
            Some(Ok(Some(Sender::Thread(sender)))) => Some(sender),
            _ => None,
        };
        match step {
            Step::Expire(now_ns) => _ = self.model.expire(*now_ns, Some(kernel as u8)),
            step => _ = self.model.step(step),
        }
        self.read_inboxes();
        if let (Step::Request(request), Some(me)) = (step, me)
            && *request != Request::End
        {
            let answer = self.states[kernel].utcb(me).map(|utcb| utcb.request);
            assert_eq!(answer, self.model.threads[&me].answer);
        }
        self.compare();
        self.check_running();
    }

    fn state(&self, id: ThreadId) -> &State<K> {
        &self.states[usize::from(id.kernel())]
    }

    fn compare(&self) {
        let n_threads: usize = self.states.iter().map(State::n_threads).sum();
        assert_eq!(n_threads, self.model.threads.len());
        for (&id, thread) in &self.model.threads {
            let state = self.state(id);
            assert_eq!(state.status(id), thread.status, "{id:?}");
            if !self.model.is_deadlocked(id) {
                let priority = i32::from(self.model.priority(id));
                assert_eq!(state.priority(id), priority, "{id:?}");
            }
            if thread.status == Status::Ready && !thread.continues {
                assert_eq!(state.result(id), thread.outcome, "{id:?}");
                if matches!(thread.outcome, Ok(Some(_))) {
                    let (tag, words) = state.message(id);
                    assert_eq!((tag, words), (thread.message.0, &thread.message.1[..]), "{id:?}");
                }
            }
        }
    }

    /// Checks that each running thread can run, and that no higher one can in a strict kernel.
    pub fn check_running(&self) {
        for (kernel, state) in self.states.iter().enumerate() {
            let own = self.model.threads.keys().copied().filter(|id| id.kernel() == kernel as u8);
            let top = own
                .filter(|&id| self.model.is_runnable(id))
                .map(|id| self.model.priority(id))
                .max();
            let running = state.current();
            assert_eq!(running.is_some(), top.is_some(), "{}: kernel {kernel}", K::NAME);
            let Some(running) = running else { continue };
            assert!(self.model.is_runnable(running), "{}: {running:?} runs", K::NAME);
            let is_top = Some(self.model.priority(running)) == top;
            assert!(
                K::SWITCHING == Switching::Direct || is_top,
                "{}: a lower thread runs",
                K::NAME
            );
        }
    }
}
