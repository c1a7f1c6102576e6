//! Which clock the messages of all engines are stamped with: one for all, since their stamps are
//! compared. And the broker's own time.

use baton_abi::control::Stamps;
use baton_shm::clock::counter_is_the_kernels;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The processors' counter where the kernel has found it to be the same on all of them.
pub fn stamps() -> Stamps {
    if counter_is_the_kernels() { Stamps::Counter } else { Stamps::Clock }
}

/// For how long the calling thread has had a processor.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
