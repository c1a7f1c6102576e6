//! Cycles that nothing outside of them refers to.
//!
//! Trial deletion (Bacon and Rajan, Concurrent cycle collection in reference counted systems, ECOOP
//! 2001): from each suspect on, the references inside of what it reaches are taken off the counts.
//! What has a count left, or is a root, is in use, with all that it reaches: there the counts are
//! restored. The rest is garbage. Here all references are those of one view, which no thread
//! changes, so the algorithm needs no second look as that paper's does. (Paz, Bacon, Kolodner,
//! Petrank and Rajan, An efficient on-the-fly cycle collection, TOPLAS 29:4, 2007.)

use super::count::{Color, Count};
use super::counting::{Counter, World};
use crate::object::Ref;

impl Counter {
    /// Frees the cycles that suspects are part of or refer to.
    pub(super) fn free_cycles(&mut self, world: &impl World) {
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.retain(|object| object.exists());
        for &object in &suspects {
            Count::of(object).leave_suspects();
            self.delete(object, world);
        }
        // Objects that nothing holds but a stack: they are suspects until they leave it.
        let mut held = Vec::new();
        for &object in &suspects {
            self.scan(object, world, &mut held);
        }
        let mut white = Vec::new();
        for &object in &suspects {
            self.find_white(object, world, &mut white);
        }
        self.free_white(white, &mut held, world);
        held.into_iter().for_each(|object| self.suspect(object));
    }

    /// Takes the references of all that an object reaches off the counts.
    fn delete(&mut self, object: Ref, world: &impl World) {
        let mut open = vec![object];
        while let Some(object) = open.pop() {
            let count = Count::of(object);
            if count.color() == Color::Gray || count.is_frozen() {
                continue;
            }
            count.paint(Color::Gray);
            self.each_child(object, world, |child| {
                Count::of(child).subtract();
                open.push(child);
            });
        }
    }

    /// Finds out what of the gray objects is garbage.
    fn scan(&mut self, object: Ref, world: &impl World, held: &mut Vec<Ref>) {
        let mut open = vec![object];
        while let Some(object) = open.pop() {
            if Count::of(object).color() != Color::Gray {
                continue;
            }
            let has_references = Count::of(object).get() > 0;
            if has_references || self.cards.is_reached(object.address()) {
                if !has_references {
                    held.push(object);
                }
                self.restore(object, world);
            } else {
                Count::of(object).paint(Color::White);
                self.each_child(object, world, |child| open.push(child));
            }
        }
    }

    /// Counts the references of all that an object reaches again.
    fn restore(&mut self, object: Ref, world: &impl World) {
        Count::of(object).paint(Color::Black);
        let mut open = vec![object];
        let mut touched = vec![object];
        while let Some(object) = open.pop() {
            self.each_child(object, world, |child| {
                Count::of(child).add();
                if Count::of(child).color() != Color::Black {
                    Count::of(child).paint(Color::Black);
                    open.push(child);
                    touched.push(child);
                }
            });
        }
        for object in touched {
            self.cards.pardon(object.address());
            self.check_zero(object);
        }
    }

    /// An object that only garbage referred to, and that stays as a root, has to be looked at again
    /// by later collections.
    fn check_zero(&mut self, object: Ref) {
        if Count::of(object).get() == 0 {
            self.enter_zeros(object);
        }
    }

    fn find_white(&self, object: Ref, world: &impl World, white: &mut Vec<Ref>) {
        let mut open = vec![object];
        while let Some(object) = open.pop() {
            // A suspect may come up more than once: the flag of a suspect is free at this moment.
            if Count::of(object).color() == Color::White && Count::of(object).enter_suspects() {
                white.push(object);
                self.each_child(object, world, |child| open.push(child));
            }
        }
    }

    /// Frees garbage, but for what finalizers and threads that use weak references hold.
    fn free_white(&mut self, white: Vec<Ref>, held: &mut Vec<Ref>, world: &impl World) {
        for &object in &white {
            Count::of(object).leave_suspects();
        }
        for &object in &white {
            if Count::of(object).color() == Color::White && self.has_finalizer(object, world) {
                self.let_go(object, world);
                self.restore(object, world);
                held.push(object);
            }
        }
        for &object in &white {
            if Count::of(object).color() == Color::White && !self.let_go(object, world) {
                self.restore(object, world);
                held.push(object);
            }
        }
        let garbage: Vec<Ref> =
            white.into_iter().filter(|it| Count::of(*it).color() == Color::White).collect();
        for &object in &garbage {
            let mut outside = Vec::new();
            self.each_child(object, world, |child| {
                if Count::of(child).color() != Color::White {
                    outside.push(child);
                }
            });
            outside.into_iter().for_each(|child| self.check_zero(child));
        }
        self.freed_in_cycles(garbage.len());
        for &object in &garbage {
            self.free(object, world);
        }
    }
}
