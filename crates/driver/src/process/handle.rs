//! A reference to an object of another process.

use super::Inner;
use baton_abi::control::Strength;
use std::sync::Arc;

/// A strong reference to an object of another process. Dropped, it is released.
///
/// As in the kernel, number 0 stands for whoever is the context manager when it is called.
pub struct Handle {
    pub(super) inner: Arc<Inner>,
    pub(super) number: u32,
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.inner.engine.lock().increase(self.number, Strength::Strong);
        Handle { inner: Arc::clone(&self.inner), number: self.number }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.number)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.inner.engine.lock();
        state.decrease(self.number, Strength::Strong);
        self.inner.engine.unlock(state);
    }
}
