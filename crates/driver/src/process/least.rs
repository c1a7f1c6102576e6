//! The least at which an object is served.

use baton_abi::uapi::*;

/// How urgently an object is served at least, whoever calls: at a nice value or at a real-time
/// priority. A caller that is more urgent is served at its own level.
///
/// The thread that serves takes the level over in its process's own right (RLIMIT_NICE and
/// RLIMIT_RTPRIO, or CAP_SYS_NICE), and has its own again afterwards. What it may not, it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least(u32);

/// A nice value that is worse than any.
const CALLERS: u32 = 0x7f;

impl Least {
    /// Its caller's level, be it as bad as may be.
    pub fn callers() -> Least {
        Least(CALLERS)
    }

    /// A nice value of -20 to 19, or the nearest to that: 0 unless it is said.
    pub fn nice(value: i8) -> Least {
        Least(u32::from(value.clamp(-20, 19).cast_unsigned()))
    }

    /// SCHED_FIFO at a priority of 1 to 99, or the nearest to that.
    pub fn fifo(priority: u8) -> Least {
        Least::real_time(libc::SCHED_FIFO, priority)
    }

    /// SCHED_RR at a priority of 1 to 99, or the nearest to that.
    pub fn round_robin(priority: u8) -> Least {
        Least::real_time(libc::SCHED_RR, priority)
    }

    fn real_time(policy: i32, priority: u8) -> Least {
        let policy = policy.cast_unsigned() << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        Least(policy | u32::from(priority.clamp(1, 99)))
    }

    pub(super) fn flags(self) -> u32 {
        self.0
    }
}

impl Default for Least {
    fn default() -> Least {
        Least::nice(0)
    }
}
