//! Loads and stores of fields, with the barrier before each store of a reference.

use crate::cards::before_store;
use crate::class::Field;
use crate::memory::{load32, load64, store32, store64};
use crate::object::{Kind, Ref};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A field's word in one object: valid as long as a reference to that object would be. The object
/// with a class's static fields stays for ever.
#[derive(Clone, Copy)]
pub(crate) struct Word<'a> {
    field: &'a Field,
    /// The object has the field there.
    address: u32,
}

impl<'a> Word<'a> {
    /// The word of an instance field. `None` if the field is static, or the object has none.
    ///
    /// # Panics
    /// If the object is null.
    #[inline(always)]
    pub fn of_instance(field: &'a Field, object: Ref) -> Option<Word<'a>> {
        (!field.is_static()).then(|| Word::of(field, object)).flatten()
    }

    /// The word of a static field; `None` if the field is none.
    #[inline(always)]
    pub fn of_static(field: &'a Field) -> Option<Word<'a>> {
        let address = || field.holder().address() + field.offset;
        field.is_static().then(|| Word { field, address: address() })
    }

    #[inline(always)]
    fn of(field: &'a Field, object: Ref) -> Option<Word<'a>> {
        field.is_in(object).then(|| Word { field, address: object.address() + field.offset })
    }

    /// The kind of the field.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        self.field.kind
    }

    #[inline(always)]
    fn order(self) -> Ordering {
        if self.field.is_volatile() { Ordering::SeqCst } else { Ordering::Relaxed }
    }

    /// Loads 32 bits that are no reference. Bytes, chars and shorts are extended.
    ///
    /// # Panics
    /// If the field is of another kind. The other accessors panic as well.
    #[inline(always)]
    pub fn get32(self) -> u32 {
        assert!(!self.kind().is_wide() && self.kind() != Kind::Reference);
        // SAFETY: the object has a field of 32 bits there.
        unsafe { load32(self.address, self.order()) }
    }

    /// Stores 32 bits that are no reference; what a byte, char or short has no room for is cut off.
    #[inline(always)]
    pub fn set32(self, value: u32) {
        let value = match self.kind() {
            Kind::Boolean => value & 1,
            Kind::Byte => value as i8 as u32,
            Kind::Char => u32::from(value as u16),
            Kind::Short => value as i16 as u32,
            Kind::Int | Kind::Float => value,
            Kind::Long | Kind::Double | Kind::Reference | Kind::Void => {
                panic!("{} has no 32 bits", self.field.name)
            }
        };
        // SAFETY: the object has a field of 32 bits there.
        unsafe { store32(self.address, value, self.order()) }
    }

    /// Loads 64 bits.
    #[inline(always)]
    pub fn get64(self) -> u64 {
        assert!(self.kind().is_wide());
        // SAFETY: the object has a field of 64 bits there.
        unsafe { load64(self.address, self.order()) }
    }

    /// Stores 64 bits.
    #[inline(always)]
    pub fn set64(self, value: u64) {
        assert!(self.kind().is_wide());
        // SAFETY: the object has a field of 64 bits there.
        unsafe { store64(self.address, value, self.order()) }
    }

    /// Loads a reference.
    #[inline(always)]
    pub fn get_ref(self) -> Ref {
        assert!(self.kind() == Kind::Reference);
        // SAFETY: the object has a reference there.
        unsafe { Ref::from_address(load32(self.address, self.order())) }
    }

    /// Stores a reference, after the barrier. The caller answers for its type.
    #[inline(always)]
    pub fn set_ref(self, value: Ref) {
        assert!(self.kind() == Kind::Reference);
        let order = if self.field.is_volatile() { Ordering::SeqCst } else { Ordering::Release };
        // SAFETY: the object has a reference there; no safepoint is in between.
        unsafe {
            before_store(self.address, value.address());
            store32(self.address, value.address(), order);
        }
    }
}

impl Field {
    #[inline(always)]
    fn word_in(&self, object: Ref) -> Word<'_> {
        let word = Word::of(self, object);
        word.unwrap_or_else(|| panic!("{} is a field of {}", self.name, self.class().descriptor))
    }

    /// Loads a field of 32 bits that is no reference. Bytes, chars and shorts are extended.
    ///
    /// # Panics
    /// If the object has no such field (for a static one: is not [`Field::holder`]), or the field
    /// is of another kind. The other accessors panic as well.
    #[inline]
    pub fn get32(&self, object: Ref) -> u32 {
        self.word_in(object).get32()
    }

    /// Stores a field of 32 bits that is no reference; what a byte, char or short has no room for
    /// is cut off.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline]
    pub fn set32(&self, object: Ref, value: u32) {
        self.word_in(object).set32(value);
    }

    /// Loads a field of 64 bits.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline]
    pub fn get64(&self, object: Ref) -> u64 {
        self.word_in(object).get64()
    }

    /// Stores a field of 64 bits.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline]
    pub fn set64(&self, object: Ref, value: u64) {
        self.word_in(object).set64(value);
    }

    /// Loads a reference.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline]
    pub fn get_ref(&self, object: Ref) -> Ref {
        self.word_in(object).get_ref()
    }

    /// Stores a reference. The caller answers for its type.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline]
    pub fn set_ref(&self, object: Ref, value: Ref) {
        self.word_in(object).set_ref(value);
    }

    /// The word of a field of 32 bits as an atomic, for compare-and-swap. Stores of references
    /// have to be addresses of objects.
    ///
    /// # Safety
    /// A store puts a value of the field's kind there.
    ///
    /// # Panics
    /// As [`Field::get32`].
    pub unsafe fn atomic32(&self, object: Ref) -> &'static AtomicU32 {
        assert!(!self.kind.is_wide());
        // SAFETY: the object has 32 bits there.
        unsafe { crate::memory::atomic32(self.word_in(object).address) }
    }

    /// The word of a field of 64 bits as an atomic.
    ///
    /// # Panics
    /// As [`Field::get32`].
    pub fn atomic64(&self, object: Ref) -> &'static AtomicU64 {
        assert!(self.kind.is_wide());
        // SAFETY: the object has 64 bits there.
        unsafe { crate::memory::atomic64(self.word_in(object).address) }
    }
}
