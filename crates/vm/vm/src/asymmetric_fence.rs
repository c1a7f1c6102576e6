//! A fence between threads of which one passes it all the time and pays nothing.
//!
//! Two threads store each a word and load the other's, and one of them has to see the other. Both
//! need a fence in between. Here the fence of the *light* side only binds the compiler. The
//! *heavy* side, a collector, has the kernel run a fence on each processor that runs a thread of
//! this process: membarrier(2). Then each light side has either passed its load's place before, and
//! its store is seen; or it loads later, and sees what the heavy side has stored.
//!
//! A kernel without membarrier leaves both sides with an ordinary fence.
//!
//! Two light sides get no order from this. So loom's model has a word for each light side, which
//! both sides exchange: the heavy side meets each light one, and no light one meets another.

#[cfg(loom)]
use crate::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use {
    rustix::thread::{MembarrierCommand, membarrier},
    std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence, fence},
};

/// Whether the kernel runs fences for this process. Every light side has asked it before.
#[cfg(not(loom))]
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// A light side.
#[derive(Debug)]
pub struct LightSide {
    #[cfg(loom)]
    met: AtomicU32,
}

#[cfg(not(loom))]
impl LightSide {
    pub(crate) fn new() -> LightSide {
        register();
        LightSide {}
    }

    /// Comes between a store and a load.
    #[inline(always)]
    pub(crate) fn fence(&self) {
        if IS_REGISTERED.load(Relaxed) {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }
}

/// Asks the kernel for fences of this process, once for all. A process of one thread does so in no
/// time; in one with more, the kernel waits for all processors, some 15 ms. A child of fork asks
/// itself: its parent's registration need not be its own.
#[cfg(not(loom))]
pub fn register() {
    if membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        IS_REGISTERED.store(true, Relaxed);
    }
}

/// Comes between a store and a load of the heavy side, for the fences of these light sides.
#[cfg(not(loom))]
pub fn heavy_fence<'a>(_: impl Iterator<Item = &'a LightSide>) {
    register();
    if IS_REGISTERED.load(Relaxed) {
        membarrier(MembarrierCommand::PrivateExpedited).expect("the process is registered");
    } else {
        fence(SeqCst);
    }
}

#[cfg(loom)]
impl LightSide {
    pub(crate) fn new() -> LightSide {
        LightSide { met: AtomicU32::new(0) }
    }

    pub(crate) fn fence(&self) {
        self.met.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(loom)]
pub fn heavy_fence<'a>(light: impl Iterator<Item = &'a LightSide>) {
    light.for_each(LightSide::fence);
}
