//! The count word of an object's header, which only the collector uses.
//!
//! ```text
//! count << 5 | is known << 4 | is a zero << 3 | is a suspect << 2 | color
//! ```

use crate::object::{Kind, Ref, Sort};
use std::sync::atomic::Ordering::Relaxed;

const COLOR: u32 = 3;
const SUSPECT: u32 = 4;
const ZERO: u32 = 8;
const KNOWN: u32 = 16;
const ONE: u32 = 32;
/// A count that has come so far stays: the object is never freed.
const MOST: u32 = u32::MAX / ONE;

/// What the search for cycles knows of an object (Bacon and Rajan, ECOOP 2001, figure 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Color {
    /// In use, or not looked at
    Black,
    /// Its references do not count at this moment
    Gray,
    /// Garbage
    White,
}

/// The count word of one object.
#[derive(Clone, Copy)]
pub(super) struct Count(Ref);

impl Count {
    pub fn of(object: Ref) -> Count {
        Count(object)
    }

    fn word(self) -> u32 {
        self.0.count_word().load(Relaxed)
    }

    fn set(self, word: u32) {
        debug_assert!(!self.is_frozen(), "a write to a page that processes share");
        self.0.count_word().store(word, Relaxed);
    }

    /// Never frees the object, and never writes its word again.
    pub fn freeze(self) {
        self.set(MOST * ONE);
    }

    /// Whether the object is frozen.
    pub fn is_frozen(self) -> bool {
        self.word() == MOST * ONE
    }

    /// How many references of the view lead to the object.
    pub fn get(self) -> u32 {
        self.word() / ONE
    }

    /// Counts one reference more.
    pub fn add(self) {
        if self.get() != MOST {
            self.set(self.word() + ONE);
        }
    }

    /// Counts one reference less; returns how many are left.
    pub fn subtract(self) -> u32 {
        assert!(self.get() > 0, "a reference that was not counted");
        if self.get() != MOST {
            self.set(self.word() - ONE);
        }
        self.get()
    }

    pub fn color(self) -> Color {
        match self.word() & COLOR {
            0 => Color::Black,
            1 => Color::Gray,
            _ => Color::White,
        }
    }

    pub fn paint(self, color: Color) {
        self.set(self.word() & !COLOR | color as u32);
    }

    /// Sets a flag; false if it was set.
    fn flag(self, flag: u32) -> bool {
        let word = self.word();
        self.set(word | flag);
        word & flag == 0
    }

    /// Makes the object known to the collector; false if it was.
    pub fn become_known(self) -> bool {
        self.flag(KNOWN)
    }

    /// Puts the object among those without references; false if it is there.
    pub fn enter_zeros(self) -> bool {
        self.flag(ZERO)
    }

    pub fn leave_zeros(self) {
        self.set(self.word() & !ZERO);
    }

    /// Puts the object among those that a cycle may hold; false if it is there.
    pub fn enter_suspects(self) -> bool {
        self.flag(SUSPECT)
    }

    pub fn leave_suspects(self) {
        self.set(self.word() & !SUSPECT);
    }
}

/// Whether an object can be part of a cycle: it has references.
pub(super) fn has_references(object: Ref) -> bool {
    let shape = object.shape();
    match shape.sort {
        Sort::Array(kind) => kind == Kind::Reference,
        Sort::Plain => !shape.references.is_empty(),
        Sort::Mirror | Sort::Reference(_) => true,
    }
}
