//! Nodes: the objects that this process owns, and what it has been told of their references.
//!
//! A node is strong while any process holds it strongly, a transaction carries it, or the program
//! itself was lent a count. The program hears of each change once, and its acknowledgement
//! (`BC_ACQUIRE_DONE`) ends the count that it was lent until then.

use super::work::{Queue, Work};
use super::{Return, State};
use baton_abi::control::{NodeId, Strength};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The program's address for it.
    pub ptr: u64,
    /// The program's word beside it.
    pub cookie: u64,
    /// `flat_binder_object.flags` at its first appearance.
    pub flags: u32,
    /// Some process holds it strongly, says the broker.
    pub remote_strong: bool,
    /// Some process holds it, says the broker.
    pub remote_held: bool,
    /// Translations under way to the broker, strong and of any strength.
    pub in_transit: Counts,
    /// Buffers here that hold it, and counts lent to the program.
    pub local: Counts,
    has_strong: bool,
    pending_strong: bool,
    has_weak: bool,
    pending_weak: bool,
    /// It is the context manager's, or it is being asked whether it may be: the program is told
    /// nothing of it. Counts the requests, all but one of which fail.
    manages: u32,
    /// Where its work is queued, if it is.
    pub queued: Option<Queue>,
    /// A one-way transaction to it is being served: others wait in `one_way_todo`.
    pub one_way_busy: bool,
    /// One-way transactions that wait for the one before to be freed.
    pub one_way_todo: VecDeque<super::transaction::Incoming>,
}

/// Strong and weak counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Strong ones.
    pub strong: u32,
    /// Weak ones.
    pub weak: u32,
}

impl Counts {
    /// The count of this strength.
    pub fn of(&mut self, strength: Strength) -> &mut u32 {
        match strength {
            Strength::Strong => &mut self.strong,
            Strength::Weak => &mut self.weak,
        }
    }
}

/// What a program is to be told of a node, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// `BR_INCREFS`, `BR_ACQUIRE`, `BR_RELEASE`, `BR_DECREFS`, as they apply.
    pub returns: Vec<u32>,
    /// The node's address and cookie.
    pub subject: (u64, u64),
}

impl Node {
    fn new(ptr: u64, cookie: u64, flags: u32) -> Node {
        Node {
            ptr,
            cookie,
            flags,
            remote_strong: false,
            remote_held: false,
            in_transit: Counts::default(),
            local: Counts::default(),
            has_strong: false,
            pending_strong: false,
            has_weak: false,
            pending_weak: false,
            manages: 0,
            queued: None,
            one_way_busy: false,
            one_way_todo: VecDeque::new(),
        }
    }

    /// Whether anyone needs its object.
    pub fn is_strong(&self) -> bool {
        self.remote_strong || self.in_transit.strong > 0 || self.local.strong > 0
    }

    /// Whether anyone needs its name.
    pub fn is_held(&self) -> bool {
        self.is_strong() || self.remote_held || self.in_transit.weak > 0 || self.local.weak > 0
    }

    /// Whether the program has yet to hear of a change.
    pub fn has_news(&self) -> bool {
        let differs = self.is_strong() != self.has_strong || self.is_held() != self.has_weak;
        self.manages == 0 && differs
    }

    /// Whether the last count of this strength has gone from a node that the program knows of: a
    /// reader looks at it then, though there may be nothing to tell.
    pub fn is_to_be_looked_at(&self, gone: Strength) -> bool {
        let left = match gone {
            Strength::Strong => self.is_strong(),
            Strength::Weak => self.remote_held || self.in_transit.weak > 0 || self.local.weak > 0,
        };
        self.manages == 0 && self.is_known() && !left
    }

    /// Whether the program was told of a reference.
    pub fn is_known(&self) -> bool {
        self.has_strong || self.has_weak
    }

    /// `has_strong_ref` and `has_weak_ref` of BINDER_GET_NODE_DEBUG_INFO.
    pub fn told(&self) -> (bool, bool) {
        let manages = self.manages > 0;
        (self.has_strong || manages, self.has_weak || manages)
    }

    /// The program gives it to be the context manager's: it needs no news of it.
    pub fn manage(&mut self) {
        self.manages += 1;
        self.local = Counts { strong: self.local.strong + 1, weak: self.local.weak + 1 };
    }

    /// It manages the context, or the broker is being asked.
    pub fn may_manage(&self) -> bool {
        self.manages > 0
    }

    /// It was refused: what the program was told before is what it knows.
    pub fn do_not_manage(&mut self) {
        self.manages -= 1;
        self.local = Counts { strong: self.local.strong - 1, weak: self.local.weak - 1 };
    }

    /// Takes FDs (`FLAT_BINDER_FLAG_ACCEPTS_FDS`).
    pub fn accepts_fds(&self) -> bool {
        self.flags & FLAT_BINDER_FLAG_ACCEPTS_FDS != 0
    }

    /// The minimum priority at which its transactions are served, if it asks for one.
    pub fn min_priority(&self) -> Option<SchedPriority> {
        SchedPriority::of_node_flags(self.flags)
    }

    /// Wants the sender's security label with each transaction.
    pub fn wants_label(&self) -> bool {
        self.flags & FLAT_BINDER_FLAG_TXN_SECURITY_CTX != 0
    }

    /// Takes the news, lending the program a count for each reference that it is to acknowledge.
    pub fn take_news(&mut self) -> News {
        let (strong, held) = (self.is_strong(), self.is_held());
        let mut returns = Vec::with_capacity(2);
        if !self.has_news() {
            return News { returns, subject: (self.ptr, self.cookie) };
        }
        if held && !self.has_weak {
            (self.has_weak, self.pending_weak) = (true, true);
            self.local.weak += 1;
            returns.push(BR_INCREFS);
        }
        if strong && !self.has_strong {
            (self.has_strong, self.pending_strong) = (true, true);
            self.local.strong += 1;
            returns.push(BR_ACQUIRE);
        }
        if !strong && self.has_strong {
            self.has_strong = false;
            returns.push(BR_RELEASE);
        }
        if !held && self.has_weak {
            self.has_weak = false;
            returns.push(BR_DECREFS);
        }
        News { returns, subject: (self.ptr, self.cookie) }
    }

    /// `BC_ACQUIRE_DONE` or `BC_INCREFS_DONE`. False if nothing was to be acknowledged.
    pub fn acknowledge(&mut self, strength: Strength) -> bool {
        let pending = match strength {
            Strength::Strong => &mut self.pending_strong,
            Strength::Weak => &mut self.pending_weak,
        };
        if !std::mem::take(pending) {
            return false;
        }
        *self.local.of(strength) -= 1;
        true
    }
}

/// All nodes of the process, by name and by the program's address.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    by_id: FxHashMap<NodeId, Node>,
    by_ptr: BTreeMap<u64, NodeId>,
    last: u64,
}

impl Nodes {
    /// The node at an address, made known if it was not.
    pub fn find_or_add(&mut self, ptr: u64, cookie: u64, flags: u32) -> NodeId {
        if let Some(&id) = self.by_ptr.get(&ptr) {
            return id;
        }
        self.last += 1;
        let id = NodeId(self.last);
        self.by_ptr.insert(ptr, id);
        self.by_id.insert(id, Node::new(ptr, cookie, flags));
        id
    }

    /// By the broker's name.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.by_id.get(&id)
    }

    /// By the broker's name.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.by_id.get_mut(&id)
    }

    /// By the program's address.
    pub fn at(&self, ptr: u64) -> Option<NodeId> {
        self.by_ptr.get(&ptr).copied()
    }

    /// The first node past an address (BINDER_GET_NODE_DEBUG_INFO).
    pub fn after(&self, ptr: u64) -> Option<&Node> {
        let (_, id) = self
            .by_ptr
            .range((std::ops::Bound::Excluded(ptr), std::ops::Bound::Unbounded))
            .next()?;
        self.by_id.get(id)
    }

    /// Forgets a node that nobody holds any more.
    pub fn remove(&mut self, id: NodeId) {
        if let Some(node) = self.by_id.remove(&id) {
            self.by_ptr.remove(&node.ptr);
        }
    }

    /// Every node, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.by_id.values_mut()
    }

    /// Every node by its name, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.by_id.iter().map(|(&id, node)| (id, node))
    }
}

impl State {
    /// Queues a node's news for the pool, or forgets the node if nobody ever knew of it.
    pub(super) fn node_changed(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        if !node.is_held() && !node.is_known() {
            self.unqueue_node(id);
            self.nodes.remove(id);
        } else if node.queued.is_none() && node.has_news() {
            node.queued = Some(Queue::Process);
            self.push_process(Work::Node(id));
        }
    }

    /// A count of the node has gone.
    pub(super) fn node_dropped(&mut self, id: NodeId, gone: Strength) {
        self.node_changed(id);
        if let Some(node) = self.nodes.get_mut(id)
            && node.queued.is_none()
            && node.is_to_be_looked_at(gone)
        {
            node.queued = Some(Queue::Process);
            self.push_process(Work::Node(id));
        }
    }

    /// Takes a node's news from where they wait.
    pub(super) fn unqueue_node(&mut self, id: NodeId) {
        let queued = self.nodes.get_mut(id).and_then(|node| node.queued.take());
        let is_it = |work: &Work| matches!(work, Work::Node(queued) if *queued == id);
        match queued {
            Some(Queue::Thread(tid)) => drop(self.thread(tid).todo.take_if(is_it)),
            Some(Queue::Process) => self.take_process_work(is_it),
            None => {}
        }
    }

    pub(super) fn tell_node(&mut self, id: NodeId) -> Return {
        let Some(node) = self.nodes.get_mut(id) else { return Return::Nothing };
        node.queued = None;
        let news = node.take_news();
        if !node.is_held() && !node.is_known() {
            self.nodes.remove(id);
        }
        if news.returns.is_empty() { Return::Nothing } else { Return::Node(news) }
    }

    /// The program or a buffer of its own has named the node: the kernel looks then whether anyone
    /// needs its name, whatever came of it.
    pub(super) fn node_named(&mut self, id: NodeId) {
        self.node_dropped(id, Strength::Weak);
    }

    /// BC_ACQUIRE_DONE and BC_INCREFS_DONE.
    pub fn acknowledge(&mut self, ptr: u64, cookie: u64, strength: Strength) {
        let name = match strength {
            Strength::Strong => "BC_ACQUIRE_DONE",
            Strength::Weak => "BC_INCREFS_DONE",
        };
        let Some(id) = self.nodes.at(ptr) else {
            return self.complain(format!("{name} u{ptr:016x} no match"));
        };
        let node = self.nodes.get_mut(id).expect("indexed");
        if node.cookie != cookie {
            let known = node.cookie;
            let line = format!("{name} u{ptr:016x} cookie mismatch {cookie:016x} != {known:016x}");
            self.complain(line);
        } else if !node.acknowledge(strength) {
            self.complain(format!("{name} u{ptr:016x} node has no pending request"));
        } else {
            self.node_dropped(id, strength);
        }
        self.node_named(id);
    }

    /// Makes a node of this process the context manager's: it is told of no references to it.
    pub fn context_manager_node(&mut self, ptr: u64, cookie: u64, flags: u32) -> NodeId {
        let id = self.nodes.find_or_add(ptr, cookie, flags);
        self.nodes.get_mut(id).expect("just found").manage();
        id
    }

    /// The broker refused: the node is as it was.
    pub fn not_context_manager(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.do_not_manage();
        }
        self.node_changed(id);
    }
}
