//! Cycles that nothing outside of them refers to.
//!
//! Trial deletion (Bacon and Rajan, Concurrent cycle collection in reference counted systems, ECOOP
//! 2001): from each suspect on, the references inside of what it reaches are taken off the counts.
//! What has a count left, or is a root, is in use, with all that it reaches: there the counts are
//! restored. The rest is garbage. Here all references are those of one view, which no thread
//! changes, so the algorithm needs no second look as that paper's does. (Paz, Bacon, Kolodner,
//! Petrank and Rajan, An efficient on-the-fly cycle collection, TOPLAS 29:4, 2007.)
//!
//! A search is done in *portions*, and may stop at any object. References of gray objects are off
//! the counts wherever they lead; an object that is not gray is in use. So what is freed is garbage
//! as far as a portion has looked. A suspect whose portion was cut short is looked at again, with a
//! longer *reach*.

use super::count::{Color, Count};
use super::counting::{Counter, World};
use super::search::Searching;
use crate::object::Ref;

impl Counter {
    /// Frees the cycles that some suspects are part of or refer to; returns how many objects it
    /// looked at. Only a part of a search may be cut short.
    pub(super) fn free_cycles(&mut self, is_part: bool, world: &impl World) -> usize {
        let mut gray = Vec::new();
        let Searching { credit, reach, portion, least, .. } = self.searching;
        let mut enough =
            if is_part { self.searching.portion_of(self.n_suspects()) } else { usize::MAX };
        let is_cut = |n| is_part && (n >= credit || n >= reach && world.is_awaited());
        let (mut n_done, mut largest, mut is_complete) = (0, 0, true);
        while let Some(&object) = self.searching.queue.front() {
            if gray.len() >= enough && Count::of(object).color() != Color::Gray {
                break;
            }
            let before = gray.len();
            Count::of(object).leave_suspects();
            is_complete = self.delete(object, world, &mut gray, is_cut);
            largest = largest.max(gray.len() - before);
            if !is_complete {
                Count::of(object).enter_suspects();
                break;
            }
            self.searching.queue.pop_front();
            n_done += 1;
            // What many suspects refer to is looked at once for all of them.
            enough = enough.max(largest.saturating_mul(2));
        }
        self.searching.credit = credit.saturating_sub(gray.len());
        if n_done > 0 {
            (self.searching.price, self.searching.reach) = (least.max(2 * largest), least);
        } else if gray.len() >= credit {
            self.searching.price = 2 * gray.len();
        } else {
            self.searching.reach = reach.saturating_mul(2);
        }
        // Objects that nothing holds but a stack: they are suspects until they leave it.
        let mut held = Vec::new();
        for &object in &gray {
            let has_references = Count::of(object).get() > 0;
            let is_held = has_references || self.cards.is_reached(object.address());
            if Count::of(object).color() == Color::Gray && is_held {
                if !has_references {
                    held.push(object);
                }
                self.restore(object, world);
            }
        }
        let n_seen = gray.len();
        gray.retain(|object| Count::of(*object).color() == Color::Gray);
        gray.iter().for_each(|object| Count::of(*object).paint(Color::White));
        self.searching.portion = if gray.is_empty() { portion.saturating_mul(2) } else { least };
        let outside = self.free_white(gray, &mut held, world);
        for object in outside {
            self.check_zero(object);
            if !is_complete {
                // Nobody knows whether anything else refers to it: it may not have been looked at.
                self.suspect(object);
            }
        }
        held.into_iter().for_each(|object| self.suspect(object));
        n_seen
    }

    /// Takes the references of all that an object reaches off the counts, unless the search is cut
    /// short by the number of gray objects: false then.
    fn delete(
        &mut self,
        object: Ref,
        world: &impl World,
        gray: &mut Vec<Ref>,
        is_cut: impl Fn(usize) -> bool,
    ) -> bool {
        let mut open = vec![object];
        while let Some(object) = open.pop() {
            let count = Count::of(object);
            if count.color() == Color::Gray || count.is_frozen() {
                continue;
            }
            if self.cards.is_reached(object.address()) {
                // It is in use, and so is all that it refers to. Nothing tells when a stack lets go
                // of it.
                self.suspect(object);
                continue;
            }
            if is_cut(gray.len()) {
                return false;
            }
            count.paint(Color::Gray);
            gray.push(object);
            self.each_child(object, world, |child| {
                Count::of(child).subtract();
                open.push(child);
            });
        }
        true
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

    /// Frees garbage, but for what finalizers and threads that use weak references hold. Returns
    /// what the garbage referred to.
    fn free_white(&mut self, white: Vec<Ref>, held: &mut Vec<Ref>, world: &impl World) -> Vec<Ref> {
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
        let mut outside = Vec::new();
        for &object in &garbage {
            self.each_child(object, world, |child| {
                if Count::of(child).color() != Color::White {
                    outside.push(child);
                }
            });
        }
        self.freed_in_cycles(garbage.len());
        for &object in &garbage {
            self.free(object, world);
        }
        outside
    }
}
