//! Clocks: one that tells how long something takes, and one that orders messages of different senders.

use baton_abi::control::Stamps;

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The stamp of a call. The processor may take it a little early, which nobody can tell: what
/// its caller does next comes after the answer.
#[inline]
pub fn stamp(stamps: Stamps) -> u64 {
    match stamps {
        Stamps::Counter => counter(),
        Stamps::Clock => now_ns(),
    }
}

/// The stamp of a message whose sender goes on, and may cause others: later than all that the thread has
/// seen before.
pub fn stamp_in_order(stamps: Stamps) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier, which every such processor has.
    unsafe {
        core::arch::x86_64::_mm_lfence()
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags))
    };
    stamp(stamps)
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: reads a counter that the kernel's own clock is made of, so it may be read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let ticks;
    // SAFETY: reads a counter that the kernel's own clock is made of, so it may be read.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    now_ns()
}
