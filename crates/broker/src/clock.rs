//! Which clock the messages of all engines are stamped with: one for all, since their stamps are compared.

use baton_abi::control::Stamps;
use baton_shm::clock::counter_is_the_kernels;

/// The processors' counter where the kernel has found it to be the same on all of them.
pub fn stamps() -> Stamps {
    if counter_is_the_kernels() { Stamps::Counter } else { Stamps::Clock }
}
