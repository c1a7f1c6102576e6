//! Properties of the calling thread that locks need: its id, the number of locks that it holds, and
//! whether it is a real-time thread.

#[cfg(loom)]
pub use crate::models::{held, id, is_real_time};
#[cfg(simulated)]
pub(crate) use current::set_id;
#[cfg(not(loom))]
pub use current::{held, id, is_real_time};

/// Starts a thread with this name, on which no signal handler of the program runs.
#[cfg(not(loom))]
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: plain data; both masks are ours and initialised by the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start(name, body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

#[cfg(not(loom))]
fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    #[cfg(simulated)]
    if let Some(machine) = crate::simulation::machine() {
        return machine.spawn(machine.process(), name, body);
    }
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

#[cfg(not(loom))]
mod current {
    use std::cell::Cell;
    use std::sync::Once;

    thread_local! {
        static ID: Cell<u32> = const { Cell::new(0) };
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    /// The calling thread's id in its pid namespace. Only the first call is a system call. A child
    /// of fork gets an id of its own. A child that was made without the C library must not use this
    /// crate.
    #[inline]
    pub fn id() -> u32 {
        match ID.get() {
            0 => look_up(),
            id => id,
        }
    }

    #[cold]
    fn look_up() -> u32 {
        static HANDLER: Once = Once::new();
        // SAFETY: the handler is a function of ours that changes one thread-local word.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(clear_id)) });
        let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        ID.set(id);
        id
    }

    /// Gives the calling thread an id that its seed decides.
    #[cfg(simulated)]
    pub(crate) fn set_id(id: u32) {
        ID.set(id);
    }

    /// Clears the id in a child of fork, where the thread has another one.
    extern "C" fn clear_id() {
        ID.set(0);
    }

    /// Number of locks that the calling thread holds.
    #[inline]
    pub fn held() -> &'static std::thread::LocalKey<Cell<u32>> {
        &HELD
    }

    /// Whether the calling thread has a real-time scheduling policy.
    pub fn is_real_time() -> bool {
        let policy = crate::schedule::policy(0).unwrap_or(libc::SCHED_OTHER);
        matches!(
            policy & !libc::SCHED_RESET_ON_FORK,
            libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};

    #[test]
    fn a_child_of_fork_has_an_id_of_its_own() {
        assert_eq!(id(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        // SAFETY: the child looks up its id and ends; it takes no lock that another thread may have
        // held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = id() == std::process::id();
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        let child = Pid::from_raw(child).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }
}
