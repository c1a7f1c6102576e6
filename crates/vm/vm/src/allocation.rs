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
    if t.vm.options.is_tortured && t.vm.requests.is_none() && t.vm.program.get().is_some() {
        collector::collect(t);
    }
    let attempt = |reach| {
        let mut allocator = t.allocator.borrow_mut();
        heap.allocate(&mut allocator, t.period(), reach, shape, n_bytes, length)
    };
    let whole = if t.state.is_real_time.load(Relaxed) { Reach::Reserve } else { Reach::Whole };
    let made = attempt(Reach::Limit).or_else(|full| {
        let Some(requests) = &t.vm.requests else {
            collector::collect(t);
            let again = if full == Full::Collect { attempt(Reach::Limit) } else { Err(full) };
            return again.or_else(|_| attempt(whole)).map_err(|_| OutOfMemory);
        };
        // There is room while the collector runs.
        requests.request();
        attempt(whole).or_else(|_| {
            collector::await_memory(t, requests, || attempt(whole).ok()).ok_or(OutOfMemory)
        })
    });
    if let (Some(account), Ok(object)) = (&t.account, &made) {
        account.add(&t.state.stack, *object, n_bytes);
    }
    made
}
