//! How much memory is free, and how long tasks stall for it: of a control group, or the machine.
//!
//! | | control group v2 | v1 | machine |
//! |---|---|---|---|
//! | limit | memory.max, memory.high | memory.limit_in_bytes | |
//! | used | memory.current | memory.usage_in_bytes | |
//! | given back at once | inactive_file | total_inactive_file | |
//! | stalls | memory.pressure | those of the machine | /proc/pressure/memory |
//!
//! What is free of a group is what its limit leaves, and no more than the machine has
//! (MemAvailable). A group without a limit has what the machine has.

use super::killer::Stall;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Stalls for which the killer looks at once, in two seconds: some tasks for 140 ms, all of them
/// for 200 ms. Programs without rights may ask for a multiple of two seconds.
const SOME: &str = "some 140000 2000000";
const FULL: &str = "full 200000 2000000";
/// The fastest that programs are taken to fill memory, in bytes a second.
const FASTEST: u64 = 4 << 30;
/// The shortest time between two looks at free memory.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);
/// The longest one.
pub const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The files of a group's memory, by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    inactive: &'static str,
}

const V2: Files = Files {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    inactive: "inactive_file",
};
const V1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
};

/// A reader of free memory.
#[derive(Debug)]
pub struct Gauge {
    group: Option<(PathBuf, Files)>,
}

/// An error that names its file.
fn of(path: &Path) -> impl Fn(Error) -> Error + '_ {
    |error| Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(of(path))
}

/// The number behind a word at a line's beginning.
fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(word))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

impl Gauge {
    /// A reader of a group's memory, or of the machine's.
    ///
    /// # Errors
    /// `NotFound` if that is no group whose memory is counted.
    pub fn new(group: Option<&Path>) -> Result<Gauge, Error> {
        let group = match group {
            None => None,
            Some(path) => {
                let files = [V2, V1].into_iter().find(|files| path.join(files.used).exists());
                let none = || {
                    let what = "no control group with the memory controller";
                    Error::new(ErrorKind::NotFound, format!("{}: {what}", path.display()))
                };
                Some((path.to_owned(), files.ok_or_else(none)?))
            }
        };
        let gauge = Gauge { group };
        gauge.free_bytes()?;
        Ok(gauge)
    }

    /// The bytes that are free, or can be made so at once.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let path = Path::new("/proc/meminfo");
        let available = number(&read(path)?, "MemAvailable:")
            .ok_or_else(|| of(path)(Error::new(ErrorKind::InvalidData, "no MemAvailable")))?;
        let machine = available << 10;
        let Some((path, files)) = &self.group else { return Ok(machine) };
        // `max`, or the file is missing in the root group.
        let limit = |name: &&str| read(&path.join(name)).ok()?.trim().parse::<u64>().ok();
        let Some(limit) = files.limits.iter().filter_map(limit).min() else { return Ok(machine) };
        let used_path = path.join(files.used);
        let used: u64 = read(&used_path)?
            .trim()
            .parse()
            .map_err(|error| of(&used_path)(Error::new(ErrorKind::InvalidData, error)))?;
        let statistics = read(&path.join("memory.stat"))?;
        let inactive = number(&statistics, files.inactive).unwrap_or_default();
        Ok(limit.saturating_sub(used.saturating_sub(inactive)).min(machine))
    }
}

/// The time after which free memory is to be looked at again: before the fastest program can have
/// used up what is above `most_bytes`.
pub fn next_look(free_bytes: u64, most_bytes: u64) -> Duration {
    let margin = free_bytes.saturating_sub(most_bytes);
    Duration::from_secs_f64(margin as f64 / FASTEST as f64).clamp(SHORTEST_LOOK, LONGEST_LOOK)
}

/// The kernel's reports of stalls.
#[derive(Debug)]
pub struct Triggers {
    /// Of some tasks, and of all.
    files: [File; 2],
}

impl Triggers {
    /// Asks for the stalls of a group, or of the machine if the group does not count its own.
    ///
    /// # Errors
    /// `NotFound`: the kernel has no PSI. `PermissionDenied`, `InvalidInput`: it does not let us.
    pub fn new(group: Option<&Path>) -> Result<Triggers, Error> {
        let own = group.map(|path| path.join("memory.pressure")).filter(|path| path.exists());
        let path = own.unwrap_or_else(|| PathBuf::from("/proc/pressure/memory"));
        let open = |trigger: &str| {
            let mut file = File::options().read(true).write(true).open(&path)?;
            // The kernel wants the zero at the end in the same write.
            file.write_all(format!("{trigger}\0").as_bytes())?;
            Ok(file)
        };
        let files = [open(SOME).map_err(of(&path))?, open(FULL).map_err(of(&path))?];
        Ok(Triggers { files })
    }

    /// The descriptors, which have an exceptional condition (`POLLPRI`) after a stall.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.files.each_ref().map(AsFd::as_fd)
    }

    /// The stall that these conditions of the descriptors tell of. The kernel reports each once.
    pub fn stall(conditions: [PollFlags; 2]) -> Stall {
        match conditions.map(|condition| condition.contains(PollFlags::PRI)) {
            [_, true] => Stall::Full,
            [true, false] => Stall::Some,
            [false, false] => Stall::None,
        }
    }
}

/// The resident set of a process. `None` if it has ended.
pub fn rss_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A directory with these files.
    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn a_groups_free_memory_is_what_its_limit_leaves() {
        let check = |files: &[(&str, &str)], expected: Option<u64>| {
            let directory = group(files);
            let free = Gauge::new(Some(directory.path())).unwrap().free_bytes().unwrap();
            match expected {
                Some(mib) => assert_eq!(free, mib * MIB, "{files:?}"),
                None => assert!(free > 0, "the machine's"),
            }
        };
        let (used, stat) = ("20971520\n", "anon 1\ninactive_file 4194304\nactive_file 9\n");
        let base = [("memory.current", used), ("memory.stat", stat)];
        check(&[&base[..], &[("memory.max", "41943040\n")]].concat(), Some(24));
        let both = [("memory.max", "41943040"), ("memory.high", "31457280")];
        check(&[&base[..], &both].concat(), Some(14));
        check(&[&base[..], &[("memory.max", "1048576\n")]].concat(), Some(0));
        check(&[&base[..], &[("memory.max", "max\n")]].concat(), None);
        check(&base, None);
        let stat = "inactive_file 9\ntotal_inactive_file 1048576\n";
        let old = [("memory.usage_in_bytes", used), ("memory.stat", stat)];
        check(&[&old[..], &[("memory.limit_in_bytes", "31457280\n")]].concat(), Some(11));
        check(&[&old[..], &[("memory.limit_in_bytes", "9223372036854771712\n")]].concat(), None);
    }

    #[test]
    fn what_is_no_group_is_an_error_that_names_it() {
        let directory = group(&[]);
        let error = Gauge::new(Some(directory.path())).unwrap_err();
        assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
        let broken = group(&[("memory.current", "many"), ("memory.max", "1"), ("memory.stat", "")]);
        let error = Gauge::new(Some(broken.path())).unwrap_err();
        assert!(error.to_string().contains("memory.current"), "{error}");
        assert!(Gauge::new(None).unwrap().free_bytes().unwrap() > 0);
    }

    #[test]
    fn looks_are_the_closer_the_less_is_free() {
        let check = |free_mib: u64, expected_ms: u64| {
            let look = next_look(free_mib * MIB, 24 * MIB);
            assert_eq!(look.as_millis() as u64, expected_ms, "{free_mib} MiB free");
        };
        check(0, 10);
        check(24, 10);
        check(124, 24);
        check(2072, 500);
        check(1 << 20, 1000);
        assert_eq!(next_look(u64::MAX, 0), LONGEST_LOOK);
    }

    #[test]
    fn the_resident_set_is_that_of_a_process_that_is_there() {
        assert!(rss_bytes(std::process::id()).unwrap() > MIB);
        assert_eq!(rss_bytes(u32::MAX), None);
    }
}
