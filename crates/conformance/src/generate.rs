//! Random scenarios: each step is chosen from a seed and from what has been seen so far.
//!
//! Two drivers that have given the same answers are asked the same next question. The choice is
//! mostly of what makes sense, and sometimes of what does not.

use crate::profile::{Cargo, Kind, Profile};
use crate::random::Random;
use crate::step::*;
use crate::world::World;
use baton_abi::uapi::*;

/// Chooses the steps of one scenario.
pub struct Generator {
    random: Random,
    profile: &'static Profile,
    opening: Vec<Step>,
    n_codes: u32,
}

impl Generator {
    /// The scenario of this seed.
    pub fn new(profile: &'static Profile, seed: u64) -> Generator {
        let mut random = Random::new(seed ^ crate::decode::hash(profile.name.as_bytes()));
        let mut opening = Vec::new();
        for process in 0..profile.processes {
            let map_bytes = random.one_of(profile.map_bytes).expect("a size");
            opening.extend(enter(profile, process, map_bytes));
            if process == 0 {
                let act = Act::Control(Control::Manage);
                opening.push(Step { process, thread: 0, act });
            }
        }
        opening.reverse();
        Generator { random, profile, opening, n_codes: 0 }
    }

    /// The next step; it may turn out not to be possible.
    pub fn step(&mut self, world: &World) -> Step {
        if let Some(step) = self.opening.pop() {
            return step;
        }
        loop {
            let kind = self.random.weighted(self.profile.weights);
            if let Some(step) = self.of_kind(kind, world) {
                return step;
            }
        }
    }

    fn wrong(&mut self) -> bool {
        self.profile.wrong > 0 && self.random.once_in(self.profile.wrong)
    }

    /// A process that acts.
    fn process(&mut self, world: &World) -> Option<u8> {
        let acting: Vec<_> = (0..world.processes.len() as u8)
            .filter(|number| world.processes[*number as usize].is_acting())
            .collect();
        self.random.one_of(&acting)
    }

    /// An idle thread, rather one of those that `wanted` holds for.
    fn thread(
        &mut self,
        world: &World,
        wanted: impl Fn(&crate::world::Thread) -> bool,
    ) -> Option<(u8, u8)> {
        let mut idle = Vec::new();
        for (number, process) in world.processes.iter().enumerate() {
            for (thread, doing) in process.threads.iter().enumerate() {
                if process.is_acting() && doing.busy.is_none() {
                    idle.push((number as u8, thread as u8, wanted(doing)));
                }
            }
        }
        let best: Vec<_> = idle.iter().copied().filter(|(.., wanted)| *wanted).collect();
        let all = if best.is_empty() || self.wrong() { &idle } else { &best };
        self.random.one_of(all).map(|(process, thread, _)| (process, thread))
    }

    fn of_kind(&mut self, kind: Kind, world: &World) -> Option<Step> {
        match kind {
            Kind::Read => {
                let mostly = !self.random.once_in(3);
                let (process, thread) = self.thread(world, |thread| !mostly || thread.expects)?;
                let read = self.read_bytes();
                let exchange = Exchange { read, ..Exchange::default() };
                Some(Step { process, thread, act: Act::Exchange(exchange) })
            }
            Kind::Call | Kind::OneWay | Kind::Reply => self.transact(kind, world),
            Kind::Free | Kind::Acknowledge | Kind::Count | Kind::Death | Kind::Looper => {
                let (process, thread) = self.thread(world, |_| true)?;
                let command = self.command(kind, world, process)?;
                Some(self.write(process, thread, vec![command]))
            }
            _ => self.other(kind, world),
        }
    }

    /// The commands, and sometimes a read with them.
    fn write(&mut self, process: u8, thread: u8, write: Vec<Command>) -> Step {
        let read = if self.random.once_in(8) { self.read_bytes() } else { 0 };
        let exchange = Exchange { write, read, ..Exchange::default() };
        Step { process, thread, act: Act::Exchange(exchange) }
    }

    fn read_bytes(&mut self) -> u32 {
        if self.wrong() { self.random.below(100) as u32 } else { 256 }
    }

    fn transact(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let (process, thread) = match kind {
            Kind::Reply => {
                let (process, thread) = self.thread(world, |thread| thread.incoming > 0)?;
                let incoming =
                    world.processes[process as usize].threads[thread as usize].incoming;
                if incoming == 0 && !self.wrong() {
                    return None;
                }
                (process, thread)
            }
            Kind::Call => self.thread(world, |thread| thread.outgoing == 0)?,
            _ => self.thread(world, |_| true)?,
        };
        let parcel = self.parcel(world, process);
        let flags = if self.random.once_in(2) { TF_ACCEPT_FDS } else { 0 };
        let clear = if self.random.once_in(10) { TF_CLEAR_BUF } else { 0 };
        let flags = flags | clear;
        let command = if kind == Kind::Reply {
            Command::Reply { flags, parcel }
        } else {
            self.n_codes += 1;
            let one_way = if kind == Kind::OneWay { TF_ONE_WAY } else { 0 };
            let handle = self.handle(world, process);
            Command::Transaction { handle, code: self.n_codes, flags: flags | one_way, parcel }
        };
        Some(self.write(process, thread, vec![command]))
    }

    fn handle(&mut self, world: &World, process: u8) -> u32 {
        if self.wrong() {
            return self.random.below(6) as u32;
        }
        let known: Vec<_> = world.processes[process as usize].handles.iter().copied().collect();
        if self.random.once_in(3) { 0 } else { self.random.one_of(&known).unwrap_or(0) }
    }

    /// A node of the process: one that it has sent, or another.
    fn node(&mut self, world: &World, process: u8) -> (u64, u64) {
        let known = &world.processes[process as usize].nodes;
        if !self.random.once_in(3)
            && let Some(node) = self.random.one_of(known)
        {
            return node;
        }
        let ptr = 0x10_0000 * (u64::from(process) + 1) + 0x100 * self.random.below(6);
        (ptr, ptr + if self.wrong() { 9 } else { 8 })
    }

    fn parcel(&mut self, world: &World, process: u8) -> Parcel {
        let mut parcel = Parcel::default();
        let most = if self.profile.cargo == Cargo::Bytes { 1 } else { 4 };
        for _ in 0..self.random.below(most) {
            let item = match self.random.below(6) {
                0 | 1 => Item::Bytes(self.random.below(200) as u32),
                2 | 3 if self.profile.cargo != Cargo::Bytes => {
                    let (ptr, cookie) = self.node(world, process);
                    let weak = self.random.once_in(4);
                    let flags = [0x100, 0x17f, 0][self.random.below(3) as usize];
                    Item::Binder { weak, ptr, cookie, flags }
                }
                4 | 5 if self.profile.cargo != Cargo::Bytes => {
                    let weak = self.random.once_in(4);
                    Item::Handle { weak, handle: self.handle(world, process) }
                }
                _ => Item::Bytes(8),
            };
            parcel.items.push(item);
        }
        parcel
    }

    fn command(&mut self, kind: Kind, world: &World, number: u8) -> Option<Command> {
        let wrong = self.wrong();
        let process = &world.processes[number as usize];
        Some(match kind {
            Kind::Free => {
                let live: Vec<_> = (0..process.buffers.len() as u32)
                    .filter(|n| wrong || !process.buffers[*n as usize].freed)
                    .collect();
                Command::Free(BufferName::Received(self.random.one_of(&live)?))
            }
            Kind::Acknowledge => match self.random.one_of(&process.owed) {
                Some((strong, ptr, cookie)) if !wrong => {
                    Command::Acknowledge { strong, ptr, cookie }
                }
                _ if !wrong => return None,
                _ => {
                    let (ptr, cookie) = self.node(world, number);
                    Command::Acknowledge { strong: self.random.once_in(2), ptr, cookie }
                }
            },
            Kind::Count => {
                let all = [Count::Increfs, Count::Acquire, Count::Release, Count::Decrefs];
                Command::Count(self.random.one_of(&all)?, self.handle(world, number))
            }
            Kind::Death => self.death(world, number),
            Kind::Looper => {
                self.random.one_of(&[0, 1, 2]).map(|which| match which {
                    0 => Command::Register,
                    1 => Command::Enter,
                    _ => Command::Leave,
                })?
            }
            _ => return None,
        })
    }

    fn death(&mut self, world: &World, number: u8) -> Command {
        let process = &world.processes[number as usize];
        let cookie = 0xd0 + self.random.below(4);
        match self.random.below(3) {
            0 => Command::RequestDeath(self.handle(world, number), cookie),
            1 => match self.random.one_of(&process.deaths) {
                Some((handle, cookie)) => Command::ClearDeath(handle, cookie),
                None => Command::ClearDeath(self.handle(world, number), cookie),
            },
            _ => Command::DeathDone(self.random.one_of(&process.told).unwrap_or(cookie)),
        }
    }

    fn other(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let (process, thread) = self.thread(world, |_| true)?;
        let act = match kind {
            Kind::Ask => match self.random.below(4) {
                0 => Act::Control(Control::Version),
                1 => Act::Control(Control::ExtendedError),
                2 => Act::Control(Control::NodeDebugInfo(self.random.below(2) * 0x10_0000)),
                _ => Act::Poll,
            },
            _ => return None,
        };
        let _ = self.process(world);
        Some(Step { process, thread, act })
    }
}

/// The steps by which a process comes in.
fn enter(profile: &Profile, process: u8, map_bytes: u32) -> Vec<Step> {
    let mut acts = vec![
        Act::Start { threads: profile.threads },
        Act::Open { nonblocking: profile.nonblocking },
        Act::Map { bytes: map_bytes, writable: false },
    ];
    if profile.nonblocking {
        acts.push(Act::Poll);
    }
    acts.into_iter().map(|act| Step { process, thread: 0, act }).collect()
}
