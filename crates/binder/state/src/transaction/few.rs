//! The nodes and handles of messages on the fast path.

use crate::effect::Return;
use crate::message::HeldObject;
use crate::node::News;
use crate::parcel::{Few, Named};
use crate::process::State;
use crate::reference::Reference;
use crate::work::{Tid, Work};
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::lane::{Carried, Origin};

impl State {
    /// Grants the nodes among these objects to a peer, and says what a message to it carries. The
    /// thread hears of new references with its answer. `None` if the message has to take the
    /// general path; then nothing has been granted.
    ///
    /// The list of holders is written before the message is posted ([`crate::Effect::List`]). A
    /// handle may be given up once the state is unlocked: the message is posted before.
    pub fn carry_few(
        &mut self,
        tid: Tid,
        to: ProcessId,
        objects: &[Named],
    ) -> Option<Few<Carried>> {
        let mut carried = Few::new();
        for object in objects {
            match self.carry_one(tid, to, object) {
                Some(object) => carried.push(object),
                None => {
                    self.take_back_grants(to, &carried);
                    return None;
                }
            }
        }
        Some(carried)
    }

    fn carry_one(&mut self, tid: Tid, to: ProcessId, object: &Named) -> Option<Carried> {
        match *object {
            Named::Binder { ptr, cookie, flags, strength } => {
                if let Some(again) = self.grant_again(to, (ptr, cookie), strength) {
                    return Some(again);
                }
                let id = self.nodes.find_or_add(ptr, cookie, flags);
                if self.nodes.get(id)?.cookie != cookie {
                    return None;
                }
                let granted = self.grant_own(tid, to, id, strength).ok();
                self.node_changed(id);
                granted
            }
            Named::Handle { handle, strength } => {
                let holds = self.holds(handle, strength);
                let is_home = |held: &&Reference| holds && !held.dead && held.owner == to;
                let reference = self.references.get(handle).filter(is_home)?;
                Some(Carried::of_receiver(reference.node, strength))
            }
        }
    }

    /// Grants a node to a peer that holds it as strongly already.
    fn grant_again(
        &mut self,
        to: ProcessId,
        (ptr, cookie): (u64, u64),
        strength: Strength,
    ) -> Option<Carried> {
        let id = self.nodes.at(ptr)?;
        let node = self.nodes.get(id).filter(|node| node.cookie == cookie)?;
        let granted = self.peers.get_mut(&to)?.granted.get_mut(&id)?;
        if node.queued.is_some() || !granted.holds(strength) {
            return None;
        }
        granted.add(strength);
        Some(Carried::of_sender(id, granted.entry, node.flags, strength))
    }

    /// Whether calls by this handle go to a process that lives.
    pub fn leads_to(&self, handle: u32, process: ProcessId) -> bool {
        let number = if handle == 0 { self.manager } else { Some(handle) };
        let reference = number.and_then(|number| self.references.get(number));
        reference.is_some_and(|reference| reference.owner == process && !reference.dead)
    }

    /// Whether the thread has work besides the news of nodes that it has sent.
    pub fn has_other_work(&self, tid: Tid) -> bool {
        let is_other = |work: &Work| !matches!(work, Work::Node(_));
        self.threads.get(tid).is_some_and(|thread| thread.todo.any(is_other))
    }

    /// Takes the news of nodes that the thread has sent.
    pub fn take_own_news(&mut self, tid: Tid) -> Vec<News> {
        let mut all = Vec::new();
        let is_news = |work: &Work| matches!(work, Work::Node(_));
        while let Some(Work::Node(id)) = self.thread(tid).todo.take_if(is_news) {
            if let Return::Node(news) = self.node_return(id) {
                all.push(news);
            }
        }
        all
    }

    /// Whether the objects of a peer's message can be taken in at once: their sender has what it
    /// sends, and there is room for new handles.
    pub fn may_hold_few(&self, from: ProcessId, objects: &[Carried]) -> bool {
        let is_either_ends = |object: &Carried| match object.origin() {
            Some(Origin::Sender) => true,
            Some(Origin::Receiver) => self.nodes.get(NodeId(object.node)).is_some(),
            Some(Origin::Third) | None => false,
        };
        objects.iter().all(is_either_ends)
            && self.has_sent_home(from, objects)
            && self.has_room_for(from, objects)
    }

    /// Takes the references of a message for which [`State::may_hold_few`] holds.
    pub fn hold_few(&mut self, from: ProcessId, objects: &[Carried]) -> Few<HeldObject> {
        objects.iter().filter_map(|object| self.hold_carried(from, object)).collect()
    }

    /// Gives up the references of a message.
    pub fn let_go_all(&mut self, held: &[HeldObject]) {
        held.iter().for_each(|object| self.let_go(object));
    }

    /// Whether these references can go without any consequence: others stay.
    pub(super) fn goes_unnoticed(&self, held: &[HeldObject]) -> bool {
        let n_held = held.len() as u32;
        held.iter().all(|object| match *object {
            HeldObject::Handle { handle, strength } => {
                let reference = self.references.get(handle);
                let pinned = self.pinned(handle, strength);
                reference.is_some_and(|held| held.counts.get(strength) > n_held + pinned)
            }
            HeldObject::Own { node, strength } => {
                self.nodes.get(node).is_some_and(|node| node.holders.get(strength) > 0)
            }
        })
    }
}
