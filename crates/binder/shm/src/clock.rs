//! The processor's counter, and the kernel's clocks.
//!
//! Receivers compare stamps of different processes. So the counter is used only where the kernel
//! bases its own clock on it: the kernel has then found the counter steady and equal on all
//! processors.

#[cfg(simulated)]
use crate::simulation;
use rustix::time::ClockId;
use std::time::Instant;

/// The file that names the kernel's clock source.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// CLOCK_MONOTONIC in nanoseconds, without a system call where the kernel's vDSO supports the clock
/// source.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.now_ns();
    }
    clock_ns(ClockId::Monotonic) as u64
}

/// [`Instant::now`].
#[inline]
pub fn now() -> Instant {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.now();
    }
    Instant::now()
}

/// CLOCK_REALTIME in nanoseconds since 1970. The administrator may set this clock at any time.
pub fn wall_ns() -> i64 {
    clock_ns(ClockId::Realtime)
}

fn clock_ns(clock: ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// CLOCK_MONOTONIC in nanoseconds, by a system call. Shows the cost of a clock without vDSO
/// support.
pub fn now_ns_by_system_call() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time into a structure of ours. The call cannot fail.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether the kernel's clock source is the counter that [`counter`] reads.
pub fn counter_is_the_kernels() -> bool {
    let source = std::fs::read_to_string(SOURCE).unwrap_or_default();
    is_counter(std::env::consts::ARCH, source.trim())
}

fn is_counter(architecture: &str, source: &str) -> bool {
    matches!((architecture, source), ("x86_64", "tsc") | ("aarch64", "arch_sys_counter"))
}

/// The processor's counter. The processor may read it before earlier instructions are complete.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn counter() -> u64 {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.now_ns();
    }
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor's counter. The processor may read it before earlier instructions are complete.
#[inline]
#[cfg(target_arch = "aarch64")]
pub fn counter() -> u64 {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.now_ns();
    }
    let ticks;
    // SAFETY: reads a counter that Linux lets programs read.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// The kernel's clock, in place of a counter that Baton can read on this architecture.
#[inline]
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn counter() -> u64 {
    now_ns()
}

/// The processor's counter, read after all earlier loads of the thread.
#[inline]
pub fn counter_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier that every x86-64 processor has.
    unsafe {
        core::arch::x86_64::_mm_lfence()
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags))
    };
    counter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_the_kernel_does_not_trust_is_not_used() {
        for (architecture, source, expected) in [
            ("x86_64", "tsc", true),
            ("aarch64", "arch_sys_counter", true),
            ("x86_64", "hpet", false),
            ("x86_64", "kvm-clock", false),
            ("x86_64", "", false),
            ("riscv64", "riscv_clocksource", false),
        ] {
            assert_eq!(is_counter(architecture, source), expected, "{architecture} {source}");
        }
    }

    #[test]
    fn the_vdso_and_the_system_call_agree() {
        let (first, second, third) = (now_ns(), now_ns_by_system_call(), now_ns());
        assert!(first <= second && second <= third, "{first} {second} {third}");
    }
}
