//! A broker state without sockets, and shorthands for requests of its processes.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

use baton_abi::control::*;
use baton_broker::limits::{Limits, Rights};
use baton_broker::state::{Effect, NewProcess, State, Violation};
use rustix::io::Errno;

pub use Strength::{Strong, Weak};

/// A state, and the effects of its requests that the test has not taken yet.
pub struct TestState {
    pub state: State,
    pub effects: Vec<Effect>,
}

/// All pages of the report that a user may see.
pub fn report_of(state: &State, uid: u32) -> Report {
    let (mut report, mut from) = (Report::default(), Some(Cursor::default()));
    while let Some(begin) = from {
        let (page, next) = state.report(uid, begin);
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
        TestState { state: State::new(limits, OWNER), effects: Vec::new() }
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
        report_of(&self.state, 0)
    }

    pub fn ask(&mut self, from: ProcessId, request: Request) -> Option<Reply> {
        self.state.request(from, request, &mut self.effects)
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

    /// A manager with node 1, and clients with handle 0 and a channel to the manager. No effects
    /// are left.
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

    /// Gives a client handle 0 and a channel to the manager.
    pub fn connect_to_manager(&mut self, client: ProcessId, manager: ProcessId) {
        assert!(matches!(self.ask(client, Request::ContextManager), Some(Reply::Ticket { .. })));
        let open = Request::OpenChannel { target: manager };
        assert_eq!(self.ask(client, open), Some(Reply::Done));
    }

    /// Sends objects and returns the granted ones of the target's ticket. No effects are left.
    pub fn send_objects(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        objects: &[Object],
    ) -> Vec<Granted> {
        let reply = self.ask(from, translate(to, objects));
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

    /// Sends one object that arrives as a handle, and returns the handle.
    pub fn send_handle(&mut self, from: ProcessId, to: ProcessId, object: Object) -> u32 {
        match self.send_objects(from, to, &[object])[..] {
            [Granted::Handle { handle, .. }] => handle,
            ref other => panic!("no handle: {other:?}"),
        }
    }
}

pub fn translate(target: ProcessId, objects: &[Object]) -> Request {
    Request::Translate { target, objects: objects.to_vec() }
}

pub fn become_manager(node: u64) -> Request {
    Request::BecomeContextManager { node: NodeId(node), flags: 0x13 }
}

pub fn node(node: u64, strength: Strength) -> Object {
    Object::Node { node: NodeId(node), strength, flags: 0x100 }
}

pub fn handle(handle: u32, strength: Strength) -> Object {
    Object::Handle { handle, strength }
}

pub fn release(handle: u32, strong: u32, grants: u32) -> Request {
    Request::Release { handle, strong, grants }
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

pub fn granted(handle: u32, owner: ProcessId, node: u64, strength: Strength) -> Granted {
    // The flags of `become_manager`'s node, which is handle 0, differ from those of other nodes.
    let flags = if handle == 0 { 0x13 } else { 0x100 };
    Granted::Handle { handle, owner, node: NodeId(node), strength, flags }
}

pub fn violation(process: ProcessId, why: Violation) -> Effect {
    Effect::Disconnect { process, why }
}
