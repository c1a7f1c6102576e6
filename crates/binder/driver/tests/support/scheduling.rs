//! Policies and priorities of the calling thread.

/// Policy and priority of the calling thread.
pub fn sched_priority() -> [i32; 2] {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: asks about the calling thread, and fills a structure of ours.
    let policy = unsafe {
        libc::sched_getparam(0, &mut parameters);
        libc::sched_getscheduler(0)
    };
    [policy & !libc::SCHED_RESET_ON_FORK, parameters.sched_priority]
}

/// False where the machine does not let us.
pub fn become_real_time(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: changes how the calling thread is scheduled, by a structure of ours.
    unsafe { libc::sched_setscheduler(0, policy, &parameters) == 0 }
}

/// Whether this machine lets us have a real-time priority.
pub fn may_be_real_time() -> bool {
    std::thread::spawn(|| become_real_time(libc::SCHED_FIFO, 1)).join().unwrap()
}

/// As a handler answers.
pub fn bytes(priority: [i32; 2]) -> Vec<u8> {
    priority.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
