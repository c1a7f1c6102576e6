//! What the calling thread is to its locks: a number, how many it holds, and whether it is in a
//! hurry.

#[cfg(loom)]
pub use crate::models::{held, id, is_real_time};
#[cfg(not(loom))]
pub use here::{held, id, is_real_time};

#[cfg(not(loom))]
mod here {
    use std::cell::Cell;
    use std::sync::Once;

    thread_local! {
        static ID: Cell<u32> = const { Cell::new(0) };
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    /// The calling thread's id in its pid namespace, without a system call but for the first. A
    /// child of fork has its own; one that was made past the C library's fork may use nothing of
    /// this crate.
    #[inline]
    pub fn id() -> u32 {
        match ID.get() {
            0 => ask(),
            id => id,
        }
    }

    #[cold]
    fn ask() -> u32 {
        static HANDLER: Once = Once::new();
        // SAFETY: the handler is a function of ours, which touches a thread-local word and nothing
        // else.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) });
        let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        ID.set(id);
        id
    }

    /// What the child's only thread knew in the parent is another thread's.
    extern "C" fn forget() {
        ID.set(0);
    }

    /// How many locks the calling thread holds.
    #[inline]
    pub fn held() -> &'static std::thread::LocalKey<Cell<u32>> {
        &HELD
    }

    /// Whether the system schedules the calling thread by its priority.
    pub fn is_real_time() -> bool {
        // SAFETY: asks about the calling thread, and touches no memory.
        let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};

    #[test]
    fn a_child_of_fork_has_an_id_of_its_own() {
        assert_eq!(id(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        // SAFETY: the child asks for its id and ends; it takes no lock that another thread may have
        // held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = id() == std::process::id();
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        let child = Pid::from_raw(child).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }
}
