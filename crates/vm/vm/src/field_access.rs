//! Loads and stores of fields, with the barrier before each store of a reference.

use crate::cards::before_store;
use crate::class::Field;
use crate::memory::{load32, load64, store32, store64};
use crate::object::{Kind, Ref};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

impl Field {
    #[inline(always)]
    fn order(&self) -> Ordering {
        if self.is_volatile() { Ordering::SeqCst } else { Ordering::Relaxed }
    }

    /// The address of the field's word in `object`: an instance, or the mirror of the class.
    #[inline(always)]
    fn address(&self, object: Ref) -> u32 {
        assert!(self.is_in(object), "{} is a field of {}", self.name, self.class().descriptor);
        object.address() + self.offset
    }

    /// Loads a field of 32 bits that is no reference. Bytes, chars and shorts are extended.
    ///
    /// # Panics
    /// If the object has no such field (for a static one: is not [`Field::holder`]), or the field
    /// is of another kind. The other accessors panic as well.
    #[inline(always)]
    pub fn get32(&self, object: Ref) -> u32 {
        assert!(!self.kind.is_wide() && self.kind != Kind::Reference);
        // SAFETY: the object has a field of 32 bits there.
        unsafe { load32(self.address(object), self.order()) }
    }

    /// Stores a field of 32 bits that is no reference; what a byte, char or short has no room for
    /// is cut off.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline(always)]
    pub fn set32(&self, object: Ref, value: u32) {
        let value = match self.kind {
            Kind::Boolean => value & 1,
            Kind::Byte => value as i8 as u32,
            Kind::Char => u32::from(value as u16),
            Kind::Short => value as i16 as u32,
            Kind::Int | Kind::Float => value,
            Kind::Long | Kind::Double | Kind::Reference | Kind::Void => {
                panic!("{} has no 32 bits", self.name)
            }
        };
        // SAFETY: the object has a field of 32 bits there.
        unsafe { store32(self.address(object), value, self.order()) }
    }

    /// Loads a field of 64 bits.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline(always)]
    pub fn get64(&self, object: Ref) -> u64 {
        assert!(self.kind.is_wide());
        // SAFETY: the object has a field of 64 bits there.
        unsafe { load64(self.address(object), self.order()) }
    }

    /// Stores a field of 64 bits.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline(always)]
    pub fn set64(&self, object: Ref, value: u64) {
        assert!(self.kind.is_wide());
        // SAFETY: the object has a field of 64 bits there.
        unsafe { store64(self.address(object), value, self.order()) }
    }

    /// Loads a reference.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline(always)]
    pub fn get_ref(&self, object: Ref) -> Ref {
        assert!(self.kind == Kind::Reference);
        // SAFETY: the object has a reference there.
        unsafe { Ref::from_address(load32(self.address(object), self.order())) }
    }

    /// Stores a reference. The caller answers for its type.
    ///
    /// # Panics
    /// As [`Field::get32`].
    #[inline(always)]
    pub fn set_ref(&self, object: Ref, value: Ref) {
        assert!(self.kind == Kind::Reference);
        let address = self.address(object);
        let order = if self.is_volatile() { Ordering::SeqCst } else { Ordering::Release };
        // SAFETY: the object has a reference there; no safepoint is in between.
        unsafe {
            before_store(address, value.address());
            store32(address, value.address(), order);
        }
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
        unsafe { crate::memory::atomic32(self.address(object)) }
    }

    /// The word of a field of 64 bits as an atomic.
    ///
    /// # Panics
    /// As [`Field::get32`].
    pub fn atomic64(&self, object: Ref) -> &'static AtomicU64 {
        assert!(self.kind.is_wide());
        // SAFETY: the object has 64 bits there.
        unsafe { crate::memory::atomic64(self.address(object)) }
    }
}
