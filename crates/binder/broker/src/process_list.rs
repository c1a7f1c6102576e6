//! The list of processes that a broker leaves to the next one, which so knows when all that live
//! have rejoined: a file beside the socket.
//!
//! ```text
//!   header:  FORM, pid namespace, era
//!   record:  process, pid, incarnation     (process 0: free)
//!   ...
//! ```
//!
//! A process has a record from before its welcome until the broker forgets it. One `pwrite` writes
//! a record or erases it, so a broker that is killed leaves whole records. A list that may lack a
//! process is no list: the next broker then waits as long as it may.

use crate::peer;
use crate::private_file;
use baton_abi::control::ProcessId;
use bytemuck::{Pod, Zeroable};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identifies the file and the version of its format.
const FORM: u64 = u64::from_le_bytes(*b"BATONPL1");
const RECORD_BYTES: u64 = size_of::<Record>() as u64;
/// Most bytes of a list that are read: those of more processes than a broker admits.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Record {
    process: u64,
    /// 0 if nobody can find the process by its pid.
    pid: u64,
    /// See [`peer::Credentials::incarnation`].
    incarnation: u64,
}

/// The file, and the predecessor's processes that have not been seen yet.
pub(crate) struct ProcessList {
    path: PathBuf,
    /// `None` once the list could not be kept.
    file: Option<File>,
    /// The places of the records in the file, from 1.
    places: BTreeMap<ProcessId, u64>,
    free: Vec<u64>,
    /// `None` without a list of the predecessor's.
    awaited: Option<BTreeMap<ProcessId, Record>>,
}

impl ProcessList {
    /// Reads the list of the broker before this one, whose number at the socket is `era`, and goes
    /// on with it.
    pub fn take_over(path: PathBuf, era: u32) -> ProcessList {
        let (mut places, mut free) = (BTreeMap::new(), Vec::new());
        let header =
            |era| Record { process: FORM, pid: own_namespace(), incarnation: u64::from(era) };
        let left = era.checked_sub(1).and_then(|last| read(&path, header(last)));
        let is_inherited = left.is_some();
        let (file, records) = match left {
            Some((file, records)) => (Ok(file), records),
            None => (private_file::create(&path), Vec::new()),
        };
        let mut awaited = BTreeMap::new();
        for (place, record) in (1..).zip(records) {
            match record.process {
                0 => free.push(place),
                process => {
                    places.insert(ProcessId(process), place);
                    awaited.insert(ProcessId(process), record);
                }
            }
        }
        let awaited = is_inherited.then_some(awaited);
        let mut list = ProcessList { path, file: None, places, free, awaited };
        match file {
            Ok(file) => list.file = Some(file),
            Err(errno) => list.give_up(errno),
        }
        list.write(0, header(era));
        list
    }

    /// Adds a process that is about to be admitted, if it is not there.
    pub fn add(&mut self, process: ProcessId, pid: u32, incarnation: Option<u64>) {
        if self.places.contains_key(&process) {
            return;
        }
        let place = self.free.pop().unwrap_or(self.places.len() as u64 + 1);
        self.places.insert(process, place);
        let (pid, incarnation) = incarnation.map_or((0, 0), |it| (u64::from(pid), it));
        self.write(place, Record { process: process.0, pid, incarnation });
    }

    /// Removes a process that is gone.
    pub fn remove(&mut self, process: ProcessId) {
        if let Some(place) = self.places.remove(&process) {
            self.write(place, Record::default());
            self.free.push(place);
        }
    }

    /// Whether every process of the predecessor's has ended or `is_settled`. False without a list
    /// of the predecessor's.
    pub fn all_settled(&mut self, is_settled: impl Fn(ProcessId) -> bool) -> bool {
        let Some(awaited) = &mut self.awaited else { return false };
        while let Some((&process, &Record { pid, incarnation, .. })) = awaited.first_key_value() {
            if !is_settled(process) && peer::may_live(pid as u32, incarnation) {
                return false;
            }
            awaited.pop_first();
        }
        true
    }

    /// Whether a process of the predecessor's, which has not rejoined, has ended for certain.
    pub fn has_ended(&self, process: ProcessId) -> bool {
        let Some(awaited) = &self.awaited else { return false };
        let may_live = |it: &Record| peer::may_live(it.pid as u32, it.incarnation);
        !awaited.get(&process).is_some_and(may_live)
    }

    /// Removes the processes of the predecessor's that have not come back.
    pub fn end_rejoin(&mut self, is_here: impl Fn(ProcessId) -> bool) {
        self.awaited = None;
        let absent: Vec<_> = self.places.keys().copied().filter(|it| !is_here(*it)).collect();
        absent.into_iter().for_each(|process| self.remove(process));
    }

    /// Removes the file because no engine is left that could rejoin.
    pub fn discard(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn write(&mut self, place: u64, record: Record) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.write_all_at(bytemuck::bytes_of(&record), place * RECORD_BYTES) {
            self.give_up(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }

    /// This failure does not disturb this broker; the next one has to wait.
    fn give_up(&mut self, errno: Errno) {
        tracing::warn!(path = %self.path.display(), %errno, "cannot list the processes for a next \
            broker");
        self.file = None;
        self.discard();
    }
}

/// Number of the pid namespace in which the pids of a list name processes. 0 if it is not known.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The file and its records. `None` unless it is complete and begins with this header.
fn read(path: &Path, header: Record) -> Option<(File, Vec<Record>)> {
    let file = private_file::open(path, OFlags::RDWR)?;
    let mut bytes = Vec::new();
    (&file).take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let n_bytes = bytes.len() as u64;
    let is_whole = n_bytes.is_multiple_of(RECORD_BYTES) && n_bytes < MAX_BYTES;
    let mut records: Vec<Record> =
        bytes.chunks_exact(size_of::<Record>()).map(bytemuck::pod_read_unaligned).collect();
    let is_ours = is_whole && header.pid != 0 && records.first() == Some(&header);
    is_ours.then(|| {
        records.remove(0);
        (file, records)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn started(pid: u32) -> Option<u64> {
        peer::started(pid)
    }

    fn sleeper() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn nobody(_: ProcessId) -> bool {
        false
    }

    #[test]
    fn a_successor_waits_for_those_that_live() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let take_over = |era| ProcessList::take_over(path.clone(), era);
        let mut first = take_over(0);
        assert!(!first.all_settled(|_| true), "nobody has left a list");
        let (us, mut child) = (std::process::id(), sleeper());
        first.add(ProcessId(1), child.id(), started(child.id()));
        first.add(ProcessId(2), us, started(us).map(|it| it + 1));
        first.add(ProcessId(3), us, started(us));
        first.remove(ProcessId(3));
        assert!(!take_over(1).all_settled(nobody), "the child lives");
        assert!(take_over(2).all_settled(|process| process == ProcessId(1)), "it has rejoined");
        child.kill().unwrap();
        let mut next = take_over(3);
        assert!(next.has_ended(ProcessId(2)), "another process has its pid");
        while !next.has_ended(ProcessId(1)) {
            std::thread::yield_now();
        }
        assert!(next.all_settled(nobody));
        assert!(next.has_ended(ProcessId(1)), "it still has");
        child.wait().unwrap();
        assert!(take_over(4).all_settled(nobody), "it has ended");
        let mut last = take_over(5);
        last.end_rejoin(nobody);
        assert!(!last.has_ended(ProcessId(1)), "nobody is awaited");
        assert!(last.places.is_empty());
    }

    #[test]
    fn a_process_that_nobody_can_look_up_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        for (pid, incarnation) in [(0, Some(7)), (std::process::id(), None)] {
            ProcessList::take_over(path.clone(), 0).add(ProcessId(1), pid, incarnation);
            let mut next = ProcessList::take_over(path.clone(), 1);
            assert!(!next.all_settled(nobody) && !next.has_ended(ProcessId(1)), "{pid}");
        }
    }

    #[test]
    fn records_take_the_places_of_ended_processes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let mut list = ProcessList::take_over(path.clone(), 0);
        for process in 1..1000 {
            list.add(ProcessId(process), 1, Some(1));
            list.add(ProcessId(process), 1, Some(1));
            list.remove(ProcessId(process.saturating_sub(3)));
        }
        let n_bytes = std::fs::metadata(&path).unwrap().len();
        assert_eq!(n_bytes, 5 * RECORD_BYTES, "the header, and one for each at a time");
        let next = ProcessList::take_over(path, 1);
        let kept: Vec<u64> = next.places.keys().map(|process| process.0).collect();
        assert_eq!((kept, next.free.len()), (vec![997, 998, 999], 1));
    }

    #[test]
    fn a_list_that_may_lack_a_process_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let spoilt = |what: &str, at: u64| {
            ProcessList::take_over(path.clone(), 0).add(ProcessId(1), 1, Some(1));
            File::options().write(true).open(&path).unwrap().write_all_at(b"?", at).unwrap();
            assert!(ProcessList::take_over(path.clone(), 1).awaited.is_none(), "{what}");
        };
        spoilt("another form", 0);
        spoilt("another namespace", 8);
        spoilt("another era", 16);
        spoilt("a record that is cut", 2 * RECORD_BYTES);
        ProcessList::take_over(path.clone(), 0).add(ProcessId(1), 1, Some(1));
        assert!(ProcessList::take_over(path.clone(), 2).awaited.is_none(), "an era without a list");
        ProcessList::take_over(path.clone(), 0).discard();
        assert!(ProcessList::take_over(path, 1).awaited.is_none(), "no file");
    }
}
