//! What C gets for an object: `jobject` and its like.
//!
//! ```text
//! 63          32 31     2 1 0
//! | address     | slot   |kind|
//! ```
//!
//! A handle is no pointer to anything. The slot is one of the thread's stack, or of the VM's table
//! of global references.

/// A `jobject`; 0 is `NULL`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Handle(u64);

/// Where a handle's slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Kind {
    /// On the thread's stack
    Local = 1,
    /// In the table of global references
    Global = 2,
    /// There, and holds a java.lang.ref.WeakReference
    Weak = 3,
}

impl Handle {
    /// `NULL`.
    pub const NULL: Handle = Handle(0);

    /// A handle of a slot that holds the object at an address.
    pub fn new(kind: Kind, slot: usize, address: u32) -> Handle {
        debug_assert!(slot < 1 << 30, "a slot of 30 bits");
        Handle(u64::from(address) << 32 | (slot as u64) << 2 | kind as u64)
    }

    /// Whether it is `NULL`.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The bits that C has.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// A handle that C gives as a plain word.
    pub fn from_bits(bits: u64) -> Handle {
        Handle(bits)
    }

    /// Kind, slot and address; `None` for what no function has given.
    pub fn parts(self) -> Option<(Kind, usize, u32)> {
        let kind = match self.0 & 3 {
            1 => Kind::Local,
            2 => Kind::Global,
            3 => Kind::Weak,
            _ => return None,
        };
        Some((kind, (self.0 as u32 >> 2) as usize, (self.0 >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_all_of_its_parts() {
        for (kind, slot, address) in [
            (Kind::Local, 0, 0x1000_0010),
            (Kind::Global, (1 << 30) - 1, u32::MAX),
            (Kind::Weak, 77, 16),
        ] {
            assert_eq!(Handle::new(kind, slot, address).parts(), Some((kind, slot, address)));
        }
        assert_eq!(Handle::NULL.parts(), None);
        assert_eq!(Handle::from_bits(0x7fff_1234_5678).parts(), None, "an aligned pointer");
    }
}
