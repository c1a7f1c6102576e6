//! What has been seen of each process so far: what names in a step mean, and what a generator may
//! choose from.

use crate::step::{Act, BufferName, Command, FileName};
use std::collections::BTreeSet;

/// An address that nothing is at.
pub const NOWHERE: u64 = 0x10;

/// All processes of a scenario.
#[derive(Debug, Default)]
pub struct World {
    /// By number.
    pub processes: Vec<Process>,
    /// Inodes of pipes, in the order in which they were made.
    pub pipes: Vec<String>,
    /// How many context managers there have been.
    pub n_managers: u32,
    /// A process has been frozen.
    pub has_frozen: bool,
}

/// One process.
#[derive(Debug, Default)]
pub struct Process {
    /// What it is doing at all.
    pub life: Life,
    /// Its id.
    pub pid: u32,
    /// The device, while it is open.
    pub device: Option<i32>,
    /// It was opened or made not to wait.
    pub nonblocking: bool,
    /// Address and length of the receive buffer, while mapped.
    pub map: Option<(u64, u64)>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Buffers, in the order in which they came.
    pub buffers: Vec<Buffer>,
    /// Files, in the order in which they came.
    pub files: Vec<OpenFile>,
    /// Handles that came in transactions.
    pub handles: BTreeSet<u32>,
    /// Nodes that it has sent.
    pub nodes: Vec<(u64, u64)>,
    /// Counts that it was asked to take and has not acknowledged: strong, node, cookie.
    pub owed: Vec<(bool, u64, u64)>,
    /// Deaths that it has asked for.
    pub deaths: Vec<(u32, u64)>,
    /// Deaths that it was told of and has not acknowledged.
    pub told: Vec<u64>,
    /// It is or was the context manager.
    pub manages: bool,
    /// Which manager its handle 0 stood for when it first held it: the n-th.
    pub first_manager: Option<u32>,
}

/// Whether a process can act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// Not yet started.
    #[default]
    Unborn,
    /// Its threads take orders.
    Acting,
    /// Dead, or executing something else.
    Gone,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Which of the arena's threads it is.
    pub seat: usize,
    /// What it is doing, while that has no end.
    pub busy: Option<Act>,
    /// That waits, and what it frees is known to be free.
    pub has_waited: bool,
    /// Calls that it has been given and has not answered, and those that it has made and has had no
    /// answer to, the innermost last.
    pub stack: Vec<Call>,
    /// Two-way transactions of which it will hear that they were refused.
    pub refused: u32,
    /// What it has said of being a looper: [`REGISTERED`], [`ENTERED`], [`LEFT`].
    pub looper: u8,
    /// The last transaction that it sent was one-way: a refusal is more likely that one's.
    pub sent_one_way: bool,
    /// Something may lie there for it.
    pub expects: bool,
}

/// `BC_REGISTER_LOOPER`.
pub const REGISTERED: u8 = 1;
/// `BC_ENTER_LOOPER`.
pub const ENTERED: u8 = 2;
/// `BC_EXIT_LOOPER`.
pub const LEFT: u8 = 4;

/// One call, seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It was given to the thread.
    In,
    /// The thread has made it.
    Out,
}

impl Thread {
    /// It waits for whatever comes to its process.
    pub fn waits_for_anything(&self) -> bool {
        self.busy.is_some() && self.stack.is_empty()
    }

    /// It owes an answer.
    pub fn serves(&self) -> bool {
        self.stack.contains(&Call::In)
    }

    /// It waits for an answer.
    pub fn calls(&self) -> bool {
        self.stack.contains(&Call::Out)
    }

    /// It serves a call and has made one meanwhile.
    pub fn is_between(&self) -> bool {
        self.serves() && self.calls()
    }

    /// It has sent a two-way transaction.
    pub fn sends(&mut self) {
        match self.stack.last() {
            Some(Call::Out) => self.refused += 1,
            _ => self.stack.push(Call::Out),
        }
    }

    /// It has sent an answer.
    pub fn answers(&mut self) {
        match self.stack.last() {
            Some(Call::In) => drop(self.stack.pop()),
            _ => self.refused += 1,
        }
    }

    /// It has heard of a refusal.
    pub fn is_refused(&mut self) {
        if self.refused > 0 {
            self.refused -= 1;
        } else if !std::mem::take(&mut self.sent_one_way) {
            self.is_answered();
        }
    }

    /// It has had an answer.
    pub fn is_answered(&mut self) {
        self.stack.pop_if(|call| *call == Call::Out);
    }
}

/// A file as it was when it came. Its number may since be another's.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The number; -1 once another file came with it.
    pub fd: i32,
    /// What it is, as /proc says it.
    pub target: String,
}

/// A received buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its address.
    pub address: u64,
    /// It was freed.
    pub freed: bool,
}

impl Process {
    /// The address that a name stands for.
    pub fn buffer(&self, name: BufferName) -> u64 {
        match name {
            BufferName::Received(n) => {
                self.buffers.get(n as usize).map_or(NOWHERE, |buffer| buffer.address)
            }
            BufferName::At(offset) => {
                self.map.map_or(0, |(base, _)| base).wrapping_add_signed(offset)
            }
        }
    }

    /// `BC_FREE_BUFFER` was taken.
    pub fn frees(&mut self, name: BufferName) {
        let address = self.buffer(name);
        let same = |buffer: &&mut Buffer| buffer.address == address && !buffer.freed;
        if let Some(buffer) = self.buffers.iter_mut().find(same) {
            buffer.freed = true;
        }
    }

    /// The thread waits: its commands have been taken, and what they freed may be another buffer's
    /// place before it ends.
    pub fn waits(&mut self, thread: usize) {
        let doing = &mut self.threads[thread];
        let Some(Act::Exchange(exchange)) = &doing.busy else { return };
        if std::mem::replace(&mut doing.has_waited, true) {
            return;
        }
        for command in exchange.write.clone() {
            if let Command::Free(name) = command {
                self.frees(name);
            }
        }
    }

    /// The descriptor that a name stands for; -1 if that file is no longer open.
    pub fn file(&self, name: FileName) -> i32 {
        match name {
            FileName::Number(number) => number,
            FileName::Known(n) => match self.files.get(n as usize) {
                Some(file) if target(self.pid, file.fd) == file.target => file.fd,
                _ => -1,
            },
        }
    }

    /// A step is over: files that it has closed are known no more, whatever gets their numbers.
    pub fn forget_closed_files(&mut self) {
        for file in self.files.iter_mut().filter(|file| file.fd >= 0) {
            if target(self.pid, file.fd) != file.target {
                file.fd = -1;
            }
        }
    }

    /// A file has come.
    pub fn add_file(&mut self, fd: i32) {
        for file in self.files.iter_mut().filter(|file| file.fd == fd) {
            file.fd = -1;
        }
        self.files.push(OpenFile { fd, target: target(self.pid, fd) });
    }

    /// An address as an offset from the map's beginning, if it lies in the map.
    pub fn offset(&self, address: u64) -> Option<u64> {
        let (base, bytes) = self.map?;
        address.checked_sub(base).filter(|offset| *offset < bytes)
    }

    /// Whether a process can be given a step.
    pub fn is_acting(&self) -> bool {
        self.life == Life::Acting
    }
}

/// What a descriptor of a process is; empty if it is not open.
pub fn target(pid: u32, fd: i32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

impl World {
    /// The process of this number, made if there is none.
    pub fn process(&mut self, number: u8) -> &mut Process {
        let number = number as usize;
        if self.processes.len() <= number {
            self.processes.resize_with(number + 1, Process::default);
        }
        &mut self.processes[number]
    }

    /// The process may hold handle 0 of a manager that was before the one that is.
    pub fn holds_former_manager(&self, number: u8) -> bool {
        let first = self.processes[number as usize].first_manager;
        first.is_some_and(|manager| manager != self.n_managers)
    }

    /// The number of the process with this id.
    pub fn by_pid(&self, pid: i32) -> Option<usize> {
        self.processes.iter().position(|process| process.pid == pid as u32 && pid > 0)
    }
}

impl World {
    /// Which of the loopers that wait for the same thing in the same way takes it is not defined:
    /// the one that did gets the name of the first of them. The new name.
    pub fn rename(&mut self, number: usize, thread: usize) -> usize {
        let threads = &mut self.processes[number].threads;
        let same = |other: &Thread| {
            let this = &threads[thread];
            other.busy == this.busy
                && this.busy.is_some()
                && other.stack.is_empty()
                && this.stack.is_empty()
                && other.looper == this.looper
        };
        let first = threads.iter().position(same).unwrap_or(thread);
        threads.swap(first, thread);
        first
    }
}
