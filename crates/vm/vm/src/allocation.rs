//! Objects of a thread, and collections that make room for them.

use crate::class::Class;
use crate::collector;
use crate::heap::{Full, Reach};
use crate::object::{ELEMENTS, Kind, Ref, Shape};
use crate::vm::Thread;
use std::sync::atomic::Ordering::Relaxed;

/// Nothing fits, even after a collection.
#[derive(Debug)]
pub struct OutOfMemory;

/// Makes an instance. The caller keeps it, and has initialized the class.
///
/// # Panics
/// If the class is abstract, an array or a primitive type.
#[inline]
pub(crate) fn instance(t: &Thread, class: &'static Class) -> Result<Ref, OutOfMemory> {
    assert!(class.shape.instance_bytes > 0, "{} has no instances", class.descriptor);
    allocate(t, &class.shape, u64::from(class.shape.instance_bytes), None)
}

/// Makes an array of a class of arrays. The caller keeps it.
///
/// # Panics
/// If the class is no array's.
#[inline]
pub(crate) fn array(t: &Thread, class: &'static Class, n: u32) -> Result<Ref, OutOfMemory> {
    let component = class.component.expect("a class of arrays");
    let n_bytes = u64::from(ELEMENTS) + u64::from(component.kind.element_bytes()) * u64::from(n);
    debug_assert!(component.kind != Kind::Void);
    allocate(t, &class.shape, n_bytes, Some(n))
}

/// Makes a mirror of `n_bytes`, of which the linker makes a class's.
pub(crate) fn mirror(
    t: &Thread,
    of_class: &'static Class,
    n_bytes: u32,
) -> Result<Ref, OutOfMemory> {
    allocate(t, &of_class.shape, u64::from(n_bytes), None)
}

#[inline]
fn allocate(
    t: &Thread,
    shape: &'static Shape,
    n_bytes: u64,
    length: Option<u32>,
) -> Result<Ref, OutOfMemory> {
    let heap = &t.vm.heap;
    let attempt = |reach| {
        let mut allocator = t.allocator.borrow_mut();
        heap.allocate(&mut allocator, t.period(), reach, shape, n_bytes, length)
    };
    let whole = if t.state.is_real_time.load(Relaxed) { Reach::Reserve } else { Reach::Whole };
    attempt(Reach::Limit).or_else(|full| {
        let counts = t.vm.requests.as_ref();
        if let Some(requests) = counts {
            // There is room while the collector runs.
            requests.request();
            if let Ok(object) = attempt(whole) {
                return Ok(object);
            }
        }
        // Beside a collector that counts, other threads may take what it has freed.
        let n_collections = if counts.is_some() { 3 } else { 1 };
        for _ in 0..n_collections {
            collector::collect(t);
            let again = full == Full::Collect && counts.is_none();
            let again = if again { attempt(Reach::Limit) } else { Err(full) };
            if let Ok(object) = again.or_else(|_| attempt(whole)) {
                return Ok(object);
            }
        }
        Err(OutOfMemory)
    })
}
