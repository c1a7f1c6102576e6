//! The cache of a looper for one client: the validated sender, and the nodes that it calls.

use super::receiver::{Receiver, has_few_references, is_plain};
use super::serve::{Posted, Taken};
use crate::engine::Engine;
use crate::sys::priority;
use baton_abi::control::{ChannelId, NodeId};
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::{TF_CLEAR_BUF, TF_ONE_WAY};
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::node::Node;
use baton_state::transaction::Incoming;
use std::cell::Cell;

/// Nodes of each client that are kept.
const NODES: usize = 8;

/// No nice value.
const NO_NICE: i32 = i32::MIN;

/// Whether transactions like one that the state has admitted may bypass the state: a message there
/// has no label and names no user, and neither does its answer.
pub(super) fn may_be_cached(engine: &Engine, state: &State, incoming: &Incoming) -> bool {
    let is_labelled = incoming.label.is_some();
    let names_user = incoming.sender.1 != state.user_of(incoming.peer);
    !is_labelled && !names_user && !engine.goes_by_state()
}

/// A node that a client calls.
#[derive(Clone)]
pub(super) struct CachedNode<T> {
    node: NodeId,
    /// The object that serves it.
    object: T,
    /// The minimum priority that the node asks for.
    min_priority: Option<SchedPriority>,
    /// The looper need not change its priority for a caller at this nice value.
    nice: i32,
}

/// A validated client, and the nodes that it has called lately.
#[derive(Clone)]
pub(super) struct ClientCache<T> {
    pub channel: ChannelId,
    /// The epoch of the channel's revocations when this entry was made.
    epoch: u64,
    sender: (u32, u32),
    /// A node stands at its number modulo [`NODES`].
    nodes: [Option<CachedNode<T>>; NODES],
}

impl<T> ClientCache<T> {
    /// Remembers in the client's cache a transaction that the state has admitted, at this epoch of
    /// the channel's revocations.
    pub fn insert(
        cache: &mut Option<ClientCache<T>>,
        epoch: u64,
        state: &State,
        incoming: &Incoming,
        object: T,
    ) {
        let (Some(serving), Some(node)) = (&incoming.serving, incoming.node) else { return };
        let (channel, sender) = (serving.via.channel, incoming.sender);
        let nodes = [const { None }; NODES];
        cache.take_if(|client| client.epoch != epoch);
        let client = cache.get_or_insert(ClientCache { channel, epoch, sender, nodes });
        let min_priority = state.nodes.get(node).and_then(Node::min_priority);
        let nice = Some(incoming.queue_priority.nice())
            .filter(|nice| priority::is_served_here(*nice, min_priority));
        let nice = nice.unwrap_or(NO_NICE);
        client.nodes[node.0 as usize % NODES] =
            Some(CachedNode { node, object, min_priority, nice });
    }

    /// The epoch at which this entry was made.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    fn cached_node(&self, node: u64) -> Option<&CachedNode<T>> {
        self.nodes[node as usize % NODES].as_ref().filter(|known| known.is(node))
    }

    /// Like `cached_node`, for a caller that mostly asks for the node that it asked for last.
    #[inline(always)]
    pub fn cached_node_again<'a>(
        &'a self,
        node: u64,
        last: &Cell<Option<&'a CachedNode<T>>>,
    ) -> Option<&'a CachedNode<T>> {
        match last.get() {
            Some(known) if known.is(node) => Some(known),
            _ => self.cached_node(node).inspect(|known| last.set(Some(known))),
        }
    }

    /// Takes in the request on a lane, if it is one to a known node that is for the fast path, and
    /// finds its object. The caller clears the inbox.
    #[inline(always)]
    pub fn take_in(
        &self,
        engine: &Engine,
        taken: Taken<'_>,
        receiver: &mut impl Receiver,
    ) -> Option<&T> {
        if taken.lane.inbox().is_empty() {
            return None;
        }
        let plain = self.find(taken, is_plain, |node| self.cached_node(node));
        let Some((posted, object)) = plain else {
            return self.take_in_with_references(engine, taken, false, receiver);
        };
        (receiver.fits(&posted.message) && receiver.take_request(engine, &posted)).then_some(object)
    }

    /// Like `take_in`, of a request with few references.
    #[inline(never)]
    pub fn take_in_with_references(
        &self,
        engine: &Engine,
        taken: Taken<'_>,
        is_pinned: bool,
        receiver: &mut impl Receiver,
    ) -> Option<&T> {
        let known = |node| self.cached_node(node);
        let (posted, object) = self.find(taken, has_few_references, known)?;
        let posted = Posted { is_pinned, ..posted };
        let takes = receiver.fits(&posted.message)
            && receiver.take_request_with_references(engine, &posted);
        takes.then_some(object)
    }

    /// The request on a lane, if it is one that `fits` finds simple enough, to a node that `known`
    /// finds, and that node's object.
    #[inline(always)]
    pub fn find<'a, 'b: 'a>(
        &'b self,
        taken: Taken<'a>,
        fits: impl FnOnce(&Message, Kind, u8) -> bool,
        known: impl FnOnce(u64) -> Option<&'b CachedNode<T>>,
    ) -> Option<(Posted<'a>, &'b T)> {
        let message = taken.lane.header();
        let others = message.flags & (TF_ONE_WAY | TF_CLEAR_BUF);
        if others != 0 || !fits(&message, Kind::Request, 1) {
            return None;
        }
        let known = known(message.node)?;
        if message.param != known.nice && !known.is_served_here(message.param) {
            return None;
        }
        // Relaxed: the mailbox's word has been acquired.
        let token = size_of::<Message>() + std::mem::offset_of!(ChainEntry, token);
        let caller = taken.lane.incoming().double_word(token).load(Ordering::Relaxed);
        let (sender, epoch) = (&self.sender, self.epoch);
        let posted = Posted { taken, epoch, sender, caller, message, is_pinned: false };
        Some((posted, &known.object))
    }
}

impl<T> CachedNode<T> {
    #[inline(always)]
    fn is(&self, node: u64) -> bool {
        self.node.0 == node
    }

    /// Whether a caller at this nice value is served at the priority at which the looper runs.
    #[cold]
    fn is_served_here(&self, nice: i32) -> bool {
        priority::is_served_here(nice, self.min_priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Channel, INLINE_BYTES};
    use crate::engine::in_flight::InFlight;
    use crate::fast::CopiedPayload;
    use crate::fast::receiver::PostedAnswer;
    use crate::runner::tests::{TestBroker, broker, channel, other_end};
    use crate::sys::thread::tid;
    use baton_abi::lane::status;
    use baton_shm::sync::Ordering;
    use bytemuck::bytes_of;
    use std::sync::Arc;

    const NODE: u64 = 3;
    const LANE: usize = 5;
    const TOKEN: u64 = 2;

    struct Stage {
        server: Arc<Engine>,
        client: Arc<Engine>,
        /// The server's end, and the client's.
        ends: [Arc<Channel>; 2],
        in_flight: Arc<InFlight>,
        known: ClientCache<()>,
        _broker: TestBroker,
    }

    /// A looper that knows a client.
    fn stage() -> Stage {
        let broker = broker();
        let (server, client, theirs) = channel(&broker);
        let ends = [other_end(&server, &theirs), theirs];
        let in_flight = server.in_flight().unwrap();
        let epoch = server.operations.revocations_of(&ends[0]).epoch();
        let mut nodes = [const { None }; NODES];
        nodes[NODE as usize % NODES] =
            Some(CachedNode { node: NodeId(NODE), object: (), min_priority: None, nice: 0 });
        let known = ClientCache { channel: ends[0].id, epoch, sender: (0, 0), nodes };
        Stage { server, client, ends, in_flight, known, _broker: broker }
    }

    impl Stage {
        fn post(&self, message: &Message) {
            let caller = ChainEntry { process: self.client.identity.process.0, token: TOKEN };
            let lane = self.ends[1].lane(LANE).unwrap();
            lane.post(message, |area| area.write(size_of::<Message>(), bytes_of(&caller)));
        }

        /// Whether the looper takes in what lies on the lane.
        fn takes(&self, receiver: &mut impl Receiver) -> bool {
            let (in_flight, channel) = (&*self.in_flight, &*self.ends[0]);
            let (lane, via) = (channel.lane(LANE).unwrap(), channel.via(LANE));
            let taken = Taken { in_flight, channel, lane, via };
            let is_taken = self.known.take_in(&self.server, taken, receiver).is_some();
            lane.inbox().clear();
            is_taken
        }

        /// Whether nobody serves anything here.
        fn is_idle(&self) -> bool {
            let state = self.server.lock();
            let thread = state.threads.get(tid());
            let is_idle =
                state.outstanding == 0 && thread.is_none_or(|thread| thread.stack.is_empty());
            let is_open = self.in_flight.slot.as_ref().unwrap().open.load(Ordering::Relaxed) != 0;
            is_idle && !is_open && self.in_flight.take_over().is_none()
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            self.client.close();
            self.server.close();
        }
    }

    fn plain() -> Message {
        Message { kind: Kind::Request as u32, node: NODE, chain: 1, ..Message::default() }
    }

    #[test]
    fn only_plain_requests_to_known_nodes_are_taken_in() {
        let stage = stage();
        assert!(!stage.takes(&mut CopiedPayload::default()), "nothing has come");
        type Change = (&'static str, bool, fn(&mut Message));
        let changes: [Change; 14] = [
            ("nothing", true, |_| ()),
            ("the longest data", true, |it| it.data_bytes = INLINE_BYTES as u32),
            ("longer data", false, |it| it.data_bytes = INLINE_BYTES as u32 + 1),
            ("its kind", false, |it| it.kind = Kind::Reply as u32),
            ("no caller", false, |it| it.chain = 0),
            ("two callers", false, |it| it.chain = 2),
            ("offsets", false, |it| it.offsets_bytes = 8),
            ("buffers", false, |it| it.buffers_bytes = 8),
            ("descriptors", false, |it| it.fds = 1),
            ("objects", false, |it| it.objects = 1),
            ("a ticket", false, |it| it.ticket = 1 << 32),
            ("one way", false, |it| it.flags = TF_ONE_WAY),
            ("a buffer to be cleared", false, |it| it.flags = TF_CLEAR_BUF),
            ("another node", false, |it| it.node = NODE + NODES as u64),
        ];
        for (name, is_plain, change) in changes {
            let mut message = plain();
            change(&mut message);
            stage.post(&message);
            assert_eq!(stage.takes(&mut CopiedPayload::default()), is_plain, "{name}");
            if is_plain {
                assert!(!stage.takes(&mut CopiedPayload::default()), "it has been taken in");
                assert!(stage.in_flight.leave());
                stage.server.page.set_open(&stage.in_flight.slot, false);
            }
            assert!(stage.is_idle(), "{name}");
        }
    }

    #[test]
    fn a_node_is_known_again_by_its_number() {
        let stage = stage();
        let last = Cell::new(None);
        assert!(stage.known.cached_node_again(NODE, &last).is_some());
        assert!(stage.known.cached_node_again(NODE + 1, &last).is_none());
        assert!(stage.known.cached_node_again(NODE, &last).is_some());
    }

    /// A receiver during whose `take_request` everything is revoked: before the operation begins,
    /// and then, if so wanted, before it turns back.
    struct Revoked {
        takes_over: bool,
    }

    impl Receiver for Revoked {
        fn take_answer(&mut self, _: &Engine, _: &PostedAnswer<'_>) -> bool {
            false
        }

        fn take_answer_with_references(&mut self, _: &Engine, _: &PostedAnswer<'_>) -> bool {
            false
        }

        fn take_request_with_references(&mut self, _: &Engine, _: &Posted<'_>) -> bool {
            false
        }

        fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
            let revoke = || engine.with_state(|state| engine.revoke(state));
            revoke();
            assert!(!request.begin(engine), "the epoch has ended");
            if self.takes_over {
                revoke();
                assert_eq!(engine.lock().outstanding, 1, "the state serves it");
            }
            request.turn_back(engine);
            false
        }
    }

    #[test]
    fn a_request_whose_epoch_has_ended_is_nobodys() {
        for takes_over in [false, true] {
            let stage = stage();
            stage.post(&plain());
            assert!(!stage.takes(&mut Revoked { takes_over }));
            assert!(stage.is_idle());
            stage.post(&plain());
            assert!(!stage.takes(&mut CopiedPayload::default()), "by the epoch that has ended");
            assert!(stage.is_idle());
        }
    }

    /// A channel stays as long as a thread may use it.
    #[test]
    fn a_thread_that_has_given_up_its_operation_uses_no_channel() {
        let stage = stage();
        stage.post(&plain());
        assert!(stage.takes(&mut CopiedPayload::default()));
        let is_used = || stage.server.operations.use_channel(&stage.ends[0]);
        assert!(is_used());
        stage.server.give_up(&stage.in_flight);
        assert!(!is_used());
        assert_eq!(stage.server.lock().outstanding, 1, "the state serves it");
    }

    #[test]
    fn an_operation_that_is_taken_over_has_its_callers_token_and_takes_descriptors_if_they_do() {
        for flags in [0, baton_abi::uapi::TF_ACCEPT_FDS] {
            let stage = stage();
            stage.post(&Message { flags, ..plain() });
            assert!(stage.takes(&mut CopiedPayload::default()));
            stage.server.with_state(|state| {
                stage.server.take_over_own(state);
                let serving = state.thread(tid()).serves().unwrap();
                let process = stage.client.identity.process.0;
                assert_eq!(serving.chain, [ChainEntry { process, token: TOKEN }]);
                assert_eq!(serving.accepts_fds, flags != 0);
                assert_eq!(serving.via, stage.ends[0].via(LANE));
                let counted = stage.server.page.mapping().word(status::OUTSTANDING);
                assert_eq!(counted.load(Ordering::Relaxed), 1, "before its thread counts it less");
            });
        }
    }
}
