//! A reference to an object of another process.

use super::Process;
use baton_abi::control::Strength;

/// A strong reference to an object of another process. Dropped, it is released.
///
/// As in the kernel, number 0 stands for whoever is the context manager when it is called.
pub struct Handle {
    pub(super) process: Process,
    pub(super) number: u32,
}

impl Handle {
    /// The process that has this reference.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        let engine = &self.process.inner.engine;
        if !engine.is_inherited() {
            engine.lock().increase(self.number, Strength::Strong);
        }
        Handle { process: self.process.clone(), number: self.number }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.number)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let engine = &self.process.inner.engine;
        if engine.is_inherited() {
            return;
        }
        let mut state = engine.lock();
        state.decrease(self.number, Strength::Strong);
        engine.unlock(state);
    }
}
