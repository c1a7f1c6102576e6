//! Generates random scenarios: each step depends on a seed and on the observations so far.
//!
//! Two drivers with equal answers get the same next step. Most steps make sense, and some do not.

use crate::cargo;
use crate::choices::Choices;
use crate::profile::{Cargo, Kind, Profile};
use crate::random::Random;
use crate::step::*;
use crate::world::{Life, Thread, World};
use baton_abi::uapi::*;

/// Chooses the steps of one scenario.
pub struct Generator {
    choices: Choices,
    /// Steps to take before any choice, the last one first.
    next: Vec<Step>,
    n_codes: u32,
    n_parcels: u32,
}

/// Most processes of a scenario.
const MOST_PROCESSES: usize = 7;

impl Generator {
    /// The generator for a seed.
    pub fn new(profile: &'static Profile, seed: u64) -> Generator {
        let random = Random::new(seed ^ crate::decode::hash(profile.name.as_bytes()));
        let choices = Choices { random, profile };
        let mut generator = Generator { choices, next: Vec::new(), n_codes: 0, n_parcels: 0 };
        let mut opening = Vec::new();
        for process in 0..profile.processes {
            opening.extend(generator.opening_steps(process));
            if process == 0 {
                let act = Act::Control(Control::Manage);
                opening.push(Step { process, thread: 0, act });
            }
        }
        opening.reverse();
        generator.next = opening;
        generator
    }

    /// Returns the next step, which may be impossible.
    pub fn step(&mut self, world: &World) -> Step {
        if let Some(step) = self.next.pop() {
            return step;
        }
        for _ in 0..50 {
            let kind = self.choices.random.weighted(self.choices.profile.weights);
            if let Some(step) = self.of_kind(kind, world) {
                return step;
            }
        }
        // All threads wait for each other.
        self.interrupt(world).unwrap_or_else(|| self.start(world))
    }

    /// The steps with which a process begins.
    fn opening_steps(&mut self, process: u8) -> Vec<Step> {
        let sizes = self.choices.profile.map_bytes[usize::from(process > 0)];
        let bytes = self.choices.random.one_of(sizes).expect("a size");
        let nonblocking = self.choices.profile.nonblocking;
        let mut acts = vec![
            Act::Start { threads: self.choices.profile.threads },
            Act::Open { nonblocking },
            Act::Map { bytes, writable: false },
        ];
        if nonblocking {
            acts.push(Act::Poll);
        }
        acts.into_iter().map(|act| Step { process, thread: 0, act }).collect()
    }

    /// An idle thread, preferably one that satisfies `wanted`.
    fn thread(&mut self, world: &World, wanted: impl Fn(&Thread) -> bool) -> Option<(u8, u8)> {
        let mut idle = Vec::new();
        for (number, process) in world.processes.iter().enumerate() {
            for (thread, doing) in process.threads.iter().enumerate() {
                if process.is_acting() && doing.busy.is_none() {
                    idle.push((number as u8, thread as u8, wanted(doing)));
                }
            }
        }
        let best: Vec<_> = idle.iter().copied().filter(|(.., wanted)| *wanted).collect();
        let all = if best.is_empty() || self.choices.wrong() { &idle } else { &best };
        self.choices.random.one_of(all).map(|(process, thread, _)| (process, thread))
    }

    fn interrupt(&mut self, world: &World) -> Option<Step> {
        let mut waiting = Vec::new();
        for (process, doing) in world.processes.iter().enumerate() {
            for (thread, _) in doing.threads.iter().enumerate().filter(|(_, t)| t.busy.is_some()) {
                waiting.push((process as u8, thread as u8));
            }
        }
        let (process, thread) = self.choices.random.one_of(&waiting)?;
        Some(Step { process, thread, act: Act::Signal })
    }

    fn start(&mut self, world: &World) -> Step {
        let unborn = world.processes.iter().position(|process| process.life == Life::Unborn);
        let number = unborn.unwrap_or(world.processes.len()).min(MOST_PROCESSES);
        let mut steps = self.opening_steps(number as u8);
        steps.reverse();
        let first = steps.pop().expect("several");
        self.next = steps;
        first
    }

    fn of_kind(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let step = self.any_of_kind(kind, world)?;
        (waits_alike(&step, world) && may_be_unreadable(&step, world)).then_some(step)
    }

    fn any_of_kind(&mut self, kind: Kind, world: &World) -> Option<Step> {
        match kind {
            Kind::Read => {
                let mostly = !self.choices.random.once_in(3);
                let (process, thread) = self.thread(world, |thread| !mostly || thread.expects)?;
                let read = self.read_bytes();
                let exchange = Exchange { read, ..Exchange::default() };
                Some(Step { process, thread, act: Act::Exchange(exchange) })
            }
            Kind::Call | Kind::OneWay | Kind::Reply => self.transact(kind, world),
            Kind::Free | Kind::Acknowledge | Kind::Count | Kind::Death | Kind::Looper => {
                let (process, thread) = self.thread(world, |_| true)?;
                let mut write = vec![self.command(kind, world, process)?];
                if self.choices.random.once_in(6) {
                    write.extend(self.command(kind, world, process));
                }
                Some(self.write(process, thread, write))
            }
            Kind::Signal => self.interrupt(world),
            Kind::Start => {
                let closed = world.processes.iter().position(|process| {
                    process.is_acting()
                        && process.device.is_none()
                        && process.threads.first().is_some_and(|thread| thread.busy.is_none())
                });
                match closed {
                    Some(process) if self.choices.random.once_in(2) => {
                        let mut steps = self.opening_steps(process as u8);
                        steps.reverse();
                        steps.pop();
                        let first = steps.pop();
                        self.next = steps;
                        first
                    }
                    _ if world.processes.len() < MOST_PROCESSES => Some(self.start(world)),
                    _ => None,
                }
            }
            _ => self.other(kind, world),
        }
    }

    /// A step with these commands, and sometimes a read.
    fn write(&mut self, process: u8, thread: u8, write: Vec<Command>) -> Step {
        let waits = !self.choices.profile.nonblocking
            && write.iter().any(|command| matches!(command, Command::Transaction { .. }));
        let read = if waits && !self.choices.wrong() || self.choices.random.once_in(8) {
            self.read_bytes()
        } else {
            0
        };
        let exchange = Exchange { write, read, ..Exchange::default() };
        Step { process, thread, act: Act::Exchange(exchange) }
    }

    /// Mostly enough, and where threads wait always: rule `small-read-buffer`.
    fn read_bytes(&mut self) -> u32 {
        if !self.choices.profile.nonblocking {
            return 256;
        }
        if self.choices.wrong() { self.choices.random.below(100).max(4) as u32 } else { 256 }
    }

    fn transact(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let (process, thread) = match kind {
            Kind::Reply => self.thread(world, Thread::serves)?,
            Kind::Call => self.thread(world, |thread| !thread.calls())?,
            _ => self.thread(world, |_| true)?,
        };
        let doing = &world.processes[process as usize].threads[thread as usize];
        if kind == Kind::Reply && !doing.serves() && !self.choices.wrong() {
            return None;
        }
        let mut parcel = cargo::parcel(&mut self.choices, world, process);
        if self.choices.profile.nonblocking && self.choices.profile.cargo != Cargo::Heavy {
            // Rule `equal-holes`: no two buffers of the same size.
            self.n_parcels += 1;
            parcel.items.insert(0, Item::Bytes(self.n_parcels * 8));
        }
        let accepts = if self.choices.random.once_in(2) { TF_ACCEPT_FDS } else { 0 };
        let clear = if self.choices.random.once_in(10) { TF_CLEAR_BUF } else { 0 };
        let flags = accepts | clear;
        self.n_codes += 1;
        let command = if kind == Kind::Reply {
            Command::Reply { code: self.n_codes, flags, parcel }
        } else {
            let one_way = if kind == Kind::OneWay { TF_ONE_WAY } else { 0 };
            let handle = self.choices.handle(world, process);
            if handle == 0 && world.processes[process as usize].manages && !self.choices.wrong() {
                return None;
            }
            // Rule `former-manager`.
            if handle == 0 && world.holds_former_manager(process) {
                return None;
            }
            // Rule `frozen-at-the-door`: no calls back into a process that may be frozen.
            let doing = &world.processes[process as usize].threads[thread as usize];
            if world.has_frozen && doing.serves() && one_way == 0 {
                return None;
            }
            Command::Transaction { handle, code: self.n_codes, flags: flags | one_way, parcel }
        };
        Some(self.write(process, thread, vec![command]))
    }

    fn command(&mut self, kind: Kind, world: &World, number: u8) -> Option<Command> {
        let wrong = self.choices.wrong();
        let process = &world.processes[number as usize];
        Some(match kind {
            Kind::Free => {
                if wrong && self.choices.random.once_in(2) {
                    return Some(Command::Free(BufferName::At(
                        self.choices.random.below(64) as i64 * 8 + 4,
                    )));
                }
                // Rule `taken-in-later`: what lies where another one lay is not defined without
                // polling.
                let again = wrong && self.choices.profile.nonblocking;
                let live: Vec<_> = (0..process.buffers.len() as u32)
                    .filter(|n| again || !process.buffers[*n as usize].freed)
                    .collect();
                Command::Free(BufferName::Received(self.choices.random.one_of(&live)?))
            }
            Kind::Acknowledge => match self.choices.random.one_of(&process.owed) {
                Some((strong, ptr, cookie)) if !wrong => {
                    Command::Acknowledge { strong, ptr, cookie }
                }
                _ if !wrong => return None,
                _ => {
                    let (ptr, cookie) = self.choices.node(world, number);
                    Command::Acknowledge { strong: self.choices.random.once_in(2), ptr, cookie }
                }
            },
            Kind::Count => {
                let all = [Count::Increfs, Count::Acquire, Count::Release, Count::Decrefs];
                let count = self.choices.random.one_of(&all)?;
                let from_nothing = !process.manages && self.choices.random.once_in(4);
                let handle = if from_nothing { 0 } else { self.choices.handle(world, number) };
                // Rule `former-manager`.
                if handle == 0 && world.holds_former_manager(number) {
                    return None;
                }
                Command::Count(count, handle)
            }
            Kind::Death => self.death(world, number),
            Kind::Looper => match self.choices.random.below(3) {
                0 => Command::Register,
                1 => Command::Enter,
                _ => Command::Leave,
            },
            _ => return None,
        })
    }

    fn death(&mut self, world: &World, number: u8) -> Command {
        let process = &world.processes[number as usize];
        let cookie = 0xd0 + self.choices.random.below(4);
        match self.choices.random.below(3) {
            0 => Command::RequestDeath(self.choices.handle(world, number), cookie),
            1 => match self.choices.random.one_of(&process.deaths) {
                Some((handle, cookie)) => Command::ClearDeath(handle, cookie),
                None => Command::ClearDeath(self.choices.handle(world, number), cookie),
            },
            _ => Command::DeathDone(self.choices.random.one_of(&process.told).unwrap_or(cookie)),
        }
    }

    fn other(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let (number, thread) = self.thread(world, |_| true)?;
        let act = match kind {
            Kind::Ask => self.question(number),
            Kind::MaxThreads => {
                Act::Control(Control::MaxThreads(self.choices.random.below(4) as u32))
            }
            Kind::Manage => match self.choices.random.below(3) {
                0 => Act::Control(Control::Manage),
                _ => {
                    let (ptr, cookie) = self.choices.node(world, number);
                    let flags = if self.choices.random.once_in(3) { 0x17f } else { 0x100 };
                    Act::Control(Control::ManageExt { ptr, cookie, flags })
                }
            },
            Kind::Freeze => {
                let process = self.choices.random.below(world.processes.len() as u64) as u8;
                match self.choices.random.below(3) {
                    0 => Act::Control(Control::FrozenInfo(process)),
                    which => {
                        let enable = which == 1;
                        Act::Control(Control::Freeze { process, enable, timeout_ms: 0 })
                    }
                }
            }
            Kind::Spam => Act::Control(Control::SpamDetection(self.choices.random.below(2) as u32)),
            Kind::Poll => Act::Poll,
            Kind::End => return self.end(world, number, thread),
            Kind::ThreadExit => {
                let doing = &world.processes[number as usize].threads[thread as usize];
                // Rules `dead-at-once` and `unread-at-exit`.
                if doing.calls() {
                    return None;
                }
                Act::Control(Control::ThreadExit)
            }
            Kind::Malformed => self.malformed(world, number),
            Kind::File => {
                let n_files = world.processes[number as usize].files.len() as u64;
                if n_files == 0 || self.choices.random.once_in(4) {
                    Act::Pipe
                } else {
                    let which = self.choices.random.below(n_files) as u32;
                    Act::CloseFile(FileName::Known(which))
                }
            }
            Kind::Nonblocking => Act::Nonblocking(true),
            _ => return None,
        };
        Some(Step { process: number, thread, act })
    }

    fn question(&mut self, process: u8) -> Act {
        match self.choices.random.below(5) {
            0 => Act::Control(Control::Version),
            1 => Act::Control(Control::ExtendedError),
            2 => {
                let ptr =
                    0x10_0000 * (u64::from(process) + 1) + 0x100 * self.choices.random.below(6);
                Act::Control(Control::NodeDebugInfo(ptr * self.choices.random.below(2)))
            }
            3 => Act::Control(Control::NodeInfo(self.choices.random.below(4) as u32)),
            _ => Act::Poll,
        }
    }

    /// A step that ends a process or closes its device. All of its threads have to be idle then.
    fn end(&mut self, world: &World, number: u8, thread: u8) -> Option<Step> {
        let process = &world.processes[number as usize];
        // Rule `dead-at-once`.
        if process.threads.iter().any(Thread::is_between) {
            return None;
        }
        let act = match self.choices.random.below(4) {
            0 => Act::Kill,
            1 => Act::Exit,
            2 => Act::Exec,
            _ if process.threads.iter().any(|thread| thread.busy.is_some()) => return None,
            _ => {
                self.next.push(Step { process: number, thread, act: Act::Close });
                Act::Unmap
            }
        };
        Some(Step { process: number, thread, act })
    }

    /// Bytes that are no commands, commands that are cut, and bad addresses.
    fn malformed(&mut self, world: &World, number: u8) -> Act {
        let requests = [
            BINDER_WRITE_READ,
            BINDER_SET_MAX_THREADS,
            BINDER_SET_CONTEXT_MGR_EXT,
            BINDER_VERSION,
            BINDER_GET_NODE_INFO_FOR_REF,
            BINDER_GET_NODE_DEBUG_INFO,
            BINDER_FREEZE,
            BINDER_GET_FROZEN_INFO,
            BINDER_ENABLE_ONEWAY_SPAM_DETECTION,
            BINDER_GET_EXTENDED_ERROR,
        ];
        let unknown = [0, 0x6202, 0x4008_6203, 0x4004_6206, 0xc018_62ff, 0x5401, 0xc030_6301];
        let codes = [0x40046302, 0x4008630a, 0x40046363, 0, 0x7201, 0x630d, 0x4004_6305];
        match self.choices.random.below(8) {
            0 => {
                let request = self.choices.random.one_of(&requests).expect("several");
                return Act::Control(Control::BadAddress(request));
            }
            1 => {
                let request = self.choices.random.one_of(&unknown).expect("several");
                return Act::Control(Control::Other(request));
            }
            _ => {}
        }
        let mut write = Vec::new();
        for kind in [Kind::Free, Kind::Count, Kind::Death] {
            if self.choices.random.once_in(3) {
                write.extend(self.command(kind, world, number));
            }
        }
        if self.choices.random.once_in(2) {
            let code: u32 = self.choices.random.one_of(&codes).expect("several");
            let more = self.choices.random.below(20);
            let bytes = code.to_ne_bytes().into_iter().chain((0..more).map(|_| 0));
            write.push(Command::Raw(bytes.collect()));
        }
        let cut = self.choices.random.below(24) as u32;
        let bad = match self.choices.random.below(6) {
            0 => Some(BadBuffer::Write),
            1 => Some(BadBuffer::Read),
            _ => None,
        };
        let read = if self.choices.random.once_in(3) {
            4 + self.choices.random.below(300) as u32
        } else {
            0
        };
        Act::Exchange(Exchange { write, cut, read, bad })
    }
}

/// Whether the step's argument can be read, or may be such that it cannot: see
/// [`Thread::is_known`].
fn may_be_unreadable(step: &Step, world: &World) -> bool {
    let thread = || &world.processes[step.process as usize].threads[step.thread as usize];
    !matches!(step.act, Act::Control(Control::BadAddress(_))) || thread().is_known
}

/// Whether the step's thread would wait for any work of its process beside others that do: which of
/// them takes the work is not defined. Rule `oldest-looper-first`.
fn waits_alike(step: &Step, world: &World) -> bool {
    let Some(process) = world.processes.get(step.process as usize) else { return true };
    let Act::Exchange(exchange) = &step.act else { return true };
    let calls = |command: &Command| match command {
        Command::Transaction { flags, .. } => flags & TF_ONE_WAY == 0,
        _ => false,
    };
    if process.nonblocking || exchange.read == 0 || exchange.write.iter().any(calls) {
        return true;
    }
    let doing = &process.threads[step.thread as usize];
    let others = process.threads.iter().filter(|thread| thread.waits_for_anything());
    let alike =
        |other: &Thread| other.busy.as_ref() == Some(&step.act) && other.looper == doing.looper;
    !doing.stack.is_empty() || others.into_iter().all(alike)
}
