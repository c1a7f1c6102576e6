//! The state alone: what each way in which a buffer ends has in common.
use baton_abi::control::{ChannelId, Identity, NodeId, ProcessId};
use baton_abi::lane::{ChainEntry, Kind, Message, SENDER_USER};
use baton_state::transaction::{Arrival, Freer, LaneId, Received, Recipient, Room};
use baton_state::{Effect, Return, State};

const PEER: ProcessId = ProcessId(2);
const TID: u32 = 7;

/// A process with a buffer and a node that another one may call.
fn process() -> (State, NodeId) {
    let mut state = State::new(ProcessId(1));
    state.buffers.map(4096);
    let node = state.nodes.find_or_add(0x10, 0x20, 0);
    state
        .peers
        .entry(PEER)
        .or_default()
        .introduced
        .insert(node, baton_abi::control::Strength::Strong);
    (state, node)
}

fn message(kind: Kind, node: NodeId) -> Message {
    Message { kind: kind as u32, node: node.0, data_bytes: 8, ..Message::default() }
}

fn arrival(message: &Message) -> Arrival<'_> {
    let via = LaneId { channel: ChannelId(1), lane: 0 };
    Arrival { via, peer: PEER, message, chain: Vec::new(), objects: Vec::new(), lane_sender: None }
}

fn admit(state: &mut State, message: &Message) -> Room {
    state.admit(&arrival(message)).unwrap()
}

fn take_in(state: &mut State, message: &Message, on: Option<u32>, fds: Vec<i32>) {
    let recipient = on.map_or(Recipient::Pool, Recipient::Waiting);
    let room = admit(state, message);
    state.deliver(
        recipient,
        arrival(message),
        room,
        Received { fds, user: USER, ..Received::default() },
    );
}

/// The sender's user.
const USER: u32 = 1000;

/// The descriptors that the state wants closed.
fn closed(state: &mut State) -> Vec<i32> {
    let of = |effect| if let Effect::Discard(USER, fds) = effect { fds } else { Vec::new() };
    state.take_effects().into_iter().flat_map(of).collect()
}

type Road = fn(&mut State, NodeId);

fn freed_by_the_program(state: &mut State, node: NodeId) {
    take_in(state, &message(Kind::Request, node), None, Vec::new());
    let Some(Return::Transaction(incoming, _)) = state.next_return(TID, true) else { panic!() };
    assert!(!state.take_made_room());
    state.free(Freer { tid: TID, reads_next: false }, Some(incoming.buffer), 0);
}

fn its_thread_leaves(state: &mut State, node: NodeId) {
    take_in(state, &message(Kind::Request, node), Some(TID), Vec::new());
    assert!(!state.take_made_room());
    state.thread_exit(TID);
}

fn superseded(state: &mut State, node: NodeId) {
    let message = message(Kind::OneWay, node);
    take_in(state, &message, None, Vec::new());
    take_in(state, &message, None, Vec::new());
    assert!(!state.take_made_room());
    state.supersede(PEER, node, 0, baton_abi::uapi::TF_ONE_WAY);
}

fn rejected(state: &mut State, node: NodeId) {
    let room = admit(state, &message(Kind::Request, node));
    assert!(!state.take_made_room());
    state.reject(
        room,
        Received { held: Vec::new(), fds: Vec::new(), user: USER, ..Received::default() },
    );
}

fn closed_over(state: &mut State, node: NodeId) {
    take_in(state, &message(Kind::OneWay, node), None, Vec::new());
    assert!(!state.take_made_room());
    state.close();
}

#[test]
fn every_road_by_which_a_buffer_ends_makes_room() {
    for (name, road) in [
        ("freed", freed_by_the_program as Road),
        ("thread exit", its_thread_leaves),
        ("superseded", superseded),
        ("rejected", rejected),
        ("closed", closed_over),
    ] {
        let (mut state, node) = process();
        road(&mut state, node);
        let buffers = usize::from(name == "superseded");
        assert_eq!(state.buffers.used().1, buffers, "{name}");
        assert!(state.take_made_room() && !state.take_made_room(), "{name}");
    }
}

#[test]
fn a_closed_device_keeps_no_descriptors_that_it_has_not_given_out() {
    let (mut state, node) = process();
    let one_way = message(Kind::OneWay, node);
    let message = message(Kind::Request, node);
    take_in(&mut state, &message, None, vec![40]);
    let Some(Return::Transaction(given, _)) = state.next_return(TID, true) else { panic!() };
    take_in(&mut state, &message, None, vec![41, 42]);
    take_in(&mut state, &message, Some(TID), vec![43]);
    for fd in [44, 45, 46] {
        take_in(&mut state, &one_way, None, vec![fd]);
    }
    assert_eq!(closed(&mut state), [0; 0]);
    state.close();
    let mut fds = closed(&mut state);
    fds.sort_unstable();
    assert_eq!(fds, [41, 42, 43, 44, 45, 46]);
    while let Some(item) = state.next_return(TID, true) {
        assert!(!matches!(item, Return::Transaction(..)), "given out after all");
    }
    assert_eq!(state.contents.keys().copied().collect::<Vec<_>>(), [given.buffer]);
}

/// The entry reaches nobody else: whoever calls on with this chain is another sender.
#[test]
fn a_sender_whose_device_root_serves_names_its_user() {
    let caller = ChainEntry { process: PEER.0, token: 5 };
    let named = |user| ChainEntry { process: SENDER_USER, token: user };
    for (is_served_by_root, chain, expect) in [
        (true, vec![caller], 1000),
        (true, vec![caller, named(7)], 7),
        (true, vec![caller, named(7), named(0)], 7),
        (true, vec![named(1 << 32), caller], 1000),
        (false, vec![caller, named(0)], 1000),
    ] {
        let (mut state, node) = process();
        state.peers.entry(PEER).or_default().identify(Identity {
            process: PEER,
            pid: 3,
            uid: 1000,
            security_context: "label".to_owned(),
            is_served_by_root,
        });
        let message = message(Kind::Request, node);
        let arrival = Arrival { chain: chain.clone(), ..arrival(&message) };
        let room = state.admit(&arrival).unwrap();
        state.deliver(Recipient::Pool, arrival, room, Received::default());
        let Some(Return::Transaction(incoming, _)) = state.next_return(TID, true) else { panic!() };
        assert_eq!(incoming.sender, (3, expect), "{is_served_by_root}, {chain:?}");
        assert_eq!(incoming.serving.unwrap().chain, [caller]);
    }
}
