//! Control groups: where the manager's processes live, and the share that background ones have.
//!
//! ```text
//!   PATH              memory limit and pressure, of all of them
//!   +-- full          helpers, and processes with the full share
//!   +-- background    processes in the background: weight 5 of 105
//! ```
//!
//! The two groups below are made where PATH is a group of version 2 that is the manager's to write
//! and gives it the `cpu` controller. Elsewhere all processes are in PATH itself, and have the same
//! share.
//!
//! Source: *RTAndroid* 2.2.2: background threads get at most 5 percent.

use super::class::Share;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Beside one group of the default weight, 100, that is 5 percent of the processors.
const BACKGROUND_WEIGHT: &str = "5";

/// The places of processes.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    has_shares: bool,
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::write(path, text).map_err(named)
}

fn share_name(share: Share) -> &'static str {
    match share {
        Share::Full => "full",
        Share::Background => "background",
    }
}

impl Group {
    /// Uses a group, and makes those of the shares in it. The second value says why there are none.
    ///
    /// # Errors
    /// `NotFound`: that is no control group.
    pub fn new(path: &Path) -> Result<(Group, Option<Error>), Error> {
        if !path.join("cgroup.procs").exists() {
            let what = format!("{}: no control group", path.display());
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let mut group = Group { path: path.to_owned(), has_shares: false };
        let made = group.make_shares();
        group.has_shares = made.is_ok();
        if !group.has_shares {
            group.remove();
        }
        Ok((group, made.err()))
    }

    fn make_shares(&self) -> Result<(), Error> {
        write(&self.path.join("cgroup.subtree_control"), "+cpu")?;
        for share in [Share::Full, Share::Background] {
            match fs::create_dir(self.path.join(share_name(share))) {
                // Of a manager that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        let background = self.path.join(share_name(Share::Background));
        write(&background.join("cpu.weight"), BACKGROUND_WEIGHT)
    }

    /// Moves a process, with all its threads.
    pub fn join(&self, pid: u32, share: Share) -> Result<(), Error> {
        let directory = match self.has_shares {
            true => self.path.join(share_name(share)),
            false => self.path.clone(),
        };
        write(&directory.join("cgroup.procs"), &pid.to_string())
    }

    /// Removes the groups of the shares, as far as nobody is in them.
    fn remove(&self) {
        for share in [Share::Full, Share::Background] {
            let _ = fs::remove_dir(self.path.join(share_name(share)));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.has_shares {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_group_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = Group::new(directory.path()).unwrap_err();
        assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn background_processes_have_a_group_with_a_small_weight() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        std::fs::write(directory.path().join("cgroup.procs"), "").unwrap();
        let (group, why) = Group::new(directory.path()).unwrap();
        assert!(why.is_none(), "{why:?}");
        assert_eq!(read("cgroup.subtree_control"), "+cpu");
        assert_eq!(read("background/cpu.weight"), "5", "beside 100, which is the default");
        assert!(!directory.path().join("full/cpu.weight").exists());
        for (pid, share, name) in [(7, Share::Background, "background"), (8, Share::Full, "full")] {
            group.join(pid, share).unwrap();
            assert_eq!(read(&format!("{name}/cgroup.procs")), pid.to_string());
        }
    }

    /// As of version 1: without cgroup.subtree_control that can be written to.
    #[test]
    fn without_the_cpu_controller_all_processes_are_in_the_group_itself() {
        let directory = tempfile::tempdir().unwrap();
        let procs = directory.path().join("cgroup.procs");
        std::fs::write(&procs, "").unwrap();
        std::fs::create_dir(directory.path().join("cgroup.subtree_control")).unwrap();
        let (group, why) = Group::new(directory.path()).unwrap();
        assert!(!group.has_shares && why.unwrap().to_string().contains("subtree_control"));
        group.join(7, Share::Background).unwrap();
        assert_eq!(std::fs::read_to_string(&procs).unwrap(), "7");
    }
}
