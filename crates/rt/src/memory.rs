//! Locked memory, and stack pages that are loaded in advance.

use crate::error::Error;
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

/// Flags of `mlockall`, in this process and in other programs.
pub(crate) const FLAGS: MlockAllFlags = MlockAllFlags::CURRENT.union(MlockAllFlags::FUTURE);

/// Number of [`Locked`] values, which the kernel does not count.
static N_LOCKED: Mutex<usize> = Mutex::new(0);

/// Keeps all current and later pages of this process in memory, until the last value of this type
/// is dropped.
#[derive(Debug)]
pub struct Locked(());

impl Locked {
    /// Loads and locks all pages. `Error::Denied` without the right to lock that much.
    pub fn new() -> Result<Locked, Error> {
        let mut n_locked = N_LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        mlockall(FLAGS).map_err(refused)?;
        *n_locked += 1;
        Ok(Locked(()))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut n_locked = N_LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        *n_locked -= 1;
        if *n_locked == 0 {
            let _ = munlockall();
        }
    }
}

/// The error for memory that cannot be locked.
pub(crate) fn refused(errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::NOMEM | Errno::AGAIN => Error::Denied {
            what: "locking the memory".to_owned(),
            needs: "CAP_IPC_LOCK or an RLIMIT_MEMLOCK above the program's size".to_owned(),
            advice: "run it as root, after `ulimit -l unlimited`, or with LimitMEMLOCK=infinity in \
                its systemd unit",
        },
        _ => Error::system("mlockall", errno),
    }
}

const PAGE_BYTES: usize = 4096;

/// Touches `bytes` bytes of the calling thread's stack, which must have room for them.
pub fn prefault_stack(bytes: usize) {
    touch_pages(bytes.div_ceil(PAGE_BYTES));
}

#[inline(never)]
fn touch_pages(n_pages: usize) {
    let mut page = [0_u8; PAGE_BYTES];
    black_box(&mut page);
    if n_pages > 1 {
        touch_pages(n_pages - 1);
    }
    // Used after the call, so that the compiler makes no tail call, which would use one page
    // repeatedly.
    black_box(&page);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(of: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// One test, because memory is counted for the whole process.
    #[test]
    fn memory_is_locked_until_the_last_lock_is_dropped() {
        prefaulting_loads_stack_pages();
        let Ok(first) = Locked::new() else { return };
        let second = Locked::new().unwrap();
        drop(first);
        assert!(kib("VmLck:") > 0);
        drop(second);
        assert_eq!(kib("VmLck:"), 0);
    }

    fn prefaulting_loads_stack_pages() {
        let touch = || {
            let before = kib("VmRSS:");
            prefault_stack(4 << 20);
            kib("VmRSS:") - before
        };
        let grown_kib = std::thread::Builder::new().stack_size(8 << 20).spawn(touch).unwrap();
        assert!(grown_kib.join().unwrap() >= 3 << 10);
    }
}
