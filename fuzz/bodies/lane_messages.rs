//! Fuzzes an engine with a peer that writes arbitrary bytes into shared memory and sends arbitrary
//! messages over its sockets.
//!
//! The fuzzer is one end of a channel, admitted by the broker like any process; the other end is a
//! real engine. The engine must not break, and must serve an honest client all the same.

use super::input::Input;
use super::machine::{Hostile, Opened, new_context, parse};
use baton_abi::control::{End, ProcessId, Reply, Request};
use baton_abi::lane::*;
use baton_abi::uapi::*;
use baton_shm::mapping::{Access, Mapping};
use baton_shm::sync::Ordering;
use bytemuck::{bytes_of, pod_read_unaligned};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::SendFlags;
use std::cell::Cell;
use std::time::{Duration, Instant};

const MOST_STEPS: usize = 40;
/// Code of the honest client's transaction.
const HONEST: u32 = 0x600d;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let context = new_context();
    let end = input.pick(&[End::Client, End::Server]);
    match end {
        End::Client => against_a_server(&mut input, &context),
        End::Server => against_a_client(&mut input, &context),
    }
}

fn against_a_server(input: &mut Input<'_>, context: &str) {
    let server = Opened::new(context);
    server.become_manager();
    let honest = Opened::new(context);
    let hostile = Hostile::join(context);
    let (owner, node) = hostile.manager().expect("a grant on the manager");
    assert_eq!(
        hostile.ask(&Request::OpenChannel { target: owner, entry: None }),
        Some(Reply::Done)
    );
    let fds = hostile.channel().expect("a channel to the manager");
    let mut attack = Attack::new(hostile, End::Client, fds, owner, node.0);
    for _ in 0..MOST_STEPS {
        if input.is_over() {
            break;
        }
        attack.step(input);
        if input.below(3) == 0 {
            look(&server, None);
        }
    }
    call_manager(&honest, HONEST, TF_ONE_WAY);
    let late = Instant::now() + Duration::from_secs(20);
    while !look(&server, Some(HONEST)) {
        assert!(Instant::now() < late, "an honest client's call is not served");
        std::thread::yield_now();
    }
}

fn against_a_client(input: &mut Input<'_>, context: &str) {
    let hostile = Hostile::join(context);
    hostile.become_manager();
    let client = Opened::new(context);
    call_manager(&client, 1, TF_ACCEPT_FDS);
    let Some(fds) = hostile.channel() else { return };
    let caller = hostile.caller();
    let mut attack = Attack::new(hostile, End::Server, fds, caller, 1);
    for _ in 0..MOST_STEPS {
        if input.is_over() {
            break;
        }
        attack.step(input);
        match input.below(4) {
            0 => _ = look(&client, None),
            1 => call_manager(&client, 1, input.pick(&[0, TF_ONE_WAY])),
            _ => {}
        }
    }
}

/// The hostile end of a channel.
struct Attack {
    hostile: Hostile,
    end: End,
    memory: Mapping<CHANNEL_BYTES>,
    socket: Option<OwnedFd>,
    descriptors: OwnedFd,
    /// Packets sent by the socket for descriptors.
    packets: Cell<u32>,
    victim: ProcessId,
    node: u64,
    tickets: Vec<u64>,
}

impl Attack {
    fn new(hostile: Hostile, end: End, fds: Vec<OwnedFd>, victim: ProcessId, node: u64) -> Attack {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().expect("memory and two sockets");
        let (file, socket, descriptors) = (next(), next(), next());
        let memory = Mapping::new(&file, Access::ReadWrite).expect("its memory");
        Attack {
            hostile,
            end,
            memory,
            socket: Some(socket),
            descriptors,
            packets: Cell::new(0),
            victim,
            node,
            tickets: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(13) {
            12 => self.give_back(input),
            0..=3 => self.post(input),
            4..=6 => self.put_one_way(input),
            7 => self.poke(input),
            8 => self.send(input),
            9 => self.introduce(input),
            10 => self.memory.double_word(header::READY).store(input.u64(), Ordering::SeqCst),
            _ if input.u8() > 250 => self.socket = None,
            _ => {}
        }
    }

    fn message(&self, input: &mut Input<'_>) -> Message {
        let sizes = |input: &mut Input<'_>| match input.u8() {
            248.. => input.u32(),
            small => u32::from(small) & !7,
        };
        Message {
            word: input.below(32) as u32,
            kind: input.below(9) as u32,
            node: if input.u8() < 240 { self.node } else { input.u64() },
            code: input.u32(),
            flags: input.pick(&[0, TF_ACCEPT_FDS, TF_ONE_WAY, TF_UPDATE_TXN, u32::MAX]),
            data_bytes: sizes(input),
            offsets_bytes: sizes(input),
            buffers_bytes: sizes(input),
            fds: input.small() as u8,
            chain: input.small() as u8,
            objects: if input.u8() < 128 { input.below(3) as u16 } else { 0 },
            fds_number: input.below(4) as u32,
            param: input.u32() as i32,
            ticket: match input.below(4) {
                0 => self.tickets.last().copied().unwrap_or(0),
                1 => input.small(),
                _ => 0,
            },
            stamp: input.u64(),
        }
    }

    /// Posts a message in a lane, with its word and its ready bit.
    fn post(&self, input: &mut Input<'_>) {
        let lane = input.below(4);
        let inbox_of = match self.end {
            End::Client => End::Server,
            End::Server => End::Client,
        };
        let mut message = self.message(input);
        if input.u8() < 200 {
            message.kind = input.pick(&[1, 1, 2, 3, 4]);
            message.word |= 1;
        }
        let at = area_at(lane, inbox_of);
        self.memory.view().write(at, bytes_of(&message));
        let body = input.below(200);
        self.memory.view().write(at + size_of::<Message>(), input.bytes(body));
        if self.end == End::Client {
            self.memory.double_word(header::READY).fetch_or(1 << lane, Ordering::SeqCst);
        }
    }

    fn put_one_way(&self, input: &mut Input<'_>) {
        let tail = self.memory.double_word(header::RING_TAIL);
        let at = tail.load(Ordering::Relaxed) as usize % RING_BYTES;
        let mut message = self.message(input);
        if input.u8() < 200 {
            message.kind = input.pick(&[6, 6, 7]);
            let parts = message.parts().map_or(64, |parts| parts.end);
            message.word = parts.next_multiple_of(64) as u32;
        }
        let room = RING_BYTES - at;
        let bytes = &bytes_of(&message)[..room.min(size_of::<Message>())];
        self.memory.view().write(RING_AT + at, bytes);
        let more = if input.u8() < 240 { u64::from(message.word) } else { input.u64() };
        tail.fetch_add(more, Ordering::Release);
    }

    fn poke(&self, input: &mut Input<'_>) {
        let at = match input.below(3) {
            0 => input.below(256) * 2,
            1 => RING_AT + input.u32() as usize % RING_BYTES,
            _ => LANES_AT + input.below(256) * 8,
        };
        let bytes = input.below(16);
        self.memory.view().write(at, input.bytes(bytes));
    }

    fn send(&self, input: &mut Input<'_>) {
        let Some(socket) = &self.socket else { return };
        let fds: Vec<_> = (0..input.below(4)).map(|_| socket.as_fd()).collect();
        let count = if input.u8() < 240 { fds.len() as u32 } else { input.u32() };
        let (mut to, mut number) = (socket, input.below(4) as u32);
        if input.u8() < 128 {
            to = &self.descriptors;
            if input.u8() < 240 {
                number = self.packets.get();
            }
        }
        let packet = [number.to_ne_bytes(), count.to_ne_bytes()].concat();
        let packet = &packet[..input.pick(&[8, 8, 8, 0, 4])];
        let sent = super::machine::send(to, packet, &fds, SendFlags::DONTWAIT);
        if sent.is_ok() && std::ptr::eq(to, &self.descriptors) {
            self.packets.set(number.wrapping_add(1));
        }
    }

    /// Puts a record into the ring of returned grants, or only says so.
    fn give_back(&self, input: &mut Input<'_>) {
        let (at, tail) = match self.end {
            End::Client => (RETURNS_AT, header::CLIENT_RETURNS_TAIL),
            End::Server => (RETURNS_AT + RETURNS_BYTES, header::SERVER_RETURNS_TAIL),
        };
        let tail = self.memory.double_word(tail);
        let at = at + tail.load(Ordering::Relaxed) as usize / 16 * 16 % RETURNS_BYTES;
        let (node, strong, all) = (input.small(), input.below(3) as u32, input.below(3) as u32);
        self.memory.view().write(at, bytes_of(&ReturnedGrants { node, strong, all }));
        let more = if input.u8() < 240 { 16 } else { input.u64() };
        tail.fetch_add(more, Ordering::Release);
        self.send(input);
    }

    fn introduce(&mut self, input: &mut Input<'_>) {
        use baton_abi::control::{HeldNode, NodeId, ProcessId, Strength};
        let object = |input: &mut Input<'_>| HeldNode {
            owner: ProcessId(input.small()),
            node: NodeId(input.small()),
            strength: input.pick(&[Strength::Strong, Strength::Weak]),
            entry: (input.below(2) == 0).then(|| input.below(4) as u32),
        };
        let objects = (0..input.below(4)).map(|_| object(input)).collect();
        let request = Request::Introduce { target: self.victim, objects };
        if let Some(Reply::Ticket { ticket }) = self.hostile.ask(&request) {
            self.tickets.push(ticket.0);
        }
    }
}

/// Sends a transaction to handle 0 without waiting for a reply.
fn call_manager(from: &Opened, code: u32, flags: u32) {
    let transaction = TransactionData {
        target: 0,
        cookie: 0,
        code,
        flags,
        sender_pid: 0,
        sender_euid: 0,
        data_size: 0,
        offsets_size: 0,
        buffer: 0,
        offsets: 0,
    };
    let mut commands = BC_TRANSACTION.to_le_bytes().to_vec();
    commands.extend_from_slice(bytes_of(&transaction));
    from.exchange(&commands, 0);
}

/// Acts as a correct program: reads returns, frees buffers and replies. Returns whether a
/// transaction with this code came.
fn look(device: &Opened, code: Option<u32>) -> bool {
    let mut found = false;
    loop {
        let returns = device.exchange(&[], 256);
        let mut answers = Vec::new();
        for (command, payload) in parse(&returns) {
            found |= answer(command, payload, code, &mut answers);
        }
        if answers.is_empty() {
            return found;
        }
        device.exchange(&answers, 0);
    }
}

fn answer(command: u32, payload: &[u8], code: Option<u32>, answers: &mut Vec<u8>) -> bool {
    let mut put = |command: u32, payload: &[u8]| {
        answers.extend_from_slice(&command.to_le_bytes());
        answers.extend_from_slice(payload);
    };
    match command {
        BR_TRANSACTION | BR_REPLY | BR_TRANSACTION_SEC_CTX => {
            let size = size_of::<TransactionData>();
            let transaction: TransactionData = pod_read_unaligned(&payload[..size]);
            put(BC_FREE_BUFFER, &transaction.buffer.to_le_bytes());
            if command != BR_REPLY && transaction.flags & TF_ONE_WAY == 0 {
                let empty = TransactionData { data_size: 0, offsets_size: 0, ..transaction };
                put(BC_REPLY, bytes_of(&empty));
            }
            command != BR_REPLY && code == Some(transaction.code)
        }
        BR_INCREFS => {
            put(BC_INCREFS_DONE, payload);
            false
        }
        BR_ACQUIRE => {
            put(BC_ACQUIRE_DONE, payload);
            false
        }
        _ => false,
    }
}
