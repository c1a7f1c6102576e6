//! One thread of a program: it does anything that the rules allow, as the dice choose.

use crate::grants::HONEST_CODE;
use crate::model::{Held, Notice, Object as Local, Pins, Reference};
use crate::payload::{FILE, MOST_PRIORITY, Name, Object, Order, Payload};
use crate::program::{Commands, Message, returns};
use crate::world::{Peer, World};
use baton_abi::uapi::*;
use baton_driver::device;
use baton_shm::blocking::pause;
use baton_shm::schedule;
use baton_shm::simulation::{FIRST_PID, relinquish};
use baton_shm::thread;
use baton_state::thread::Frame;
use baton_state::transaction::LaneId;
use bytemuck::{Zeroable, pod_read_unaligned};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Few, so that an address is used again soon.
const ADDRESSES: [u64; 6] = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60];
/// Buffers that a program keeps at once, at most.
const MOST_KEPT: usize = 6;
pub struct Worker {
    /// No other thread of the history has it.
    number: u64,
    pub world: Arc<World>,
    pub peer: Arc<Peer>,
    /// Commands for the next exchange: what the program owes for what it was told.
    owed: Commands,
    /// Transactions and replies that were sent, oldest first, and whose outcome was not read yet.
    sent: VecDeque<Sent>,
    /// The numbers of what was refused, until it is seen.
    refused: BTreeSet<u64>,
    /// Calls that were taken and whose ends the program has not used.
    n_open: u32,
    /// Ends of calls, oldest first: answers, and failures.
    ends: Vec<Option<Message>>,
    /// Calls of hostile processes that the thread serves.
    n_hostile: u32,
    /// Its priority changes as it likes: it is no looper.
    has_own_priority: bool,
    /// How often its priority has changed, and, of a looper, the lane to which it was dedicated
    /// when it last sent a one-way transaction.
    epoch: u64,
    was_dedicated_to: Option<LaneId>,
}

/// A transaction or reply.
struct Sent {
    number: u64,
    is_call: bool,
    pins: Pins,
}

/// What a call carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cargo {
    /// Objects and bytes.
    Objects,
    /// Bytes, of which there may be many.
    Bytes,
    /// A few bytes, which are answered at once.
    Plain,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The driver has taken what was sent.
    Taken,
    /// The answer to a call.
    Answered,
    /// Anything: the thread is a looper.
    Read,
}

impl Worker {
    pub fn new(world: &Arc<World>, peer: &Arc<Peer>) -> Worker {
        Worker {
            number: world.next_nonce(),
            world: Arc::clone(world),
            peer: Arc::clone(peer),
            owed: Commands::default(),
            sent: VecDeque::new(),
            refused: BTreeSet::new(),
            n_open: 0,
            ends: Vec::new(),
            n_hostile: 0,
            has_own_priority: false,
            epoch: 0,
            was_dedicated_to: None,
        }
    }

    /// A looper of the pool, for ever.
    pub fn serve(mut self, command: u32) {
        if self.dice(8) == 0 {
            self.become_real_time();
        }
        let (tid, own) = (thread::id(), self.world.machine.schedule(0));
        self.peer.note_looper(tid, own.expect("the calling thread"));
        self.owe(command, &[]);
        loop {
            self.exchange(Commands::default(), Until::Read, &Pins::default());
        }
    }

    /// Some acts, then the thread leaves. A real-time thread may end without a word: what the
    /// kernel's driver does not know goes, too.
    pub fn act_often(mut self, often: u64) {
        self.has_own_priority = true;
        self.change_priority();
        for _ in 0..often {
            self.act();
        }
        self.flush();
        let is_real_time = thread::is_real_time();
        if !is_real_time || self.dice(3) != 0 {
            self.peer.program.leave();
        }
    }

    /// Calls every object whose owner lives: it has to answer.
    pub fn check_handles(mut self) {
        if self.dice(2) == 0 {
            self.become_real_time();
        }
        let strong = |(handle, r): (&u32, &Reference)| (r.strong > 0).then_some((*handle, r.name));
        let references: Vec<(u32, Name)> =
            self.peer.model().references.iter().filter_map(strong).collect();
        for (handle, name) in references {
            let answered = self.call(handle, name, Cargo::Bytes);
            let why = self.last_error();
            assert!(
                answered || self.world.is_dead(name.owner),
                "{name:?} does not answer: {why:?}"
            );
        }
        self.flush();
        self.peer.program.leave();
    }

    /// Gives back whatever the program has.
    pub fn give_back(mut self) {
        while self.free() {}
        loop {
            let Some((cookie, handle)) = self.peer.model().notice_to_clear() else { break };
            self.clear_notice(cookie, handle);
        }
        while self.release() {}
        while self.drop_object() {}
        self.flush();
        self.peer.program.leave();
    }

    fn dice(&self, bound: u64) -> u64 {
        self.world.machine.below(bound)
    }

    fn owe(&mut self, command: u32, payload: &[u8]) {
        self.owed = std::mem::take(&mut self.owed).put(command, payload);
    }

    // ---- exchanges --------------------------------------------------------------------------

    /// Writes what the program owes. Reads only if the driver takes nothing before the thread has
    /// read of a refusal.
    fn flush(&mut self) {
        loop {
            let owed = std::mem::take(&mut self.owed);
            let written = self.peer.program.write_read(&owed, &mut []);
            self.owed = owed.after(written.expect("a write of commands").0);
            if self.owed.is_empty() {
                return;
            }
            self.exchange(Commands::default(), Until::Read, &Pins::default());
        }
    }

    /// Writes commands, and reads until that has happened which the thread waits for. The answer
    /// to a call, if there was one.
    ///
    /// The driver takes or refuses each transaction at once, and later reads say so in their order.
    /// Meanwhile the thread may have to serve calls, and the end of a call may come in which it
    /// serves another one: its server has died, say.
    fn exchange(&mut self, commands: Commands, until: Until, pins: &Pins) -> Option<Message> {
        let mut commands = std::mem::take(&mut self.owed).and(commands);
        let number = self.world.next_nonce();
        if until != Until::Read {
            let (is_call, pins) = (until == Until::Answered, pins.clone());
            self.sent.push_back(Sent { number, is_call, pins });
        }
        loop {
            let returned = self.peer.program.try_exchange(&commands).expect("an exchange");
            self.owed = commands.after(returned.consumed);
            let mut messages = returned.messages.into_iter();
            for (command, payload) in returns(&returned.bytes) {
                match command {
                    BR_NOOP | BR_OK => {}
                    BR_SPAWN_LOOPER => self.peer.start_looper(&self.world, BC_REGISTER_LOOPER),
                    BR_INCREFS | BR_ACQUIRE | BR_RELEASE | BR_DECREFS => {
                        self.node_news(command, payload);
                    }
                    BR_DEAD_BINDER => {
                        let cookie: u64 = pod_read_unaligned(payload);
                        let name = self.peer.model().dead(cookie);
                        // The broker ends a process that breaks its protocol.
                        let is_hostile = self.world.hostile.is_one(name.owner);
                        let is_dead = is_hostile || self.world.is_dead(name.owner);
                        assert!(is_dead, "{name:?} lives");
                        self.owe(BC_DEAD_BINDER_DONE, payload);
                    }
                    BR_FROZEN_BINDER => {
                        let state: FrozenStateInfo = pod_read_unaligned(payload);
                        let is_frozen = state.is_frozen != 0;
                        let pins = self.peer.model().frozen(state.cookie, is_frozen);
                        self.freeze_done(state.cookie, pins);
                    }
                    BR_CLEAR_DEATH_NOTIFICATION_DONE | BR_CLEAR_FREEZE_NOTIFICATION_DONE => {
                        let is_of_freezes = command == BR_CLEAR_FREEZE_NOTIFICATION_DONE;
                        let cookie = pod_read_unaligned(payload);
                        self.peer.model().notice_cleared(cookie, is_of_freezes);
                    }
                    BR_TRANSACTION_COMPLETE
                    | BR_ONEWAY_SPAM_SUSPECT
                    | BR_TRANSACTION_PENDING_FROZEN => {
                        let sent = self.sent.pop_front();
                        let sent = sent.expect("BR_TRANSACTION_COMPLETE of something");
                        self.peer.model().unpin(&sent.pins);
                        self.n_open += u32::from(sent.is_call);
                    }
                    BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY => self.ends.push(None),
                    BR_REPLY => self.ends.push(messages.next()),
                    BR_TRANSACTION => {
                        self.take_refusal();
                        let message = messages.next().expect("one message a transaction");
                        self.take_in(&message);
                    }
                    other => panic!("return {other:#x}"),
                }
            }
            self.take_refusal();
            let is_known = self.sent.iter().all(|sent| sent.number != number);
            match until {
                Until::Read => return None,
                _ if self.refused.remove(&number) => return None,
                Until::Taken if is_known => return None,
                Until::Answered if is_known && !self.ends.is_empty() => {
                    self.n_open -= 1;
                    return self.ends.remove(0);
                }
                Until::Taken | Until::Answered => {}
            }
            commands = std::mem::take(&mut self.owed);
        }
    }

    fn freeze_done(&mut self, cookie: u64, pins: Option<Pins>) {
        let command = BC_FREEZE_NOTIFICATION_DONE;
        let Some(pins) = pins else {
            self.flush();
            let done = Commands::default().put(command, &cookie.to_ne_bytes());
            let _ = self.peer.program.write_read(&done, &mut []);
            return;
        };
        self.owe(command, &cookie.to_ne_bytes());
        self.flush();
        self.peer.model().unpin(&pins);
    }

    /// Takes the refusal of the oldest transaction of which the thread did not know, if that has
    /// come: then it has read more ends than calls have ended.
    fn take_refusal(&mut self) {
        if self.ends.len() > self.n_ended()
            && let Some(refused) = self.sent.pop_front()
        {
            let refusal = self.ends.pop().expect("counted");
            assert!(refusal.is_none(), "an answer to no call");
            self.peer.model().unpin(&refused.pins);
            self.refused.insert(refused.number);
        }
    }

    /// Calls of this thread that have ended, whether or not it has read so; none while it does not
    /// know yet whether its call was taken.
    fn n_ended(&self) -> usize {
        let state = self.peer.program.device.engine().lock();
        let thread = state.threads.get(thread::id());
        let is_open = |frame: &&Frame| matches!(frame, Frame::Calling(_));
        let open = thread.map_or(0, |thread| thread.stack.iter().filter(is_open).count());
        (self.n_open as usize).saturating_sub(open)
    }

    /// Why the thread's last transaction failed.
    fn last_error(&self) -> ExtendedError {
        let mut error = ExtendedError::zeroed();
        let argument = std::ptr::from_mut(&mut error) as usize;
        self.peer.program.device.ioctl(BINDER_GET_EXTENDED_ERROR, argument, false).unwrap();
        error
    }

    fn node_news(&mut self, command: u32, payload: &[u8]) {
        let (ptr, cookie) = (pod_read_unaligned(&payload[..8]), pod_read_unaligned(&payload[8..]));
        if ptr != 0 {
            self.peer.model().node_news(command, ptr, cookie);
        }
        match command {
            BR_INCREFS => self.owe(BC_INCREFS_DONE, payload),
            BR_ACQUIRE => self.owe(BC_ACQUIRE_DONE, payload),
            _ => {}
        }
    }

    // ---- what comes -------------------------------------------------------------------------

    /// The payload's buffer is the program's: takes what it names, and keeps the buffer for later.
    fn keep(&mut self, message: &Message, payload: &Payload, one_way: Option<u64>) {
        let address = message.transaction.buffer;
        let mut held = Held { address, handles: Vec::new(), one_way };
        let mut wanted = Vec::new();
        for (name, object) in &payload.objects {
            match *object {
                Object::Handle { handle, strong } => {
                    assert_ne!(name.owner, self.peer.id(), "an object of ours comes as a handle");
                    let mut model = self.peer.model();
                    model.mention(handle, *name);
                    held.handles.push(handle);
                    let command = if strong { BC_ACQUIRE } else { BC_INCREFS };
                    if self.dice(100) < 60 {
                        model.pin(&Pins::of(handle));
                        wanted.push((command, handle));
                    }
                }
                Object::Own { ptr, cookie, .. } => {
                    assert_eq!(*name, Name { owner: self.peer.id(), cookie }, "at {ptr:#x}");
                }
                Object::Descriptor(fd) => {
                    // SAFETY: the driver has just installed it, and nobody else knows it.
                    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                    let inode = rustix::fs::fstat(&fd).expect("an open file").st_ino;
                    assert_eq!((name.owner, name.cookie), (FILE, inode), "another file");
                    drop(fd);
                }
            }
        }
        for (command, handle) in wanted {
            self.count(command, handle);
        }
        let mut model = self.peer.model();
        let is_large = payload.filler_bytes > 1_000 || model.buffers.len() > MOST_KEPT;
        let is_freed = one_way.is_some() || payload.is_plain;
        if is_freed || is_large || self.dice(100) < 70 {
            model.let_go(&held);
            drop(model);
            self.owe(BC_FREE_BUFFER, &address.to_ne_bytes());
        } else {
            model.buffers.push(held);
        }
    }

    /// BC_ACQUIRE or BC_INCREFS, at once.
    fn count(&mut self, command: u32, handle: u32) {
        self.owe(command, &handle.to_ne_bytes());
        self.flush();
        let mut model = self.peer.model();
        let reference = model.references.get_mut(&handle).expect("mentioned");
        match command {
            BC_ACQUIRE => reference.strong += 1,
            _ => reference.weak += 1,
        }
        model.unpin(&Pins::of(handle));
    }

    fn take_in(&mut self, message: &Message) {
        // A looper may have got another priority since.
        self.epoch += u64::from(thread::is_real_time());
        let transaction = &message.transaction;
        let is_hostile = transaction.code != HONEST_CODE;
        let payload =
            if is_hostile { self.hostile(message) } else { Payload::decode(&message.data) };
        if payload.target != Name::default() {
            let expected = Name { owner: self.peer.id(), cookie: transaction.cookie };
            assert_eq!(payload.target, expected, "a call for somebody else");
            let object = self.peer.model().objects.get(&transaction.target).copied();
            let is_there = object.is_some_and(|object| object.cookie == transaction.cookie);
            assert!(is_there, "a call to {:?}, which is gone", payload.target);
        }
        if transaction.flags & TF_ONE_WAY != 0 {
            if transaction.target != 0 && !is_hostile {
                let mut model = self.peer.model();
                model.one_way(payload.sender, payload.order, transaction.cookie, payload.nonce);
            }
            return self.keep(message, &payload, Some(transaction.cookie));
        }
        if is_hostile {
            self.world.hostile.receive_call(&self.peer, transaction);
        }
        self.keep(message, &payload, is_hostile.then_some(transaction.cookie));
        let is_plain = payload.is_plain;
        let acts = if is_plain { 0 } else { self.dice(3) };
        self.n_hostile += u32::from(is_hostile);
        for _ in 0..acts {
            self.act();
        }
        self.n_hostile -= u32::from(is_hostile);
        let accepts_fds = transaction.flags & TF_ACCEPT_FDS != 0;
        let cargo = if is_plain { Default::default() } else { self.cargo(accepts_fds) };
        self.reply(payload.nonce, is_plain, cargo);
    }

    /// A message of a hostile process: its objects as a payload, the message for the object that it
    /// says it is for.
    fn hostile(&self, message: &Message) -> Payload {
        let transaction = &message.transaction;
        let owner = if transaction.target == 0 { 0 } else { self.peer.id() };
        let cookie = if transaction.target == 0 { 0 } else { transaction.cookie };
        let objects = self.world.hostile.receive(&self.peer, message);
        Payload { target: Name { owner, cookie }, objects, ..Payload::default() }
    }

    fn reply(
        &mut self,
        nonce: u64,
        is_plain: bool,
        cargo: (Vec<(Name, Object)>, Pins, Vec<OwnedFd>),
    ) {
        let (objects, pins, files) = cargo;
        let (sender, filler_bytes) = (self.number, self.dice(300) as usize);
        let payload =
            Payload { nonce, sender, is_plain, objects, filler_bytes, ..Payload::default() };
        let (bytes, offsets) = payload.encode();
        let commands = Commands::default().send_objects(BC_REPLY, 0, 0, &bytes, &offsets);
        self.peer.model().pin(&pins);
        self.exchange(commands, Until::Taken, &pins);
        drop(files);
    }

    // ---- what the program does --------------------------------------------------------------

    fn act(&mut self) {
        match self.dice(100) {
            // An end tells nothing of its call, so a thread has one at a time.
            dice @ 0..30 if self.may_call() => self.call_any(dice < 8),
            30..45 => self.send_one_way(),
            45..50 => self.become_manager(),
            50..60 => _ = self.free(),
            60..68 => _ = self.release(),
            68..73 => _ = self.drop_object(),
            73..80 => self.ask_for_notices(),
            80..83 => self.stop_asking(),
            83 if self.world.is_busy() => self.freeze(),
            84..88 => pause(Duration::from_micros(self.dice(3_000))),
            88..92 => self.flush(),
            92..94 if self.has_own_priority => self.change_priority(),
            _ => relinquish(),
        }
    }

    fn may_call(&self) -> bool {
        self.n_open == 0 && self.sent.is_empty()
    }

    fn target(&mut self) -> (u32, Name) {
        let model = self.peer.model();
        let strong = model.references.iter().filter(|(_, reference)| reference.strong > 0);
        let mut targets: Vec<(u32, Name)> = strong.map(|(handle, r)| (*handle, r.name)).collect();
        drop(model);
        targets.push((0, Name::default()));
        targets[self.dice(targets.len() as u64) as usize]
    }

    /// Calls an object. Steadily: again and again, as programs do that have a fast path.
    fn call_any(&mut self, steadily: bool) {
        let (handle, name) = self.target();
        // The calls of hostile processes could otherwise make the loopers of two programs wait for
        // each other.
        if self.n_hostile > 0 && !self.world.hostile.is_one(name.owner) {
            return;
        }
        if !steadily {
            self.call(handle, name, Cargo::Objects);
            return;
        }
        let times = 3 + self.dice(12);
        let _ = (0..times).all(|_| {
            let cargo = if self.dice(3) == 0 { Cargo::Objects } else { Cargo::Plain };
            self.call(handle, name, cargo)
        });
    }

    /// The thread gets a real-time priority, or a nice value, and the driver is told so.
    fn change_priority(&mut self) {
        self.epoch += 1;
        if self.dice(2) == 0 {
            return self.become_real_time();
        }
        let nice = [0, 0, -5, 7][self.dice(4) as usize];
        schedule::set(0, libc::SCHED_OTHER, 0).expect("the calling thread");
        schedule::set_nice(0, nice).expect("the calling thread");
        device::priorities_change();
    }

    fn become_real_time(&mut self) {
        let policy = [libc::SCHED_FIFO, libc::SCHED_RR][self.dice(2) as usize];
        let priority = 1 + self.dice(MOST_PRIORITY as u64) as i32;
        schedule::set(0, policy, priority).expect("the calling thread");
        device::priorities_change();
    }

    /// Whether the call was answered.
    fn call(&mut self, handle: u32, target: Name, cargo: Cargo) -> bool {
        let (objects, mut pins, files) =
            if cargo == Cargo::Objects { self.cargo(true) } else { Default::default() };
        let nonce = self.world.next_nonce();
        let is_plain = cargo == Cargo::Plain;
        let filler_bytes = match self.dice(20) {
            0 if !is_plain => 20_000,
            1 if !is_plain => 100_000,
            _ => self.dice(300) as usize,
        };
        let sender = self.number;
        let order = Order::default();
        let payload = Payload { nonce, sender, order, target, is_plain, objects, filler_bytes };
        let (bytes, offsets) = payload.encode();
        if !self.hold(handle, target, &mut pins) {
            return true;
        }
        let flags = if self.dice(2) == 0 { TF_ACCEPT_FDS } else { 0 };
        let commands = Commands::default().send_objects(
            BC_TRANSACTION,
            handle.into(),
            flags,
            &bytes,
            &offsets,
        );
        let answer = self.exchange(commands, Until::Answered, &pins);
        drop(files);
        let Some(answer) = answer else {
            self.peer.model().n_failed += 1;
            return false;
        };
        if answer.transaction.code != HONEST_CODE {
            let payload = self.hostile(&answer);
            self.keep(&answer, &payload, Some(0));
            return true;
        }
        let payload = Payload::decode(&answer.data);
        assert_eq!(payload.nonce, nonce, "another call's answer");
        self.keep(&answer, &payload, None);
        self.peer.model().n_answered += 1;
        true
    }

    /// Pins the target, if the program still holds it.
    fn hold(&mut self, handle: u32, target: Name, pins: &mut Pins) -> bool {
        let mut model = self.peer.model();
        let is_held = |r: &Reference| r.strong > 0 && r.name == target;
        let is_held = handle == 0 || model.references.get(&handle).is_some_and(is_held);
        if is_held && handle != 0 {
            pins.handles.push(handle);
        }
        if is_held {
            model.pin(pins);
        }
        is_held
    }

    /// The place of its next one-way transaction.
    fn order(&mut self) -> Order {
        let priority = schedule::priority(0).expect("the calling thread") as u64;
        let dedicated_to = self.peer.program.device.engine().lock().dedicated_to(thread::id());
        self.epoch += u64::from(self.was_dedicated_to != dedicated_to);
        self.was_dedicated_to = dedicated_to;
        Order { epoch: self.epoch, priority, is_last: self.has_own_priority && priority == 0 }
    }

    fn send_one_way(&mut self) {
        // A step, which must not come between the choice of objects and the send.
        let order = self.order();
        let (handle, target) = self.target();
        let (objects, mut pins, files) = self.cargo(true);
        let nonce = self.world.next_nonce();
        let filler_bytes = self.dice(2_000) as usize;
        let (sender, is_plain) = (self.number, false);
        let payload = Payload { nonce, sender, order, target, is_plain, objects, filler_bytes };
        let (bytes, offsets) = payload.encode();
        if !self.hold(handle, target, &mut pins) {
            return;
        }
        let commands = Commands::default().send_objects(
            BC_TRANSACTION,
            handle.into(),
            TF_ONE_WAY,
            &bytes,
            &offsets,
        );
        self.exchange(commands, Until::Taken, &pins);
        drop(files);
    }

    /// Objects and descriptors for a transaction, and what has to stay until it is taken.
    fn cargo(&mut self, accepts_fds: bool) -> (Vec<(Name, Object)>, Pins, Vec<OwnedFd>) {
        // No other thread runs between this and the send: nothing here is a step.
        let (mut objects, mut pins, mut files) = (Vec::new(), Pins::default(), Vec::new());
        for _ in 0..self.dice(4).saturating_sub(1) {
            let strong = self.dice(100) < 70;
            match self.dice(5) {
                0 | 1 => {
                    let ptr = ADDRESSES[self.dice(ADDRESSES.len() as u64) as usize];
                    let mut model = self.peer.model();
                    let fresh = model.next_cookie();
                    let fresh = Local { cookie: fresh, local: true, ..Local::default() };
                    let object = model.objects.entry(ptr).or_insert(fresh);
                    // Without a reference of its own the program may not send it.
                    if object.local {
                        let cookie = object.cookie;
                        pins.objects.push(ptr);
                        let name = Name { owner: self.peer.id(), cookie };
                        objects.push((name, Object::Own { ptr, cookie, strong }));
                    }
                }
                2 | 3 => {
                    let model = self.peer.model();
                    let may = |r: &Reference| if strong { r.strong > 0 } else { r.weak > 0 };
                    let held = model.references.iter().filter(|(_, reference)| may(reference));
                    let held: Vec<u32> = held.map(|(handle, _)| *handle).collect();
                    if held.is_empty() {
                        continue;
                    }
                    let handle = held[self.dice(held.len() as u64) as usize];
                    pins.handles.push(handle);
                    objects
                        .push((model.references[&handle].name, Object::Handle { handle, strong }));
                }
                _ if accepts_fds => {
                    let flags = rustix::fs::MemfdFlags::CLOEXEC;
                    let file = rustix::fs::memfd_create("sent", flags).expect("a file");
                    let inode = rustix::fs::fstat(&file).expect("an open file").st_ino;
                    let fd = Object::Descriptor(file.as_raw_fd());
                    objects.push((Name { owner: FILE, cookie: inode }, fd));
                    files.push(file);
                }
                _ => {}
            }
        }
        (objects, pins, files)
    }

    fn become_manager(&mut self) {
        let device = &self.peer.program.device;
        match device.ioctl(BINDER_SET_CONTEXT_MGR, 0, false) {
            // There is one, or there is no broker at this moment.
            Ok(_) | Err(Errno::BUSY | Errno::CONNREFUSED | Errno::AGAIN) => {}
            Err(errno) => panic!("BINDER_SET_CONTEXT_MGR: {errno}"),
        }
    }

    /// Frees a buffer that was kept, if there is one.
    fn free(&mut self) -> bool {
        let mut model = self.peer.model();
        let Some(held) = model.buffers.pop() else { return false };
        model.let_go(&held);
        drop(model);
        self.owe(BC_FREE_BUFFER, &held.address.to_ne_bytes());
        self.flush();
        true
    }

    /// Gives back one count, if there is one that no send relies on.
    fn release(&mut self) -> bool {
        let mut model = self.peer.model();
        let spare = |r: &Reference| r.sending == 0 && (r.strong > 0 || r.weak > 0);
        let spare = model.references.iter().filter(|(_, reference)| spare(reference));
        let spare: Vec<u32> = spare.map(|(handle, _)| *handle).collect();
        if spare.is_empty() {
            return false;
        }
        let handle = spare[self.dice(spare.len() as u64) as usize];
        let reference = model.references.get_mut(&handle).expect("listed");
        let command = if reference.strong > 0 {
            reference.strong -= 1;
            BC_RELEASE
        } else {
            reference.weak -= 1;
            BC_DECREFS
        };
        model.forget(handle);
        drop(model);
        self.owe(command, &handle.to_ne_bytes());
        self.flush();
        true
    }

    fn drop_object(&mut self) -> bool {
        let mut model = self.peer.model();
        let local = model.objects.iter().find(|(_, object)| object.local && object.sending == 0);
        let Some(ptr) = local.map(|(ptr, _)| *ptr) else { return false };
        model.objects.get_mut(&ptr).expect("listed").local = false;
        model.tidy(ptr);
        true
    }

    fn ask_for_notices(&mut self) {
        let mut model = self.peer.model();
        let is_of_freezes = self.dice(3) == 0;
        let held = model.references.iter().filter(|(_, r)| r.strong > 0 || r.weak > 0);
        let held: Vec<(u32, Name)> = held.map(|(handle, r)| (*handle, r.name)).collect();
        // Of a handle that was dropped, the driver may still have the notice: a free is owed.
        let is_asked = |(handle, name): &(u32, Name)| {
            let mut notices = model.notices.values();
            notices.any(|n| (n.handle, n.name, n.is_of_freezes) == (*handle, *name, is_of_freezes))
        };
        let free: Vec<_> = held.into_iter().filter(|held| !is_asked(held)).collect();
        if free.is_empty() {
            return;
        }
        let (handle, name) = free[self.dice(free.len() as u64) as usize];
        let cookie = model.next_cookie();
        model.notices.insert(cookie, Notice { handle, name, is_of_freezes, ..Notice::default() });
        model.references.get_mut(&handle).expect("listed").sending += 1;
        drop(model);
        let command = match is_of_freezes {
            true => BC_REQUEST_FREEZE_NOTIFICATION,
            false => BC_REQUEST_DEATH_NOTIFICATION,
        };
        self.owe(command, &handle_cookie(handle, cookie));
        self.flush();
        let mut model = self.peer.model();
        model.notices.get_mut(&cookie).expect("not cleared yet").is_asked = true;
        model.unpin(&Pins::of(handle));
    }

    /// BINDER_FREEZE of anybody.
    fn freeze(&self) {
        let peers = self.world.peers();
        if !peers.is_empty() {
            let process = peers[self.dice(peers.len() as u64) as usize].process;
            match self.set_frozen(process, self.dice(2) == 0) {
                // It has calls to serve, has gone, or there is no broker at this moment.
                Ok(()) | Err(Errno::AGAIN | Errno::INVAL | Errno::CONNREFUSED) => {}
                Err(errno) => panic!("BINDER_FREEZE: {errno}"),
            }
        }
    }

    fn set_frozen(&self, process: u32, is_frozen: bool) -> Result<(), Errno> {
        let info = FreezeInfo { pid: FIRST_PID + process, enable: is_frozen.into(), timeout_ms: 0 };
        let argument = std::ptr::from_ref(&info) as usize;
        self.peer.program.device.ioctl(BINDER_FREEZE, argument, false).map(drop)
    }

    /// Ends what any program may have done to this one.
    pub fn thaw(self) {
        let thawed = self.set_frozen(self.peer.process, false);
        assert_eq!(thawed, Ok(()), "{} stays frozen", self.peer.process);
        self.peer.program.leave();
    }

    fn stop_asking(&mut self) {
        let notice = self.peer.model().notice_to_clear();
        if let Some((cookie, handle)) = notice {
            self.clear_notice(cookie, handle);
        }
    }

    fn clear_notice(&mut self, cookie: u64, handle: u32) {
        let mut model = self.peer.model();
        let notice = model.notices.get_mut(&cookie).expect("asked for");
        notice.is_cleared = true;
        let command = match notice.is_of_freezes {
            true => BC_CLEAR_FREEZE_NOTIFICATION,
            false => BC_CLEAR_DEATH_NOTIFICATION,
        };
        model.references.get_mut(&handle).expect("held").sending += 1;
        drop(model);
        self.owe(command, &handle_cookie(handle, cookie));
        self.flush();
        self.peer.model().unpin(&Pins::of(handle));
    }
}

/// `binder_handle_cookie`, packed.
fn handle_cookie(handle: u32, cookie: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&handle.to_ne_bytes());
    bytes[4..].copy_from_slice(&cookie.to_ne_bytes());
    bytes
}
