//! Waiting on a word of shared memory.

#[cfg(not(loom))]
use crate::sync::AtomicU32;

/// Why a wait ended. A wake, a changed word and a spurious return are all `Woken`: look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look at the word.
    Woken,
    /// A signal handler ran that does not restart system calls.
    Interrupted,
    /// The time given is over.
    TimedOut,
}

/// So far ahead that it does not come. The kernel ends a wait with a timeout at every signal
/// handler, one without it not at those with SA_RESTART; and a timer costs a wait 0.3 us.
const FAR_AHEAD: core::time::Duration = core::time::Duration::from_secs(1 << 30);

static HANDLERS_RESTART: core::sync::atomic::AtomicBool =
    core::sync::atomic::AtomicBool::new(false);

/// This process has a signal handler with SA_RESTART: waits that begin from now on end at it.
pub fn handlers_restart() {
    HANDLERS_RESTART.store(true, core::sync::atomic::Ordering::Relaxed);
}

/// Sleeps while the word holds `expected`, at most `timeout`. Ends at a signal handler with
/// SA_RESTART only if [`handlers_restart`] was called.
#[cfg(not(loom))]
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<core::time::Duration>) -> Wait {
    let restart = HANDLERS_RESTART.load(core::sync::atomic::Ordering::Relaxed);
    let timeout =
        timeout.or(restart.then_some(FAR_AHEAD)).map(|time| rustix::thread::futex::Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
    let flags = rustix::thread::futex::Flags::empty();
    match rustix::thread::futex::wait(word, flags, expected, timeout.as_ref()) {
        Ok(()) => Wait::Woken,
        Err(errno) => ended(errno),
    }
}

#[cfg(not(loom))]
#[cold]
fn ended(errno: rustix::io::Errno) -> Wait {
    use rustix::io::Errno;
    match errno {
        Errno::INTR => Wait::Interrupted,
        Errno::TIMEDOUT => Wait::TimedOut,
        // EAGAIN: the word had changed. Nothing else can come back for a mapped word.
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
        // No words are a caller's error; anything else is no such system call.
        rustix::thread::futex::waitv(&[], flags, None, clock) == Err(rustix::io::Errno::INVAL)
    })
}

/// Sleeps while every word holds what is expected of it: one word, or up to [`MAX_WORDS`] if
/// [`can_wait_any`]. With several, a handler with SA_RESTART does not end the wait.
#[cfg(not(loom))]
pub fn wait_any(words: &[(&AtomicU32, u32)]) -> Wait {
    wait_any_of(words).0
}

/// Like [`wait_any`], with the place of the word that ended the wait, if one did.
#[cfg(not(loom))]
pub fn wait_any_of(words: &[(&AtomicU32, u32)]) -> (Wait, Option<usize>) {
    use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
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

/// Wakes up to `n` sleepers and says how many it woke. Needs only a readable map of the word.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32, n: u32) -> usize {
    let flags = rustix::thread::futex::Flags::empty();
    rustix::thread::futex::wake(word, flags, n).unwrap_or(0)
}

/// Takes the lock whose word this is. Meanwhile its holder inherits the calling thread's priority.
#[cfg(not(loom))]
pub(crate) fn lock(word: &AtomicU32, holder: u32) {
    use crate::sync::Ordering;
    use rustix::io::Errno;
    use rustix::thread::futex::{Flags, lock_pi};
    loop {
        match lock_pi(word, Flags::PRIVATE, None) {
            Ok(()) => return,
            // Its holder is just ending; a signal.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A kernel without them, or without memory for one.
            Err(Errno::NOSYS | Errno::NOMEM) => {
                std::thread::sleep(WITHOUT_KERNEL);
                let taken = word.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return;
                }
            }
            Err(errno) => panic!("a lock that nobody will let go of: {errno}"),
        }
    }
}

/// Pause of one who waits for a lock by himself.
#[cfg(not(loom))]
const WITHOUT_KERNEL: core::time::Duration = core::time::Duration::from_micros(50);

/// Lets go of the lock whose word this is: it is the highest waiter's.
#[cfg(not(loom))]
pub(crate) fn unlock(word: &AtomicU32) {
    use rustix::thread::futex::{Flags, unlock_pi};
    let outcome = unlock_pi(word, Flags::PRIVATE);
    debug_assert!(outcome.is_ok(), "{outcome:?}");
}

#[cfg(loom)]
pub use crate::models::{can_wait_any, wait, wait_any, wait_any_of, wake};
/// Set by the kernel in a word that a thread owns while somebody waits for it.
pub const WAITERS: u32 = 1 << 31;

/// How a wait for a word that another process's thread owns has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// The word is the calling thread's.
    Over,
    /// The time given is over.
    Late,
    /// The word names nobody whom one could wait for, or the kernel cannot.
    Refused,
}

/// Waits until the owner of a word gives it back, at most `timeout`. Meanwhile that thread, whose
/// id the word holds, inherits the calling one's priority.
#[cfg(not(loom))]
pub fn lend(word: &AtomicU32, timeout: core::time::Duration) -> Lent {
    use rustix::io::Errno;
    use rustix::thread::futex::{Flags, Timespec, lock_pi2};
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let then = core::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + timeout;
    let then = Timespec { tv_sec: then.as_secs() as i64, tv_nsec: then.subsec_nanos().into() };
    match lock_pi2(word, Flags::empty(), Some(&then)) {
        Ok(()) => Lent::Over,
        Err(Errno::TIMEDOUT | Errno::AGAIN | Errno::INTR) => Lent::Late,
        Err(_) => Lent::Refused,
    }
}

/// Gives a word back that the calling thread owns, to whoever waits for it. Of another one's
/// nothing changes.
#[cfg(not(loom))]
pub fn give_back(word: &AtomicU32, owner: u32) {
    use crate::sync::Ordering;
    use rustix::thread::futex::{Flags, unlock_pi};
    let given = word.compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed);
    if given == Err(owner | WAITERS) {
        let _ = unlock_pi(word, Flags::empty());
    }
}

#[cfg(loom)]
pub(crate) use crate::models::{lock, unlock};
