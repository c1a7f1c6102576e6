//! What programs do: anything that the rules allow, on whichever thread the dice choose.

use crate::party::{After, Party, Sending, Stage};
use crate::program::{Notice, Object, Pins, Program};
use crate::threads::named;
use crate::world::{Phase, World};
use baton_abi::control::{ChannelId, Granted, Request, Strength};
use baton_abi::uapi::{FLAT_BINDER_FLAG_ACCEPTS_FDS, TF_ACCEPT_FDS, TF_ONE_WAY, TF_UPDATE_TXN};
use baton_state::parcel::{Named, Sent};
use baton_state::transaction::Target;
use baton_state::work::{Completion, Tid, Work};

/// Few, so that an address is used again soon.
const ADDRESSES: [u64; 6] = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60];
const STRENGTHS: [Strength; 2] = [Strength::Strong, Strength::Weak];

impl World {
    pub fn act(&mut self, party: &mut Party, tid: Tid) {
        let thread = party.state.thread(tid);
        let (calls, serves) = (thread.calls_on().is_some(), thread.serves().is_some());
        let unread = matches!(thread.todo.first(), Some(Work::Transaction(_) | Work::Reply(_)));
        let may_call = !calls && !unread;
        if thread.failed {
            return self.start_read(party, tid, true);
        }
        if self.phase != Phase::Busy {
            return self.wind_down(party, tid, calls, serves);
        }
        match self.rng.below(100) {
            0..30 => {
                // A thread that owes an answer, and waits for none, has nothing to wait for.
                let nonblocking = serves || self.rng.percent(30);
                self.start_read(party, tid, nonblocking);
            }
            30..45 if may_call => self.transact(party, tid, TF_ACCEPT_FDS),
            45..50 if may_call => self.transact(party, tid, 0),
            50..60 => self.transact(party, tid, TF_ONE_WAY),
            60..75 if serves => self.reply(party, tid),
            75..77 if party.may_exit(tid) => self.exit_thread(party, tid),
            77..79 if party.threads.len() < 5 => {
                let looper = self.rng.percent(50);
                party.start_thread(false, looper);
            }
            _ => self.chore(party, tid),
        }
    }

    fn wind_down(&mut self, party: &mut Party, tid: Tid, calls: bool, serves: bool) {
        if self.tidy_up(party, tid) {
            return;
        }
        if serves {
            self.reply(party, tid);
        } else if calls || party.state.thread(tid).looper.serves() {
            self.start_read(party, tid, false);
        } else if !party.threads[&tid].underway.is_empty() {
            self.start_read(party, tid, true);
        } else {
            self.exit_thread(party, tid);
        }
    }

    /// One thing that a program owes, or gives back at the end. False if there is none.
    fn tidy_up(&mut self, party: &mut Party, tid: Tid) -> bool {
        if acknowledge(self, party) || done(self, party, tid) || self.free(party) {
            return true;
        }
        if self.phase != Phase::GiveBack {
            return false;
        }
        self.release(party) || self.drop_object(party)
    }

    fn start_read(&mut self, party: &mut Party, tid: Tid, nonblocking: bool) {
        let process_work = party.state.takes_process_work(tid);
        party.thread(tid).stage = Stage::Read { process_work, nonblocking };
    }

    // ---- transactions -----------------------------------------------------------------------

    fn transact(&mut self, party: &mut Party, tid: Tid, flags: u32) {
        let mut targets = party.program.held(Strength::Strong);
        targets.push(0);
        let handle = self.rng.pick(&targets).expect("never empty");
        let update =
            if flags & TF_ONE_WAY != 0 && self.rng.percent(20) { TF_UPDATE_TXN } else { 0 };
        let (sent, pins) = self.cargo(party, true);
        self.start_send(party, tid, Target::Handle(handle), flags | update, sent, pins);
    }

    fn reply(&mut self, party: &mut Party, tid: Tid) {
        let accepts_fds =
            party.state.thread(tid).serves().is_some_and(|serving| serving.accepts_fds);
        let (sent, pins) = self.cargo(party, accepts_fds);
        self.start_send(party, tid, Target::Reply, 0, sent, pins);
    }

    fn start_send(
        &mut self,
        party: &mut Party,
        tid: Tid,
        target: Target,
        flags: u32,
        sent: Sent,
        pins: Pins,
    ) {
        party.program.pin(&pins);
        self.note(|| format!("{:?}.{tid} sends to {target:?}: {pins:?}", party.id()));
        let sending = Sending {
            target,
            flags,
            pins,
            sent,
            data_bytes: self.rng.below(400) as u32,
            departure: None,
            subjects: Vec::new(),
            via: None,
            reply_to: None,
            channel: ChannelId(0),
            ticket: None,
            token: 0,
            chain: Vec::new(),
            completion: Completion::Taken,
            posted: false,
        };
        self.send(party, tid, Box::new(sending));
    }

    /// Objects and descriptors of a transaction.
    fn cargo(&mut self, party: &mut Party, fds: bool) -> (Sent, Pins) {
        let (mut sent, mut pins) = (Sent::default(), Pins::default());
        if self.phase != Phase::Busy || self.rng.percent(50) {
            return (sent, pins);
        }
        for _ in 0..1 + self.rng.below(2) {
            let strength = self.strength();
            if self.rng.percent(50) {
                let Some(ptr) = self.own_object(party) else { continue };
                sent.objects.push(named(ptr, party.program.objects[&ptr].cookie, strength));
                pins.objects.push(ptr);
            } else {
                let held = party.program.held(strength);
                let Some(handle) = self.rng.pick(&held) else { continue };
                if party.state.references.get(handle).is_none() {
                    continue;
                }
                sent.objects.push(Named::Handle { handle, strength });
                pins.handles.push((handle, strength));
            }
        }
        if fds {
            sent.fds = (0..self.rng.below(3) as i32).collect();
        }
        (sent, pins)
    }

    fn strength(&mut self) -> Strength {
        if self.rng.percent(70) { Strength::Strong } else { Strength::Weak }
    }

    /// An object that may be sent: one there is, or a new one, maybe where another one was.
    fn own_object(&mut self, party: &mut Party) -> Option<u64> {
        let ptr = self.rng.pick(&ADDRESSES).expect("some");
        let cookie = party.program.next_cookie();
        let program = &mut party.program;
        let object = program.objects.entry(ptr).or_insert(Object {
            cookie,
            local: true,
            ..Object::default()
        });
        // While it is asked whether it may manage, nothing is told of it, refused or not in the
        // end.
        (object.is_alive() && !object.asks_to_manage).then_some(ptr)
    }

    // ---- chores -----------------------------------------------------------------------------

    fn chore(&mut self, party: &mut Party, tid: Tid) {
        match self.rng.below(15) {
            0 | 1 => {
                acknowledge(self, party);
            }
            2 => {
                done(self, party, tid);
            }
            3 | 4 => {
                self.free(party);
            }
            5..=7 => self.take_count(party, tid),
            8 => {
                self.release(party);
            }
            9 => {
                self.drop_object(party);
            }
            10 => self.listen_for_death(party),
            11 => self.stop_listening(party, tid),
            12 => self.listen_for_freezing(party, tid),
            13 if self.rng.percent(30) => {
                let pid = 1 + self.rng.below(self.last_pid as usize) as u32;
                let frozen = self.rng.percent(50);
                if party.ask(tid, Request::Freeze { pid, frozen }) {
                    party.thread(tid).stage = Stage::Freeze;
                }
            }
            14 if self.rng.percent(20) => self.become_manager(party, tid),
            _ => {}
        }
    }

    fn free(&mut self, party: &mut Party) -> bool {
        let offsets: Vec<usize> = party.program.buffers.keys().copied().collect();
        let Some(offset) = self.rng.pick(&offsets) else { return false };
        let held = party.program.buffers.remove(&offset).expect("listed");
        for fd in held.fds {
            assert!(party.fds.remove(&fd), "the driver closed the program's {fd}");
        }
        party.state.free(Some(offset), 0);
        true
    }

    /// BC_ACQUIRE or BC_INCREFS of a handle that the program knows.
    fn take_count(&mut self, party: &mut Party, tid: Tid) {
        let mut known = party.program.known_handles();
        known.push(0);
        let handle = self.rng.pick(&known).expect("never empty");
        let strength = self.strength();
        if handle == 0 && party.state.manager.is_none() {
            if party.ask(tid, Request::ContextManager) {
                party.thread(tid).stage = Stage::FindManager(After::Count(strength));
            }
            return;
        }
        let (handle, increased) = match handle {
            0 => (party.state.manager.unwrap_or(0), party.state.increase_manager(strength)),
            other => (other, party.state.increase(other, strength)),
        };
        if increased {
            *party.program.count(handle, strength) += 1;
        }
    }

    fn release(&mut self, party: &mut Party) -> bool {
        let [first, second] = if self.rng.percent(50) { [0, 1] } else { [1, 0] };
        for strength in [STRENGTHS[first], STRENGTHS[second]] {
            let handles = party.program.releasable(strength);
            if let Some(handle) = self.rng.pick(&handles) {
                *party.program.count(handle, strength) -= 1;
                party.state.decrease(handle, strength);
                return true;
            }
        }
        false
    }

    fn drop_object(&mut self, party: &mut Party) -> bool {
        let local = |(ptr, object): (&u64, &Object)| object.local.then_some(*ptr);
        let ptrs: Vec<u64> = party.program.objects.iter().filter_map(local).collect();
        let Some(ptr) = self.rng.pick(&ptrs) else { return false };
        party.program.objects.get_mut(&ptr).expect("listed").local = false;
        party.program.tidy(ptr);
        true
    }

    fn listen_for_death(&mut self, party: &mut Party) {
        let handles = party.program.counted_handles();
        let Some(handle) = self.rng.pick(&handles) else { return };
        let reference = party.state.references.get(handle).expect("counted");
        if reference.death.is_none() {
            let cookie = party.program.ask_death(handle);
            party.state.request_death(handle, cookie);
        }
    }

    fn stop_listening(&mut self, party: &mut Party, tid: Tid) {
        let handles = party.program.counted_handles();
        let Some(handle) = self.rng.pick(&handles) else { return };
        let reference = party.state.references.get(handle).expect("counted");
        let (death, freeze) = (reference.death, reference.freeze);
        if let Some(death) = death {
            party.program.deaths.get_mut(&death.cookie).expect("asked for").cleared = true;
            party.state.clear_death(tid, handle, death.cookie);
        } else if let Some(freeze) = freeze {
            party.program.freezes.get_mut(&freeze.cookie).expect("asked for").cleared = true;
            party.state.clear_freeze(tid, handle, freeze.cookie).expect("it is active");
        }
    }

    fn listen_for_freezing(&mut self, party: &mut Party, tid: Tid) {
        let handles = party.program.counted_handles();
        let Some(handle) = self.rng.pick(&handles) else { return };
        let reference = party.state.references.get(handle).expect("counted");
        let target = reference.owner;
        if reference.freeze.is_none() && party.ask(tid, Request::IsFrozen { target }) {
            let cookie = party.program.ask_freeze(handle);
            party.state.listen_for_freeze(handle, cookie).expect("nobody listens");
            party.thread(tid).stage = Stage::IsFrozen { handle, cookie };
        }
    }

    fn become_manager(&mut self, party: &mut Party, tid: Tid) {
        if party.asking.is_some() {
            return;
        }
        let Some(ptr) = self.own_object(party) else { return };
        let object = party.program.objects.get_mut(&ptr).expect("just found");
        if object.sending > 0 {
            return;
        }
        object.asks_to_manage = true;
        let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
        let node = party.state.context_manager_node(ptr, object.cookie, flags);
        self.carry_out(party);
        let asked = party.ask(tid, Request::BecomeContextManager { node, flags });
        assert!(asked, "nobody else asks");
        party.thread(tid).stage = Stage::BecomeManager { ptr, node };
    }

    fn exit_thread(&mut self, party: &mut Party, tid: Tid) {
        self.note(|| format!("{:?}.{tid} exits", party.id()));
        let thread = party.threads.remove(&tid).expect("running");
        for pins in &thread.underway {
            party.program.unpin(pins);
        }
        party.state.thread_exit(tid);
        self.carry_out(party);
    }
}

/// BC_ACQUIRE_DONE and BC_INCREFS_DONE.
fn acknowledge(world: &mut World, party: &mut Party) -> bool {
    if party.program.acks.is_empty() {
        return false;
    }
    let at = world.rng.below(party.program.acks.len());
    let (ptr, strength) = party.program.acks.swap_remove(at);
    let object = party.program.objects.get_mut(&ptr).expect("kept until acknowledged");
    object.owed -= 1;
    party.state.acknowledge(ptr, object.cookie, strength);
    party.program.tidy(ptr);
    true
}

/// BC_DEAD_BINDER_DONE and BC_FREEZE_NOTIFICATION_DONE.
fn done(world: &mut World, party: &mut Party, tid: Tid) -> bool {
    use crate::program::Stage::{Delivered, Done};
    let delivered = |notices: &std::collections::BTreeMap<u64, Notice>| -> Vec<u64> {
        notices.iter().filter(|(_, n)| n.stage == Delivered).map(|(&cookie, _)| cookie).collect()
    };
    let (deaths, freezes) = (delivered(&party.program.deaths), delivered(&party.program.freezes));
    if let Some(cookie) = world.rng.pick(&deaths) {
        party.program.deaths.get_mut(&cookie).expect("listed").stage = Done;
        party.state.death_done(tid, cookie);
        return true;
    }
    let Some(cookie) = world.rng.pick(&freezes) else { return false };
    let notice = party.program.freezes.get_mut(&cookie).expect("listed");
    notice.stage = Done;
    let listens = party
        .state
        .references
        .get(notice.handle)
        .and_then(|reference| reference.freeze)
        .is_some_and(|freeze| freeze.cookie == cookie);
    if listens || notice.cleared {
        party.state.freeze_done(tid, cookie).expect("it was delivered");
    }
    true
}

impl Program {
    /// Handles with a count of the program's own.
    fn counted_handles(&self) -> Vec<u32> {
        let mut handles = self.held(Strength::Strong);
        handles.extend(self.held(Strength::Weak));
        handles
    }

    /// Those, and the ones in buffers.
    fn known_handles(&self) -> Vec<u32> {
        let mut handles = self.counted_handles();
        for granted in self.buffers.values().flat_map(|held| &held.granted) {
            if let Granted::Handle { handle, .. } = granted {
                handles.push(*handle);
            }
        }
        handles
    }

    fn ask_death(&mut self, handle: u32) -> u64 {
        let cookie = self.next_cookie();
        self.deaths.insert(cookie, Notice::new(handle));
        cookie
    }

    fn ask_freeze(&mut self, handle: u32) -> u64 {
        let cookie = self.next_cookie();
        self.freezes.insert(cookie, Notice::new(handle));
        cookie
    }
}
