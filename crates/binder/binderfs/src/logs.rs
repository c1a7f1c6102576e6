//! Reads of `binder_logs`.
//!
//! One thread makes all texts, one after the other, from the engines of this mount's clients and
//! from the broker's report of everybody else. A read at the beginning of a file makes its text
//! anew; later reads of the open file go on in the text, however slow the reader is. Nobody but
//! readers of logs waits for that thread.

use crate::kernel_form::{Numbers, Process, Snapshot};
use crate::log_files::LogFile;
use crate::opened_device::OpenedDevice;
use crate::shared::Shared;
use baton_abi::control::{ProcessReport, Report};
use baton_driver::device::description::{Description, NodeDescription, ThreadDescription};
use baton_driver::observer::Observer;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Files that one user may have open, each of which has a text.
const MOST_OPEN: usize = 32;
/// Time for other programs to describe their calls. One that is stopped does not.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes of a block, as `stat` counts them.
const BLOCK_BYTES: usize = 512;

/// An open file.
#[derive(Debug)]
struct OpenLog {
    user: u32,
    file: LogFile,
    text: Option<Arc<String>>,
}

type OpenLogs = Arc<Mutex<HashMap<u64, OpenLog>>>;

/// A read that needs a new text.
#[derive(Debug)]
pub struct Job {
    /// The server's number of the open file.
    pub handle: u64,
    /// The request's number at the kernel.
    pub unique: u64,
    /// Bytes that are asked for.
    pub bytes: usize,
    /// The open devices of the mount.
    pub clients: Vec<LogClient>,
}

/// An open device of the mount.
#[derive(Debug)]
pub struct LogClient {
    /// The device. A read that waits does not keep it open.
    pub opened: Weak<OpenedDevice>,
    /// The ids of its stand-ins and of the client's threads.
    pub threads: Vec<(u32, u32)>,
}

/// The open files, and the thread that makes their texts. It ends when this is dropped.
#[derive(Debug)]
pub struct Logs {
    opens: OpenLogs,
    jobs: Sender<Job>,
}

fn lock(opens: &OpenLogs) -> MutexGuard<'_, HashMap<u64, OpenLog>> {
    opens.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a text that a read gets.
fn part(text: &str, offset: u64, bytes: usize) -> Vec<u8> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    text.as_bytes()[from..].iter().copied().take(bytes).collect()
}

impl Logs {
    /// Starts the thread.
    pub fn start(shared: &Arc<Shared>, socket: &Path) -> Result<Logs, Errno> {
        let (jobs, received) = channel();
        let opens = OpenLogs::default();
        let writer = Writer {
            shared: Arc::clone(shared),
            opens: Arc::clone(&opens),
            socket: socket.to_owned(),
            numbers: Numbers::default(),
        };
        std::thread::Builder::new()
            .name("binderfs-logs".to_owned())
            .spawn(move || writer.run(&received))
            .map_err(|_| Errno::NOMEM)?;
        Ok(Logs { opens, jobs })
    }

    /// Opens a file. `EMFILE` if the user has too many of them open.
    pub fn open(&self, handle: u64, user: u32, file: LogFile) -> Result<(), Errno> {
        let mut opens = lock(&self.opens);
        if opens.values().filter(|open| open.user == user).count() >= MOST_OPEN {
            return Err(Errno::MFILE);
        }
        opens.insert(handle, OpenLog { user, file, text: None });
        Ok(())
    }

    /// Closes a file, if it is one of these.
    pub fn close(&self, handle: u64) {
        lock(&self.opens).remove(&handle);
    }

    /// Goes on in a file's text. `None` if the read needs a new text: it is to be given as a job.
    pub fn read(&self, handle: u64, offset: u64, bytes: usize) -> Option<Result<Vec<u8>, Errno>> {
        let opens = lock(&self.opens);
        let Some(open) = opens.get(&handle) else { return Some(Err(Errno::BADF)) };
        let text = open.text.as_ref().filter(|_| offset > 0)?;
        Some(Ok(part(text, offset, bytes)))
    }

    /// Has a text made, and the read answered.
    pub fn give(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

struct Writer {
    shared: Arc<Shared>,
    opens: OpenLogs,
    socket: PathBuf,
    numbers: Numbers,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(Job { handle, unique, bytes, clients }) = jobs.recv() {
            let file = lock(&self.opens).get(&handle).map(|open| open.file);
            let Some(file) = file else {
                self.shared.connection.refuse(unique, Errno::BADF);
                continue;
            };
            let text = Arc::new(self.text(file, clients));
            let first = part(&text, 0, bytes);
            if let Some(open) = lock(&self.opens).get_mut(&handle) {
                open.text = Some(text);
            }
            self.shared.connection.answer(unique, &[&first]);
        }
    }

    fn text(&mut self, file: LogFile, clients: Vec<LogClient>) -> String {
        let processes = self.processes(clients, file);
        let Some(traffic) = &self.shared.traffic else { return String::new() };
        let mut snapshot = Snapshot::of(&processes, &mut self.numbers);
        match file {
            LogFile::State => snapshot.state(),
            LogFile::Stats => snapshot.stats(traffic.counts.all()),
            LogFile::Transactions => snapshot.transactions(),
            LogFile::TransactionLog => snapshot.transaction_log(&traffic.sent()),
            LogFile::FailedTransactionLog => snapshot.transaction_log(&traffic.failed()),
            LogFile::Process(pid) => snapshot.of_process(pid),
        }
    }

    /// All processes: in the broker's order, and behind them those that it does not show.
    fn processes(&self, clients: Vec<LogClient>, file: LogFile) -> Vec<Process> {
        let mut mounted: HashMap<u64, Process> = clients
            .iter()
            .filter_map(mounted)
            .map(|process| (process.has.process, process))
            .collect();
        let observer = Observer::connect(&self.socket);
        let report = observer.map_err(|error| error.errno()).and_then(|observer| {
            if matches!(file, LogFile::TransactionLog | LogFile::FailedTransactionLog) {
                return observer.report();
            }
            observer.described_report(PATIENCE)
        });
        let report = report.unwrap_or_else(|errno| {
            tracing::warn!(%errno, "the broker tells logs nothing");
            Report::default()
        });
        let mut n_handles: HashMap<u64, usize> = HashMap::new();
        let all = || report.contexts.iter().flat_map(|context| &context.processes);
        for (_, holder, _) in all().flat_map(|process| &process.holdings) {
            *n_handles.entry(*holder).or_default() += 1;
        }
        let mut processes = Vec::new();
        for context in &report.contexts {
            for told in &context.processes {
                let holders = told.holdings.iter().map(|(node, holder, _)| (*node, *holder));
                let process = match mounted.remove(&told.process) {
                    Some(process) => process,
                    None => reported(told, n_handles.get(&told.process).copied().unwrap_or(0)),
                };
                let is_manager = context.manager == Some(told.process);
                let (context, holders) = (context.name.clone(), holders.collect());
                processes.push(Process { context, is_manager, holders, ..process });
            }
        }
        let mut others: Vec<Process> = mounted.into_values().collect();
        others.sort_unstable_by_key(|process| process.has.process);
        processes.extend(others);
        processes
    }
}

/// A client of the mount, by its engine; `None` if the device has been closed meanwhile.
fn mounted(client: &LogClient) -> Option<Process> {
    let LogClient { opened, threads } = client;
    let opened = opened.upgrade()?;
    let (mut has, mut calls) = opened.device.snapshot();
    // The engine knows stand-ins. One that has ended has left, or is about to.
    let tids: HashMap<u32, u32> = threads.iter().copied().collect();
    let translate = |tid: &mut u32| {
        tids.get(tid).is_some_and(|own| {
            *tid = *own;
            true
        })
    };
    has.threads.retain_mut(|thread| translate(&mut thread.tid));
    has.threads.sort_unstable_by_key(|thread| thread.tid);
    calls.retain_mut(|call| translate(&mut call.tid));
    let blocks = rustix::fs::fstat(opened.device.file()).map_or(0, |stat| stat.st_blocks);
    Some(Process {
        pid: opened.opener.pid,
        context: opened.context.clone(),
        is_manager: false,
        numbers: (has.threads.len(), has.references.len(), has.buffers.len()),
        calls,
        holders: Vec::new(),
        resident_bytes: usize::try_from(blocks).unwrap_or(0) * BLOCK_BYTES,
        counts: opened.counts.all().collect(),
        has,
    })
}

/// Any other program, by what the broker and its engine's page tell.
fn reported(told: &ProcessReport, n_handles: usize) -> Process {
    let calls = told.calls.clone().unwrap_or_default();
    let tids: BTreeSet<u32> = calls.iter().map(|call| call.tid).collect();
    let threads = tids.into_iter().map(|tid| ThreadDescription { tid, ..Default::default() });
    let mut nodes: Vec<NodeDescription> = Vec::new();
    for &(node, _, is_strong) in &told.holdings {
        if nodes.last().is_none_or(|last| last.node != node) {
            nodes.push(NodeDescription { node, told: (false, true), ..Default::default() });
        }
        let last = nodes.last_mut().expect("just added");
        last.told.0 |= is_strong;
        last.holders.strong += u32::from(is_strong);
        last.holders.weak += 1;
    }
    let engine = &told.engine;
    let has = Description {
        process: told.process,
        threads: threads.collect(),
        nodes,
        started_loopers: engine.loopers,
        mapped_bytes: engine.buffer_bytes as usize,
        used_bytes: engine.buffer_used_bytes as usize,
        ..Description::default()
    };
    let received = Some(("BR_TRANSACTION", engine.transactions)).filter(|(_, n)| *n > 0);
    Process {
        pid: told.pid,
        context: String::new(),
        is_manager: false,
        numbers: (engine.threads as usize, n_handles, engine.buffers as usize),
        calls,
        holders: Vec::new(),
        resident_bytes: engine.buffer_used_bytes as usize,
        counts: received.into_iter().collect(),
        has,
    }
}
