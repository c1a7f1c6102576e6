//! The broker's grants to hostile processes, and the messages of these that programs are given.
//!
//! Before a hostile process has the broker introduce a program to nodes of third processes, it
//! notes these here. A program that is given a message of a hostile process takes a note with the
//! same nodes away, and fails if there is none. A program may be given calls to those
//! objects only that their caller was granted, by the broker or by the program.

use crate::payload::{Name, Object};
use crate::program::Message;
use crate::world::Peer;
use baton_abi::control::{NodeId, ProcessId};
use baton_abi::uapi::{BINDER_TYPE_FDA, BINDER_TYPE_PTR, FlatObject, TransactionData};
use baton_shm::simulation::FIRST_PID;
use bytemuck::pod_read_unaligned;
use rustix::fd::{FromRawFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// The code of each transaction and reply of a program (`support/program.rs`), and of none of a
/// hostile process.
pub const HONEST_CODE: u32 = 7;

/// The hostile processes of a history.
#[derive(Default)]
pub struct HostileProcesses(Mutex<Inner>);

#[derive(Default)]
pub struct Inner {
    /// The numbers of those that live.
    pub alive: Vec<u32>,
    /// Their sockets, each with its process, with which it ends.
    pub sockets: Vec<(u32, Arc<OwnedFd>)>,
    /// The process of each broker's id.
    pub processes: BTreeMap<ProcessId, u32>,
    /// Introductions: the receiver and the nodes of each.
    pub announced: Vec<(ProcessId, Vec<Announced>)>,
    pub granted: BTreeSet<Right>,
    pub called: BTreeSet<Right>,
    /// The hostile processes only listen.
    pub is_over: bool,
    /// Messages that programs were given, and objects in them.
    n_received: u64,
    n_objects: u64,
}

/// An object, as the broker knows it: owner, node, and whether the reference is a strong one.
pub type Announced = (ProcessId, NodeId, bool);

/// The right of a process to call a node: its number, and the owner and the id of the node.
pub type Right = (u32, ProcessId, NodeId);

impl HostileProcesses {
    /// No step while it is borrowed.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether a process is hostile.
    pub fn is_one(&self, process: u64) -> bool {
        self.lock().processes.values().any(|number| u64::from(*number) == process)
    }

    /// The number of messages of hostile processes that programs were given, for a trace.
    pub fn summary(&self) -> String {
        let inner = self.lock();
        let (processes, left) = (inner.processes.len(), inner.announced.len());
        let (messages, objects) = (inner.n_received, inner.n_objects);
        format!("{processes} hostile: {messages} messages, {objects} objects, {left} tickets left")
    }

    /// A program was given a two-way call of a hostile process.
    pub fn receive_call(&self, peer: &Peer, transaction: &TransactionData) {
        // The program is not told of a caller that has left.
        let Some(number) = (transaction.sender_pid as u32).checked_sub(FIRST_PID) else { return };
        let state = peer.program.device.engine().lock();
        let node = state.nodes.at(transaction.target).expect("a buffer keeps its target");
        let right = (number, state.id, node);
        let mut inner = self.lock();
        // The caller may not know yet what it was granted.
        let its = inner.processes.iter().filter(|(_, process)| **process == number);
        let mut its = its.filter_map(|(id, _)| state.peers.get(id));
        if its.any(|peer| peer.holding(node).is_some()) {
            inner.granted.insert(right);
        }
        inner.called.insert(right);
    }

    /// A program was given a message of a hostile process: checks that this program was introduced
    /// to other programs' nodes in it, and no ticket was used twice. Returns the handles of hostile
    /// processes' objects among them, and closes descriptors.
    pub fn receive(&self, peer: &Peer, message: &Message) -> Vec<(Name, Object)> {
        let offsets = peer.program.offsets(message);
        let state = peer.program.device.engine().lock();
        let mut objects = Vec::new();
        for offset in offsets {
            let bytes = &message.data[offset as usize..];
            let kind: u32 = pod_read_unaligned(&bytes[..4]);
            if matches!(kind, BINDER_TYPE_PTR | BINDER_TYPE_FDA) {
                continue;
            }
            let object = Object::of(&pod_read_unaligned(&bytes[..size_of::<FlatObject>()]));
            match object {
                Object::Handle { handle, strong } => {
                    let reference = state.references.get(handle);
                    let reference = reference.unwrap_or_else(|| panic!("no handle {handle}"));
                    objects.push((object, (reference.owner, reference.node, strong)));
                }
                Object::Own { ptr, strong, .. } => {
                    let node = state.nodes.at(ptr).unwrap_or_else(|| panic!("no {object:x?}"));
                    objects.push((object, (state.id, node, strong)));
                }
                // SAFETY: the driver has just installed it, and nobody else knows it.
                Object::Descriptor(fd) => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
            }
        }
        let receiver = state.id;
        drop(state);
        let mut inner = self.lock();
        inner.n_received += 1;
        inner.n_objects += objects.len() as u64;
        let others = objects.iter().map(|(_, announced)| *announced);
        let others: Vec<_> = others.filter(|(owner, ..)| *owner != receiver).collect();
        let of_others = !others.iter().all(|(owner, ..)| inner.processes.contains_key(owner));
        if of_others {
            let taken = inner.take_note(receiver, &others);
            assert!(
                taken,
                "{} has {others:?} of {objects:?}, not granted: {:?}",
                peer.process, inner.announced
            );
        }
        let name = |(object, (owner, node, _)): (Object, Announced)| {
            let owner = u64::from(*inner.processes.get(&owner)?);
            // Handle 0 is whoever manages the context.
            let is_handle = matches!(object, Object::Handle { handle: 1.., .. });
            is_handle.then_some((Name { owner, cookie: node.0 }, object))
        };
        objects.into_iter().filter_map(name).collect()
    }
}

impl Inner {
    /// Takes a note away. False if there is none.
    pub fn forget(&mut self, note: &(ProcessId, Vec<Announced>)) -> bool {
        let at = self.announced.iter().position(|it| it == note);
        at.inspect(|at| drop(self.announced.swap_remove(*at))).is_some()
    }

    /// Takes away the note of what a program was given. False if there is none.
    fn take_note(&mut self, receiver: ProcessId, given: &[Announced]) -> bool {
        let fits = |(_, (to, nodes)): &(usize, &(ProcessId, Vec<Announced>))| {
            *to == receiver && self.is_noted(given, nodes)
        };
        // Of several notes the longest: what a shorter one lacks may be the sender's own, but no
        // other message has what a longer one names.
        let fitting = self.announced.iter().enumerate().filter(fits);
        let at = fitting.max_by_key(|(_, (_, nodes))| nodes.len()).map(|(at, _)| at);
        // Which note a dead node belongs to cannot be told: that note stays.
        let is_exact = given.iter().all(|(owner, ..)| *owner != ProcessId::BROKER);
        at.inspect(|at| drop(is_exact.then(|| self.announced.swap_remove(*at)))).is_some()
    }

    /// Whether the note names what was given. A hostile process may have granted its own nodes, and
    /// the broker gives a dead node for one that the sender did not hold.
    fn is_noted(&self, given: &[Announced], noted: &[Announced]) -> bool {
        let Some((first, others)) = given.split_first() else { return noted.is_empty() };
        if self.processes.contains_key(&first.0) && self.is_noted(others, noted) {
            return true;
        }
        let Some((next, left)) = noted.split_first() else { return false };
        (first == next || first.0 == ProcessId::BROKER) && self.is_noted(others, left)
    }
}
