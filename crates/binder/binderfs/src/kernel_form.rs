//! The files of `binder_logs` as text, in the form in which the kernel's driver (Linux 6.12,
//! `drivers/android/binder.c`) prints them: programs read it there.
//!
//! A kernel's address (of a transaction, a buffer, a death notice) is 0 or 1 here: there is none.

use crate::traffic::{Kind, Sent};
use baton_abi::control::{CallReport, End};
use baton_driver::device::description::*;
use std::collections::HashMap;
use std::fmt::Write;

const PAGE_BYTES: usize = 4096;

/// Something with a number, the kernel's `debug_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Named {
    /// By its owner and the owner's name.
    Node(u64, u64),
    /// By its process and the handle.
    Reference(u64, u32),
    /// By channel and lane: both ends have one number.
    Call(u64, u32),
    /// By its process and its place in the receive buffer.
    Buffer(u64, usize),
}

/// The numbers of what has been shown. A node keeps its number as long as it is.
#[derive(Debug, Default)]
pub struct Numbers {
    all: HashMap<Named, (u32, u64)>,
    last: u32,
    text: u64,
}

impl Numbers {
    fn of(&mut self, named: Named) -> u32 {
        let (last, text) = (&mut self.last, self.text);
        let number = self.all.entry(named).or_insert_with(|| {
            // The kernel's are signed.
            *last = (*last + 1) & (u32::MAX >> 1);
            (*last, text)
        });
        number.1 = text;
        number.0
    }

    /// Forgets what is not in a text that has everything.
    fn forget_others(&mut self) {
        let text = self.text;
        self.all.retain(|_, (_, shown)| *shown == text);
    }
}

/// One open device, of this mount or of another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The pid.
    pub pid: u32,
    /// The broker's name of its context.
    pub context: String,
    /// Whether the process manages its context.
    pub is_manager: bool,
    /// Threads, nodes, handles and work, with tids of the program. Of a program that is not
    /// mounted, what the broker knows.
    pub has: Description,
    /// Calls and services, each thread's outermost first.
    pub calls: Vec<CallReport>,
    /// Holders of its nodes: node, holder's process.
    pub holders: Vec<(u64, u64)>,
    /// Bytes of its receive buffer that have memory.
    pub resident_bytes: usize,
    /// Numbers of threads, handles and messages.
    pub numbers: (usize, usize, usize),
    /// Counts of commands and returns, with their names.
    pub counts: Vec<(&'static str, u64)>,
}

/// All processes at one instant.
#[derive(Debug)]
pub struct Snapshot<'a> {
    processes: &'a [Process],
    pids: HashMap<u64, u32>,
    /// Threads at the ends of calls, by channel and lane: pid and tid.
    ends: HashMap<(u64, u32, bool), (u32, u32)>,
    numbers: &'a mut Numbers,
}

impl<'a> Snapshot<'a> {
    /// A snapshot of these processes.
    pub fn of(processes: &'a [Process], numbers: &'a mut Numbers) -> Snapshot<'a> {
        numbers.text += 1;
        let pids = processes.iter().map(|process| (process.has.process, process.pid)).collect();
        let ends = processes.iter().flat_map(|process| {
            let end = |call: &CallReport| {
                let is_server = call.end == End::Server;
                ((call.channel, call.lane, is_server), (process.pid, call.tid))
            };
            process.calls.iter().map(end)
        });
        Snapshot { processes, pids, ends: ends.collect(), numbers }
    }

    /// `state`.
    pub fn state(&mut self) -> String {
        let mut out = "binder state:\n".to_owned();
        for process in self.processes {
            self.process(&mut out, process, true);
        }
        self.numbers.forget_others();
        out
    }

    /// `transactions`.
    pub fn transactions(&mut self) -> String {
        let mut out = "binder transactions:\n".to_owned();
        for process in self.processes {
            self.process(&mut out, process, false);
        }
        out
    }

    /// `proc/PID`.
    pub fn of_process(&mut self, pid: u32) -> String {
        let mut out = String::new();
        for process in self.processes.iter().filter(|process| process.pid == pid) {
            out.push_str("binder proc state:\n");
            self.process(&mut out, process, true);
        }
        out
    }

    /// `transaction_log` and `failed_transaction_log`.
    pub fn transaction_log(&mut self, sent: &[Sent]) -> String {
        let mut out = String::new();
        for sent in sent {
            let kind = match sent.kind {
                Kind::Call => "call ",
                Kind::OneWay => "async",
                Kind::Reply => "reply",
            };
            let (node, to) = match sent.node {
                Some((owner, node)) => {
                    (self.numbers.of(Named::Node(owner, node)), self.pid_of(owner))
                }
                // The first call of a process finds the context manager by its handle alone.
                None if sent.kind != Kind::Reply && sent.handle == 0 => {
                    (0, self.manager_of(&sent.context))
                }
                None => (0, sent.caller),
            };
            let (pid, tid) = sent.from;
            let (data, offsets) = sent.sizes;
            let (failure, errno) = sent.failure;
            put(
                &mut out,
                format_args!(
                    "{}: {kind} from {pid}:{tid} to {to}:0 context {} node {node} handle {} \
                     size {data}:{offsets} ret {failure}/{errno} l=0\n",
                    sent.number, sent.context, sent.handle
                ),
            );
        }
        out
    }

    /// `stats`. `counts` are those of all programs of the mount, with those that are gone.
    pub fn stats(&mut self, counts: impl Iterator<Item = (&'static str, u64)>) -> String {
        let mut out = "binder stats:\n".to_owned();
        put_counts(&mut out, "", counts);
        let total = |of: fn(&Process) -> usize| self.processes.iter().map(of).sum::<usize>();
        for (name, n) in [
            ("proc", self.processes.len()),
            ("thread", total(|process| process.numbers.0)),
            ("node", total(|process| process.has.nodes.len())),
            ("ref", total(|process| process.numbers.1)),
            (
                "death",
                total(|it| it.has.references.iter().filter(|it| it.has_death_notice).count()),
            ),
            ("transaction", total(|process| process.has.work.len() + process.calls.len())),
        ] {
            if n > 0 {
                put(&mut out, format_args!("{name}: active {n} total {n}\n"));
            }
        }
        for process in self.processes {
            put_stats(&mut out, process);
        }
        out
    }

    fn pid_of(&self, process: u64) -> u32 {
        self.pids.get(&process).copied().unwrap_or(0)
    }

    fn manager_of(&self, context: &str) -> u32 {
        let found = self.processes.iter().find(|it| it.is_manager && it.context == context);
        found.map_or(0, |process| process.pid)
    }

    fn process(&mut self, out: &mut String, process: &Process, is_all: bool) {
        let start = out.len();
        put(out, format_args!("proc {}\ncontext {}\n", process.pid, process.context));
        let after_head = out.len();
        for thread in &process.has.threads {
            self.thread(out, process, thread, is_all);
        }
        for node in process.has.nodes.iter().filter(|node| is_all || node.is_busy) {
            self.node(out, process, node);
        }
        for reference in process.has.references.iter().filter(|_| is_all) {
            self.reference(out, process.has.process, reference);
        }
        for buffer in &process.has.buffers {
            let number = self.numbers.of(Named::Buffer(process.has.process, buffer.offset));
            let stage = if buffer.is_delivered { "delivered" } else { "active" };
            let BufferDescription { offset, bytes, .. } = buffer;
            put(out, format_args!("  buffer {number}: {offset:x} size {bytes}:0:0 {stage}\n"));
        }
        self.work(out, process, "  ", &process.has.work);
        if process.has.has_delivered_death {
            out.push_str("  has delivered dead binder\n");
        }
        if !is_all && out.len() == after_head {
            out.truncate(start);
        }
    }

    fn thread(
        &mut self,
        out: &mut String,
        process: &Process,
        thread: &ThreadDescription,
        is_all: bool,
    ) {
        let start = out.len();
        let returns = u32::from(thread.returns_once);
        let (tid, looper) = (thread.tid, thread.looper);
        put(out, format_args!("  thread {tid}: l {looper:02x} need_return {returns} tr 0\n"));
        let after_head = out.len();
        for call in process.calls.iter().rev().filter(|call| call.tid == tid) {
            self.call(out, process, call);
        }
        self.work(out, process, "    ", &thread.work);
        if !is_all && out.len() == after_head {
            out.truncate(start);
        }
    }

    /// A call that a thread waits for or serves.
    fn call(&mut self, out: &mut String, process: &Process, call: &CallReport) {
        let number = self.numbers.of(Named::Call(call.channel, call.lane));
        let is_server = call.end == End::Server;
        let own = (process.pid, call.tid);
        let other = self.ends.get(&(call.channel, call.lane, !is_server)).copied();
        let other = other.unwrap_or((self.pid_of(call.peer), 0));
        let (from, to) = if is_server { (other, own) } else { (own, other) };
        let direction = if is_server { "incoming" } else { "outgoing" };
        let request = call.request.as_ref();
        let (code, flags) = request.map_or((0, 0), |request| (request.code, request.flags));
        let (nice, ms) = request.map_or((0, 0), |it| (it.nice, it.age_us / 1000));
        put(
            out,
            format_args!(
                "    {direction} transaction {number}: {:016x} from {}:{} to {}:{} code {code:x} \
                 flags {flags:x} pri {nice} r1 elapsed {ms}ms",
                0, from.0, from.1, to.0, to.1
            ),
        );
        match request.filter(|_| is_server) {
            Some(request) => {
                let node = self.numbers.of(Named::Node(process.has.process, request.node));
                let (data, offsets) = (request.data_bytes, request.offsets_bytes);
                put(out, format_args!(" node {node} size {data}:{offsets} data {:016x}\n", 0));
            }
            None => out.push('\n'),
        }
    }

    fn node(&mut self, out: &mut String, process: &Process, node: &NodeDescription) {
        let id = process.has.process;
        let number = self.numbers.of(Named::Node(id, node.node));
        let holders = process.holders.iter().filter(|(held, _)| *held == node.node);
        let holders: Vec<u32> = holders.map(|(_, holder)| self.pid_of(*holder)).collect();
        let (strong, weak) = node.told;
        put(
            out,
            format_args!(
                "  node {number}: u{:016x} c{:016x} hs {} hw {} ls {} lw {} is {} iw {} tr 0",
                node.ptr,
                node.cookie,
                u32::from(strong),
                u32::from(weak),
                node.local.strong,
                node.local.weak,
                node.holders.strong,
                holders.len()
            ),
        );
        if !holders.is_empty() {
            out.push_str(" proc");
        }
        for holder in holders {
            put(out, format_args!(" {holder}"));
        }
        out.push('\n');
        for one_way in &node.one_way {
            self.pending(out, process, "    pending async transaction", one_way);
        }
    }

    fn reference(&mut self, out: &mut String, id: u64, reference: &ReferenceDescription) {
        let number = self.numbers.of(Named::Reference(id, reference.handle));
        let node = self.numbers.of(Named::Node(reference.owner, reference.node));
        put(
            out,
            format_args!(
                "  ref {number}: desc {} {}node {node} s {} w {} d {:016x}\n",
                reference.handle,
                if reference.is_dead { "dead " } else { "" },
                reference.counts.strong,
                reference.counts.weak,
                u32::from(reference.has_death_notice)
            ),
        );
    }

    fn work(
        &mut self,
        out: &mut String,
        process: &Process,
        indent: &str,
        work: &[WorkDescription],
    ) {
        for item in work {
            match item {
                WorkDescription::Transaction(transaction) => {
                    let words = format!("{indent}pending transaction");
                    self.pending(out, process, &words, transaction);
                }
                WorkDescription::Error(number) => {
                    put(out, format_args!("{indent}transaction error: {number}\n"));
                }
                WorkDescription::Complete => {
                    put(out, format_args!("{indent}transaction complete\n"));
                }
                WorkDescription::Node(node) => {
                    let number = self.numbers.of(Named::Node(process.has.process, *node));
                    let found = process.has.nodes.iter().find(|known| known.node == *node);
                    let (ptr, cookie) = found.map_or((0, 0), |node| (node.ptr, node.cookie));
                    put(
                        out,
                        format_args!("{indent}node work {number}: u{ptr:016x} c{cookie:016x}\n"),
                    );
                }
                WorkDescription::Dead => put(out, format_args!("{indent}has dead binder\n")),
                WorkDescription::DeathCleared => {
                    put(out, format_args!("{indent}has cleared death notification\n"));
                }
                WorkDescription::Frozen => put(out, format_args!("{indent}has frozen binder\n")),
                WorkDescription::FreezeCleared => {
                    put(out, format_args!("{indent}has cleared freeze notification\n"));
                }
            }
        }
    }

    /// A message that has come in and has not been read.
    fn pending(
        &mut self,
        out: &mut String,
        process: &Process,
        words: &str,
        transaction: &TransactionDescription,
    ) {
        let id = process.has.process;
        let (number, from) = match transaction.answered_by {
            Some((channel, lane)) => {
                let number = self.numbers.of(Named::Call(channel, lane));
                (number, self.ends.get(&(channel, lane, false)).copied())
            }
            None => (self.numbers.of(Named::Buffer(id, transaction.offset)), None),
        };
        let (pid, tid) = from.unwrap_or((self.pid_of(transaction.peer), 0));
        put(
            out,
            format_args!(
                "{words} {number}: {:016x} from {pid}:{tid} to {}:0 code {:x} flags {:x} pri 0 r{} \
                 elapsed 0ms",
                0,
                process.pid,
                transaction.code,
                transaction.flags,
                u32::from(transaction.answered_by.is_some())
            ),
        );
        if let Some(node) = transaction.node {
            let node = self.numbers.of(Named::Node(id, node));
            put(out, format_args!(" node {node}"));
        }
        let (data, offsets) = transaction.sizes;
        put(out, format_args!(" size {data}:{offsets} data {:016x}\n", transaction.offset));
    }
}

fn put_stats(out: &mut String, process: &Process) {
    let has = &process.has;
    put(out, format_args!("proc {}\ncontext {}\n", process.pid, process.context));
    let (threads, handles, buffers) = process.numbers;
    let ready = has.threads.iter().filter(|thread| thread.is_ready).count();
    let (strong, weak) = has.references.iter().fold((0, 0), |(strong, weak), reference| {
        (strong + reference.counts.strong, weak + reference.counts.weak)
    });
    let resident = process.resident_bytes.div_ceil(PAGE_BYTES);
    let active = has.used_bytes.div_ceil(PAGE_BYTES).min(resident);
    let free = has.mapped_bytes.div_ceil(PAGE_BYTES).saturating_sub(resident);
    let is_transaction = |work: &&WorkDescription| matches!(work, WorkDescription::Transaction(_));
    let pending = has.work.iter().filter(is_transaction).count();
    put(
        out,
        format_args!(
            "  threads: {threads}\n  requested threads: {}+{}/{}\n  ready threads {ready}\n  \
             free async space {}\n  nodes: {}\n  refs: {handles} s {strong} w {weak}\n  \
             buffers: {buffers}\n  pages: {active}:{}:{free}\n  \
             pages high watermark: {resident}\n  \
             pending transactions: {pending}\n",
            has.requested_loopers,
            has.started_loopers,
            has.max_loopers,
            has.one_way_free_bytes,
            has.nodes.len(),
            resident - active,
        ),
    );
    put_counts(out, "  ", process.counts.iter().copied());
}

fn put_counts(out: &mut String, indent: &str, counts: impl Iterator<Item = (&'static str, u64)>) {
    for (name, count) in counts {
        put(out, format_args!("{indent}{name}: {count}\n"));
    }
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::RequestReport;

    /// A service, process 1 of the broker's, whose thread serves a call of a client, process 2.
    fn processes() -> Vec<Process> {
        let request = RequestReport {
            node: 5,
            code: 7,
            flags: 0x10,
            data_bytes: 12,
            offsets_bytes: 8,
            nice: -3,
            age_us: 4500,
        };
        let call = |end, tid, peer| CallReport {
            end,
            tid,
            peer,
            channel: 9,
            lane: 3,
            request: Some(request.clone()),
        };
        let thread = |tid, looper| ThreadDescription { tid, looper, ..Default::default() };
        let node = NodeDescription {
            node: 5,
            ptr: 0xab,
            cookie: 0xcd,
            told: (true, true),
            holders: baton_driver::device::description::Counts { strong: 1, weak: 1 },
            ..Default::default()
        };
        let reference = ReferenceDescription { handle: 2, owner: 1, node: 5, ..Default::default() };
        let server = Process {
            pid: 100,
            context: "binder".to_owned(),
            has: Description {
                process: 1,
                threads: vec![thread(101, 2), thread(102, 0x12)],
                nodes: vec![node],
                buffers: vec![BufferDescription { offset: 64, bytes: 24, is_delivered: true }],
                work: vec![WorkDescription::Dead],
                ..Default::default()
            },
            calls: vec![call(End::Server, 101, 2)],
            holders: vec![(5, 2)],
            ..Default::default()
        };
        let client = Process {
            pid: 200,
            context: "binder".to_owned(),
            has: Description {
                process: 2,
                threads: vec![thread(201, 0)],
                references: vec![reference],
                ..Default::default()
            },
            calls: vec![call(End::Client, 201, 1)],
            ..Default::default()
        };
        let idle = Process { pid: 300, context: "vndbinder".to_owned(), ..Default::default() };
        vec![server, client, idle]
    }

    #[test]
    fn text_has_the_kernels_form() {
        let (processes, mut numbers) = (processes(), Numbers::default());
        let zero = "0000000000000000";
        let call =
            format!("transaction 1: {zero} from 200:201 to 100:101 code 7 flags 10 pri -3 r1");
        let state = format!(
            "binder state:\nproc 100\ncontext binder\n  thread 101: l 02 need_return 0 tr 0\n    \
             incoming {call} elapsed 4ms node 2 size 12:8 data {zero}\n  \
             thread 102: l 12 need_return 0 tr 0\n  \
             node 2: u00000000000000ab c00000000000000cd hs 1 hw 1 ls 0 lw 0 is 1 iw 1 tr 0 \
             proc 200\n  buffer 3: 40 size 24:0:0 delivered\n  has dead binder\nproc 200\n\
             context binder\n  thread 201: l 00 need_return 0 tr 0\n    \
             outgoing {call} elapsed 4ms\n  ref 4: desc 2 node 2 s 0 w 0 d {zero}\nproc 300\n\
             context vndbinder\n"
        );
        assert_eq!(Snapshot::of(&processes, &mut numbers).state(), state);
        // Transactions alone: no thread without one, no node, no process without anything.
        let transactions = format!(
            "binder transactions:\nproc 100\ncontext binder\n  \
             thread 101: l 02 need_return 0 tr 0\n    \
             incoming {call} elapsed 4ms node 2 size 12:8 data {zero}\n  \
             buffer 3: 40 size 24:0:0 delivered\n  has dead binder\nproc 200\ncontext binder\n  \
             thread 201: l 00 need_return 0 tr 0\n    outgoing {call} elapsed 4ms\n"
        );
        assert_eq!(Snapshot::of(&processes, &mut numbers).transactions(), transactions);
    }

    #[test]
    fn a_number_lasts_as_long_as_its_object() {
        let (processes, mut numbers) = (processes(), Numbers::default());
        let mut show = |processes: &[Process]| Snapshot::of(processes, &mut numbers).state();
        let first = show(&processes);
        assert_eq!(show(&processes), first);
        // Without the client, the handle has gone, and a later one is another one.
        show(&processes[..1]);
        let third = show(&processes);
        assert!(first.contains("ref 4: desc 2 node 2 ") && third.contains("ref 5: desc 2 node 2 "));
    }

    #[test]
    fn a_failed_transaction_names_its_return() {
        let sent = Sent {
            number: 8,
            kind: Kind::Call,
            from: (200, 201),
            caller: 0,
            node: Some((1, 5)),
            context: "binder".to_owned(),
            handle: 2,
            sizes: (12, 8),
            failure: (29201, -22),
        };
        let reply = Sent { number: 9, kind: Kind::Reply, caller: 70, node: None, ..sent.clone() };
        let (processes, mut numbers) = (processes(), Numbers::default());
        assert_eq!(
            Snapshot::of(&processes, &mut numbers).transaction_log(&[sent, reply]),
            "8: call  from 200:201 to 100:0 context binder node 1 handle 2 size 12:8 \
             ret 29201/-22 l=0\n\
             9: reply from 200:201 to 70:0 context binder node 0 handle 2 size 12:8 \
             ret 29201/-22 l=0\n"
        );
    }
}
