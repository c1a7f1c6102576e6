//! The clock that stamps the messages of all engines, and the broker's own processor time.
//!
//! The broker chooses one clock for all engines, because receivers compare the stamps of different
//! senders.

use baton_abi::control::Stamps;
use baton_shm::clock::counter_is_the_kernels;
pub use baton_shm::clock::now;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The clock that every engine of this broker stamps its messages with. The processors' counter, if
/// the kernel's own clock source is that counter and the kernel found all processors in step;
/// otherwise CLOCK_MONOTONIC.
pub fn stamps() -> Stamps {
    if counter_is_the_kernels() { Stamps::Counter } else { Stamps::Clock }
}

/// Processor time that the calling thread has used since it started.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
