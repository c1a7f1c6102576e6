//! The files of `binder_logs`, without I/O.
//!
//! ```text
//!   binder_logs/  state  stats  transactions  transaction_log  failed_transaction_log
//!                 proc/<pid>...
//! ```

use crate::entry::Entry;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// The directory's name.
pub const NAME: &str = "binder_logs";

const FIRST: u64 = 16;
const FILES: [(&str, LogFile); 5] = [
    ("state", LogFile::State),
    ("stats", LogFile::Stats),
    ("transactions", LogFile::Transactions),
    ("transaction_log", LogFile::TransactionLog),
    ("failed_transaction_log", LogFile::FailedTransactionLog),
];
const PROCESSES_NAME: &str = "proc";
const PROCESSES: u64 = FIRST + 1 + FILES.len() as u64;
/// Above are the nodes of processes' files. A pid has 22 bits.
const FIRST_PROCESS: u64 = 1 << 31;

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// All that each process has.
    State,
    /// Counts.
    Stats,
    /// Transactions under way.
    Transactions,
    /// The last transactions.
    TransactionLog,
    /// The last ones that failed.
    FailedTransactionLog,
    /// All that a process has, by its pid.
    Process(u32),
}

/// A file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogNode {
    /// `binder_logs`.
    Directory,
    /// `binder_logs/proc`.
    Processes,
    /// A file.
    File(LogFile),
}

impl LogNode {
    /// The node of a number, if it is one of these.
    pub fn of(number: u64) -> Option<LogNode> {
        match number {
            FIRST => Some(LogNode::Directory),
            PROCESSES => Some(LogNode::Processes),
            _ if number > FIRST && number < PROCESSES => {
                Some(LogNode::File(FILES[(number - FIRST - 1) as usize].1))
            }
            _ => {
                let pid = number.checked_sub(FIRST_PROCESS).filter(|pid| *pid < FIRST_PROCESS)?;
                Some(LogNode::File(LogFile::Process(pid as u32)))
            }
        }
    }

    /// The number of the node.
    pub fn number(self) -> u64 {
        match self {
            LogNode::Directory => FIRST,
            LogNode::Processes => PROCESSES,
            LogNode::File(LogFile::Process(pid)) => FIRST_PROCESS + u64::from(pid),
            LogNode::File(file) => {
                let place = FILES.iter().position(|(_, other)| *other == file);
                FIRST + 1 + place.expect("each other file has a place") as u64
            }
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        !matches!(self, LogNode::File(_))
    }

    /// Finds a name in a directory. These processes have devices of this mount open.
    pub fn lookup(self, name: &str, processes: &BTreeSet<u32>) -> Result<LogNode, Errno> {
        match self {
            LogNode::Directory if name == PROCESSES_NAME => Ok(LogNode::Processes),
            LogNode::Directory => {
                let found = FILES.iter().find(|(known, _)| *known == name);
                found.map(|(_, file)| LogNode::File(*file)).ok_or(Errno::NOENT)
            }
            LogNode::Processes => {
                let pid = processes.iter().find(|pid| pid.to_string() == name);
                pid.map(|pid| LogNode::File(LogFile::Process(*pid))).ok_or(Errno::NOENT)
            }
            LogNode::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// The entries of a directory, without itself and its parent.
    pub fn entries(self, processes: &BTreeSet<u32>) -> Result<Vec<Entry>, Errno> {
        let entry = |name: String, of: LogNode| Entry {
            node: of.number(),
            name,
            is_directory: of.is_directory(),
        };
        match self {
            LogNode::Directory => {
                let files = FILES.map(|(name, file)| entry(name.to_owned(), LogNode::File(file)));
                let mut entries = files.to_vec();
                entries.push(entry(PROCESSES_NAME.to_owned(), LogNode::Processes));
                Ok(entries)
            }
            LogNode::Processes => {
                let file =
                    |pid: &u32| entry(pid.to_string(), LogNode::File(LogFile::Process(*pid)));
                Ok(processes.iter().map(file).collect())
            }
            LogNode::File(_) => Err(Errno::NOTDIR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_list_what_can_be_looked_up() {
        let processes = BTreeSet::from([7, 4_194_303]);
        let mut files = 0;
        for directory in [LogNode::Directory, LogNode::Processes] {
            for entry in directory.entries(&processes).unwrap() {
                let found = directory.lookup(&entry.name, &processes).unwrap();
                assert_eq!(LogNode::of(entry.node), Some(found), "{entry:?}");
                assert_eq!(
                    (found.number(), found.is_directory()),
                    (entry.node, entry.is_directory)
                );
                files += usize::from(!entry.is_directory);
            }
        }
        assert_eq!(files, FILES.len() + processes.len());
        for name in ["8", "07", "", "+7", "self"] {
            assert_eq!(LogNode::Processes.lookup(name, &processes), Err(Errno::NOENT), "{name:?}");
        }
        let file = LogNode::File(LogFile::State);
        assert_eq!(file.entries(&processes), Err(Errno::NOTDIR));
        assert_eq!([1, 2, 3, 6, 1 << 32].map(LogNode::of), [None; 5]);
    }
}
