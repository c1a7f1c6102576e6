//! Atomic words each of whose accesses is a step of the calling thread's machine.

use super::{relinquish, step};
use core::sync::atomic::{self, Ordering};

/// A wrapper of one of std's atomics. Only what Baton uses is here.
macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// Like std's, and each access is a point at which another thread may run.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name(atomic::$name);

        impl $name {
            /// The word as the kernel is given it; its accesses are no steps.
            #[allow(dead_code, reason = "double words are no futexes")]
            pub(crate) fn inner(&self) -> &atomic::$name {
                &self.0
            }

            /// As std's.
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            /// As std's.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// As std's.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As std's.
            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            /// As std's.
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            atomic!(@update $value: swap fetch_add fetch_sub);
            atomic!(@update $value: fetch_or fetch_and fetch_xor fetch_max);

            /// As std's.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As std's.
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// As std's.
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                step();
                self.0.fetch_update(success, failure, update)
            }
        }
    };
    (@update $value:ty: $($operation:ident)*) => {
        $(
            /// As std's.
            pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$operation(value, order)
            }
        )*
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// As std's.
pub fn fence(order: Ordering) {
    step();
    atomic::fence(order);
}

/// Lets another thread run: the one for which the caller spins, sooner or later.
pub fn spin_loop() {
    relinquish();
}
