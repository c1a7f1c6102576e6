//! Reference counts: the program's commands, and the news and grants that follow from a change.

use crate::account::Resource;
use crate::effect::{Effect, Return};
use crate::message::HeldObject;
use crate::node::Node;
use crate::notice::{DeathNotice, FreezeNotice};
use crate::process::State;
use crate::reference::{Grants, Reference};
use crate::ticket::Introduced;
use crate::work::{Queue, Work};
use baton_abi::control::{Granted, NodeId, ProcessId, Released, Strength};
use baton_abi::lane::{Carried, ReturnedGrants};
use baton_abi::uapi::*;

/// Counts of this process's own nodes.
impl State {
    /// Queues a node's news for the pool, or forgets the node if no process ever knew of it.
    pub(crate) fn node_changed(&mut self, id: NodeId) {
        self.look_at_node(id, None);
    }

    /// Queues news or forgets the node, after one of its counts has gone.
    pub(crate) fn node_dropped(&mut self, id: NodeId, gone: Strength) {
        self.look_at_node(id, Some(gone));
    }

    fn look_at_node(&mut self, id: NodeId, gone: Option<Strength>) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        if !node.is_held() && !node.is_known() {
            self.unqueue_node(id);
            self.nodes.remove(id);
        } else if node.queued.is_none()
            && (node.has_news() || gone.is_some_and(|gone| node.is_to_be_looked_at(gone)))
        {
            node.queued = Some(Queue::Process);
            self.push_process(Work::Node(id));
        }
    }

    /// Removes a node's news from its queue.
    pub(crate) fn unqueue_node(&mut self, id: NodeId) {
        let queued = self.nodes.get_mut(id).and_then(|node| node.queued.take());
        let is_it = |work: &Work| matches!(work, Work::Node(queued) if *queued == id);
        match queued {
            Some(Queue::Thread(tid)) => drop(self.thread(tid).todo.take_if(is_it)),
            Some(Queue::Process) => drop(self.todo.take_if(is_it)),
            None => {}
        }
    }

    /// The next node of whose end no looper will tell the program, for it has none: the node's
    /// address and cookie.
    pub fn next_unheard_end(&mut self) -> Option<(u64, u64)> {
        if self.pool.n_present > 0 {
            return None;
        }
        let is_node = |work: &Work| matches!(work, Work::Node(_));
        while let Some(Work::Node(id)) = self.todo.take_if(is_node) {
            if let Return::Node(news) = self.node_return(id)
                && news.returns.contains(&BR_DECREFS)
            {
                return Some(news.object);
            }
        }
        None
    }

    pub(crate) fn node_return(&mut self, id: NodeId) -> Return {
        let Some(node) = self.nodes.get_mut(id) else { return Return::Nothing };
        node.queued = None;
        let news = node.take_news();
        if !node.is_held() && !node.is_known() {
            self.nodes.remove(id);
        }
        if news.returns.is_empty() { Return::Nothing } else { Return::Node(news) }
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
        // The program has named the node: in every case the kernel looks then whether anyone needs
        // its name.
        self.node_dropped(id, Strength::Weak);
    }

    /// Like [`State::acknowledge`], if another process holds the node as strongly: then nothing
    /// follows. False otherwise, and nothing is done.
    pub fn acknowledge_quietly(&mut self, ptr: u64, cookie: u64, strength: Strength) -> bool {
        let Some(id) = self.nodes.at(ptr) else { return false };
        let is_held = |node: &&mut Node| node.cookie == cookie && node.holders.get(strength) > 0;
        self.nodes.get_mut(id).filter(is_held).is_some_and(|node| node.acknowledge(strength))
    }

    /// Makes a node of this process the context manager's: the program gets no news of its
    /// references.
    pub fn context_manager_node(&mut self, ptr: u64, cookie: u64, flags: u32) -> NodeId {
        let id = self.nodes.find_or_add(ptr, cookie, flags);
        self.nodes.get_mut(id).expect("just found").manage();
        id
    }

    /// Undoes [`State::context_manager_node`] after the broker's refusal.
    pub fn not_context_manager(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.do_not_manage();
        }
        self.node_changed(id);
    }
}

/// Counts of handles.
impl State {
    /// BC_INCREFS of a handle that the program has, and BC_ACQUIRE of one that it has strongly.
    pub fn increase(&mut self, handle: u32, strength: Strength) -> bool {
        let held = self.holds(handle, strength);
        if let Some(reference) = self.references.get_mut(handle).filter(|_| held) {
            *reference.counts.of(strength) += 1;
        }
        held
    }

    /// BC_INCREFS and BC_ACQUIRE of handle 0, which make it the program's while there is a context
    /// manager.
    pub fn increase_manager(&mut self, strength: Strength) -> bool {
        let Some(reference) = self.manager.and_then(|handle| self.references.get_mut(handle))
        else {
            return self.increase(0, strength);
        };
        *reference.counts.of(strength) += 1;
        true
    }

    /// Logs that a command named a handle that does not exist.
    pub fn invalid_handle(&mut self, command: u32, handle: u32) {
        self.complain(format!("{} tried on invalid ref {handle}", command_name(command)));
    }

    /// BC_RELEASE and BC_DECREFS.
    pub fn decrease(&mut self, handle: u32, strength: Strength) {
        let command = match strength {
            Strength::Strong => BC_RELEASE,
            Strength::Weak => BC_DECREFS,
        };
        if self.manager == Some(handle) && self.held(handle).is_none() {
            return self.invalid_handle(command, handle);
        }
        match self.drop_count(handle, strength) {
            None => self.invalid_handle(command, handle),
            Some(true) => {}
            Some(false) => {
                self.complain(format!("{} invalid dec, ref {handle}", command_name(command)));
            }
        }
    }

    /// Whether a count of the program's can go without an effect on other threads: no thread may
    /// call by the handle, and it has no notice.
    pub fn decreases_quietly(&mut self, handle: u32, strength: Strength) -> bool {
        let is_kept = self.holds(handle, strength) && self.owner_of_last(handle, 1).is_none();
        let has_notice = |held: &Reference| held.death.is_some() || held.freeze.is_some();
        is_kept && !self.references.get(handle).is_some_and(has_notice)
    }

    /// Takes a count off the handle. False if it had none, `None` if there is no such handle.
    fn drop_count(&mut self, handle: u32, strength: Strength) -> Option<bool> {
        let pinned = self.pinned(handle, strength);
        let count = self.references.get_mut(handle)?.counts.of(strength);
        if *count <= pinned {
            return Some(false);
        }
        *count -= 1;
        self.return_grants(handle);
        Some(true)
    }

    /// Counts that calls to handle 0 keep, and that the program cannot give up.
    pub(crate) fn pinned(&self, handle: u32, strength: Strength) -> u32 {
        u32::from(strength == Strength::Strong && self.manager == Some(handle))
    }

    /// A handle that the program holds. A handle that only calls to handle 0 keep does not count.
    pub(crate) fn held(&mut self, handle: u32) -> Option<&mut Reference> {
        let pinned = self.pinned(handle, Strength::Strong);
        let reference = self.references.get_mut(handle)?;
        (reference.counts.strong > pinned || reference.counts.weak > 0).then_some(reference)
    }

    /// Whether the program has a handle this strongly.
    pub fn holds(&mut self, handle: u32, strength: Strength) -> bool {
        let pinned = self.pinned(handle, Strength::Strong);
        self.held(handle)
            .is_some_and(|reference| strength == Strength::Weak || reference.counts.strong > pinned)
    }

    /// The owner of the handle's node, if the handle has been called and may not be held strongly
    /// any more when up to so many counts go.
    pub fn owner_of_last(&self, handle: u32, counts: usize) -> Option<ProcessId> {
        let pinned = self.pinned(handle, Strength::Strong) as usize;
        let is_last =
            |held: &&Reference| held.called && held.counts.strong as usize <= pinned + counts;
        self.references.get(handle).filter(is_last).map(|reference| reference.owner)
    }

    /// Like [`State::owner_of_last`], of all handles among these references.
    pub(crate) fn owners_of_last(&self, held: &[HeldObject]) -> Vec<ProcessId> {
        let owner = |object: &HeldObject| match *object {
            HeldObject::Handle { handle, strength: Strength::Strong } => {
                self.owner_of_last(handle, held.len())
            }
            _ => None,
        };
        held.iter().filter_map(owner).collect()
    }

    pub(crate) fn drop_notices(
        &mut self,
        death: Option<DeathNotice>,
        freeze: Option<FreezeNotice>,
    ) {
        if let Some(notice) = death {
            self.drop_death(notice);
        }
        if let Some(notice) = freeze {
            self.drop_freeze(notice);
        }
    }

    /// Looks at a handle of which a count has gone, or a transaction: it is kept for a while if
    /// nothing needs it any more.
    pub(crate) fn return_grants(&mut self, handle: u32) {
        let Some(reference) = self.references.get(handle) else { return };
        let key = reference.key();
        if reference.is_unused() && reference.known.is_empty() {
            return self.free_handle(handle);
        }
        if reference.is_unused() {
            self.known.withdrawing.insert(key);
            self.effect(Effect::FreeHandle(handle));
        } else if reference.is_idle() {
            if reference.has_surplus() {
                self.keep_surplus(key);
            }
        } else if reference.counts.strong == 0 {
            self.effect(Effect::EndSending(handle));
        }
        // The program may have let go of the manager's handle, which stays for calls to handle 0,
        // or of one that is on its way: its notices go.
        if self.held(handle).is_none()
            && let Some(reference) = self.references.get_mut(handle)
        {
            let (death, freeze) = (reference.death.take(), reference.freeze.take());
            self.drop_notices(death, freeze);
        }
    }

    /// A grant of the broker's has come with its message.
    pub(crate) fn hold(&mut self, introduced: &Introduced) -> HeldObject {
        let Granted { owner, node, strength, flags, manages } = introduced.granted;
        let (handle, reference) = self.references.get_or_add((owner, node), flags, manages);
        let mut excess = None;
        reference.revive();
        if introduced.dead {
            reference.end();
        } else if !reference.dead {
            reference.grants.broker.add(strength);
            excess = reference.grants.broker.take_excess();
        }
        *reference.counts.of(strength) += 1;
        if let Some(Grants { strong, all: grants }) = excess {
            self.release(Released { owner, node, strong, grants });
        }
        HeldObject::Handle { handle, strength }
    }

    /// A grant of the broker's has come whose message does not.
    pub(crate) fn decline(&mut self, introduced: &Introduced) {
        let Granted { owner, node, strength, .. } = introduced.granted;
        if !introduced.dead {
            let strong = u32::from(strength == Strength::Strong);
            self.release(Released { owner, node, strong, grants: 1 });
        }
    }

    /// A grant of the owner's has come with a message.
    pub(crate) fn hold_of_owner(&mut self, owner: ProcessId, carried: &Carried) -> HeldObject {
        let (node, strength) = (NodeId(carried.node), carried.strength());
        let uid = self.user_of(owner);
        let (handle, reference) = self.references.get_or_add((owner, node), carried.flags, false);
        let mut excess = None;
        reference.revive();
        if !reference.dead {
            reference.grants.owner.add(strength);
            reference.entry = Some(carried.entry);
            excess = reference.grants.owner.take_excess();
        }
        if reference.share.is_none() {
            reference.share = self.accounts.of(uid).take(Resource::Handles, 1);
        }
        *reference.counts.of(strength) += 1;
        if let Some(Grants { strong, all }) = excess {
            self.give_back(owner, ReturnedGrants { node: node.0, strong, all });
        }
        HeldObject::Handle { handle, strength }
    }

    /// A node of this process has come home with a message.
    pub(crate) fn hold_own(&mut self, node: NodeId, strength: Strength) -> HeldObject {
        if let Some(node) = self.nodes.get_mut(node) {
            *node.local.of(strength) += 1;
        }
        HeldObject::Own { node, strength }
    }

    pub(crate) fn let_go(&mut self, held: &HeldObject) {
        match *held {
            HeldObject::Handle { handle, strength } => {
                if self.drop_count(handle, strength) == Some(false) {
                    // The program has given up a count that was not its own.
                    self.complain(format!("invalid dec, ref {handle}"));
                }
            }
            HeldObject::Own { node: id, strength } => {
                if let Some(node) = self.nodes.get_mut(id) {
                    *node.local.of(strength) -= 1;
                }
                self.node_dropped(id, strength);
                // A buffer has named the node, as the program does in `acknowledge`.
                self.node_dropped(id, Strength::Weak);
            }
        }
    }
}
