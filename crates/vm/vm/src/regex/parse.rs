//! From a pattern to its tree.

use super::flags::{CASE_INSENSITIVE, COMMENTS, DOTALL, MULTILINE, UNIX_LINES};
use super::set::{self, Set};

/// Groups may nest this deep. Each level costs the parser and the compiler one stack frame.
const MAX_DEPTH: usize = 200;

/// The greatest number in a quantifier.
const MAX_REPEAT: u32 = i32::MAX as u32;

/// What is wrong with a pattern, and where: an index of a UTF-16 unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// `PatternSyntaxException`'s description.
    pub description: &'static str,
    /// `PatternSyntaxException`'s index.
    pub index: usize,
}

/// How a quantifier treats its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greed {
    /// As many as possible, then fewer.
    Greedy,
    /// As few as possible, then more.
    Lazy,
    /// As many as possible.
    Possessive,
}

/// A place in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `\A`, and `^` without MULTILINE.
    Begin,
    /// `\z`
    End,
    /// `\Z`, and `$` without MULTILINE; true with UNIX_LINES.
    EndOrLastLine(bool),
    /// `^` with MULTILINE; true with UNIX_LINES.
    LineBegin(bool),
    /// `$` with MULTILINE; true with UNIX_LINES.
    LineEnd(bool),
    /// `\b`
    WordBoundary,
    /// `\B`
    NoWordBoundary,
    /// `\G`
    LastMatchEnd,
}

/// Which side of the current place a lookaround looks at, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub behind: bool,
    pub negative: bool,
}

#[derive(Debug)]
pub enum Node {
    Empty,
    /// One code point out of a set.
    Set(Set),
    Place(Place),
    Group(Option<usize>, Box<Node>),
    Atomic(Box<Node>),
    Look(Look, Box<Node>),
    Backreference {
        group: usize,
        ignore_case: bool,
    },
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    Repeat {
        node: Box<Node>,
        min: u32,
        max: Option<u32>,
        greed: Greed,
    },
}

/// A parsed pattern.
pub struct Parsed {
    pub root: Node,
    pub groups: usize,
}

struct Parser<'a> {
    units: &'a [u16],
    at: usize,
    flags: u32,
    groups: usize,
    names: Vec<(String, usize)>,
    depth: usize,
}

/// Parses a pattern.
pub fn parse(units: &[u16], flags: u32) -> Result<Parsed, SyntaxError> {
    let mut parser = Parser { units, at: 0, flags, groups: 0, names: Vec::new(), depth: 0 };
    let root = parser.alternatives()?;
    if parser.at < units.len() {
        return Err(parser.error("Unmatched closing ')'"));
    }
    Ok(Parsed { root, groups: parser.groups })
}

type Parse<T> = Result<T, SyntaxError>;

impl Parser<'_> {
    fn error(&self, description: &'static str) -> SyntaxError {
        SyntaxError { description, index: self.at.min(self.units.len()) }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn peek(&self) -> Option<u32> {
        code_point(self.units, self.at)
    }

    fn next(&mut self) -> Option<u32> {
        let c = self.peek()?;
        self.at += if c > 0xffff { 2 } else { 1 };
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let matches = text
            .bytes()
            .enumerate()
            .all(|(i, b)| self.units.get(self.at + i) == Some(&u16::from(b)));
        if matches {
            self.at += text.len();
        }
        matches
    }

    /// Passes white space and comments if the flag says so.
    fn skip_comments(&mut self) {
        while self.has(COMMENTS) {
            match self.peek() {
                Some(c) if set::space().contains(c) => self.at += 1,
                Some(0x23) => {
                    let ends = set::line_ends(self.has(UNIX_LINES));
                    while self.next().is_some_and(|c| !ends.contains(c)) {}
                }
                _ => return,
            }
        }
    }

    fn alternatives(&mut self) -> Parse<Node> {
        let mut all = vec![self.sequence()?];
        while self.eat("|") {
            all.push(self.sequence()?);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::Alternatives(all) })
    }

    fn sequence(&mut self) -> Parse<Node> {
        let mut nodes = Vec::new();
        loop {
            self.skip_comments();
            match self.peek() {
                None | Some(0x7c | 0x29) => break,
                _ => {}
            }
            if self.eat("\\Q") {
                self.quoted(&mut nodes)?;
                continue;
            }
            if let Some(node) = self.atom()? {
                nodes.push(self.quantified(node)?);
            }
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.swap_remove(0),
            _ => Node::Sequence(nodes),
        })
    }

    /// The literal text up to `\E`; a quantifier applies to its last character.
    fn quoted(&mut self, nodes: &mut Vec<Node>) -> Parse<()> {
        let before = nodes.len();
        while self.at < self.units.len() && !self.eat("\\E") {
            let c = self.next().expect("a unit is left");
            nodes.push(self.literal(c));
        }
        if nodes.len() > before {
            let last = nodes.pop().expect("a node was pushed");
            nodes.push(self.quantified(last)?);
        }
        Ok(())
    }

    fn literal(&self, c: u32) -> Node {
        let single = Set::single(c);
        Node::Set(if self.has(CASE_INSENSITIVE) { single.close_over_case() } else { single })
    }

    /// One operand of a quantifier; `None` after a flag that stands alone.
    fn atom(&mut self) -> Parse<Option<Node>> {
        let start = self.at;
        let Some(c) = self.next() else { return Ok(None) };
        let unix = self.has(UNIX_LINES);
        Ok(Some(match char::from_u32(c) {
            Some('.') if self.has(DOTALL) => Node::Set(Set::of(&[(0, set::LAST)])),
            Some('.') => Node::Set(set::line_ends(unix).complement()),
            Some('^') if self.has(MULTILINE) => Node::Place(Place::LineBegin(unix)),
            Some('^') => Node::Place(Place::Begin),
            Some('$') if self.has(MULTILINE) => Node::Place(Place::LineEnd(unix)),
            Some('$') => Node::Place(Place::EndOrLastLine(unix)),
            Some('(') => return self.group(),
            Some('[') => Node::Set(self.class()?),
            Some('*' | '+' | '?') => {
                self.at = start;
                return Err(self.error("Dangling meta character"));
            }
            Some('\\') => self.escape()?,
            _ => self.literal(c),
        }))
    }

    fn quantified(&mut self, node: Node) -> Parse<Node> {
        let mut node = node;
        loop {
            self.skip_comments();
            let (min, max) = match self.peek() {
                Some(0x2a) => (0, None),
                Some(0x2b) => (1, None),
                Some(0x3f) => (0, Some(1)),
                Some(0x7b) => {
                    self.at += 1;
                    let bounds = self.bounds()?;
                    // The common step below passes the closing brace.
                    self.at -= 1;
                    bounds
                }
                _ => return Ok(node),
            };
            self.at += 1;
            let greed = match () {
                () if self.eat("?") => Greed::Lazy,
                () if self.eat("+") => Greed::Possessive,
                () => Greed::Greedy,
            };
            node = Node::Repeat { node: Box::new(node), min, max, greed };
        }
    }

    fn bounds(&mut self) -> Parse<(u32, Option<u32>)> {
        let min = self.number()?;
        let max = match self.eat(",") {
            false => Some(min),
            true if self.peek() == Some(0x7d) => None,
            true => Some(self.number()?),
        };
        if !self.eat("}") {
            return Err(self.error("Unclosed counted closure"));
        }
        match max {
            Some(max) if max < min => Err(self.error("Illegal repetition range")),
            _ => Ok((min, max)),
        }
    }

    fn number(&mut self) -> Parse<u32> {
        let start = self.at;
        let mut value: u32 = 0;
        while let Some(digit) = self.peek().and_then(char::from_u32).and_then(|c| c.to_digit(10)) {
            value = value.checked_mul(10).and_then(|v| v.checked_add(digit)).unwrap_or(u32::MAX);
            if value > MAX_REPEAT {
                return Err(self.error("Illegal repetition range"));
            }
            self.at += 1;
        }
        if self.at == start { Err(self.error("Illegal repetition")) } else { Ok(value) }
    }

    fn group(&mut self) -> Parse<Option<Node>> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("Groups nest too deep"));
        }
        let node = self.group_at_depth();
        self.depth -= 1;
        node
    }

    fn group_at_depth(&mut self) -> Parse<Option<Node>> {
        let flags = self.flags;
        let mut look = None;
        let mut atomic = false;
        let mut index = None;
        if self.eat("?") {
            match () {
                () if self.eat(":") => {}
                () if self.eat("=") => look = Some(Look { behind: false, negative: false }),
                () if self.eat("!") => look = Some(Look { behind: false, negative: true }),
                () if self.eat("<=") => look = Some(Look { behind: true, negative: false }),
                () if self.eat("<!") => look = Some(Look { behind: true, negative: true }),
                () if self.eat(">") => atomic = true,
                () if self.eat("#") => {
                    while self.next().is_some_and(|c| c != 0x29) {}
                    return Ok(None);
                }
                () if self.eat("<") => {
                    let name = self.name()?;
                    if self.names.iter().any(|(known, _)| *known == name) {
                        return Err(self.error("Named capturing group is already defined"));
                    }
                    self.groups += 1;
                    self.names.push((name, self.groups));
                    index = Some(self.groups);
                }
                () => {
                    self.read_flags()?;
                    if self.eat(")") {
                        return Ok(None);
                    }
                    if !self.eat(":") {
                        return Err(self.error("Unknown inline modifier"));
                    }
                }
            }
        } else {
            self.groups += 1;
            index = Some(self.groups);
        }
        let inner = Box::new(self.alternatives()?);
        if !self.eat(")") {
            return Err(self.error("Unclosed group"));
        }
        self.flags = flags;
        Ok(Some(match look {
            Some(look) if look.behind && longest(&inner).is_none() => {
                return Err(self.error("Look-behind group does not have an obvious maximum length"));
            }
            Some(look) => Node::Look(look, inner),
            None if atomic => Node::Atomic(inner),
            None => Node::Group(index, inner),
        }))
    }

    fn read_flags(&mut self) -> Parse<()> {
        let mut on = true;
        loop {
            let flag = match self.peek().and_then(char::from_u32) {
                Some('i') => CASE_INSENSITIVE,
                Some('d') => UNIX_LINES,
                Some('m') => MULTILINE,
                Some('s') => DOTALL,
                Some('x') => COMMENTS,
                // Unicode's case mappings apply without this flag.
                Some('u' | 'U') => 0,
                Some('-') if on => {
                    on = false;
                    0
                }
                _ => return Ok(()),
            };
            self.at += 1;
            if on { self.flags |= flag } else { self.flags &= !flag }
        }
    }

    fn name(&mut self) -> Parse<String> {
        let mut name = String::new();
        loop {
            match self.next().and_then(char::from_u32) {
                Some('>') if !name.is_empty() => return Ok(name),
                Some(c) if c.is_ascii_alphabetic() => name.push(c),
                Some(c) if c.is_ascii_digit() && !name.is_empty() => name.push(c),
                _ => return Err(self.error("Named capturing group has no good name")),
            }
        }
    }

    fn escape(&mut self) -> Parse<Node> {
        let Some(c) = self.peek() else {
            return Err(self.error("Unexpected internal error"));
        };
        let ignore_case = self.has(CASE_INSENSITIVE);
        let unix = self.has(UNIX_LINES);
        let place = match char::from_u32(c) {
            Some('A') => Place::Begin,
            Some('z') => Place::End,
            Some('Z') => Place::EndOrLastLine(unix),
            Some('b') => Place::WordBoundary,
            Some('B') => Place::NoWordBoundary,
            Some('G') => Place::LastMatchEnd,
            Some('R') => {
                self.at += 1;
                let pair = Node::Sequence(vec![
                    Node::Set(Set::single(0x0d)),
                    Node::Set(Set::single(0x0a)),
                ]);
                return Ok(Node::Alternatives(vec![pair, Node::Set(set::vertical())]));
            }
            Some('k') => {
                self.at += 1;
                if !self.eat("<") {
                    return Err(self.error("\\k is not followed by '<' for named capturing group"));
                }
                let name = self.name()?;
                return match self.names.iter().find(|(known, _)| *known == name) {
                    Some(&(_, group)) => Ok(Node::Backreference { group, ignore_case }),
                    None => Err(self.error("Named capturing group does not exist")),
                };
            }
            Some('1'..='9') => return Ok(self.backreference(ignore_case)),
            _ => {
                let set = self.class_escape()?;
                return Ok(Node::Set(if ignore_case { set.close_over_case() } else { set }));
            }
        };
        self.at += 1;
        Ok(Node::Place(place))
    }

    /// A decimal number: more digits belong to it as long as so many groups came before.
    fn backreference(&mut self, ignore_case: bool) -> Node {
        let mut group = 0;
        while let Some(digit) = self.peek().and_then(char::from_u32).and_then(|c| c.to_digit(10)) {
            let longer = group * 10 + digit as usize;
            if group > 0 && longer > self.groups {
                break;
            }
            group = longer;
            self.at += 1;
        }
        Node::Backreference { group, ignore_case }
    }

    /// An escape that stands for one code point or for a class of them.
    fn class_escape(&mut self) -> Parse<Set> {
        let Some(c) = self.next() else { return Err(self.error("Illegal escape sequence")) };
        let single = match char::from_u32(c) {
            Some('d') => return Ok(set::digits()),
            Some('D') => return Ok(set::digits().complement()),
            Some('w') => return Ok(set::word()),
            Some('W') => return Ok(set::word().complement()),
            Some('s') => return Ok(set::space()),
            Some('S') => return Ok(set::space().complement()),
            Some('h') => return Ok(set::horizontal()),
            Some('H') => return Ok(set::horizontal().complement()),
            Some('v') => return Ok(set::vertical()),
            Some('V') => return Ok(set::vertical().complement()),
            Some(kind @ ('p' | 'P')) => return self.property(kind == 'P'),
            Some('t') => 0x09,
            Some('n') => 0x0a,
            Some('r') => 0x0d,
            Some('f') => 0x0c,
            Some('a') => 0x07,
            Some('e') => 0x1b,
            Some('c') => match self.next() {
                Some(control) => control ^ 64,
                None => return Err(self.error("Illegal control escape sequence")),
            },
            Some('0') => self.octal()?,
            Some('x') if self.eat("{") => {
                let value = self.hexadecimal(1, 6)?;
                if !self.eat("}") || value > set::LAST {
                    return Err(self.error("Hexadecimal codepoint is too big"));
                }
                value
            }
            Some('x') => self.hexadecimal(2, 2)?,
            Some('u') => {
                let high = self.hexadecimal(4, 4)?;
                let back = self.at;
                match high {
                    0xd800..=0xdbff if self.eat("\\u") => match self.hexadecimal(4, 4)? {
                        low @ 0xdc00..=0xdfff => 0x1_0000 + ((high - 0xd800) << 10) + low - 0xdc00,
                        _ => {
                            self.at = back;
                            high
                        }
                    },
                    _ => high,
                }
            }
            Some(letter) if letter.is_ascii_alphabetic() => {
                self.at -= 1;
                return Err(self.error("Illegal/unsupported escape sequence"));
            }
            _ => c,
        };
        Ok(Set::single(single))
    }

    fn octal(&mut self) -> Parse<u32> {
        let mut value = 0;
        let mut digits = 0;
        while let Some(digit) = self.peek().and_then(char::from_u32).and_then(|c| c.to_digit(8)) {
            if digits == 3 || value * 8 + digit > 0o377 {
                break;
            }
            value = value * 8 + digit;
            digits += 1;
            self.at += 1;
        }
        if digits == 0 { Err(self.error("Illegal octal escape sequence")) } else { Ok(value) }
    }

    fn hexadecimal(&mut self, min: usize, max: usize) -> Parse<u32> {
        let mut value = 0;
        for digits in 0..max {
            match self.peek().and_then(char::from_u32).and_then(|c| c.to_digit(16)) {
                Some(digit) => value = value * 16 + digit,
                None if digits >= min => break,
                None => return Err(self.error("Illegal hexadecimal escape sequence")),
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn property(&mut self, negative: bool) -> Parse<Set> {
        let mut name = String::new();
        if self.eat("{") {
            loop {
                match self.next().and_then(char::from_u32) {
                    Some('}') => break,
                    Some(c) => name.push(c),
                    None => return Err(self.error("Unclosed character family")),
                }
            }
        } else if let Some(c) = self.next().and_then(char::from_u32) {
            name.push(c);
        }
        let negated = name.strip_prefix('^').map(str::to_owned);
        let negative = negative != negated.is_some();
        match set::property(negated.as_deref().unwrap_or(&name)) {
            Some(set) => Ok(if negative { set.complement() } else { set }),
            None => Err(self.error("Unknown character property name")),
        }
    }

    /// A class after its `[`.
    fn class(&mut self) -> Parse<Set> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("Groups nest too deep"));
        }
        let negative = self.eat("^");
        let mut left: Option<Set> = None;
        let mut current: Option<Set> = None;
        let add = |current: &mut Option<Set>, set: Set| {
            *current = Some(current.take().map_or_else(|| set.clone(), |c| c.union(&set)));
        };
        loop {
            self.skip_comments();
            if self.eat("&&") {
                left = intersect(left, current.take());
                continue;
            }
            if self.eat("\\Q") {
                while self.at < self.units.len() && !self.eat("\\E") {
                    let c = self.next().expect("a unit is left");
                    add(&mut current, Set::single(c));
                }
                continue;
            }
            match self.peek() {
                None => return Err(self.error("Unclosed character class")),
                Some(0x5d) if left.is_some() || current.is_some() => {
                    self.at += 1;
                    break;
                }
                Some(0x5b) => {
                    self.at += 1;
                    let nested = self.class()?;
                    add(&mut current, nested);
                }
                Some(_) => {
                    let range = self.class_range()?;
                    add(&mut current, range);
                }
            }
        }
        self.depth -= 1;
        let mut set = intersect(left, current).unwrap_or_default();
        if self.has(CASE_INSENSITIVE) {
            set = set.close_over_case();
        }
        Ok(if negative { set.complement() } else { set })
    }

    /// One character, one class escape, or a range.
    fn class_range(&mut self) -> Parse<Set> {
        let low = match self.class_atom()? {
            Ok(low) => low,
            Err(set) => return Ok(set),
        };
        // A hyphen before the end of the class, or before an inner class, stands for itself.
        let follows = self.units.get(self.at + 1).copied();
        if self.peek() != Some(0x2d) || matches!(follows, None | Some(0x5d | 0x5b)) {
            return Ok(Set::single(low));
        }
        self.at += 1;
        match self.class_atom()? {
            Ok(high) if high >= low => Ok(Set::of(&[(low, high)])),
            Ok(_) => Err(self.error("Illegal character range")),
            Err(set) => Ok(set.union(&Set::of(&[(low, low), (0x2d, 0x2d)]))),
        }
    }

    /// A code point, or the set of an escape that stands for several.
    fn class_atom(&mut self) -> Parse<Result<u32, Set>> {
        match self.next() {
            Some(0x5c) => {
                let set = self.class_escape()?;
                Ok(set.only().ok_or(set))
            }
            Some(c) => Ok(Ok(c)),
            None => Err(self.error("Unclosed character class")),
        }
    }
}

impl Set {
    /// The only member.
    fn only(&self) -> Option<u32> {
        match *self.ranges() {
            [(low, high)] if low == high => Some(low),
            _ => None,
        }
    }
}

fn intersect(left: Option<Set>, right: Option<Set>) -> Option<Set> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.intersection(&right)),
        (left, right) => left.or(right),
    }
}

/// The code point at an index: a pair of surrogates is one, a surrogate alone is one.
pub fn code_point(units: &[u16], at: usize) -> Option<u32> {
    let first = u32::from(*units.get(at)?);
    if let (0xd800..=0xdbff, Some(&second @ 0xdc00..=0xdfff)) = (first, units.get(at + 1)) {
        return Some(0x1_0000 + ((first - 0xd800) << 10) + (u32::from(second) - 0xdc00));
    }
    Some(first)
}

/// The least number of units that a node matches.
pub fn shortest(node: &Node) -> usize {
    match node {
        Node::Empty | Node::Place(_) | Node::Look(..) | Node::Backreference { .. } => 0,
        Node::Set(_) => 1,
        Node::Group(_, inner) | Node::Atomic(inner) => shortest(inner),
        Node::Sequence(nodes) => nodes.iter().map(shortest).fold(0, usize::saturating_add),
        Node::Alternatives(nodes) => nodes.iter().map(shortest).min().unwrap_or(0),
        Node::Repeat { node, min, .. } => shortest(node).saturating_mul(*min as usize),
    }
}

/// The greatest number of units that a node matches, if a bound exists.
pub fn longest(node: &Node) -> Option<usize> {
    match node {
        Node::Empty | Node::Place(_) | Node::Look(..) => Some(0),
        Node::Set(_) => Some(2),
        Node::Group(_, inner) | Node::Atomic(inner) => longest(inner),
        Node::Sequence(nodes) => {
            nodes.iter().try_fold(0usize, |sum, node| sum.checked_add(longest(node)?))
        }
        Node::Alternatives(nodes) => {
            nodes.iter().try_fold(0, |most, node| Some(longest(node)?.max(most)))
        }
        Node::Repeat { node, max, .. } => longest(node)?.checked_mul((*max)? as usize),
        Node::Backreference { .. } => None,
    }
}
