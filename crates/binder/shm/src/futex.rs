//! Waits and wakes on words of memory, with the kernel's futexes.

#[cfg(simulated)]
use crate::simulation;
#[cfg(not(loom))]
use crate::sync::AtomicU32;

/// The end of a wait. A wake, a changed word and a spurious return all give `Woken`, so callers
/// check the word again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The wait was woken, or returned for no reason: check the word.
    Woken,
    /// A signal handler ran, and the kernel did not restart the wait.
    Interrupted,
    /// The timeout has passed.
    TimedOut,
}

/// A timeout that never passes. The kernel ends a wait with a timeout at every signal handler. A
/// wait without one goes on after handlers with SA_RESTART. The timer costs a wait 0.3 us.
#[cfg(not(loom))]
const FAR_AHEAD: core::time::Duration = core::time::Duration::from_secs(1 << 30);

/// Whether waits have to end at signal handlers with SA_RESTART.
static HANDLERS_RESTART: core::sync::atomic::AtomicBool =
    core::sync::atomic::AtomicBool::new(false);

/// Makes later waits end at signal handlers with SA_RESTART.
pub fn handlers_restart() {
    HANDLERS_RESTART.store(true, core::sync::atomic::Ordering::Relaxed);
}

/// Sleeps while the word contains `expected`, at most for `timeout`. Signal handlers with
/// SA_RESTART end the wait only after [`handlers_restart`].
#[cfg(not(loom))]
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<core::time::Duration>) -> Wait {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::wait(&machine, &[(word, expected)], timeout).0;
    }
    let restart = HANDLERS_RESTART.load(core::sync::atomic::Ordering::Relaxed);
    let timeout =
        timeout.or(restart.then_some(FAR_AHEAD)).map(|time| rustix::thread::futex::Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
    let flags = rustix::thread::futex::Flags::empty();
    match rustix::thread::futex::wait(kernels(word), flags, expected, timeout.as_ref()) {
        Ok(()) => Wait::Woken,
        Err(errno) => end_of(errno),
    }
}

/// The word as the kernel is given it.
#[cfg(not(any(loom, simulated)))]
#[inline]
fn kernels(word: &AtomicU32) -> &AtomicU32 {
    word
}

#[cfg(simulated)]
fn kernels(word: &AtomicU32) -> &core::sync::atomic::AtomicU32 {
    word.inner()
}

#[cfg(not(loom))]
#[cold]
fn end_of(errno: rustix::io::Errno) -> Wait {
    use rustix::io::Errno;
    match errno {
        Errno::INTR => Wait::Interrupted,
        Errno::TIMEDOUT => Wait::TimedOut,
        // EAGAIN: the word had changed. No other error is possible for a mapped word.
        _ => Wait::Woken,
    }
}

/// Most words that [`wait_any`] takes.
pub const MAX_WORDS: usize = 17;

/// Whether the kernel has `futex_waitv` (Linux 5.16) and lets this process use it.
#[cfg(not(loom))]
pub fn can_wait_any() -> bool {
    static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| {
        let flags = rustix::thread::futex::WaitvFlags::empty();
        let clock = rustix::thread::ClockId::Monotonic;
        // The kernel answers a call without words with EINVAL. Any other error means that the call
        // is missing.
        rustix::thread::futex::waitv(&[], flags, None, clock) == Err(rustix::io::Errno::INVAL)
    })
}

/// Sleeps while every word contains its expected value. Takes one word, or up to [`MAX_WORDS`] if
/// [`can_wait_any`]. With several words, a handler with SA_RESTART does not end the wait.
#[cfg(not(loom))]
pub fn wait_any(words: &[(&AtomicU32, u32)]) -> Wait {
    wait_any_of(words).0
}

/// Like [`wait_any`], and also returns the index of the word that ended the wait, if one did.
#[cfg(not(loom))]
pub fn wait_any_of(words: &[(&AtomicU32, u32)]) -> (Wait, Option<usize>) {
    use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::wait(&machine, words, None);
    }
    if let &[(word, expected)] = words {
        let outcome = wait(word, expected, None);
        return (outcome, (outcome == Wait::Woken).then_some(0));
    }
    let mut waits = [futex::Wait::new(); MAX_WORDS];
    for (wait, &(word, expected)) in waits.iter_mut().zip(words) {
        wait.val = u64::from(expected);
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
    }
    let clock = rustix::thread::ClockId::Monotonic;
    match futex::waitv(&waits[..words.len()], WaitvFlags::empty(), None, clock) {
        Err(rustix::io::Errno::INTR) => (Wait::Interrupted, None),
        woken => (Wait::Woken, woken.ok()),
    }
}

/// Wakes up to `n` sleepers and returns how many it woke. A read-only mapping of the word suffices.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32, n: u32) -> usize {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::wake(&machine, word, n);
    }
    let flags = rustix::thread::futex::Flags::empty();
    rustix::thread::futex::wake(kernels(word), flags, n).unwrap_or(0)
}

/// Sleeps while a word that no other process uses contains `expected`. [`wake_own`] wakes the
/// thread, and [`wake_thread`] by its id.
#[cfg(not(loom))]
pub(crate) fn wait_own(word: &AtomicU32, expected: u32, thread: u32) {
    use rustix::thread::futex::{Flags, wait_bitset};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        simulation::wait(&machine, &[(word, expected)], None);
        return;
    }
    // Whatever has ended the wait, the caller checks the word.
    let _ = wait_bitset(kernels(word), Flags::PRIVATE, expected, None, marks_of(thread));
}

/// Wakes one of the threads that sleep by [`wait_own`].
#[cfg(not(loom))]
pub(crate) fn wake_own(word: &AtomicU32) {
    use rustix::thread::futex::{Flags, wake};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        simulation::wake(&machine, word, 1);
        return;
    }
    let _ = wake(kernels(word), Flags::PRIVATE, 1);
}

/// Wakes a thread if it sleeps by [`wait_own`]; others may wake up with it.
#[cfg(not(loom))]
pub(crate) fn wake_thread(word: &AtomicU32, thread: u32) {
    use rustix::thread::futex::{Flags, wake_bitset};
    const ALL: u32 = i32::MAX as u32;
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        simulation::wake(&machine, word, ALL);
        return;
    }
    let _ = wake_bitset(kernels(word), Flags::PRIVATE, ALL, marks_of(thread));
}

/// The bits by which the kernel knows a sleeping thread.
#[cfg(not(loom))]
fn marks_of(thread: u32) -> core::num::NonZeroU32 {
    core::num::NonZeroU32::new(1 << (thread % u32::BITS)).expect("a bit")
}

/// Takes the priority-inheriting lock of a word. The lock's holder inherits the calling thread's
/// priority meanwhile.
#[cfg(not(loom))]
pub(crate) fn lock(word: &AtomicU32, holder: u32) {
    use crate::sync::Ordering;
    use rustix::io::Errno;
    use rustix::thread::futex::{Flags, lock_pi};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::lock(&machine, word, holder);
    }
    loop {
        match lock_pi(kernels(word), Flags::PRIVATE, None) {
            Ok(()) => return,
            // The holder is just ending, or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The kernel has no such futexes, or no memory for one.
            Err(Errno::NOSYS | Errno::NOMEM) => {
                std::thread::sleep(RETRY_PAUSE);
                let taken = word.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return;
                }
            }
            Err(errno) => panic!("the lock will never be released: {errno}"),
        }
    }
}

/// Pause between attempts of a thread that waits without the kernel's help.
#[cfg(not(loom))]
const RETRY_PAUSE: core::time::Duration = core::time::Duration::from_micros(50);

/// Releases the priority-inheriting lock of a word. The kernel gives the lock to the waiter with
/// the highest priority.
#[cfg(not(loom))]
pub(crate) fn unlock(word: &AtomicU32) {
    use rustix::thread::futex::{Flags, unlock_pi};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::unlock(&machine, word);
    }
    let outcome = unlock_pi(kernels(word), Flags::PRIVATE);
    debug_assert!(outcome.is_ok(), "{outcome:?}");
}

#[cfg(loom)]
pub use crate::models::{can_wait_any, wait, wait_any, wait_any_of, wake};
#[cfg(loom)]
pub(crate) use crate::models::{wait_own, wake_own, wake_thread};

/// Bit that the kernel sets in a lock's word while threads wait in the kernel.
pub const WAITERS: u32 = 1 << 31;

/// The end of a wait for a word that a thread of another process owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// The owner gave the word back, and now the calling thread owns it.
    Over,
    /// The timeout has passed.
    Late,
    /// The word names no thread that can be waited for, or the kernel lacks the call.
    Refused,
}

/// Waits, at most for `timeout`, until the owner gives a word back. The word contains the owner's
/// thread id. The owner inherits the calling thread's priority meanwhile.
#[cfg(not(loom))]
pub fn lend(word: &AtomicU32, timeout: core::time::Duration) -> Lent {
    use rustix::io::Errno;
    use rustix::thread::futex::{Flags, Timespec, lock_pi2};
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::lend(&machine, word, timeout);
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let then = core::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + timeout;
    let then = Timespec { tv_sec: then.as_secs() as i64, tv_nsec: then.subsec_nanos().into() };
    match lock_pi2(kernels(word), Flags::empty(), Some(&then)) {
        Ok(()) => Lent::Over,
        Err(Errno::TIMEDOUT | Errno::AGAIN | Errno::INTR) => Lent::Late,
        Err(_) => Lent::Refused,
    }
}

/// Gives a word that the calling thread owns back to its waiter with the highest priority. Does
/// nothing to a word of another owner.
#[cfg(not(loom))]
pub fn give_back(word: &AtomicU32, owner: u32) {
    use crate::sync::Ordering;
    use rustix::thread::futex::{Flags, unlock_pi};
    let given = word.compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed);
    if given == Err(owner | WAITERS) {
        #[cfg(simulated)]
        if let Some(machine) = simulation::machine() {
            return simulation::unlock(&machine, word);
        }
        let _ = unlock_pi(kernels(word), Flags::empty());
    }
}

#[cfg(loom)]
pub(crate) use crate::models::{lock, unlock};
