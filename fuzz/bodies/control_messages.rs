//! Fuzzes the broker with arbitrary requests of processes, arbitrary holder lists of theirs, and
//! arbitrary packets.

use super::input::Input;
use baton_abi::control::*;
use baton_abi::holder_list::{Entry, Holding};
use baton_abi::sched_priority::SchedPriority;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, HolderList, HolderLists, NewProcess, PidNamespace, State};
use std::collections::BTreeMap;

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
    context_name_bytes: 256,
    claims: 64,
    queued_bytes: 1 << 12,
    queued_bytes_per_user: 1 << 13,
    queued_cancels: 16,
    queued_barriers: 16,
};

/// The owners' lists. Owners may write anything.
#[derive(Default)]
struct Lists(BTreeMap<(ProcessId, u32), Entry>);

impl HolderLists for Lists {
    fn entry(&self, owner: ProcessId, entry: u32) -> Option<Holding> {
        self.0.get(&(owner, entry))?.holding()
    }

    fn all(&self, owner: ProcessId) -> HolderList {
        let entries = self.0.range((owner, 0)..=(owner, u32::MAX)).map(|(_, entry)| *entry);
        let n_read = entries.clone().count();
        HolderList { holdings: entries.filter_map(Entry::holding).collect(), n_read }
    }
}

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
    let mut lists = Lists::default();
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
            4 if !living.is_empty() => {
                let holding = Holding {
                    holder: ProcessId(input.small() % 8),
                    node: NodeId(input.small()),
                    flags: input.u32(),
                    strength: strength(&mut input),
                };
                let place = (input.pick(&living), input.below(4) as u32);
                lists.0.insert(place, Entry::of(holding));
            }
            5 => report(&broker, &lists, &mut input),
            2 if !living.is_empty() => {
                let gone = living.remove(input.below(living.len()));
                broker.remove_process(gone, &mut Vec::new());
            }
            _ if !living.is_empty() => {
                let from = input.pick(&living);
                let request = request(&mut input);
                serve((&mut broker, &lists), &mut living, from, request);
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
    NewProcess { pid, uid, security_context: "label".to_owned(), rights, ..NewProcess::default() }
}

fn ask_one(broker: &mut State, request: Request) {
    let identity = broker.admit(new_process(1, 1000), "binder", 4).expect("room");
    broker.request(identity.process, request, &Lists::default(), &mut Vec::new());
    broker.remove_process(identity.process, &mut Vec::new());
}

/// One page of a report from an arbitrary place on.
fn report(broker: &State, lists: &Lists, input: &mut Input<'_>) {
    let part = input.pick(&[Part::Process, Part::Holdings, Part::Channels]);
    let some = (input.small(), input.small());
    let after = input.pick(&[(0, 0), some, (u64::MAX, u64::MAX)]);
    let from = Cursor { process: input.small() % 8, part, after };
    let (page, next) = broker.report(0, PidNamespace::Brokers, from, lists);
    assert!(next.is_none_or(|next| next > from), "a report without an end");
    let page = Reply::Report { page, next };
    assert!(encode(&page).len() <= MAX_PACKET_BYTES, "a page of two packets");
}

fn serve(
    (broker, lists): (&mut State, &Lists),
    living: &mut Vec<ProcessId>,
    from: ProcessId,
    request: Request,
) {
    let mut effects = Vec::new();
    let reply = broker.request(from, request, lists, &mut effects);
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

fn entry(input: &mut Input<'_>) -> Option<u32> {
    (input.below(4) > 0).then(|| input.small() as u32 % 4)
}

fn object(input: &mut Input<'_>) -> HeldNode {
    let (owner, node) = (ProcessId(input.small() % 8), NodeId(input.small()));
    HeldNode { owner, node, strength: strength(input), entry: entry(input) }
}

fn request(input: &mut Input<'_>) -> Request {
    let process = |input: &mut Input<'_>| ProcessId(input.small() % 8);
    match input.below(18) {
        0..=3 => {
            let target = process(input);
            let objects = (0..input.below(5)).map(|_| object(input)).collect();
            Request::Introduce { target, objects }
        }
        4 => Request::CancelTicket { target: process(input), ticket: TicketId(input.small()) },
        5..=7 => {
            let released = (0..1 + input.below(3)).map(|_| {
                let (owner, node) = (process(input), NodeId(input.small()));
                let (strong, grants) = (input.small() as u32, input.small() as u32);
                Released { owner, node, strong, grants }
            });
            Request::Release { released: released.collect() }
        }
        8 => Request::ContextManager,
        9 => Request::BecomeContextManager { node: NodeId(input.small()), flags: input.u32() },
        10 | 11 => Request::OpenChannel { target: process(input), entry: entry(input) },
        12 => Request::NodeInfo { owner: process(input), node: NodeId(input.small()) },
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
