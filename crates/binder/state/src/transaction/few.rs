//! The nodes and handles of messages on the fast path.

use crate::effect::Return;
use crate::message::HeldObject;
use crate::node::{News, NodeKey};
use crate::parcel::{Few, Named};
use crate::process::State;
use crate::reference::Reference;
use crate::transaction::Sender;
use crate::work::{Tid, Work};
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::lane::{Carried, Origin};
use baton_abi::uapi::FLAT_BINDER_FLAG_ACCEPTS_FDS;

impl State {
    /// Grants the nodes among these objects to a peer, and says what a message to it carries. The
    /// thread hears of new references with its answer. `try_use` counts a use of a node that the
    /// peer offers, and finds its entry. False if the message has to take the general path: then
    /// what is in `carried` has to be taken back ([`State::take_back_grants`], and the uses).
    ///
    /// The list of holders is written before the message is posted ([`crate::Effect::List`]). A
    /// handle may be given up once the state is unlocked: the message is posted before.
    pub fn carry_few(
        &mut self,
        tid: Tid,
        to: ProcessId,
        objects: &[Named],
        try_use: impl Fn(NodeKey) -> Option<u8>,
        carried: &mut Few<Carried>,
    ) -> bool {
        objects.iter().all(|object| {
            let object = self.carry_one(tid, to, object, &try_use);
            carried.extend(object);
            object.is_some()
        })
    }

    fn carry_one(
        &mut self,
        tid: Tid,
        to: ProcessId,
        object: &Named,
        try_use: &impl Fn(NodeKey) -> Option<u8>,
    ) -> Option<Carried> {
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
                let is_alive = |held: &&Reference| holds && !held.dead;
                let &Reference { owner, node, .. } =
                    self.references.get(handle).filter(is_alive)?;
                if owner == to {
                    return Some(Carried::of_receiver(node, strength));
                }
                let entry = (strength == Strength::Strong).then(|| try_use((owner, node)))??;
                Some(Carried::of_known(node, entry))
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

    /// Whether calls by this handle go to a process that lives, and may carry so many descriptors.
    pub fn leads_to(&self, handle: u32, process: ProcessId, n_fds: usize) -> bool {
        let number = if handle == 0 { self.manager } else { Some(handle) };
        let reference = number.and_then(|number| self.references.get(number));
        reference.is_some_and(|reference| {
            let takes_fds = n_fds == 0 || reference.flags & FLAT_BINDER_FLAG_ACCEPTS_FDS != 0;
            reference.owner == process && !reference.dead && takes_fds
        })
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
    pub fn may_hold_few(&self, (from, channel): Sender, objects: &[Carried]) -> bool {
        let needs_no_ticket = |object: &Carried| match object.origin() {
            Some(Origin::Sender | Origin::Known) => true,
            Some(Origin::Receiver) => self.nodes.get(NodeId(object.node)).is_some(),
            Some(Origin::Third) | None => false,
        };
        objects.iter().all(needs_no_ticket)
            && self.has_sent_home(from, objects)
            && self.offers(channel, objects)
            && self.has_room_for(from, objects)
    }

    /// Takes the references of a message for which [`State::may_hold_few`] holds.
    pub fn hold_few(&mut self, sender: Sender, objects: &[Carried]) -> Few<HeldObject> {
        objects.iter().filter_map(|object| self.hold_carried(sender, object)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Strong, Weak};
    use baton_abi::control::{ChannelId, Event};
    use baton_abi::holder_list::ENTRIES;
    use baton_abi::uapi::{BR_ACQUIRE, BR_DECREFS, BR_INCREFS, BR_RELEASE};

    const TID: Tid = 7;
    const PEER: ProcessId = ProcessId(2);
    const OTHER: ProcessId = ProcessId(3);
    const CHANNEL: ChannelId = ChannelId(4);
    const OWN: Named = Named::Binder { ptr: 0x10, cookie: 0x20, flags: 0x13, strength: Strong };

    fn handle(handle: u32) -> Named {
        Named::Handle { handle, strength: Strong }
    }

    fn carried_by(
        state: &mut State,
        objects: &[Named],
        try_use: impl Fn(NodeKey) -> Option<u8>,
    ) -> Result<Few<Carried>, Few<Carried>> {
        let mut carried = Few::new();
        match state.carry_few(TID, PEER, objects, try_use, &mut carried) {
            true => Ok(carried),
            false => Err(carried),
        }
    }

    /// A table without entries.
    fn unknown(_: NodeKey) -> Option<u8> {
        None
    }

    fn granted_by(owner: ProcessId, state: &mut State, node: u64) -> HeldObject {
        state.hold_of_owner(owner, &Carried::of_sender(NodeId(node), 0, 0, Strong))
    }

    /// A process with a handle of the peer's (1) and of a third process's (2).
    fn process() -> State {
        let mut state = State::new(ProcessId(1));
        for (owner, number) in [(PEER, 1), (OTHER, 2)] {
            let held = granted_by(owner, &mut state, 5);
            assert_eq!(held, HeldObject::Handle { handle: number, strength: Strong });
        }
        state
    }

    #[test]
    fn own_nodes_and_handles_that_go_home_are_carried() {
        let mut state = process();
        let flags = 0x13;
        for _ in 0..2 {
            let carried =
                carried_by(&mut state, &[OWN, handle(1)], unknown).expect("of either end");
            let of_peer = Carried::of_receiver(NodeId(5), Strong);
            assert_eq!(carried[..], [Carried::of_sender(NodeId(1), 0, flags, Strong), of_peer]);
        }
        let news = state.take_own_news(TID);
        let returns: Vec<_> = news.into_iter().map(|news| news.returns).collect();
        assert_eq!(returns, [[BR_INCREFS, BR_ACQUIRE]], "of the first message");
        assert!(state.take_own_news(TID).is_empty());
        assert_eq!(state.peers[&PEER].granted[&NodeId(1)].strong, 2);
    }

    #[test]
    fn a_message_that_has_to_take_the_general_path_grants_nothing() {
        type Change = fn(&mut State);
        let cookie = Named::Binder { ptr: 0x10, cookie: 0x21, flags: 0, strength: Strong };
        let cases: [(&str, Named, Change); 6] = [
            ("a third process's", handle(2), |_| ()),
            ("an unknown handle", handle(9), |_| ()),
            ("a weak handle", handle(1), |state| {
                state.increase(1, Weak);
                state.decrease(1, Strong);
            }),
            ("a dead process's", handle(1), |state| state.event(Event::Dead { process: PEER })),
            ("another cookie", cookie, |_| ()),
            ("a full list", OWN, |state| state.entries.end = ENTRIES),
        ];
        for (name, object, change) in cases {
            let mut state = process();
            change(&mut state);
            let carried = carried_by(&mut state, &[OWN, object], unknown).expect_err(name);
            state.take_back_grants(PEER, &carried);
            assert!(!state.peers.contains_key(&PEER), "{name}: nothing is granted");
            assert!(state.nodes.at(0x10).is_none(), "{name}: nobody knows the node");
            assert!(!state.thread(TID).todo.any(|_| true), "{name}: no news");
        }
    }

    #[test]
    fn nodes_that_the_peer_knows_are_carried_by_its_entry() {
        let mut state = process();
        let try_use = |key| (key == (OTHER, NodeId(5))).then_some(7);
        let carried = carried_by(&mut state, &[handle(2)], try_use).expect("known");
        assert_eq!(carried[..], [Carried::of_known(NodeId(5), 7)]);
        let weak = Named::Handle { handle: 2, strength: Weak };
        assert!(carried_by(&mut state, &[weak], try_use).is_err(), "offers are strong");
    }

    #[test]
    fn references_come_in_if_their_sender_has_them() {
        let mut state = process();
        carried_by(&mut state, &[OWN], unknown).expect("granted");
        let home = Carried::of_receiver(NodeId(1), Strong);
        for (from, object, may) in [
            (PEER, home, true),
            (OTHER, home, false),
            (PEER, Carried::of_receiver(NodeId(2), Strong), false),
            (PEER, Carried::of_sender(NodeId(8), 3, 0, Weak), true),
            (PEER, Carried::of_third(Strong), false),
            (PEER, Carried::of_known(NodeId(5), 0), false),
            (PEER, Carried { origin: 9, ..home }, false),
        ] {
            let may_hold = state.may_hold_few((from, CHANNEL), &[object]);
            assert_eq!(may_hold, may, "{from:?} {object:?}");
        }
        let objects = [home, Carried::of_sender(NodeId(8), 3, 0, Weak)];
        let held = state.hold_few((PEER, CHANNEL), &objects);
        let own = HeldObject::Own { node: NodeId(1), strength: Strong };
        assert_eq!(held[..], [own, HeldObject::Handle { handle: 3, strength: Weak }]);
        assert!(!state.goes_unnoticed(&held), "it is the last count of the handle");
        assert!(state.goes_unnoticed(&held[..1]), "the peer holds the node");
        state.increase(3, Weak);
        state.increase(3, Weak);
        assert!(state.goes_unnoticed(&held));
        state.let_go_all(&held);
        assert_eq!(state.references.get(3).map(|held| held.counts.weak), Some(2));
    }

    #[test]
    fn calls_lead_to_the_living_owner_of_their_handle() {
        let mut state = process();
        let leads_to = |state: &State, handle| state.leads_to(handle, PEER, 0);
        assert_eq!([1, 2, 0].map(|it| leads_to(&state, it)), [true, false, false]);
        state.manager = Some(1);
        assert!(leads_to(&state, 0));
        state.event(Event::Dead { process: PEER });
        assert!(!leads_to(&state, 1) && !leads_to(&state, 0));
    }

    #[test]
    fn calls_with_descriptors_lead_to_nodes_that_accept_them() {
        let mut state = process();
        let accepts = FLAT_BINDER_FLAG_ACCEPTS_FDS;
        state.hold_of_owner(PEER, &Carried::of_sender(NodeId(6), 0, accepts, Strong));
        assert_eq!([1, 3].map(|it| state.leads_to(it, PEER, 1)), [false, true]);
    }

    #[test]
    fn a_typed_program_hears_the_ends_of_the_objects_that_have_a_cookie() {
        let stays = Named::Binder { ptr: 0x10, cookie: 0, flags: 0x13, strength: Strong };
        for (object, ends) in [(stays, false), (OWN, true)] {
            let mut state = State::new(ProcessId(1));
            state.nodes.be_typed();
            carried_by(&mut state, &[object], unknown).expect("granted");
            assert!(state.take_own_news(TID).is_empty() && !state.has_process_work());
            state.event(Event::Dead { process: PEER });
            assert_eq!(state.has_process_work(), ends);
            let news = match state.next_return(TID, true) {
                Some(Return::Node(news)) => Some(news),
                _ => None,
            };
            let end = News { returns: vec![BR_RELEASE, BR_DECREFS], object: (0x10, 0x20) };
            assert_eq!(news, ends.then_some(end));
            assert!(state.nodes.at(0x10).is_none(), "forgotten when nobody holds it");
        }
    }
}
