//! Observations of each process: the objects that names in a step refer to, and from which a
//! generator chooses.

use crate::step::{Act, BufferName, Command, FileName};
use std::collections::BTreeSet;

/// An unmapped address.
pub const NOWHERE: u64 = 0x10;

/// All processes of a scenario.
#[derive(Debug, Default)]
pub struct World {
    /// Processes by number.
    pub processes: Vec<Process>,
    /// Inodes of pipes, in the order in which they were made.
    pub pipes: Vec<String>,
    /// Number of context managers so far.
    pub n_managers: u32,
    /// Whether a process has been frozen.
    pub has_frozen: bool,
}

/// One process.
#[derive(Debug, Default)]
pub struct Process {
    /// State of the process.
    pub life: Life,
    /// Its id.
    pub pid: u32,
    /// The device, while it is open.
    pub device: Option<i32>,
    /// Whether the device is nonblocking.
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
    /// Counts that the process was asked to take and has not acknowledged: strong, node, cookie.
    pub owed: Vec<(bool, u64, u64)>,
    /// Deaths for which it has requested a notification.
    pub deaths: Vec<(u32, u64)>,
    /// Death notifications that it has not acknowledged.
    pub told: Vec<u64>,
    /// Whether the process is or was the context manager.
    pub manages: bool,
    /// Number of the manager that its handle 0 first referred to.
    pub first_manager: Option<u32>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// Not yet started.
    #[default]
    Unborn,
    /// The process's threads take orders.
    Acting,
    /// The process is dead, or executes another program.
    Gone,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Index of the thread in the arena.
    pub actor_thread: usize,
    /// The act in progress, until it ends.
    pub busy: Option<Act>,
    /// Whether the act waits, and the buffers that it frees are known to be free.
    pub has_waited: bool,
    /// Calls that the thread received and has not answered, and calls that it made and has no reply
    /// to, the innermost last.
    pub stack: Vec<Call>,
    /// Two-way transactions whose refusal the thread will learn of.
    pub refused: u32,
    /// The thread's looper commands: [`REGISTERED`], [`ENTERED`], [`LEFT`].
    pub looper: u8,
    /// Whether the last transaction was one-way, so that a refusal probably concerns it.
    pub sent_one_way: bool,
    /// Whether work for the thread may be waiting.
    pub expects: bool,
    /// Whether the driver has seen an ioctl of the thread since the device was opened. A mounted
    /// one does not see those whose argument cannot be read: after a first one, polls and reads
    /// would differ.
    pub is_known: bool,
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
    /// The thread received the call.
    In,
    /// The thread has made it.
    Out,
}

impl Thread {
    /// Whether the thread waits for any work of its process.
    pub fn waits_for_anything(&self) -> bool {
        self.busy.is_some() && self.stack.is_empty()
    }

    /// Whether the thread owes a reply.
    pub fn serves(&self) -> bool {
        self.stack.contains(&Call::In)
    }

    /// Whether the thread waits for a reply.
    pub fn calls(&self) -> bool {
        self.stack.contains(&Call::Out)
    }

    /// Whether the thread serves a call and has made one meanwhile.
    pub fn is_between(&self) -> bool {
        self.serves() && self.calls()
    }

    /// Records a two-way transaction of the thread.
    pub fn sends(&mut self) {
        match self.stack.last() {
            Some(Call::Out) => self.refused += 1,
            _ => self.stack.push(Call::Out),
        }
    }

    /// Records a reply of the thread.
    pub fn answers(&mut self) {
        match self.stack.last() {
            Some(Call::In) => drop(self.stack.pop()),
            _ => self.refused += 1,
        }
    }

    /// Records a refusal that the thread learned of.
    pub fn is_refused(&mut self) {
        if self.refused > 0 {
            self.refused -= 1;
        } else if !std::mem::take(&mut self.sent_one_way) {
            self.is_answered();
        }
    }

    /// Records a reply to the thread.
    pub fn is_answered(&mut self) {
        self.stack.pop_if(|call| *call == Call::Out);
    }
}

/// A file as it was when the process got it. Its number may belong to another file by now.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The descriptor; -1 once another file got its number.
    pub fd: i32,
    /// The file's target in /proc.
    pub target: String,
}

/// A received buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its address.
    pub address: u64,
    /// Whether the buffer was freed.
    pub freed: bool,
}

impl Process {
    /// The address that a name refers to.
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

    /// Records a `BC_FREE_BUFFER` that the driver took.
    pub fn frees(&mut self, name: BufferName) {
        let address = self.buffer(name);
        let same = |buffer: &&mut Buffer| buffer.address == address && !buffer.freed;
        if let Some(buffer) = self.buffers.iter_mut().find(same) {
            buffer.freed = true;
        }
    }

    /// Records that the thread waits: its commands were taken, and another buffer may reuse freed
    /// room before the wait ends.
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

    /// The descriptor that a name refers to; -1 if that file is closed.
    pub fn file(&self, name: FileName) -> i32 {
        match name {
            FileName::Number(number) => number,
            FileName::Known(n) => match self.files.get(n as usize) {
                Some(file) if target(self.pid, file.fd) == file.target => file.fd,
                _ => -1,
            },
        }
    }

    /// Forgets the files that a step has closed, before their numbers are reused.
    pub fn forget_closed_files(&mut self) {
        for file in self.files.iter_mut().filter(|file| file.fd >= 0) {
            if target(self.pid, file.fd) != file.target {
                file.fd = -1;
            }
        }
    }

    /// Records a new file.
    pub fn add_file(&mut self, fd: i32) {
        for file in self.files.iter_mut().filter(|file| file.fd == fd) {
            file.fd = -1;
        }
        self.files.push(OpenFile { fd, target: target(self.pid, fd) });
    }

    /// The offset of an address in the mapping, if it lies there.
    pub fn offset(&self, address: u64) -> Option<u64> {
        let (base, bytes) = self.map?;
        address.checked_sub(base).filter(|offset| *offset < bytes)
    }

    /// Whether a process can be given a step.
    pub fn is_acting(&self) -> bool {
        self.life == Life::Acting
    }
}

/// The target of a process's descriptor in /proc; empty if it is closed.
pub fn target(pid: u32, fd: i32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

impl World {
    /// The process with this number, created if necessary.
    pub fn process(&mut self, number: u8) -> &mut Process {
        let number = number as usize;
        if self.processes.len() <= number {
            self.processes.resize_with(number + 1, Process::default);
        }
        &mut self.processes[number]
    }

    /// Whether the process may hold handle 0 of a former manager.
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
    /// Gives the thread that took the work the name of the first of the loopers that waited alike,
    /// since which of them takes it is not defined. Returns the new name.
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
