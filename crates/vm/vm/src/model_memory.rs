//! The words of a model's heap, for the model checker: see [`models`](crate::models).

use loom::sync::atomic::{AtomicU32, Ordering};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The address of the first word, and the words. All of loom's threads are one OS thread.
    static HEAP: RefCell<(u32, Arc<[AtomicU32]>)> = RefCell::new((0, Arc::new([])));
}

/// Begins an execution: the heap has words of zero.
pub(crate) fn begin(start: u32, n_bytes: u32) {
    HEAP.replace((start, (0..n_bytes / 4).map(|_| AtomicU32::new(0)).collect()));
}

/// Ends an execution, before loom does.
pub(crate) fn end() {
    HEAP.replace((0, Arc::new([])));
}

fn word<T>(address: u32, with: impl FnOnce(&AtomicU32) -> T) -> T {
    let (start, words) = HEAP.with_borrow(Clone::clone);
    with(&words[((address - start) / 4) as usize])
}

/// Loads a word, in the form of [`crate::memory::load32`].
///
/// # Safety
/// None is needed.
pub unsafe fn load32(address: u32, order: Ordering) -> u32 {
    word(address, |word| word.load(order))
}

/// Stores a word as the virtual machine stores references.
pub(crate) fn store(address: u32, value: u32) {
    word(address, |word| word.store(value, Ordering::Release));
}

/// Loads a word as the virtual machine loads references.
pub(crate) fn load(address: u32) -> u32 {
    word(address, |word| word.load(Ordering::Relaxed))
}

/// A table of zeros.
pub fn zeroed<T: Default>(n: usize) -> Box<[T]> {
    (0..n).map(|_| T::default()).collect()
}
