//! A broker state without sockets, and shorthands for requests of its processes.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

use baton_abi::control::*;
use baton_abi::holder_list::{Entry, Holding};
use baton_broker::limits::{Limits, Rights};
use baton_broker::state::{Effect, HolderList, HolderLists, NewProcess, NodeKey, State, Violation};
use rustix::io::Errno;
use std::collections::BTreeMap;

pub use Strength::{Strong, Weak};

/// The flags of every node but the manager's.
pub const FLAGS: u32 = 0x100;
/// The flags of the manager's node.
pub const MANAGER_FLAGS: u32 = 0x13;

/// The holder lists of all owners, as they wrote them.
#[derive(Clone, Debug, Default)]
pub struct TestLists(BTreeMap<(ProcessId, u32), Entry>);

impl HolderLists for TestLists {
    fn entry(&self, owner: ProcessId, entry: u32) -> Option<Holding> {
        self.0.get(&(owner, entry))?.holding()
    }

    fn all(&self, owner: ProcessId) -> HolderList {
        let entries = self.0.range((owner, 0)..=(owner, u32::MAX)).map(|(_, entry)| *entry);
        let n_read = entries.clone().count();
        HolderList { holdings: entries.filter_map(Entry::holding).collect(), n_read }
    }
}

impl TestLists {
    /// Writes an entry of an owner's list.
    pub fn write(&mut self, owner: ProcessId, entry: u32, written: Entry) {
        self.0.insert((owner, entry), written);
    }

    /// Frees an entry of an owner's list.
    pub fn free(&mut self, owner: ProcessId, entry: u32) {
        self.0.remove(&(owner, entry));
    }

    /// Forgets the list of a process, which is gone.
    pub fn remove(&mut self, owner: ProcessId) {
        self.0.retain(|(its, _), _| *its != owner);
    }
}

/// A state, the lists that it reads, and the effects of its requests that the test has not taken
/// yet.
pub struct TestState {
    pub state: State,
    pub lists: TestLists,
    pub effects: Vec<Effect>,
}

/// All pages of the report that a user may see.
pub fn report_of(core: &TestState, uid: u32) -> Report {
    let (mut report, mut from) = (Report::default(), Some(Cursor::default()));
    while let Some(begin) = from {
        let (page, next) = core.state.report(uid, begin, &core.lists);
        assert!(next.is_none_or(|next| next > begin), "it goes on");
        report.add_page(page);
        from = next;
    }
    report
}

/// The broker's own user.
pub const OWNER: u32 = 1000;

impl TestState {
    pub fn new() -> TestState {
        TestState::with(Limits::default())
    }

    pub fn with(limits: Limits) -> TestState {
        TestState::of(State::new(limits, OWNER))
    }

    pub fn of(state: State) -> TestState {
        TestState { state, lists: TestLists::default(), effects: Vec::new() }
    }

    pub fn admit(&mut self, pid: u32, uid: u32) -> ProcessId {
        self.admit_to(pid, uid, "binder").expect("there is room")
    }

    /// Admits a process to a context, with descriptors for any number of channels.
    pub fn admit_to(&mut self, pid: u32, uid: u32, context: &str) -> Result<ProcessId, Errno> {
        let rights = Rights::default();
        let newcomer = NewProcess { pid, uid, security_context: "label".into(), rights };
        self.state.admit(newcomer, context, u32::MAX).map(|identity| identity.process)
    }

    /// All pages of root's report.
    pub fn report(&self) -> Report {
        report_of(self, 0)
    }

    pub fn ask(&mut self, from: ProcessId, request: Request) -> Option<Reply> {
        self.state.request(from, request, &self.lists, &mut self.effects)
    }

    /// Sends a request of an observer.
    pub fn observe(&mut self, uid: u32, request: &Request) -> Option<Reply> {
        self.state.observe(uid, request, &self.lists, &mut self.effects)
    }

    /// Lets an owner grant a node itself: writes the entry into its list. Returns the node as its
    /// holder passes it on.
    pub fn list(
        &mut self,
        owner: ProcessId,
        node: u64,
        holder: ProcessId,
        strength: Strength,
    ) -> HeldNode {
        let used = self.lists.0.range((owner, 0)..=(owner, u32::MAX)).next_back();
        let entry = used.map_or(0, |((_, last), _)| last + 1);
        let node = NodeId(node);
        self.lists.write(owner, entry, Entry::of(Holding { holder, node, flags: FLAGS, strength }));
        HeldNode { owner, node, strength, entry: Some(entry) }
    }

    /// Strong grants and all grants that the broker gave a process on a node.
    pub fn grants(&self, process: ProcessId, owner: ProcessId, node: u64) -> Option<(u32, u32)> {
        self.state.grants(process, NodeKey { owner, node: NodeId(node) })
    }

    pub fn gone(&mut self, process: ProcessId) {
        self.state.remove_process(process, &mut self.effects);
    }

    /// Takes the effects since the last call.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes the effects since the last call, all of which have to be events.
    pub fn events(&mut self) -> Vec<(ProcessId, Event)> {
        let event = |effect| match effect {
            Effect::Event { to, event } => (to, event),
            other => panic!("no event: {other:?}"),
        };
        self.effects().into_iter().map(event).collect()
    }

    /// A manager with node 1, and clients with a grant on it and a channel to the manager. No
    /// effects are left.
    pub fn with_manager<const CLIENTS: usize>() -> (TestState, ProcessId, [ProcessId; CLIENTS]) {
        let mut core = TestState::new();
        let manager = core.admit(10, OWNER);
        assert_eq!(core.ask(manager, become_manager(1)), Some(Reply::Done));
        let clients = [(); CLIENTS].map(|()| {
            let client = core.admit(11, OWNER);
            core.connect_to_manager(client, manager);
            client
        });
        core.effects();
        (core, manager, clients)
    }

    /// Gives a client a grant on the manager's node and a channel to the manager.
    pub fn connect_to_manager(&mut self, client: ProcessId, manager: ProcessId) {
        assert!(matches!(self.ask(client, Request::ContextManager), Some(Reply::Ticket { .. })));
        assert_eq!(self.ask(client, open(manager)), Some(Reply::Done));
    }

    /// Passes nodes on and returns the granted ones of the target's ticket. No effects are left.
    pub fn pass_on(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        objects: &[HeldNode],
    ) -> Vec<Granted> {
        let reply = self.ask(from, introduce(to, objects));
        let Some(Reply::Ticket { ticket }) = reply else { panic!("refused: {reply:?}") };
        let mut objects = None;
        for effect in self.effects() {
            if let Effect::Event {
                to: receiver,
                event: Event::Ticket { ticket: it, objects: o, .. },
            } = effect
            {
                assert_eq!((receiver, it), (to, ticket));
                objects = Some(o);
            }
        }
        objects.expect("the reply names a ticket that was sent")
    }
}

pub fn introduce(target: ProcessId, objects: &[HeldNode]) -> Request {
    Request::Introduce { target, objects: objects.to_vec() }
}

pub fn open(target: ProcessId) -> Request {
    Request::OpenChannel { target, entry: None }
}

pub fn become_manager(node: u64) -> Request {
    Request::BecomeContextManager { node: NodeId(node), flags: MANAGER_FLAGS }
}

/// A node that its sender holds by grants of the broker's, or not at all.
pub fn held(owner: ProcessId, node: u64, strength: Strength) -> HeldNode {
    HeldNode { owner, node: NodeId(node), strength, entry: None }
}

pub fn release(owner: ProcessId, node: u64, strong: u32, grants: u32) -> Request {
    Request::Release { released: vec![Released { owner, node: NodeId(node), strong, grants }] }
}

pub fn refused(errno: Errno) -> Option<Reply> {
    Some(Reply::Refused { errno: errno.raw_os_error() })
}

pub fn references(
    node: u64,
    strong: bool,
    held: bool,
    holder: (ProcessId, Option<Strength>),
) -> Event {
    Event::References { node: NodeId(node), strong, held, holder }
}

/// A grant on a node that is not the manager's.
pub fn granted(owner: ProcessId, node: u64, strength: Strength) -> Granted {
    Granted { owner, node: NodeId(node), strength, flags: FLAGS, manages: false }
}

/// A grant on the node of `become_manager`.
pub fn granted_manager(owner: ProcessId, node: u64, strength: Strength) -> Granted {
    let (flags, manages) = (MANAGER_FLAGS, true);
    Granted { owner, node: NodeId(node), strength, flags, manages }
}

/// A grant on a node that is dead at its receiver.
pub fn granted_dead(owner: ProcessId, node: u64, strength: Strength) -> Granted {
    Granted { owner, node: NodeId(node), strength, flags: 0, manages: false }
}

pub fn over_return(process: ProcessId, owner: ProcessId, node: u64) -> Effect {
    violation(process, Violation::OverReturn { owner, node: NodeId(node) })
}

pub fn violation(process: ProcessId, why: Violation) -> Effect {
    Effect::Disconnect { process, why }
}
