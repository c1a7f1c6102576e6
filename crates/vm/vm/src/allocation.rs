//! Objects of a thread, and collections that make room for them.

use crate::class::Class;
use crate::heap::{Full, Reach};
use crate::object::{ELEMENTS, Kind, Ref, Shape};
use crate::reference;
use crate::vm::Thread;

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
    let attempt =
        |reach| heap.allocate(&mut t.allocator.borrow_mut(), reach, shape, n_bytes, length);
    attempt(Reach::Limit).or_else(|full| {
        collect(t);
        let again = if full == Full::Collect { attempt(Reach::Limit) } else { Err(full) };
        again.or_else(|_| attempt(Reach::Whole)).map_err(|_| OutOfMemory)
    })
}

/// Collects garbage: stops all threads, marks what they reach and frees the rest.
pub fn collect(t: &Thread) {
    let vm = t.vm;
    let before = vm.heap.collections();
    t.safe(|| {
        let stopped = vm.threads.stop(&t.state);
        if vm.heap.collections() != before {
            // Another thread was first.
            return;
        }
        // SAFETY: the world is stopped, and the roots are complete (see the crate).
        unsafe {
            vm.heap.collect(|marker| {
                for state in stopped.threads() {
                    state.each_root(|object| marker.mark(object));
                }
                for class in vm.classes.read().expect("no holder panics").values() {
                    marker.mark(class.mirror());
                    marker.mark(class.failure());
                }
                for string in vm.strings.lock().expect("no holder panics").values() {
                    marker.mark(*string);
                }
                vm.globals.each(|object| marker.mark(object));
                for object in vm.lambdas.lock().expect("no holder panics").values() {
                    marker.mark(*object);
                }
                for loader in vm.dexes.read().expect("no holder panics").keys() {
                    marker.mark(loader.0);
                }
                if let Some(known) = vm.known.get() {
                    marker.mark(known.out_of_memory);
                }
                vm.pending.each(|object| marker.mark(object));
                marker.trace();
                vm.pending.add(reference::process(marker));
                vm.monitors.sweep(|object| marker.is_marked(object));
            });
        }
    });
}
