//! From a tree to a program.

use super::parse::{Greed, Look, Node, Parsed, Place, longest, shortest};
use super::set::Set;

/// An index of an instruction.
pub type Pc = usize;

#[derive(Debug)]
pub enum Op {
    /// Takes one code point of a set.
    Set(Set),
    /// Takes code points of a set, and keeps the branches in one entry of the stack.
    RepeatSet {
        set: Set,
        min: u32,
        max: u32,
        greed: Greed,
    },
    Place(Place),
    Backreference {
        group: usize,
        ignore_case: bool,
    },
    /// Stores the place as a bound of a group.
    Save(usize),
    Jump(Pc),
    /// Goes on with the first, and with the second if that fails.
    Split(Pc, Pc),
    /// Begins a loop: no iteration so far.
    LoopBegin(usize),
    /// Decides between one more iteration (the next instruction) and the exit.
    Loop {
        counter: usize,
        min: u32,
        max: u32,
        greed: Greed,
        exit: Pc,
    },
    /// Counts an iteration.
    LoopEnter(usize),
    /// Matches up to [`Op::Done`] without regard to what follows, then goes on at `next`.
    Atomic {
        next: Pc,
    },
    /// Looks ahead, or behind from `shortest` to `longest` units before, up to [`Op::Done`].
    Look {
        look: Look,
        shortest: usize,
        longest: usize,
        next: Pc,
    },
    /// Ends a look behind: the place is the one it began from.
    BehindEnd,
    /// Ends the part that is matched apart, or the whole.
    Done,
}

#[derive(Debug)]
pub struct Program {
    pub ops: Vec<Op>,
    pub groups: usize,
    pub counters: usize,
    /// The code points that a match can begin with, if every match begins with one.
    pub first: Option<Set>,
}

pub fn compile(parsed: Parsed) -> Program {
    let first = first(&parsed.root);
    let mut compiler = Compiler { ops: Vec::new(), counters: 0 };
    compiler.node(parsed.root);
    compiler.ops.push(Op::Done);
    Program { ops: compiler.ops, groups: parsed.groups, counters: compiler.counters, first }
}

fn first(node: &Node) -> Option<Set> {
    match node {
        Node::Set(set) => Some(set.clone()),
        Node::Group(_, inner) | Node::Atomic(inner) => first(inner),
        Node::Sequence(nodes) => first(nodes.first()?),
        Node::Alternatives(nodes) => {
            nodes.iter().try_fold(Set::default(), |all, node| Some(all.union(&first(node)?)))
        }
        Node::Repeat { node, min: 1.., .. } => first(node),
        _ => None,
    }
}

struct Compiler {
    ops: Vec<Op>,
    counters: usize,
}

impl Compiler {
    /// An instruction whose target is known later.
    fn reserve(&mut self) -> Pc {
        self.ops.push(Op::Done);
        self.ops.len() - 1
    }

    fn node(&mut self, node: Node) {
        match node {
            Node::Empty => {}
            Node::Set(set) => self.ops.push(Op::Set(set)),
            Node::Place(place) => self.ops.push(Op::Place(place)),
            Node::Backreference { group, ignore_case } => {
                self.ops.push(Op::Backreference { group, ignore_case });
            }
            Node::Group(None, inner) => self.node(*inner),
            Node::Group(Some(group), inner) => {
                self.ops.push(Op::Save(2 * group));
                self.node(*inner);
                self.ops.push(Op::Save(2 * group + 1));
            }
            Node::Atomic(inner) => self.atomic(*inner),
            Node::Look(look, inner) => {
                let (shortest, longest) = (shortest(&inner), longest(&inner).unwrap_or(0));
                let at = self.reserve();
                self.node(*inner);
                if look.behind {
                    self.ops.push(Op::BehindEnd);
                }
                self.ops.push(Op::Done);
                self.ops[at] = Op::Look { look, shortest, longest, next: self.ops.len() };
            }
            Node::Sequence(nodes) => nodes.into_iter().for_each(|node| self.node(node)),
            Node::Alternatives(nodes) => self.alternatives(nodes),
            Node::Repeat { node, min, max, greed } => {
                self.repeat(*node, min, max.unwrap_or(u32::MAX), greed);
            }
        }
    }

    fn atomic(&mut self, inner: Node) {
        let at = self.reserve();
        self.node(inner);
        self.ops.push(Op::Done);
        self.ops[at] = Op::Atomic { next: self.ops.len() };
    }

    fn alternatives(&mut self, nodes: Vec<Node>) {
        let last = nodes.len() - 1;
        let mut ends = Vec::new();
        for (i, node) in nodes.into_iter().enumerate() {
            if i == last {
                self.node(node);
                break;
            }
            let at = self.reserve();
            self.node(node);
            ends.push(self.reserve());
            self.ops[at] = Op::Split(at + 1, self.ops.len());
        }
        for end in ends {
            self.ops[end] = Op::Jump(self.ops.len());
        }
    }

    fn repeat(&mut self, node: Node, min: u32, max: u32, greed: Greed) {
        match node {
            Node::Set(set) => self.ops.push(Op::RepeatSet { set, min, max, greed }),
            node if greed == Greed::Possessive => {
                let node = Box::new(node);
                let max = (max != u32::MAX).then_some(max);
                self.atomic(Node::Repeat { node, min, max, greed: Greed::Greedy });
            }
            node => {
                let counter = self.counters;
                self.counters += 1;
                self.ops.push(Op::LoopBegin(counter));
                let head = self.reserve();
                self.ops.push(Op::LoopEnter(counter));
                self.node(node);
                self.ops.push(Op::Jump(head));
                self.ops[head] = Op::Loop { counter, min, max, greed, exit: self.ops.len() };
            }
        }
    }
}
