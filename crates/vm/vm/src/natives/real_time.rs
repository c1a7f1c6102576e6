//! baton.rt.RealTime: a Java thread's place among the system's real-time threads

use super::values::{VOID, throw};
use crate::vm::Native;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

const REAL_TIME: &str = "Lbaton/rt/RealTime;";

pub(super) const TABLE: &[Native] = &[
    // SCHED_FIFO with a priority, or SCHED_OTHER for 0.
    (REAL_TIME, "setPriority", "(I)V", |t, a| {
        let priority = a.int(0);
        let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
        let parameter = libc::sched_param { sched_priority: priority };
        // SAFETY: the parameter lives; 0 is the calling thread.
        if unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } != 0 {
            let error = std::io::Error::last_os_error();
            let class = match error.raw_os_error() {
                Some(number) if number == Errno::PERM.raw_os_error() => {
                    "java/lang/SecurityException"
                }
                _ => "java/lang/IllegalArgumentException",
            };
            let message = format!("a real-time priority of {priority}: {error}");
            return Err(throw(t, class, &message));
        }
        t.state.is_real_time.store(priority != 0, Relaxed);
        VOID
    }),
];
