//! Functions that change threads' priorities, nice values and processors. A thread's next call uses
//! its new values.
//!
//! A change by another process or by an inline system call goes unnoticed.

use crate::real;
use libc::{c_int, c_long, c_uint, cpu_set_t, id_t, pid_t, pthread_t, sched_param, size_t};

/// Whether a system call changes a thread's scheduling.
pub fn changes_scheduling(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_sched_setscheduler
            | libc::SYS_sched_setparam
            | libc::SYS_sched_setattr
            | libc::SYS_sched_setaffinity
            | libc::SYS_setpriority
    )
}

macro_rules! changing {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the caller's arguments.
            let result = unsafe { real::$name($($argument),*) };
            baton_driver::device::priorities_change();
            result
        }
    )*};
}

changing! {
    sched_setscheduler(thread: pid_t, policy: c_int, parameters: *const sched_param);
    sched_setparam(thread: pid_t, parameters: *const sched_param);
    pthread_setschedparam(thread: pthread_t, policy: c_int, parameters: *const sched_param);
    pthread_setschedprio(thread: pthread_t, priority: c_int);
    sched_setaffinity(thread: pid_t, bytes: size_t, processors: *const cpu_set_t);
    pthread_setaffinity_np(thread: pthread_t, bytes: size_t, processors: *const cpu_set_t);
    setpriority(which: c_uint, who: id_t, nice: c_int);
    nice(change: c_int);
}
