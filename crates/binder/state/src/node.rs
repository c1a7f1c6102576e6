//! Nodes: the objects that this process owns, and the counts of their references.
//!
//! A node is strong while any process holds it strongly, a transaction carries it, or the program
//! itself was lent a count. The program hears of each change once, and its acknowledgement
//! (`BC_ACQUIRE_DONE`) ends the count that it was lent until then.

use crate::one_way_queue::OneWayQueue;
use crate::work::{Queue, Tid};
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A node, by its owner and its owner's name for it.
pub type NodeKey = (ProcessId, NodeId);

/// One node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The program's address for it.
    pub ptr: u64,
    /// The program's word beside it.
    pub cookie: u64,
    /// `flat_binder_object.flags` at its first appearance.
    pub flags: u32,
    /// Other processes that hold the node strongly, and all that hold it.
    pub holders: Counts,
    /// Strong and weak counts of buffers that hold the node, and counts lent to the program.
    pub local: Counts,
    has_strong: bool,
    pending_strong: bool,
    has_weak: bool,
    pending_weak: bool,
    /// Counts requests to make the node the context manager's, all but one of which fail. Unless it
    /// is 0 the program gets no news of the node.
    manages: u32,
    /// The program hears nothing of the node.
    is_silent: bool,
    /// The queue of its work, if it is queued.
    pub queued: Option<Queue>,
    /// A one-way transaction to the node is being served: further ones wait in `one_way_todo`.
    pub one_way_busy: bool,
    /// The thread that has read that transaction.
    pub one_way_server: Option<Tid>,
    /// One-way transactions that wait for the one before to be freed.
    pub one_way_todo: OneWayQueue,
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
    pub fn get(&self, strength: Strength) -> u32 {
        match strength {
            Strength::Strong => self.strong,
            Strength::Weak => self.weak,
        }
    }

    /// The count of this strength, to be changed.
    pub fn of(&mut self, strength: Strength) -> &mut u32 {
        match strength {
            Strength::Strong => &mut self.strong,
            Strength::Weak => &mut self.weak,
        }
    }
}

/// The returns with a node's news, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// `BR_INCREFS`, `BR_ACQUIRE`, `BR_RELEASE`, `BR_DECREFS`, as they apply.
    pub returns: Vec<u32>,
    /// The node's address and cookie.
    pub object: (u64, u64),
}

impl Node {
    /// Whether any process or buffer holds the object strongly.
    pub fn is_strong(&self) -> bool {
        self.holders.strong > 0 || self.local.strong > 0
    }

    /// Whether any process or buffer holds the node.
    pub fn is_held(&self) -> bool {
        self.is_strong() || self.holders.weak > 0 || self.local.weak > 0
    }

    /// Whether the program has yet to hear of a change.
    pub fn has_news(&self) -> bool {
        let differs = self.is_strong() != self.has_strong || self.is_held() != self.has_weak;
        !self.is_silent && self.manages == 0 && differs
    }

    /// Whether the last count of this strength has gone from a node that the program knows of: a
    /// reader looks at it then, though there may be nothing to tell.
    pub fn is_to_be_looked_at(&self, gone: Strength) -> bool {
        let left = match gone {
            Strength::Strong => self.is_strong(),
            Strength::Weak => self.holders.weak > 0 || self.local.weak > 0,
        };
        !self.is_silent && self.manages == 0 && self.is_known() && !left
    }

    /// Whether the program was told of a reference.
    pub fn is_known(&self) -> bool {
        self.has_strong || self.has_weak
    }

    /// `has_strong_ref` and `has_weak_ref` of BINDER_GET_NODE_DEBUG_INFO.
    pub fn told(&self) -> (bool, bool) {
        let needs_none = self.is_silent || self.manages > 0;
        (self.has_strong || needs_none, self.has_weak || needs_none)
    }

    /// Marks the node as the context manager's, of which the program needs no news.
    pub fn manage(&mut self) {
        self.manages += 1;
        self.local = Counts { strong: self.local.strong + 1, weak: self.local.weak + 1 };
    }

    /// Whether the node manages the context, or the broker is being asked.
    pub fn may_manage(&self) -> bool {
        self.manages > 0
    }

    /// Undoes `manage` after the broker's refusal.
    pub fn do_not_manage(&mut self) {
        self.manages -= 1;
        self.local = Counts { strong: self.local.strong - 1, weak: self.local.weak - 1 };
    }

    /// Whether the node takes descriptors (`FLAT_BINDER_FLAG_ACCEPTS_FDS`).
    pub fn accepts_fds(&self) -> bool {
        self.flags & FLAT_BINDER_FLAG_ACCEPTS_FDS != 0
    }

    /// The minimum priority at which its transactions are served, if it asks for one.
    pub fn min_priority(&self) -> Option<SchedPriority> {
        SchedPriority::of_node_flags(self.flags)
    }

    /// Whether the node wants the sender's security label with each transaction.
    pub fn wants_label(&self) -> bool {
        self.flags & FLAT_BINDER_FLAG_TXN_SECURITY_CTX != 0
    }

    /// Takes the news, lending the program a count for each reference that it is to acknowledge.
    pub fn take_news(&mut self) -> News {
        let (strong, held) = (self.is_strong(), self.is_held());
        let mut returns = Vec::with_capacity(2);
        if !self.has_news() {
            return News { returns, object: (self.ptr, self.cookie) };
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
        News { returns, object: (self.ptr, self.cookie) }
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
    are_typed: bool,
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
        let (are_typed, tells_end) = (self.are_typed, self.are_typed && cookie != 0);
        let node = Node {
            ptr,
            cookie,
            flags,
            is_silent: are_typed && !tells_end,
            has_strong: tells_end,
            has_weak: tells_end,
            ..Node::default()
        };
        self.by_id.insert(id, node);
        id
    }

    /// Of the nodes that the program sends from now on it hears nothing, for its objects live as
    /// long as it does. Of one with a cookie it hears BR_RELEASE and BR_DECREFS: it counts as told
    /// of the first references.
    pub fn be_typed(&mut self) {
        self.are_typed = true;
    }

    /// A node by the broker's name.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.by_id.get(&id)
    }

    /// A node by the broker's name.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.by_id.get_mut(&id)
    }

    /// A node by the program's address.
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
