//! Which kernels of a cluster can still be woken by something: if all of them rest, and no letter
//! is on its way, none can ever.
//!
//! **Invariant**: a kernel that is written down as resting sends nothing: it says here that it has
//! risen before it does anything else. So what is found while all rest stays as it is.

use crate::sync::Mutex;

/// Where a kernel goes that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// To sleep, until it is rung for.
    Sleep,
    /// Home: nobody will ring for anybody any more. `rings`: but this one has just found out.
    Over { rings: bool },
}

#[derive(Debug)]
struct Roll {
    /// Kernels that have not left, by bits.
    present: u64,
    resting: u64,
    is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Census(Mutex<Roll>);

impl Census {
    pub(crate) fn new(n_kernels: usize) -> Census {
        let present = u64::MAX >> (64 - n_kernels);
        Census(Mutex::new(Roll { present, resting: 0, is_over: false }))
    }

    fn with<R>(&self, act: impl FnOnce(&mut Roll) -> R) -> R {
        // No code that can panic runs under the lock.
        act(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// A kernel has nothing to do. `is_quiet`: whether none of those that are present has letters.
    pub(crate) fn rest(&self, kernel: u8, is_quiet: impl FnOnce(u64) -> bool) -> Rest {
        self.with(|roll| {
            roll.resting |= 1 << kernel;
            roll.find_end(is_quiet)
        })
    }

    /// It goes on, unless all is over.
    pub(crate) fn rise(&self, kernel: u8) -> Rest {
        self.with(|roll| {
            if roll.is_over {
                return Rest::Over { rings: false };
            }
            roll.resting &= !(1 << kernel);
            Rest::Sleep
        })
    }

    /// It begins, perhaps once more.
    pub(crate) fn begin(&self, kernel: u8) {
        self.with(|roll| {
            roll.is_over = false;
            roll.resting &= !(1 << kernel);
        });
    }

    /// It is not there any more. Says whether all others rest.
    pub(crate) fn leave(&self, kernel: u8, is_quiet: impl FnOnce(u64) -> bool) -> Rest {
        self.with(|roll| {
            roll.present &= !(1 << kernel);
            roll.resting &= !(1 << kernel);
            roll.find_end(is_quiet)
        })
    }
}

impl Roll {
    fn find_end(&mut self, is_quiet: impl FnOnce(u64) -> bool) -> Rest {
        if self.resting != self.present || !is_quiet(self.present) {
            return Rest::Sleep;
        }
        let rings = !std::mem::replace(&mut self.is_over, true);
        Rest::Over { rings }
    }
}
