//! The machine that runs a program over an input.

use std::ops::Range;

use super::compile::{Op, Pc, Program};
use super::parse::{Greed, Look, Place, code_point};
use super::set::{Set, line_ends, lower, upper};

/// What a group holds that took no part in the match.
const UNSET: usize = usize::MAX;

/// A text and the part of it that a matcher looks at.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The text.
    pub units: &'a [u16],
    /// The matcher's region.
    pub region: Range<usize>,
    /// `^` and `$` match at the region's bounds.
    pub anchoring: bool,
    /// Lookaround and `\b` see the text beyond the region.
    pub transparent: bool,
    /// The end of the last match: the place of `\G`.
    pub last_end: usize,
}

/// The result of one attempt.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The bounds of each group, group 0 first; `None` for a group that took no part.
    pub groups: Option<Vec<Option<Range<usize>>>>,
    /// `Matcher.hitEnd`: the attempt looked at the region's end.
    pub hit_end: bool,
    /// `Matcher.requireEnd`: more input could make the match fail.
    pub require_end: bool,
}

/// Where a match has to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Anywhere,
    Region,
}

/// What is undone when the machine goes back.
enum Entry {
    Branch {
        pc: Pc,
        at: usize,
    },
    /// A greedy run of a set from `least` to `at`, which can give code points back.
    Fewer {
        pc: Pc,
        least: usize,
        at: usize,
    },
    /// A lazy run of the set at `pc` that can take `left` more code points.
    More {
        pc: Pc,
        at: usize,
        left: u32,
    },
    Slot {
        slot: usize,
        old: usize,
    },
    Counter {
        counter: usize,
        old: (u32, usize),
    },
}

struct Machine<'a> {
    program: &'a Program,
    input: &'a Input<'a>,
    /// The part of the text that can be taken: wider than the region in a transparent look.
    bounds: Range<usize>,
    end: End,
    stack: Vec<Entry>,
    slots: Vec<usize>,
    /// For each loop the iterations so far and where the last one began.
    counters: Vec<(u32, usize)>,
    hit_end: bool,
    require_end: bool,
}

/// The leftmost match at or after `from`.
pub fn search(program: &Program, input: &Input<'_>, from: usize) -> Outcome {
    let mut machine = Machine::new(program, input, End::Anywhere);
    let mut at = from;
    while at <= input.region.end {
        let c = machine.peek(at);
        let possible = match (&program.first, c) {
            (None, _) => true,
            (Some(first), Some(c)) => first.contains(c),
            (Some(_), None) => {
                machine.hit_end = true;
                false
            }
        };
        if possible && machine.attempt(at) {
            break;
        }
        at += if c.is_some_and(|c| c > 0xffff) { 2 } else { 1 };
    }
    machine.outcome(at <= input.region.end)
}

/// The match that begins at `from`.
pub fn match_at(program: &Program, input: &Input<'_>, from: usize, end: End) -> Outcome {
    let mut machine = Machine::new(program, input, end);
    let matched = machine.attempt(from);
    machine.outcome(matched)
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, input: &'a Input<'a>, end: End) -> Machine<'a> {
        Machine {
            program,
            input,
            bounds: input.region.clone(),
            end,
            stack: Vec::new(),
            slots: vec![UNSET; 2 * (program.groups + 1)],
            counters: vec![(0, UNSET); program.counters],
            hit_end: false,
            require_end: false,
        }
    }

    fn outcome(self, matched: bool) -> Outcome {
        let groups = matched.then(|| {
            let bounds = |pair: &[usize]| match pair {
                &[start, end] if start != UNSET && end != UNSET => Some(start..end),
                _ => None,
            };
            self.slots.chunks(2).map(bounds).collect()
        });
        Outcome { groups, hit_end: self.hit_end, require_end: self.require_end }
    }

    fn attempt(&mut self, from: usize) -> bool {
        self.stack.clear();
        self.slots.fill(UNSET);
        self.require_end = false;
        let Some(end) = self.run(0, from, None) else { return false };
        self.slots[0] = from;
        self.slots[1] = end;
        true
    }

    fn peek(&self, at: usize) -> Option<u32> {
        code_point(&self.input.units[..self.bounds.end], at)
    }

    /// Takes one code point of a set.
    fn take(&mut self, set: &Set, at: usize) -> Option<usize> {
        match self.peek(at) {
            Some(c) if set.contains(c) => Some(at + if c > 0xffff { 2 } else { 1 }),
            Some(_) => None,
            None => {
                self.hit_end = true;
                None
            }
        }
    }

    /// The place one code point back.
    fn back(&self, at: usize) -> usize {
        let units = self.input.units;
        let pair = at >= 2
            && (0xdc00..=0xdfff).contains(&units[at - 1])
            && (0xd800..=0xdbff).contains(&units[at - 2]);
        at - if pair { 2 } else { 1 }
    }

    fn save(&mut self, slot: usize, value: usize) {
        self.stack.push(Entry::Slot { slot, old: self.slots[slot] });
        self.slots[slot] = value;
    }

    fn count(&mut self, counter: usize, value: (u32, usize)) {
        self.stack.push(Entry::Counter { counter, old: self.counters[counter] });
        self.counters[counter] = value;
    }

    /// Goes back to the last branch above `base`, and undoes everything since.
    fn backtrack(&mut self, base: usize) -> Option<(Pc, usize)> {
        while self.stack.len() > base {
            match self.stack.pop().expect("the stack is above its base") {
                Entry::Branch { pc, at } => return Some((pc, at)),
                Entry::Fewer { pc, least, at } => {
                    let at = self.back(at);
                    if at > least {
                        self.stack.push(Entry::Fewer { pc, least, at });
                    }
                    return Some((pc, at));
                }
                Entry::More { pc, at, left } => {
                    let program = self.program;
                    let Op::RepeatSet { set, .. } = &program.ops[pc] else {
                        unreachable!("only a repeated set leaves this entry");
                    };
                    if let Some(at) = self.take(set, at) {
                        if left > 1 {
                            self.stack.push(Entry::More { pc, at, left: left - 1 });
                        }
                        return Some((pc + 1, at));
                    }
                }
                Entry::Slot { slot, old } => self.slots[slot] = old,
                Entry::Counter { counter, old } => self.counters[counter] = old,
            }
        }
        None
    }

    /// Runs to [`Op::Done`]; `behind` is where a look behind began. Returns the end of the match.
    fn run(&mut self, mut pc: Pc, mut at: usize, behind: Option<usize>) -> Option<usize> {
        let base = self.stack.len();
        // The outermost run is the only one that starts with the first instruction.
        let outermost = pc == 0;
        let program = self.program;
        loop {
            let next = match &program.ops[pc] {
                Op::Set(set) => self.take(set, at).map(|at| (pc + 1, at)),
                Op::RepeatSet { set, min, max, greed } => {
                    self.repeat(set, (*min, *max), *greed, pc, at).map(|at| (pc + 1, at))
                }
                Op::Place(place) => self.is_at(*place, at).then_some((pc + 1, at)),
                Op::Backreference { group, ignore_case } => {
                    self.backreference(*group, *ignore_case, at).map(|at| (pc + 1, at))
                }
                &Op::Save(slot) => {
                    self.save(slot, at);
                    Some((pc + 1, at))
                }
                &Op::Jump(target) => Some((target, at)),
                &Op::Split(first, second) => {
                    self.stack.push(Entry::Branch { pc: second, at });
                    Some((first, at))
                }
                &Op::LoopBegin(counter) => {
                    self.count(counter, (0, UNSET));
                    Some((pc + 1, at))
                }
                &Op::LoopEnter(counter) => {
                    let (iterations, _) = self.counters[counter];
                    self.count(counter, (iterations + 1, at));
                    Some((pc + 1, at))
                }
                &Op::Loop { counter, min, max, greed, exit } => {
                    let (iterations, began) = self.counters[counter];
                    // An iteration that took nothing would take nothing for ever.
                    Some((
                        self.iterate((iterations, began == at), (min, max), greed, pc, exit, at),
                        at,
                    ))
                }
                &Op::Atomic { next } => self.apart(pc + 1, at, None).map(|at| (next, at)),
                &Op::Look { look, shortest, longest, next } => {
                    self.look(look, (shortest, longest), pc + 1, at).then_some((next, at))
                }
                Op::BehindEnd => (behind == Some(at)).then_some((pc + 1, at)),
                Op::Done => {
                    if !outermost || self.end == End::Anywhere || at == self.input.region.end {
                        return Some(at);
                    }
                    None
                }
            };
            (pc, at) = match next {
                Some(next) => next,
                None => self.backtrack(base)?,
            };
        }
    }

    /// Where a loop goes on after some iterations, the last of which may have been empty.
    fn iterate(
        &mut self,
        (iterations, empty): (u32, bool),
        (min, max): (u32, u32),
        greed: Greed,
        pc: Pc,
        exit: Pc,
        at: usize,
    ) -> Pc {
        if iterations > 0 && empty || iterations >= max {
            return exit;
        }
        if iterations < min {
            return pc + 1;
        }
        let (first, second) = match greed {
            Greed::Lazy => (exit, pc + 1),
            _ => (pc + 1, exit),
        };
        self.stack.push(Entry::Branch { pc: second, at });
        first
    }

    fn repeat(
        &mut self,
        set: &Set,
        (min, max): (u32, u32),
        greed: Greed,
        pc: Pc,
        start: usize,
    ) -> Option<usize> {
        let mut at = start;
        for _ in 0..min {
            at = self.take(set, at)?;
        }
        let least = at;
        if greed == Greed::Lazy {
            if max > min {
                self.stack.push(Entry::More { pc, at, left: max - min });
            }
            return Some(at);
        }
        for _ in min..max {
            match self.take(set, at) {
                Some(next) => at = next,
                None => break,
            }
        }
        if greed == Greed::Greedy && at > least {
            self.stack.push(Entry::Fewer { pc: pc + 1, least, at });
        }
        Some(at)
    }

    /// Matches a part whose branches are dropped once it has matched.
    fn apart(&mut self, pc: Pc, at: usize, behind: Option<usize>) -> Option<usize> {
        let base = self.stack.len();
        let end = self.run(pc, at, behind)?;
        let mut index = 0;
        self.stack.retain(|entry| {
            index += 1;
            index <= base || matches!(entry, Entry::Slot { .. } | Entry::Counter { .. })
        });
        Some(end)
    }

    fn look(&mut self, look: Look, lengths: (usize, usize), pc: Pc, at: usize) -> bool {
        let bounds = self.bounds.clone();
        if self.input.transparent {
            self.bounds = 0..self.input.units.len();
        }
        let base = self.stack.len();
        let found = if look.behind {
            let (shortest, longest) = lengths;
            let first = at.saturating_sub(longest).max(self.bounds.start);
            let starts = first..(at + 1).saturating_sub(shortest);
            let outer_end = std::mem::replace(&mut self.bounds.end, at);
            let hit_end = self.hit_end;
            let found = starts.rev().any(|start| self.apart(pc, start, Some(at)).is_some());
            self.bounds.end = outer_end;
            self.hit_end = hit_end;
            found
        } else {
            self.apart(pc, at, None).is_some()
        };
        self.bounds = bounds;
        if look.negative {
            // A group inside keeps nothing.
            while self.stack.len() > base {
                match self.stack.pop() {
                    Some(Entry::Slot { slot, old }) => self.slots[slot] = old,
                    Some(Entry::Counter { counter, old }) => self.counters[counter] = old,
                    _ => {}
                }
            }
        }
        found != look.negative
    }

    fn backreference(&mut self, group: usize, ignore_case: bool, at: usize) -> Option<usize> {
        let (start, end) = match self.slots.get(2 * group..2 * group + 2) {
            Some(&[start, end]) if start != UNSET && end != UNSET => (start, end),
            _ => return None,
        };
        let length = end - start;
        if at + length > self.bounds.end {
            self.hit_end = true;
            return None;
        }
        let units = self.input.units;
        let same = |(&a, &b): (&u16, &u16)| {
            let (a, b) = (u32::from(a), u32::from(b));
            a == b || ignore_case && lower(upper(a)) == lower(upper(b))
        };
        units[start..end].iter().zip(&units[at..at + length]).all(same).then_some(at + length)
    }

    fn is_at(&mut self, place: Place, at: usize) -> bool {
        let anchors = match self.input.anchoring {
            true => self.input.region.clone(),
            false => 0..self.input.units.len(),
        };
        let units = self.input.units;
        let unit = |at: usize| u32::from(units[at]);
        let is_end = |unix, at| line_ends(unix).contains(unit(at));
        // Between a carriage return and a line feed no line begins or ends.
        let splits_pair = |unix: bool, at: usize| {
            !unix
                && at > anchors.start
                && at < anchors.end
                && unit(at - 1) == 0x0d
                && unit(at) == 0x0a
        };
        if at == anchors.end
            && matches!(place, Place::End | Place::EndOrLastLine(_) | Place::LineEnd(_))
        {
            self.hit_end = true;
            self.require_end = true;
            return true;
        }
        match place {
            Place::Begin => at == anchors.start,
            Place::End => false,
            Place::EndOrLastLine(unix) => {
                let left = anchors.end - at;
                let last = left == 1 && is_end(unix, at)
                    || left == 2 && !unix && unit(at) == 0x0d && unit(at + 1) == 0x0a;
                let found = last && !splits_pair(unix, at);
                self.hit_end |= found;
                self.require_end |= found;
                found
            }
            Place::LineBegin(unix) => {
                at == anchors.start
                    || at < anchors.end && is_end(unix, at - 1) && !splits_pair(unix, at)
            }
            Place::LineEnd(unix) => is_end(unix, at) && !splits_pair(unix, at),
            Place::WordBoundary => self.at_word_boundary(at),
            Place::NoWordBoundary => !self.at_word_boundary(at),
            Place::LastMatchEnd => at == self.input.last_end,
        }
    }

    fn at_word_boundary(&mut self, at: usize) -> bool {
        let seen = match self.input.transparent {
            true => 0..self.input.units.len(),
            false => self.input.region.clone(),
        };
        let is_word = |c: u32| {
            c == 0x5f || char::from_u32(c).is_some_and(|c| c.is_alphabetic() || c.is_numeric())
        };
        let units = &self.input.units[..seen.end];
        let before = at > seen.start && code_point(units, self.back(at)).is_some_and(is_word);
        let after = code_point(units, at).is_some_and(is_word);
        if at == seen.end {
            self.hit_end = true;
            self.require_end = true;
        }
        before != after
    }
}
