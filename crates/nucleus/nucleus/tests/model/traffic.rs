//! Kernels of a cluster that read their inboxes late, at random. The model cannot follow each step
//! then. So the test checks all messages, and the state of all threads after all inboxes are read.
//!
//! - A message is received once, whole, by its destination, if its sender got no error of the send
//!   phase. Otherwise no thread receives it.
//! - A notice is received at most once for each time that it was left.
//! - No thread waits for a partner that waits for that very message, or that does not exist.
//! - The priority of each thread is its own or a caller's.

use super::history::{self, Random};
use super::members::Members;
use super::{NO_IPC, Step};
use baton_nucleus::request::Request;
use baton_nucleus::state::State;
use baton_nucleus::tcb::Status;
use baton_nucleus::variant::{Inheritance, Switching, Variant};
use baton_nucleus::{Ipc, Phase, Sender, Source, ThreadId};
use std::collections::BTreeMap;

/// A message.
#[derive(Debug)]
struct Flight {
    from: ThreadId,
    to: ThreadId,
    words: Vec<u64>,
    /// The result that the sender got.
    was_sent: Option<bool>,
    was_received: bool,
}

/// See the module.
pub struct Traffic<K: Variant> {
    members: Members<K>,
    flights: BTreeMap<u32, Flight>,
    /// The IPC that a thread is in, and the number of its message.
    open: BTreeMap<ThreadId, (u32, Ipc)>,
    notices: BTreeMap<ThreadId, u64>,
}

impl<K: Variant> Traffic<K> {
    pub fn new(members: Members<K>) -> Traffic<K> {
        let (flights, open) = (BTreeMap::new(), BTreeMap::new());
        Traffic { members, flights, open, notices: BTreeMap::new() }
    }

    fn state(&mut self, kernel: usize) -> &mut State<K> {
        &mut self.members.states[kernel]
    }

    fn ids(&self) -> Vec<ThreadId> {
        self.members.model.threads.keys().copied().collect()
    }

    pub fn read_inbox(&mut self, kernel: usize) {
        self.state(kernel).read_inbox();
    }

    pub fn expire(&mut self, kernel: usize, now_ns: u64) {
        self.members.step(kernel, &Step::Expire(now_ns));
    }

    /// Lets the current thread of a kernel take a step.
    pub fn act(&mut self, kernel: usize, number: u32, now_ns: u64, random: &mut Random) {
        let Some(me) = self.current(kernel) else { return };
        self.reflect();
        self.members.turn_to(kernel);
        let step = history::own_step(&self.members.model, now_ns, number.into(), random);
        self.members.step(kernel, &step);
        match step {
            Step::Ipc(ipc, _, words) => {
                self.open.insert(me, (number, ipc));
                if let Some((to, _)) = ipc.send {
                    let (was_sent, was_received) = (None, false);
                    let flight = Flight { from: me, to, words, was_sent, was_received };
                    self.flights.insert(number, flight);
                }
            }
            Step::Request(request) => self.note(me, request),
            _ => unreachable!("it is a thread's own step"),
        }
    }

    /// The current thread, if its receive phase is done. Records the result of its last IPC.
    fn current(&mut self, kernel: usize) -> Option<ThreadId> {
        while self.state(kernel).continue_current() {}
        let me = self.state(kernel).current()?;
        if let Some((number, _)) = self.open.remove(&me) {
            self.note_outcome(me, number);
        }
        Some(me)
    }

    fn note_outcome(&mut self, me: ThreadId, number: u32) {
        let state = &self.members.states[usize::from(me.kernel())];
        let outcome = state.result(me);
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.was_sent = Some(!matches!(outcome, Err(error) if error.phase == Phase::Send));
        }
        match outcome {
            Ok(Some(Sender::Thread(from))) => {
                let (tag, words) = state.message(me);
                let flight = self.flights.get_mut(&tag.label()).expect("somebody has sent it");
                assert_eq!((flight.from, flight.to, &flight.words[..]), (from, me, words));
                assert!(!flight.was_received, "{flight:?} comes twice");
                flight.was_received = true;
            }
            Ok(Some(Sender::Notices)) => {
                let left = self.notices.entry(me).or_default();
                let bits = state.message(me).1[0];
                assert_eq!(bits & !*left, 0, "notices that were not left");
                *left &= !bits;
            }
            _ => {}
        }
    }

    fn note(&mut self, me: ThreadId, request: Request) {
        let state = &mut self.members.states[usize::from(me.kernel())];
        let is_done = state.utcb(me).is_none_or(|utcb| utcb.request != Request::Refused);
        let threads = &mut self.members.model.threads;
        match request {
            _ if !is_done => {}
            Request::Notify(id, bits) => *self.notices.entry(id).or_default() |= bits,
            Request::SetPriority(id, priority) => threads.get_mut(&id).unwrap().base = priority,
            Request::Suspend(id) => threads.get_mut(&id).unwrap().suspended = true,
            Request::Resume(id) => threads.get_mut(&id).unwrap().suspended = false,
            Request::End => drop(threads.remove(&me)),
            _ => {}
        }
    }

    /// Sets the model's threads to the states of the kernels' threads.
    fn reflect(&mut self) {
        for id in self.ids() {
            let status = self.members.states[usize::from(id.kernel())].status(id);
            let ipc = self.open.get(&id).map_or(NO_IPC, |&(_, ipc)| ipc);
            let waits = matches!(status, Status::Sending | Status::Receiving);
            let thread = self.members.model.threads.get_mut(&id).unwrap();
            (thread.status, thread.ipc) = (status, ipc);
            thread.calls = waits && is_call(ipc);
        }
    }

    /// Checks that no thread runs in a strict kernel while a higher one could, as far as it has
    /// read.
    pub fn check_running(&mut self) {
        if K::SWITCHING == Switching::Direct {
            return;
        }
        self.reflect();
        for state in &self.members.states {
            let Some(current) = state.current() else { continue };
            let mut others = self.members.model.threads.iter();
            let is_higher = |id: ThreadId| state.priority(id) > state.priority(current);
            assert!(!others.any(|(&id, it)| {
                id.kernel() == current.kernel()
                    && it.status == Status::Ready
                    && !it.suspended
                    && is_higher(id)
            }));
        }
    }

    /// Reads all inboxes, ends all deadlines, and runs every thread until it has the result of its
    /// IPC.
    pub fn check_end(mut self) {
        const LATE_NS: u64 = 1 << 40;
        self.members.read_inboxes();
        for kernel in 0..self.members.states.len() {
            self.expire(kernel, LATE_NS);
        }
        self.members.read_inboxes();
        for id in self.ids() {
            self.members.model.threads.get_mut(&id).unwrap().suspended = false;
        }
        for kernel in 0..self.members.states.len() {
            // Threads that others have suspended cannot run and report nothing.
            while let Some(me) = self.current(kernel) {
                self.members.step(kernel, &Step::Request(Request::Suspend(me)));
                self.members.read_inboxes();
            }
        }
        self.members.read_inboxes();
        self.reflect();
        self.check_flights();
        self.check_waits();
        self.check_priorities();
    }

    fn check_flights(&self) {
        for (number, flight) in &self.flights {
            let Flight { from, to, was_sent, was_received, .. } = *flight;
            let from_status = self.members.states[usize::from(from.kernel())].status(from);
            let sends = self.open.get(&from).is_some_and(|&(it, _)| it == *number)
                && from_status == Status::Sending;
            // A receiver that was suspended has not reported its message.
            let can_tell = !self.open.contains_key(&to) || was_received;
            match was_sent {
                Some(true) => assert!(was_received || !can_tell, "{flight:?} is lost"),
                Some(false) => assert!(!was_received, "{flight:?} was not sent"),
                None => assert!(!sends || !was_received, "{flight:?} is still being sent"),
            }
        }
    }

    fn check_waits(&self) {
        for (&id, thread) in &self.members.model.threads {
            let state = &self.members.states[usize::from(id.kernel())];
            let Some(partner) = state.partner(id) else { continue };
            if !matches!(thread.status, Status::Sending | Status::Receiving) {
                continue;
            }
            let other = self.members.model.threads.get(&partner);
            let other = other.unwrap_or_else(|| panic!("{id:?} waits for {partner:?}"));
            let receives = match other.ipc.receive {
                Some((Source::Any, _)) => true,
                Some((Source::Thread(from), _)) => from == id,
                _ => false,
            };
            let meet = thread.status == Status::Sending && other.status == Status::Receiving;
            assert!(!(meet && receives), "{id:?} and {partner:?} wait for each other");
        }
    }

    fn check_priorities(&self) {
        let model = &self.members.model;
        for &id in model.threads.keys().filter(|&&id| !model.is_deadlocked(id)) {
            let state = &self.members.states[usize::from(id.kernel())];
            let expected = match K::INHERITANCE {
                Inheritance::ThroughCalls => model.priority(id),
                Inheritance::None => model.threads[&id].base,
            };
            assert_eq!(state.priority(id), i32::from(expected), "{id:?}");
        }
    }
}

fn is_call(ipc: Ipc) -> bool {
    let to = ipc.send.map(|(to, _)| Source::Thread(to));
    to.is_some() && to == ipc.receive.map(|(from, _)| from)
}
