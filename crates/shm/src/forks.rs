//! Whether a child of fork asks, or the process that made a thing.
//!
//! A map that is not inherited is at an address where the child has nothing, or something else: it
//! must not be used or unmapped there. Nor may a lock be taken that another thread of the parent
//! may have held.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

/// Forks between this process and the one that executed its program, as far as the C library has
/// made them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as told from the one that it was forked from and from its own children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker(u32);

impl Maker {
    /// The calling process. From the first call on its children are other ones, unless they are
    /// made past the C library.
    pub fn here() -> Maker {
        static HANDLER: Once = Once::new();
        // SAFETY: the handler is a function of ours, which touches one word and nothing else.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(count)) });
        Maker(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the calling process, and not a child of its.
    #[inline]
    pub fn is_here(self) -> bool {
        // Relaxed: written where the process has one thread.
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{self, Access, Mapping};
    use core::ptr;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    use rustix::process::{Pid, WaitOptions, waitpid};

    const BYTES: usize = 8192;

    #[test]
    fn a_child_that_drops_its_parents_map_leaves_what_it_has_there() {
        let file = mapping::create("test", BYTES).unwrap();
        let map = Mapping::<BYTES>::new(&file, Access::ReadWrite).unwrap();
        map.word(0).store(5, Ordering::Relaxed);
        let (maker, at) = (Maker::here(), map.address());
        // SAFETY: the child maps, writes and reads where it has nothing, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let kept = unsafe {
                let (flags, rights) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
                let own =
                    mmap_anonymous(ptr::with_exposed_provenance_mut(at), BYTES, rights, flags);
                let own = own.map_or(ptr::null_mut(), |own| own.cast::<u32>());
                if own.addr() == at {
                    own.write(7);
                    drop(map);
                    own.read_volatile() == 7
                } else {
                    false
                }
            };
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(maker.is_here() || Maker::here() == maker || !kept)) }
        }
        let child = Pid::from_raw(child).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((status.exit_status(), map.word(0).load(Ordering::Relaxed)), (Some(0), 5));
        assert!(maker.is_here());
    }
}
