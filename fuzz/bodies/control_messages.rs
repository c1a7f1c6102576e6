//! Fuzzes the broker with arbitrary requests of processes, and with arbitrary packets.

use super::input::Input;
use baton_abi::control::*;
use baton_abi::sched_priority::SchedPriority;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, NewProcess, State};

/// Small limits, so that runs reach them.
const LIMITS: Limits = Limits {
    process: Usage { processes: 1, handles: 12, nodes: 12, channels: 6 },
    user: Usage { processes: 6, handles: 40, nodes: 40, channels: 20 },
    all: Usage { processes: 20, handles: 120, nodes: 120, channels: 60 },
    handles_received: 60,
    channels_per_server: 4,
    channels_served: 10,
    real_time_lanes_per_server: 4,
    real_time_lanes_per_user: 3,
    objects_per_ticket: 64,
    contexts: 6,
    claims: 64,
    queued_bytes: 1 << 12,
    queued_bytes_per_user: 1 << 13,
    queued_cancels: 16,
    queued_barriers: 16,
};

pub fn run(data: &[u8]) {
    let _ = decode::<Event>(data);
    let _ = decode::<Reply>(data);
    let mut broker = State::new(LIMITS, 1000);
    if let Some(request) = decode::<Request>(data) {
        assert_eq!(decode::<Request>(&encode(&request)), Some(request.clone()), "not itself");
        ask_one(&mut broker, request);
    }
    let mut input = Input::new(data);
    let mut living = Vec::new();
    while !input.is_over() {
        match input.below(16) {
            0 | 1 => {
                let (pid, uid) = (input.small() as u32, input.pick(&[0, 1000, 1001]));
                let context = input.pick(&["binder", "hwbinder", "nowhere"]);
                let channels = input.below(12) as u32;
                if let Ok(identity) = broker.admit(new_process(pid, uid), context, channels) {
                    living.push(identity.process);
                }
            }
            3 if !living.is_empty() => {
                let place = (ChannelId(input.small()), input.below(4) as u32);
                let priority = SchedPriority::fifo(1 + input.below(99) as u8);
                let _ = broker.grant_lane(input.pick(&living), place, priority, &mut Vec::new());
            }
            2 if !living.is_empty() => {
                let gone = living.remove(input.below(living.len()));
                broker.remove_process(gone, &mut Vec::new());
            }
            _ if !living.is_empty() => {
                let from = input.pick(&living);
                let request = request(&mut input);
                serve(&mut broker, &mut living, from, request);
            }
            _ => {}
        }
    }
    for process in living {
        broker.remove_process(process, &mut Vec::new());
    }
    assert!(broker.is_empty(), "all are gone, and left {broker:?}");
}

fn new_process(pid: u32, uid: u32) -> NewProcess {
    let rights = Rights { manages: pid % 8 != 7, ..Rights::default() };
    NewProcess { pid, uid, security_context: "label".to_owned(), rights }
}

fn ask_one(broker: &mut State, request: Request) {
    let identity = broker.admit(new_process(1, 1000), "binder", 4).expect("room");
    broker.request(identity.process, request, &mut Vec::new());
    broker.remove_process(identity.process, &mut Vec::new());
}

fn serve(broker: &mut State, living: &mut Vec<ProcessId>, from: ProcessId, request: Request) {
    let mut effects = Vec::new();
    let reply = broker.request(from, request, &mut effects);
    let refused = matches!(reply, Some(Reply::Refused { .. }));
    assert!(!refused || effects.is_empty(), "refused, and done all the same: {effects:?}");
    for effect in effects {
        match effect {
            Effect::Event { to, event } => {
                assert!(encode(&event).len() <= MAX_PACKET_BYTES, "an event of two packets");
                assert!(living.contains(&to), "an event to nobody");
            }
            Effect::Disconnect { process, .. } => {
                assert_eq!(process, from, "one process ends another's connection");
                broker.remove_process(process, &mut Vec::new());
                living.retain(|other| *other != process);
            }
            Effect::OpenChannel { client, server, .. } => {
                assert!(living.contains(&client) && living.contains(&server));
            }
            Effect::SetFrozen { .. } | Effect::Promote { .. } | Effect::SetPriority { .. } => {}
        }
    }
}

fn strength(input: &mut Input<'_>) -> Strength {
    input.pick(&[Strength::Strong, Strength::Weak])
}

fn object(input: &mut Input<'_>) -> Object {
    let strength = strength(input);
    match input.below(2) {
        0 => Object::Node { node: NodeId(input.small()), strength, flags: input.u32() },
        _ => Object::Handle { handle: input.small() as u32, strength },
    }
}

fn request(input: &mut Input<'_>) -> Request {
    let process = |input: &mut Input<'_>| ProcessId(input.small() % 8);
    let handle = |input: &mut Input<'_>| input.small() as u32;
    match input.below(18) {
        0..=3 => {
            let target = process(input);
            let objects = (0..input.below(5)).map(|_| object(input)).collect();
            Request::Translate { target, objects }
        }
        4 => Request::CancelTicket { target: process(input), ticket: TicketId(input.small()) },
        5..=7 => {
            let handle = handle(input);
            let (strong, grants) = (input.small() as u32, input.small() as u32);
            Request::Release { handle, strong, grants }
        }
        8 => Request::ContextManager,
        9 => Request::BecomeContextManager { node: NodeId(input.small()), flags: input.u32() },
        10 | 11 => Request::OpenChannel { target: process(input) },
        12 => Request::NodeInfo { handle: handle(input) },
        13 => Request::Freeze { pid: input.small() as u32, frozen: input.below(2) == 1 },
        14 => Request::FrozenTouched { target: process(input), two_way: input.below(2) == 1 },
        15 if input.below(2) == 1 => {
            Request::Ordinary { channel: ChannelId(input.small()), lane: input.below(4) as u32 }
        }
        15 => Request::AddContext { name: input.pick(&["a", "b", "", "a/b", "."]).to_owned() },
        16 => Request::CloseChannel { channel: ChannelId(input.small()) },
        _ => Request::Barrier { number: input.u64() },
    }
}
