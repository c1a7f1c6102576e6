//! The atomics that this crate uses: std's, or loom's under the model checker, or those of the
//! simulator, where each access is a point at which another thread may run.

#[cfg(simulated)]
pub use crate::simulation::atomics::{AtomicU32, AtomicU64, fence, spin_loop};
#[cfg(not(loom))]
pub use core::sync::atomic::Ordering;
#[cfg(not(any(loom, simulated)))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, fence},
};
#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Checks of a held lock before a thread asks the kernel, because most holders release it sooner.
/// One check is enough for the model checker and the simulator.
pub(crate) const SPINS: u32 = if cfg!(any(loom, simulated)) { 1 } else { 100 };

/// A SeqCst fence for a thread whose last access to shared memory was a SeqCst read-modify-write.
/// On x86 that instruction already was a fence, so this costs 2 ns instead of 16.
#[inline]
pub fn fence_after_update() {
    if cfg!(all(target_arch = "x86_64", not(loom))) {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
