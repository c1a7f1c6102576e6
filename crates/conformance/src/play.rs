//! Carries out steps, one at a time, and records the results.

use crate::actor::Order;
use crate::arena::Slot;
use crate::crew::{Crew, Stuck};
use crate::decode::Decoder;
use crate::encode::{self, Layout, READ, READ_BYTES};
use crate::step::{Act, Command, Control, Exchange, Step};
use crate::world::{ENTERED, LEFT, Life, REGISTERED, Thread, World, target};
use baton_abi::uapi::*;
use bytemuck::pod_read_unaligned;

/// A scenario that is being played.
pub struct Stage<'a> {
    crew: &'a mut Crew,
    /// The observations so far.
    pub world: World,
}

/// The result of a step: one line for each thread that finished, in a fixed order.
pub type Record = Vec<String>;

impl<'a> Stage<'a> {
    /// A scenario without processes.
    pub fn new(crew: &'a mut Crew) -> Stage<'a> {
        crew.clear();
        Stage { crew, world: World::default() }
    }

    /// Whether the step's thread can take the step. Impossible steps have no effect.
    pub fn is_possible(&self, step: &Step) -> bool {
        let Some(process) = self.world.processes.get(step.process as usize) else {
            return matches!(step.act, Act::Start { .. });
        };
        match step.act {
            Act::Start { .. } => process.life == Life::Unborn,
            Act::Kill => process.is_acting(),
            Act::Signal => process.is_acting() && (step.thread as usize) < process.threads.len(),
            _ => {
                process.is_acting()
                    && process.threads.get(step.thread as usize).is_some_and(|t| t.busy.is_none())
            }
        }
    }

    /// Carries out a step and waits until all actors are still.
    ///
    /// # Errors
    /// The actors do not become still.
    pub fn play(&mut self, step: &Step) -> Result<Record, Stuck> {
        if !self.is_possible(step) {
            return Ok(vec!["not possible".to_owned()]);
        }
        let (number, thread) = (step.process as usize, step.thread as usize);
        match &step.act {
            Act::Start { threads } => self.start(step.process, *threads),
            Act::Kill => {
                self.crew.kill(number);
                self.end(number);
            }
            Act::Signal => {
                self.crew.signal(number, self.world.processes[number].threads[thread].actor_thread);
            }
            Act::Exit | Act::Exec => self.leave(number, thread, &step.act),
            act => self.begin(number, thread, act),
        }
        self.settled()
    }

    fn start(&mut self, number: u8, threads: u8) {
        self.crew.start(number as usize, threads as usize);
        let pid = self.crew.pid(number as usize);
        let process = self.world.process(number);
        process.life = Life::Acting;
        process.pid = pid;
        let actor_threads = 0..threads as usize;
        process.threads = actor_threads
            .map(|actor_thread| Thread { actor_thread, ..Thread::default() })
            .collect();
    }

    fn leave(&mut self, number: usize, thread: usize, act: &Act) {
        let actor_thread = self.world.processes[number].threads[thread].actor_thread;
        if *act == Act::Exit {
            self.crew.give(number, actor_thread, Order::Exit, [0; 4]);
            self.crew.wait_for_end(number);
        } else {
            self.crew.give(number, actor_thread, Order::Exec, [0; 4]);
            self.crew.executed(number);
        }
        self.end(number);
    }

    fn end(&mut self, number: usize) {
        let process = &mut self.world.processes[number];
        process.life = Life::Gone;
        process.threads.clear();
    }

    fn slot(&self, number: usize, thread: usize) -> &'static Slot {
        self.crew.slot(number, self.world.processes[number].threads[thread].actor_thread)
    }

    fn begin(&mut self, number: usize, thread: usize, act: &Act) {
        let slot = self.slot(number, thread);
        let process = &self.world.processes[number];
        // A closed device gets a descriptor that no process has.
        let device = process.device.unwrap_or(-1) as u64;
        let (order, arguments) = match act {
            Act::Open { nonblocking } => {
                let more = if *nonblocking { libc::O_NONBLOCK } else { 0 };
                (Order::Open, [(libc::O_RDWR | libc::O_CLOEXEC | more) as u64, 0, 0, 0])
            }
            Act::Map { bytes, writable } => {
                let more = if *writable { libc::PROT_WRITE } else { 0 };
                (Order::Map, [device, u64::from(*bytes), (libc::PROT_READ | more) as u64, 0])
            }
            Act::Unmap => {
                let (address, bytes) = process.map.unwrap_or((0, 0));
                (Order::Unmap, [address, bytes, 0, 0])
            }
            Act::Close => (Order::Close, [device, 0, 0, 0]),
            Act::Nonblocking(on) => {
                let flags = libc::O_RDWR | if *on { libc::O_NONBLOCK } else { 0 };
                (Order::Fcntl, [device, libc::F_SETFL as u64, flags as u64, 0])
            }
            Act::Exchange(exchange) => {
                let address = Layout::new(slot, process).exchange(exchange);
                (Order::Ioctl, [device, BINDER_WRITE_READ.into(), address, 0])
            }
            Act::Control(control) => {
                let (request, address) = encode::control(*control, slot, &self.world);
                (Order::Ioctl, [device, request.into(), address, 0])
            }
            Act::Poll => (Order::Poll, [device, 0, 0, 0]),
            Act::Pipe => (Order::Pipe, [0; 4]),
            Act::CloseFile(name) => (Order::Close, [process.file(*name) as u64, 0, 0, 0]),
            Act::Start { .. } | Act::Exit | Act::Exec | Act::Kill | Act::Signal => unreachable!(),
        };
        let actor_thread = process.threads[thread].actor_thread;
        let threads = &mut self.world.processes[number].threads;
        threads[thread].busy = Some(act.clone());
        match act {
            Act::Control(Control::ThreadExit) => threads[thread].is_known = false,
            Act::Control(_) | Act::Exchange(_) => threads[thread].is_known = true,
            Act::Close => threads.iter_mut().for_each(|thread| thread.is_known = false),
            _ => {}
        }
        self.crew.give(number, actor_thread, order, arguments);
    }

    /// Records the effect of the commands that the driver has taken.
    fn record_commands(
        &mut self,
        number: usize,
        thread: usize,
        exchange: &Exchange,
        consumed: u64,
    ) {
        let n_managers = self.world.n_managers;
        let process = &mut self.world.processes[number];
        let has_waited = std::mem::take(&mut process.threads[thread].has_waited);
        let mut end = 0;
        for command in &exchange.write {
            end += command.bytes();
            if end > consumed {
                return;
            }
            let doing = &mut process.threads[thread];
            match command {
                Command::Transaction { flags, parcel, .. } => {
                    doing.expects = true;
                    doing.sent_one_way = flags & TF_ONE_WAY != 0;
                    if !doing.sent_one_way {
                        doing.sends();
                    }
                    process.nodes.extend(parcel.nodes());
                }
                Command::Reply { parcel, .. } => {
                    doing.expects = true;
                    doing.answers();
                    process.nodes.extend(parcel.nodes());
                }
                Command::Free(name) if !has_waited => process.frees(*name),
                Command::Acknowledge { strong, ptr, cookie } => {
                    let owed = process.owed.iter().position(|o| *o == (*strong, *ptr, *cookie));
                    if let Some(at) = owed {
                        process.owed.remove(at);
                    }
                }
                Command::Register => doing.looper |= REGISTERED,
                Command::Enter => doing.looper |= ENTERED,
                Command::Leave => doing.looper |= LEFT,
                Command::RequestDeath(handle, cookie) => process.deaths.push((*handle, *cookie)),
                Command::ClearDeath(handle, cookie) => {
                    process.deaths.retain(|death| *death != (*handle, *cookie));
                }
                Command::DeathDone(cookie) => process.told.retain(|told| told != cookie),
                Command::Count(_, 0) => drop(process.first_manager.get_or_insert(n_managers)),
                Command::Free(_) | Command::Count(..) | Command::Raw(_) => {}
            }
        }
    }

    fn settled(&mut self) -> Result<Record, Stuck> {
        let mut answers = Vec::new();
        for (number, actor_thread, result) in self.crew.await_stillness()? {
            let process = &mut self.world.processes[number];
            let Some(thread) =
                process.threads.iter().position(|thread| thread.actor_thread == actor_thread)
            else {
                continue;
            };
            answers.push((number, self.world.rename(number, thread), result));
        }
        answers.sort_unstable();
        let mut record = Vec::new();
        for (number, thread, result) in answers {
            let text = self.record_result(number, thread, result);
            record.push(format!("p{number}.t{thread} {text}"));
        }
        for (number, process) in self.world.processes.iter_mut().enumerate() {
            for thread in 0..process.threads.len() {
                if process.threads[thread].busy.is_some() {
                    process.waits(thread);
                    record.push(format!("p{number}.t{thread} waits"));
                }
            }
        }
        Ok(record)
    }

    /// Records and describes the result of a thread's act.
    fn record_result(&mut self, number: usize, thread: usize, result: i64) -> String {
        let slot = self.slot(number, thread);
        let doing = &mut self.world.processes[number].threads[thread];
        let act = doing.busy.take().expect("only busy threads end something");
        let status = if result < 0 { errno_name(-result as i32) } else { "ok".to_owned() };
        let process = &mut self.world.processes[number];
        match act {
            Act::Open { nonblocking } if result >= 0 => {
                process.device = Some(result as i32);
                process.nonblocking = nonblocking;
                self.crew.find_helpers(number);
                status
            }
            Act::Map { bytes, .. } if result >= 0 => {
                process.map = Some((result as u64, bytes.into()));
                status
            }
            Act::Unmap if result >= 0 => {
                process.map = None;
                status
            }
            Act::Close if result >= 0 => {
                process.device = None;
                self.crew.find_helpers(number);
                status
            }
            Act::Nonblocking(on) => {
                process.nonblocking = on;
                status
            }
            Act::Poll if result >= 0 => format!("events {result:x}"),
            Act::CloseFile(_) => {
                process.forget_closed_files();
                status
            }
            Act::Pipe if result >= 0 => {
                let both = [result as i32, (result >> 32) as i32];
                both.iter().for_each(|fd| process.add_file(*fd));
                self.world.pipes.push(target(process.pid, both[0]));
                status
            }
            Act::Exchange(exchange) => {
                format!("{status} {}", self.exchanged(number, thread, slot, &exchange))
            }
            Act::Control(control) if result >= 0 => {
                if control == Control::ThreadExit {
                    let doing = &mut process.threads[thread];
                    (doing.stack, doing.refused, doing.looper) = (Vec::new(), 0, 0);
                }
                self.world.has_frozen |= matches!(control, Control::Freeze { enable: true, .. });
                if matches!(control, Control::Manage | Control::ManageExt { .. }) {
                    process.manages = true;
                    self.world.n_managers += 1;
                }
                format!("{status}{}", describe_argument(control, &slot.take(0, 64)))
            }
            _ => status,
        }
    }

    fn exchanged(
        &mut self,
        number: usize,
        thread: usize,
        slot: &Slot,
        exchange: &Exchange,
    ) -> String {
        let argument: WriteRead = pod_read_unaligned(&slot.take(0, size_of::<WriteRead>()));
        self.record_commands(number, thread, exchange, argument.write_consumed);
        self.world.processes[number].forget_closed_files();
        let (record_commands, read) = (argument.write_consumed, argument.read_consumed);
        let bytes = slot.take(READ, (read as usize).min(READ_BYTES));
        let mut decoder = Decoder { world: &mut self.world, process: number, thread };
        let returns = decoder.returns(&bytes);
        let doing = &mut self.world.processes[number].threads[thread];
        if argument.read_size > 0 {
            doing.expects = !matches!(returns.as_str(), "" | "NOOP");
        }
        format!("wrote {record_commands}/{} read {read}: {returns}", argument.write_size)
    }
}

/// Describes the values that an ioctl has written to its argument, where they are defined.
fn describe_argument(control: Control, argument: &[u8]) -> String {
    let word = |at: usize| u32::from_ne_bytes(argument[at * 4..at * 4 + 4].try_into().unwrap());
    match control {
        Control::Version => format!(" version {}", word(0)),
        Control::NodeDebugInfo(_) => {
            let info: NodeDebugInfo = pod_read_unaligned(&argument[..size_of::<NodeDebugInfo>()]);
            let (strong, weak) = (info.has_strong_ref, info.has_weak_ref);
            format!(" {:x}:{:x} strong {strong} weak {weak}", info.ptr, info.cookie)
        }
        Control::FrozenInfo(_) => format!(" calls {} one-way {}", word(1), word(2)),
        Control::ExtendedError => {
            format!(" {} {}", return_name(word(1)), errno_name(-(word(2) as i32)))
        }
        _ => String::new(),
    }
}

fn errno_name(errno: i32) -> String {
    let name = match errno {
        0 => "0",
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EINTR => "EINTR",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOTTY => "ENOTTY",
        libc::ENOSPC => "ENOSPC",
        libc::EPROTO => "EPROTO",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}
