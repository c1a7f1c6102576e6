//! Objects: their header, their shape and their words.
//!
//! ```text
//!  0  class   address of the class, whose first field is its Shape
//!  4  lock    0, a thin lock, a hash, or a fat monitor's number: the monitor module's word
//!  8  count   for the collector that counts references
//! 12  fields  of the superclass first; 32 bits each, long and double 64 bits at multiples of 8
//! 12  length  of an array; its elements follow at 16
//! ```
//!
//! **Invariant**: a [`Ref`] is null or the address of an object that is not free. An object is free
//! only after a collection that found no reference to it in the roots; a reference that Rust code
//! holds is in the roots (see the crate's documentation) or crosses no safepoint. Nothing moves.

use crate::cards::before_store;
use crate::memory::{
    atomic32, copy, load8, load16, load32, load64, placed, store8, store16, store32, store64,
};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};

/// The size of an object's header.
pub const HEADER_BYTES: u32 = 12;
/// The offset of an array's first element.
pub const ELEMENTS: u32 = 16;
const LOCK: u32 = 4;
const COUNT: u32 = 8;
const LENGTH: u32 = 12;
/// The offset of the field of java.lang.Class that holds the address of the class. Only the VM
/// knows this field.
const MIRRORED: u32 = 12;

/// A reference: null, or the address of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Ref(u32);

/// The type of an array's elements, or of a field or value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// `Z`
    Boolean,
    /// `B`
    Byte,
    /// `C`
    Char,
    /// `S`
    Short,
    /// `I`
    Int,
    /// `J`
    Long,
    /// `F`
    Float,
    /// `D`
    Double,
    /// `L...;` and `[...`
    Reference,
    /// `V`: the result of a method only
    Void,
}

impl Kind {
    /// The kind of a type descriptor, by its first character.
    pub fn of(descriptor: &str) -> Kind {
        match descriptor.as_bytes().first() {
            Some(b'Z') => Kind::Boolean,
            Some(b'B') => Kind::Byte,
            Some(b'C') => Kind::Char,
            Some(b'S') => Kind::Short,
            Some(b'I') => Kind::Int,
            Some(b'J') => Kind::Long,
            Some(b'F') => Kind::Float,
            Some(b'D') => Kind::Double,
            Some(b'V') => Kind::Void,
            _ => Kind::Reference,
        }
    }

    /// Whether a value takes two registers.
    pub fn is_wide(self) -> bool {
        matches!(self, Kind::Long | Kind::Double)
    }

    /// The size of an array's element.
    pub fn element_bytes(self) -> u32 {
        match self {
            Kind::Boolean | Kind::Byte => 1,
            Kind::Char | Kind::Short => 2,
            Kind::Int | Kind::Float | Kind::Reference => 4,
            Kind::Long | Kind::Double => 8,
            Kind::Void => 0,
        }
    }

    /// The size of a field.
    pub fn field_bytes(self) -> u32 {
        if self.is_wide() { 8 } else { 4 }
    }
}

/// Which words an object has, and which of them are references.
#[derive(Debug)]
#[repr(C)]
pub struct Shape {
    /// The sort of object.
    pub sort: Sort,
    /// The size of an instance that is no array, header included.
    pub instance_bytes: u32,
    /// Offsets of an instance's references. A `Reference`'s referent is not among them.
    pub references: Box<[u32]>,
    /// The size of the class's mirror: an instance of java.lang.Class with the static fields.
    pub mirror_bytes: u32,
    /// Offsets of the references among the static fields, in the mirror.
    pub static_references: Box<[u32]>,
}

/// What an object is to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// An instance of a plain class
    Plain,
    /// An array
    Array(Kind),
    /// An instance of java.lang.Class
    Mirror,
    /// A java.lang.ref.Reference, with the offset of its referent
    Reference(u32),
}

impl Ref {
    /// No object.
    pub const NULL: Ref = Ref(0);

    /// Whether this is null.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address, 0 for null.
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.0
    }

    /// A reference by its address.
    ///
    /// # Safety
    /// The address is 0, or that of an object that is not free.
    #[inline(always)]
    pub unsafe fn from_address(address: u32) -> Ref {
        Ref(address)
    }

    /// Makes an object of zeroed memory.
    ///
    /// # Safety
    /// The memory is the caller's alone, zero, and as large as the shape (and length) says. The
    /// shape is the first field of a class.
    pub unsafe fn create(address: u32, shape: &'static Shape, length: Option<u32>) -> Ref {
        // SAFETY: by the caller's promise.
        unsafe {
            if let Some(length) = length {
                store32(address + LENGTH, length, Relaxed);
            }
            let class = (&raw const *shape).expose_provenance() as u32;
            // Whoever gets a reference in a race finds the header.
            store32(address, class, Ordering::Release);
        }
        Ref(address)
    }

    /// The object's shape.
    ///
    /// # Panics
    /// If the reference is null.
    #[inline(always)]
    pub fn shape(self) -> &'static Shape {
        assert!(self.0 != 0, "null has no shape");
        // SAFETY: the class word of an object is the address of a class, by `create`.
        unsafe { placed(load32(self.0, Relaxed)) }
    }

    /// The word that identifies the object's class: the address of its [`Shape`].
    ///
    /// # Panics
    /// If the reference is null.
    #[inline(always)]
    pub fn class_word(self) -> u32 {
        assert!(self.0 != 0, "null has no class");
        // SAFETY: the header of an object.
        unsafe { load32(self.0, Relaxed) }
    }

    /// The lock word, which belongs to the monitor module.
    ///
    /// # Panics
    /// If the reference is null.
    pub fn lock_word(self) -> &'static AtomicU32 {
        assert!(self.0 != 0, "null has no lock");
        // SAFETY: the header of an object; nothing but the monitor module gives the word a meaning.
        unsafe { atomic32(self.0 + LOCK) }
    }

    /// The count word, which belongs to the collector that counts references.
    pub(crate) fn count_word(self) -> &'static AtomicU32 {
        assert!(self.0 != 0, "null has no count");
        // SAFETY: the header of an object; nothing but the collector gives the word a meaning.
        unsafe { atomic32(self.0 + COUNT) }
    }

    /// Whether an object is here still, of which the collector kept the address.
    pub(crate) fn exists(self) -> bool {
        // SAFETY: a cell's first word is 0 if no object is in it.
        unsafe { load32(self.0, Relaxed) != 0 }
    }

    /// The size of the object in bytes.
    pub fn n_bytes(self) -> u32 {
        let shape = self.shape();
        match shape.sort {
            Sort::Array(kind) => ELEMENTS + self.length() * kind.element_bytes(),
            Sort::Mirror => self.mirrored().map_or(shape.instance_bytes, |of| of.mirror_bytes),
            _ => shape.instance_bytes,
        }
    }

    /// The shape of the class whose mirror this is. A mirror that is being made has none.
    ///
    /// # Panics
    /// If the object is no mirror.
    pub fn mirrored(self) -> Option<&'static Shape> {
        assert_eq!(self.shape().sort, Sort::Mirror);
        // SAFETY: the field of a mirror; `set_mirrored` wrote it.
        unsafe {
            match load32(self.0 + MIRRORED, Ordering::Acquire) {
                0 => None,
                class => Some(placed(class)),
            }
        }
    }

    /// Makes a mirror the mirror of a class.
    ///
    /// # Safety
    /// The shape is the first field of a class, and this object has `mirror_bytes` of memory.
    pub unsafe fn set_mirrored(self, shape: &'static Shape) {
        let class = (&raw const *shape).expose_provenance() as u32;
        // SAFETY: by the caller's promise.
        unsafe { store32(self.0 + MIRRORED, class, Ordering::Release) }
    }

    /// Whether the object is an array.
    pub fn is_array(self) -> bool {
        matches!(self.shape().sort, Sort::Array(_))
    }

    /// The kind of an array's elements; `None` if the object is no array.
    #[inline(always)]
    pub fn element_kind(self) -> Option<Kind> {
        match self.shape().sort {
            Sort::Array(kind) => Some(kind),
            _ => None,
        }
    }

    /// An array's length.
    ///
    /// # Panics
    /// If the object is no array.
    #[inline(always)]
    pub fn length(self) -> u32 {
        assert!(self.is_array(), "no array");
        // SAFETY: an array has a length.
        unsafe { load32(self.0 + LENGTH, Relaxed) }
    }

    fn field_address(self, offset: u32, n_bytes: u32) -> u32 {
        assert!(
            offset >= HEADER_BYTES && offset.is_multiple_of(4) && !self.is_array(),
            "no field of an object is at {offset}"
        );
        assert!(offset + n_bytes <= self.n_bytes(), "no field of the object is at {offset}");
        self.0 + offset
    }

    /// Loads a field of 32 bits that is no reference.
    ///
    /// # Panics
    /// If the object is null, an array or too small.
    pub fn field32(self, offset: u32) -> u32 {
        // SAFETY: the word lies in the object.
        unsafe { load32(self.field_address(offset, 4), Relaxed) }
    }

    /// Loads a field of 64 bits.
    ///
    /// # Panics
    /// As [`Ref::field32`].
    pub fn field64(self, offset: u32) -> u64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: the word lies in the object.
        unsafe { load64(self.field_address(offset, 8), Relaxed) }
    }

    /// The object as an array. `None` if it is none.
    ///
    /// # Panics
    /// If the reference is null.
    #[inline(always)]
    pub fn array(self) -> Option<Array> {
        let Sort::Array(kind) = self.shape().sort else { return None };
        // SAFETY: an array has a length.
        let length = unsafe { load32(self.0 + LENGTH, Relaxed) };
        Some(Array { object: self, kind, length })
    }
}

/// An array whose kind and length were read once, as they never change: several accesses check
/// what they need without another load.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    /// The object.
    pub object: Ref,
    kind: Kind,
    length: u32,
}

impl Array {
    /// The kind of the elements.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        self.kind
    }

    /// The number of elements.
    #[inline(always)]
    pub fn length(self) -> u32 {
        self.length
    }

    /// The address of an element.
    #[inline(always)]
    fn address(self, index: u32) -> u32 {
        assert!(index < self.length, "an index below the length");
        self.object.0 + ELEMENTS + index * self.kind.element_bytes()
    }
}

/// The address of an array's elements, `None` if a range leaves the array.
fn range(array: Ref, first: u32, count: u32) -> Option<u32> {
    let end = first.checked_add(count)?;
    let unit = array.element_kind()?.element_bytes();
    (end <= array.length()).then(|| array.0 + ELEMENTS + first * unit)
}

/// Copies elements between arrays of one kind, as System.arraycopy does. The caller has checked
/// that references may be stored there.
///
/// # Panics
/// If an object is no array, the kinds differ, or a range leaves its array.
pub fn copy_elements(from: Ref, from_index: u32, to: Ref, to_index: u32, count: u32) {
    let kind = from.element_kind().expect("an array");
    assert_eq!(to.element_kind(), Some(kind));
    let unit = kind.element_bytes();
    let source = range(from, from_index, count).expect("a range of the array");
    let target = range(to, to_index, count).expect("a range of the array");
    if kind == Kind::Reference {
        let forwards = target <= source;
        for nth in 0..count {
            let at = 4 * if forwards { nth } else { count - 1 - nth };
            // SAFETY: both words are elements that hold references.
            unsafe { store_reference(target + at, load_reference(source + at)) };
        }
        return;
    }
    // SAFETY: both ranges lie in arrays of one kind.
    unsafe { copy(source, target, count * unit, unit) }
}

/// # Safety
/// The word holds a reference.
unsafe fn load_reference(address: u32) -> Ref {
    // SAFETY: by the caller's promise.
    unsafe { Ref(load32(address, Relaxed)) }
}

/// Stores a reference, seen by a collector that counts.
///
/// # Safety
/// The word holds a reference.
#[inline(always)]
unsafe fn store_reference(address: u32, value: Ref) {
    // SAFETY: by the caller's promise; no safepoint is in between.
    unsafe {
        before_store(address, value.0);
        store32(address, value.0, Ordering::Release);
    }
}

/// Copies the words of an object into another of the same class and length: Object.clone.
///
/// # Panics
/// If class or size differ.
pub fn copy_words(from: Ref, to: Ref) {
    assert_eq!(from.class_word(), to.class_word());
    assert_eq!(from.n_bytes(), to.n_bytes());
    if let Some(kind) = from.element_kind() {
        assert!(kind != Kind::Void);
        copy_elements(from, 0, to, 0, from.length());
        return;
    }
    // Long fields may tear, as Java allows.
    for offset in (HEADER_BYTES..from.n_bytes()).step_by(4) {
        let (source, target) = (from.0 + offset, to.0 + offset);
        // SAFETY: both objects have words of the same kinds.
        unsafe {
            if from.holds_reference(offset) {
                store_reference(target, load_reference(source));
            } else {
                store32(target, load32(source, Relaxed), Relaxed);
            }
        }
    }
}

macro_rules! elements {
    ($get:ident, $set:ident, $type:ty, $load:ident, $store:ident, $($kind:ident)|+) => {
        impl Array {
            /// Loads an element.
            ///
            /// # Panics
            /// If the array is of another kind, or the index is not below its length.
            #[inline(always)]
            pub fn $get(self, index: u32) -> $type {
                assert!(matches!(self.kind, $(Kind::$kind)|+), "an array of this kind");
                // SAFETY: the word is an element of the array.
                unsafe { $load(self.address(index), Relaxed) as $type }
            }

            /// Stores an element.
            ///
            /// # Panics
            /// If the array is of another kind, or the index is not below its length.
            #[inline(always)]
            pub fn $set(self, index: u32, value: $type) {
                assert!(matches!(self.kind, $(Kind::$kind)|+), "an array of this kind");
                // SAFETY: the word is an element of the array.
                unsafe { $store(self.address(index), value as _, Relaxed) }
            }
        }

        impl Ref {
            /// Loads an element.
            ///
            /// # Panics
            /// If the object is no array of this kind, or the index is not below its length.
            pub fn $get(self, index: u32) -> $type {
                self.array().expect("an array").$get(index)
            }

            /// Stores an element.
            ///
            /// # Panics
            /// If the object is no array of this kind, or the index is not below its length.
            pub fn $set(self, index: u32, value: $type) {
                self.array().expect("an array").$set(index, value);
            }
        }
    };
}

elements!(get_i8, set_i8, i8, load8, store8, Boolean | Byte);
elements!(get_u16, set_u16, u16, load16, store16, Char);
elements!(get_i16, set_i16, i16, load16, store16, Short);
elements!(get_i32, set_i32, i32, load32, store32, Int);
elements!(get_i64, set_i64, i64, load64, store64, Long);
elements!(get_f32_bits, set_f32_bits, u32, load32, store32, Float);
elements!(get_f64_bits, set_f64_bits, u64, load64, store64, Double);

impl Array {
    /// Loads an element of an array of references.
    ///
    /// # Panics
    /// If the array is of another kind, or the index is not below its length.
    #[inline(always)]
    pub fn get_ref(self, index: u32) -> Ref {
        assert!(self.kind == Kind::Reference, "an array of references");
        // SAFETY: the word is an element of the array.
        unsafe { Ref(load32(self.address(index), Relaxed)) }
    }

    /// Stores an element of an array of references. The caller has checked the component's type.
    ///
    /// # Panics
    /// If the array is of another kind, or the index is not below its length.
    #[inline(always)]
    pub fn set_ref(self, index: u32, value: Ref) {
        assert!(self.kind == Kind::Reference, "an array of references");
        // SAFETY: the word is an element of the array.
        unsafe { store_reference(self.address(index), value) }
    }
}

impl Ref {
    /// As [`Array::get_ref`].
    ///
    /// # Panics
    /// If the object is no such array, or the index is not below its length.
    pub fn get_ref(self, index: u32) -> Ref {
        self.array().expect("an array").get_ref(index)
    }

    /// As [`Array::set_ref`].
    ///
    /// # Panics
    /// If the object is no such array, or the index is not below its length.
    pub fn set_ref(self, index: u32, value: Ref) {
        self.array().expect("an array").set_ref(index, value);
    }

    /// Whether the word at an offset holds a reference, a referent included.
    pub fn holds_reference(self, offset: u32) -> bool {
        let shape = self.shape();
        match shape.sort {
            Sort::Array(kind) => kind == Kind::Reference && offset >= ELEMENTS,
            Sort::Reference(referent) if referent == offset => true,
            _ if shape.references.contains(&offset) => true,
            Sort::Mirror => {
                self.mirrored().is_some_and(|it| it.static_references.contains(&offset))
            }
            _ => false,
        }
    }

    /// Calls `with` for each reference of the object, referents left out.
    pub(crate) fn each_reference(self, mut with: impl FnMut(Ref)) {
        self.each_reference_address(0..u32::MAX, |address| {
            // SAFETY: the word holds a reference.
            let value = unsafe { load_reference(address) };
            if !value.is_null() {
                with(value);
            }
        });
    }

    /// Calls `with` for the address of each word of the object that holds a reference, referents
    /// left out, within a range of addresses.
    pub(crate) fn each_reference_address(self, within: Range<u32>, mut with: impl FnMut(u32)) {
        let shape = self.shape();
        let mut fields = |offsets: &[u32]| {
            let addresses = offsets.iter().map(|offset| self.0 + offset);
            addresses.filter(|address| within.contains(address)).for_each(&mut with);
        };
        match shape.sort {
            Sort::Array(Kind::Reference) => {
                let first = self.0 + ELEMENTS;
                let end = within.end.min(first + 4 * self.length());
                (within.start.max(first)..end).step_by(4).for_each(with);
            }
            Sort::Array(_) => {}
            sort => {
                fields(&shape.references);
                if sort == Sort::Mirror
                    && let Some(of) = self.mirrored()
                {
                    fields(&of.static_references);
                }
            }
        }
    }
}
