//! Policies and priorities of the calling thread.

use baton_shm::schedule;

/// Policy and priority of the calling thread.
pub fn sched_priority() -> [i32; 2] {
    let policy = schedule::policy(0).unwrap() & !libc::SCHED_RESET_ON_FORK;
    [policy, schedule::priority(0).unwrap()]
}

/// False where the machine does not let us.
pub fn become_real_time(policy: i32, priority: i32) -> bool {
    schedule::set(0, policy, priority).is_ok()
}

/// Whether this machine lets us have a real-time priority.
pub fn may_be_real_time() -> bool {
    std::thread::spawn(|| become_real_time(libc::SCHED_FIFO, 1)).join().unwrap()
}

/// As a handler answers.
pub fn bytes(priority: [i32; 2]) -> Vec<u8> {
    priority.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
