//! One-way transactions of real-time and other senders: in which order a node serves them, and by
//! which thread.
use baton_abi::control::{ChannelId, Event, Granted, NodeId, ProcessId, Strength, TicketId};
use baton_abi::lane::{Kind, Message};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
use baton_state::buffer::Use;
use baton_state::parcel::Sent;
use baton_state::thread::{Calling, Frame, Raise, Thread, Waiting};
use baton_state::transaction::{
    Arrival, Freer, Incoming, LaneId, LaneSender, Received, Recipient, Serving, Target,
};
use baton_state::work::{Completion, Work};
use baton_state::{Effect, Return, State};

const PEER: ProcessId = ProcessId(2);
/// A looper of the pool.
const POOL: u32 = 7;
/// The looper of the first lane.
const OWN: u32 = 8;

/// A sender: its lane, and its priority if that is known.
type Sender = Option<(u32, Option<u8>)>;

const ORDINARY: Sender = None;

fn at(lane: u32, priority: u8) -> Sender {
    Some((lane, Some(priority)))
}

fn via(lane: u32) -> LaneId {
    LaneId { channel: ChannelId(1), lane }
}

/// A process with a buffer and a node with these flags that another one may call.
fn process(flags: u32) -> (State, NodeId) {
    let mut state = State::new(ProcessId(1));
    state.buffers.map(1 << 20);
    state.nodes.be_typed();
    let node = state.nodes.find_or_add(0x10, 0, flags);
    state.peers.entry(PEER).or_default().introduced.insert(node, Strength::Strong);
    state.enter_looper(POOL);
    (state, node)
}

fn take_in(state: &mut State, node: NodeId, code: u32, sender: Sender, by: Option<u32>) {
    let lane_sender = sender.map(|(lane, priority)| LaneSender {
        via: via(lane),
        priority: priority.map(SchedPriority::fifo),
        reservation: 1,
    });
    take_in_from(state, node, code, lane_sender, by);
}

fn take_in_from(
    state: &mut State,
    node: NodeId,
    code: u32,
    lane_sender: Option<LaneSender>,
    by: Option<u32>,
) {
    let kind = Kind::OneWay as u32;
    let message = Message { kind, node: node.0, code, data_bytes: 8, ..Message::default() };
    take_in_message(state, &message, lane_sender, by);
}

fn take_in_message(
    state: &mut State,
    message: &Message,
    lane_sender: Option<LaneSender>,
    by: Option<u32>,
) {
    let arrival = || Arrival {
        via: lane_sender.map_or(via(0), |sender| sender.via),
        peer: PEER,
        message,
        chain: Vec::new(),
        objects: Vec::new(),
        lane_sender,
    };
    let room = state.admit(&arrival()).unwrap();
    let recipient = by.map_or(Recipient::Pool, Recipient::Dedicated);
    state.deliver(recipient, arrival(), room, Received::default());
}

fn free(state: &mut State, tid: u32, incoming: &Incoming) {
    state.free(Freer { tid, reads_next: false }, Some(incoming.buffer), 0);
}

/// The next transaction that the thread reads.
fn read(state: &mut State, tid: u32) -> Option<Incoming> {
    let process_work = state.takes_process_work(tid);
    match state.next_return(tid, process_work)? {
        Return::Transaction(incoming, _) => Some(incoming),
        other => panic!("{other:?}"),
    }
}

/// The order in which the pool serves these, of which it has read the first already or not.
fn order(is_read: bool, senders: &[Sender]) -> Vec<u32> {
    let (mut state, node) = process(0);
    let mut served = Vec::new();
    let mut in_service = None;
    for (sender, code) in senders.iter().zip(0..) {
        take_in(&mut state, node, code, *sender, None);
        if code == 0 && is_read {
            in_service = read(&mut state, POOL);
        }
    }
    while let Some(incoming) = in_service.or_else(|| read(&mut state, POOL)) {
        served.push(incoming.code);
        assert!(read(&mut state, POOL).is_none(), "one at a time");
        free(&mut state, POOL, &incoming);
        in_service = None;
    }
    assert!(!state.nodes.get(node).is_some_and(|node| node.one_way_busy));
    served
}

#[test]
fn a_node_serves_the_most_urgent_sender_first_and_each_sender_in_order() {
    let unknown = Some((1, None));
    type Case<'a> = (&'a [Sender], &'a [u32], &'a [u32]);
    let cases: [Case<'_>; 8] = [
        (&[ORDINARY, ORDINARY, ORDINARY], &[0, 1, 2], &[0, 1, 2]),
        (&[ORDINARY, ORDINARY, at(1, 10)], &[0, 2, 1], &[2, 0, 1]),
        (
            &[ORDINARY, at(1, 10), at(2, 20), at(1, 10), ORDINARY],
            &[0, 2, 1, 3, 4],
            &[2, 1, 3, 0, 4],
        ),
        (&[at(1, 10), at(2, 10), at(1, 10)], &[0, 1, 2], &[0, 1, 2]),
        (&[at(1, 10), at(2, 20)], &[0, 1], &[1, 0]),
        // The priority of a sender has grown, or the broker's word has come.
        (&[ORDINARY, at(1, 10), at(2, 15), at(1, 20)], &[0, 1, 3, 2], &[1, 3, 2, 0]),
        (&[unknown, at(2, 15), at(1, 20)], &[0, 2, 1], &[0, 2, 1]),
        (&[ORDINARY, unknown, ORDINARY, at(1, 20)], &[0, 1, 3, 2], &[1, 3, 0, 2]),
    ];
    for (senders, first_is_read, none_is) in cases {
        assert_eq!(order(true, senders), first_is_read, "{senders:?}");
        assert_eq!(order(false, senders), none_is, "{senders:?}, unread");
    }
}

/// A process whose first lane has a looper that waits there.
fn process_with_looper() -> (State, NodeId) {
    let (mut state, node) = process(0);
    state.thread(OWN).driver_looper_of = Some(via(1));
    state.set_waiting(OWN, Waiting::Lane(via(1)));
    (state, node)
}

#[test]
fn the_dedicated_looper_serves_its_callers_unless_it_is_busy() {
    type Change = fn(&mut State);
    let cases: [(&str, Option<u32>, Change, u32); 6] = [
        ("it waits", None, |_| {}, OWN),
        ("it takes it in", Some(OWN), |state| state.set_waiting(OWN, Waiting::No), OWN),
        ("it is busy", None, |state| state.set_waiting(OWN, Waiting::No), POOL),
        ("it has work", None, |state| state.thread(OWN).todo.push(Work::Error(0)), POOL),
        ("there is none", None, |state| state.thread_exit(OWN), POOL),
        ("another lane's", None, |state| state.thread(OWN).driver_looper_of = Some(via(2)), POOL),
    ];
    for (name, by, change, server) in cases {
        let (mut state, node) = process_with_looper();
        change(&mut state);
        take_in(&mut state, node, 0, at(1, 10), by);
        let is_of_pool = state.has_process_work();
        assert_eq!(is_of_pool, server == POOL, "{name}");
    }
}

#[test]
fn the_next_one_is_its_loopers_too() {
    let (mut state, node) = process_with_looper();
    (0..3).for_each(|code| take_in(&mut state, node, code, at(1, 10), None));
    for code in 0..3 {
        let incoming = read(&mut state, OWN).unwrap();
        assert_eq!(incoming.code, code);
        state.set_waiting(OWN, Waiting::No);
        assert!(read(&mut state, POOL).is_none());
        free(&mut state, OWN, &incoming);
        assert!(!state.has_process_work(), "by the looper that has freed {code}");
    }
}

#[test]
fn a_looper_takes_over_from_the_pool_and_gives_back_when_it_ends() {
    let (mut state, node) = process_with_looper();
    state.set_waiting(OWN, Waiting::No);
    take_in(&mut state, node, 5, at(1, 10), None);
    state.claim_one_way(POOL, via(2));
    assert!(state.has_process_work(), "another lane's");
    state.claim_one_way(OWN, via(1));
    assert!(!state.has_process_work());
    state.thread_exit(OWN);
    assert_eq!(read(&mut state, POOL).map(|incoming| incoming.code), Some(5));
}

fn calling() -> Calling {
    Calling { via: via(1), peer: PEER, handle: None, token: 1, owns_lane: true, dead: false }
}

fn serving() -> Serving {
    Serving { via: via(1), peer: PEER, accepts_fds: false, chain: Vec::new() }
}

/// Has the process know a context manager.
fn find_manager(state: &mut State) {
    let (from, ticket, node) = (ProcessId::BROKER, TicketId(1), NodeId(1));
    let (strength, flags, manages) = (Strength::Strong, 0, true);
    let objects = vec![Granted { owner: PEER, node, strength, flags, manages }];
    state.event(Event::Ticket { from, ticket, objects });
    state.set_manager(ticket).expect("its ticket has come");
}

/// A call that its looper made meanwhile would be refused, or would serve it before it returns.
#[test]
fn a_looper_leaves_it_to_the_pool_when_it_serves_or_makes_a_call() {
    type Act = fn(&mut State, NodeId);
    let cases: [(&str, Act); 4] = [
        ("a call comes in", |state, node| {
            let call = Message { kind: Kind::Request as u32, node: node.0, ..Message::default() };
            take_in_message(state, &call, None, Some(OWN));
        }),
        ("a call is served past the state", |state, _| state.adopt_service(OWN, serving())),
        ("a call is made past the state", |state, _| state.adopt_call(OWN, calling())),
        ("a call is made", |state, _| {
            find_manager(state);
            let departure = state.depart(OWN, Target::Handle(0), 0, &Sent::default());
            drop(state.departed(OWN, departure.unwrap(), via(1), 1, Completion::Taken));
        }),
    ];
    for (name, act) in cases {
        let (mut state, node) = process_with_looper();
        take_in(&mut state, node, 5, at(1, 10), None);
        assert!(!state.has_process_work(), "{name}: it was the looper's");
        act(&mut state, node);
        assert_eq!(read(&mut state, POOL).map(|incoming| incoming.code), Some(5), "{name}");
    }
}

#[test]
fn the_server_of_a_transaction_is_raised_to_the_most_urgent_one_behind_it() {
    let raised = |state: &mut State| -> Vec<Effect> {
        let effects = state.take_effects().into_iter();
        effects.filter(|effect| matches!(effect, Effect::Raise(..))).collect()
    };
    let (mut state, node) = process(0);
    take_in(&mut state, node, 0, ORDINARY, None);
    take_in(&mut state, node, 1, at(1, 10), None);
    assert_eq!(raised(&mut state), [], "nobody serves it");
    let first = read(&mut state, POOL).unwrap();
    assert_eq!(first.code, 1);
    take_in(&mut state, node, 2, ORDINARY, None);
    assert_eq!(raised(&mut state), [], "it is as urgent");
    take_in(&mut state, node, 3, at(2, 20), None);
    assert_eq!(raised(&mut state), [Effect::Raise(POOL, SchedPriority::fifo(20))]);
    free(&mut state, POOL, &first);
    take_in(&mut state, node, 4, at(3, 30), None);
    assert_eq!(raised(&mut state), [], "nobody serves the next one yet");
    assert_eq!(read(&mut state, POOL).map(|incoming| incoming.code), Some(4));
}

#[test]
fn a_thread_that_was_raised_serves_on_if_it_reads_next() {
    let raise = |to| Some(Raise { from: (0, 0), to: SchedPriority::fifo(to) });
    type Change<'a> = &'a dyn Fn(&mut Thread);
    let cases: [(&str, bool, Change<'_>, bool); 6] = [
        ("it reads", true, &|thread| thread.raised = raise(20), true),
        ("it does not read", false, &|thread| thread.raised = raise(20), false),
        ("it may not be raised", true, &|_| {}, false),
        ("it was raised for another one", true, &|thread| thread.raised = raise(30), false),
        (
            "it has a priority to give back",
            true,
            &|thread| (thread.raised, thread.is_off_priority) = (raise(20), true),
            false,
        ),
        (
            "it serves a call",
            true,
            &|thread| {
                thread.raised = raise(20);
                thread.stack.push(Frame::Serving(serving()));
            },
            false,
        ),
    ];
    for (name, reads_next, change, serves_on) in cases {
        let (mut state, node) = process_with_looper();
        take_in(&mut state, node, 0, ORDINARY, None);
        let first = read(&mut state, POOL).unwrap();
        take_in(&mut state, node, 1, at(1, 20), Some(OWN));
        change(state.thread(POOL));
        state.free(Freer { tid: POOL, reads_next }, Some(first.buffer), 0);
        assert_eq!(state.thread(POOL).serves_on(), serves_on, "{name}");
        let reader = if serves_on { POOL } else { OWN };
        assert_eq!(read(&mut state, reader).map(|next| next.code), Some(1), "{name}");
        assert!(!state.thread(POOL).serves_on(), "{name}: it has read it");
    }
}

#[test]
fn the_better_one_of_sender_and_node_counts() {
    let fifo =
        |priority: u32| (libc::SCHED_FIFO as u32) << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT | priority;
    for (flags, sender, minimum) in [
        (0, ORDINARY, None),
        (fifo(20), ORDINARY, Some(20)),
        (0, at(1, 30), Some(30)),
        (fifo(20), at(1, 30), Some(30)),
        (fifo(40), at(1, 30), Some(40)),
        (fifo(40), Some((1, None)), Some(40)),
    ] {
        let (mut state, node) = process(flags);
        take_in(&mut state, node, 0, sender, None);
        let incoming = read(&mut state, POOL).unwrap();
        assert_eq!(
            incoming.min_priority,
            minimum.map(SchedPriority::fifo),
            "{flags:#x} {sender:?}"
        );
    }
}

#[test]
fn a_real_time_sender_finds_room_that_others_do_not() {
    let (mut state, node) = process(0);
    let room = |state: &mut State, sender| {
        let code = state.contents.len() as u32;
        take_in(state, node, code, sender, None);
    };
    (0..3).for_each(|_| room(&mut state, ORDINARY));
    let (ordinary, real_time) =
        (state.buffers.free(Use::OneWay), state.buffers.free(Use::RealTimeOneWay));
    assert_eq!(real_time - ordinary, state.buffers.bytes() / 4);
    room(&mut state, at(1, 10));
    assert_eq!(state.one_way_account(ChannelId(1)).1, 4, "on its channel's account");
    assert_eq!(state.buffers.free(Use::OneWay), ordinary - 8, "and on everybody's");
}

/// The lane's thread has ended, and a more urgent one keeps it now.
#[test]
fn another_thread_on_the_same_lane_is_another_sender() {
    for (second_reservation, expected) in [(1, [0, 1, 2]), (2, [0, 2, 1])] {
        let (mut state, node) = process(0);
        take_in(&mut state, node, 0, ORDINARY, None);
        let mut in_service = read(&mut state, POOL);
        for (code, priority, reservation) in [(1, 10, 1), (2, 20, second_reservation)] {
            let priority = Some(SchedPriority::fifo(priority));
            let sender = LaneSender { via: via(1), priority, reservation };
            take_in_from(&mut state, node, code, Some(sender), None);
        }
        for code in expected {
            let incoming = in_service.take().or_else(|| read(&mut state, POOL)).unwrap();
            assert_eq!(incoming.code, code);
            free(&mut state, POOL, &incoming);
        }
    }
}
