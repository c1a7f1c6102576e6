//! Observers ask for reports with many handles and end without reading them.

use crate::attacker::Attacker;
use crate::honest::{GET, KEEP};
use crate::play::{Attack, Load, Play, STRANGER, Whose, strangers};
use crate::stage::Group;
use baton_abi::control::{
    Cursor, Event, Granted, NodeId, Object, ProcessId, Request, Strength, encode,
};
use baton_abi::uapi::{BINDER_TYPE_BINDER, FlatObject};
use baton_hostile::engine::{self, BareCall, BareChannel, BareEngine};
use bytemuck::bytes_of;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "report_flood";
/// References that each pair of engines has.
const HANDLES: u64 = 60_000;
/// References in one transaction.
const STEP: u64 = 2_000;
/// Connections of observers that the asking process has.
const OBSERVERS: usize = 8;
/// Reports that each observer asks for.
const REPORTS: usize = 300;
/// Timeout of a reply.
const AT_MOST: Duration = Duration::from_secs(5);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "observers of a state with many handles ask for reports and leave without reading them",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let preparers = vec![strangers(NAME, run.scale.of(4, 16))];
        let asking = Group { attack: NAME, user: Some(STRANGER + 1), processes: 1 };
        Load { preparers, ..Load::of([asking]) }
    }),
    attack,
};

/// The user id decides which of the two kinds a process is.
fn attack(attacker: &Attacker) -> io::Result<()> {
    if rustix::process::getuid().as_raw() == STRANGER {
        send_references(attacker)
    } else {
        ask(attacker)
    }
}

/// One engine sends another one as many references as possible.
fn send_references(attacker: &Attacker) -> io::Result<()> {
    let (sender, receiver) = (attacker.engine()?, attacker.engine()?);
    let _channel = introduce(&sender, &receiver, attacker.number as u8)?;
    let (mut held, mut why) = (0, None);
    while held < HANDLES {
        let node = |node| Object::Node { node: NodeId(node), strength: Strength::Strong, flags: 0 };
        let objects = (held..held + STEP).map(|number| node(number + 2)).collect();
        match sender.must(&Request::Translate { target: receiver.id(), objects }) {
            Ok(_) => held += STEP,
            Err(errno) => {
                why = Some(errno);
                break;
            }
        }
        sender.skip_events();
        receiver.skip_events();
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.ready();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}

/// Opens a channel from one engine to another one, whose node it gets from the server.
pub fn introduce(from: &BareEngine, to: &BareEngine, number: u8) -> io::Result<BareChannel> {
    let (server, node) = to.manager_node()?;
    let channel = to.channel_to(server)?;
    let own = Object::Node { node: NodeId(1), strength: Strength::Strong, flags: 0 };
    let ticket = to.translate(server, vec![own])?;
    let mut data = [number; 32];
    let object = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0, binder: 1, cookie: 0 };
    data[8..].copy_from_slice(bytes_of(&object));
    let offsets = [8];
    let call = BareCall { node, code: KEEP, data: &data, offsets: &offsets, ticket: ticket.0 };
    channel.post(&call)?;
    let late = Instant::now() + AT_MOST;
    while !channel.answered()? {
        if Instant::now() > late {
            return Err(io::Error::other("the server keeps no object"));
        }
        std::thread::yield_now();
    }
    let (server, node) = from.manager_node()?;
    let channel = from.channel_to(server)?;
    let call = BareCall { node, code: GET, data: &[number], offsets: &[], ticket: 0 };
    channel.post(&call)?;
    // The reference arrives with the reply's ticket, before the reply.
    let is_its = |granted: &Granted| match granted {
        Granted::Handle { owner, .. } => *owner == to.id(),
        Granted::Own { .. } => false,
    };
    loop {
        if let (Event::Ticket { from: giver, objects, .. }, _) = from.event()?
            && giver != ProcessId::BROKER
            && objects.iter().any(is_its)
        {
            return Ok(from.channel_to(to.id())?);
        }
    }
}

/// Observers ask for as many reports as there is room for and end; then the next ones do.
fn ask(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let report = encode(&Request::Report { from: Cursor::default() });
    let mut asked = 0;
    for round in 0.. {
        let observers: Result<Vec<_>, Errno> =
            (0..OBSERVERS).map(|_| engine::observe(&attacker.socket)).collect();
        for observer in observers.iter().flatten() {
            asked += (0..REPORTS)
                .take_while(|_| engine::send_now(observer, &report, &[]).is_ok())
                .count();
        }
        if round == 0 {
            attacker.holding(&format!("{asked} reports asked for"));
        }
        if !attacker.must_continue() {
            break;
        }
    }
    Ok(())
}
