//! Instances of java.lang.ref.Reference after a collection has traced the heap.
//!
//! Softly reachable objects stay. Weak references to others are cleared, then what has a finalizer
//! is kept once more for it, and last phantom references are cleared. Each cleared reference goes
//! to [`Pending`](crate::pending::Pending), from where `ReferenceQueueDaemon` takes it.

use crate::cards::keeps_referent;
use crate::class::Class;
use crate::heap::{Marker, Strength};
use crate::memory::store32;
use crate::object::{Ref, Sort};
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering::Relaxed;

fn strength(class: &'static Class) -> Strength {
    let mut class = Some(class);
    while let Some(of) = class {
        match of.descriptor {
            "Ljava/lang/ref/SoftReference;" => return Strength::Soft,
            "Ljava/lang/ref/FinalizerReference;" => return Strength::Finalizer,
            "Ljava/lang/ref/PhantomReference;" => return Strength::Phantom,
            _ => class = of.superclass,
        }
    }
    Strength::Weak
}

fn referent_offset(reference: Ref) -> u32 {
    let Sort::Reference(offset) = reference.shape().sort else { unreachable!("a reference") };
    offset
}

/// The referent.
pub(crate) fn referent(reference: Ref) -> Ref {
    // SAFETY: the referent's word holds a reference.
    unsafe { Ref::from_address(reference.field32(referent_offset(reference))) }
}

/// The referent, as `Reference.get` gives it: null once a collector has decided that it is gone.
pub fn get(reference: Ref) -> Ref {
    let referent = referent(reference);
    // A collector that counts may be about to clear the reference.
    let is_kept = referent.is_null() || keeps_referent(referent.address());
    if is_kept { referent } else { Ref::NULL }
}

/// Clears a reference, without a barrier: only the collector does it.
pub(crate) fn clear(reference: Ref) {
    // SAFETY: the referent's word; null is a reference.
    unsafe { store32(reference.address() + referent_offset(reference), 0, Relaxed) }
}

/// Lets a finalizer reference hold its referent until the finalizer has run: from here on
/// `FinalizerReference.get` gives the object to it.
pub(crate) fn hand_over(reference: Ref, object: Ref) {
    let zombie = Class::of(reference).library_field("zombie", "Ljava/lang/Object;");
    zombie.expect("a field of FinalizerReference").set_ref(reference, object);
    clear(reference);
}

/// Whether a queue waits for a reference.
pub(crate) fn has_queue(reference: Ref) -> bool {
    let queue = Class::of(reference).library_field("queue", "Ljava/lang/ref/ReferenceQueue;");
    !queue.expect("a field of Reference").get_ref(reference).is_null()
}

/// Strengths by the class of a reference.
#[derive(Debug, Default)]
pub(crate) struct Strengths(FxHashMap<u32, Strength>);

impl Strengths {
    pub fn of(&mut self, reference: Ref) -> Strength {
        let class = || strength(Class::of(reference));
        *self.0.entry(reference.class_word()).or_insert_with(class)
    }
}

/// References by their strength, in the order in which they were found.
#[derive(Default)]
struct Found {
    strengths: Strengths,
    weak: Vec<Ref>,
    finalizers: Vec<Ref>,
    phantoms: Vec<Ref>,
}

impl Found {
    /// Takes what the marker found, and marks what is softly reachable.
    fn take(&mut self, marker: &mut Marker<'_>) {
        loop {
            let references = marker.take_references();
            if references.is_empty() {
                return;
            }
            for reference in references {
                match self.strengths.of(reference) {
                    Strength::Soft => marker.mark(referent(reference)),
                    Strength::Weak => self.weak.push(reference),
                    Strength::Finalizer => self.finalizers.push(reference),
                    Strength::Phantom => self.phantoms.push(reference),
                }
            }
            marker.trace();
        }
    }
}

/// Clears references to what nothing else reaches; returns those that belong into queues.
pub(crate) fn process(marker: &mut Marker<'_>) -> Vec<Ref> {
    let mut found = Found::default();
    let mut pending = Vec::new();
    found.take(marker);
    clear_dead(marker, &mut found.weak, &mut pending);
    for reference in std::mem::take(&mut found.finalizers) {
        let object = referent(reference);
        if marker.is_marked(object) {
            continue;
        }
        hand_over(reference, object);
        pending.push(reference);
        marker.mark(object);
    }
    marker.trace();
    found.take(marker);
    // What only a finalizer reaches is no longer weakly reachable.
    clear_dead(marker, &mut found.weak, &mut pending);
    clear_dead(marker, &mut found.phantoms, &mut pending);
    pending
}

fn clear_dead(marker: &Marker<'_>, references: &mut Vec<Ref>, pending: &mut Vec<Ref>) {
    for reference in references.drain(..) {
        if marker.is_marked(referent(reference)) {
            continue;
        }
        clear(reference);
        if has_queue(reference) {
            pending.push(reference);
        }
    }
}
