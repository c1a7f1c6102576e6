//! Sets of code points: sorted ranges, and a bitmap of the first 128 for a quick answer.

use std::sync::OnceLock;

/// The greatest code point.
pub const LAST: u32 = 0x10_ffff;

/// A set of code points. Ranges are sorted, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    ranges: Vec<(u32, u32)>,
    ascii: u128,
}

impl Set {
    /// The set of the given inclusive ranges, in any order.
    pub fn of(ranges: &[(u32, u32)]) -> Set {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
        for (low, high) in sorted {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        let mut ascii = 0;
        for &(low, high) in &merged {
            for c in low..=high.min(127) {
                ascii |= 1 << c;
            }
        }
        Set { ranges: merged, ascii }
    }

    /// The set of one code point.
    pub fn single(c: u32) -> Set {
        Set::of(&[(c, c)])
    }

    /// The ranges, sorted, both ends inclusive.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Whether a code point is in the set.
    pub fn contains(&self, c: u32) -> bool {
        if c < 128 {
            return self.ascii >> c & 1 == 1;
        }
        let after = self.ranges.partition_point(|&(low, _)| low <= c);
        after > 0 && c <= self.ranges[after - 1].1
    }

    /// The members of either set.
    pub fn union(&self, other: &Set) -> Set {
        Set::of(&[self.ranges.as_slice(), other.ranges.as_slice()].concat())
    }

    /// The code points that are not in the set.
    pub fn complement(&self) -> Set {
        let mut out = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.ranges {
            if low > next {
                out.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            out.push((next, LAST));
        }
        Set::of(&out)
    }

    /// The members of both sets.
    pub fn intersection(&self, other: &Set) -> Set {
        self.complement().union(&other.complement()).complement()
    }

    /// The set with the other case of every member.
    pub fn close_over_case(&self) -> Set {
        let mut ranges = self.ranges.clone();
        for &(c, folded) in case_pairs() {
            if self.contains(c) {
                ranges.push((folded, folded));
            }
        }
        Set::of(&ranges)
    }
}

/// The lower case of a code point by its simple mapping.
pub fn lower(c: u32) -> u32 {
    let Some(c) = char::from_u32(c) else { return c };
    let mut mapped = c.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one as u32,
        _ => c as u32,
    }
}

/// The upper case of a code point by its simple mapping.
pub fn upper(c: u32) -> u32 {
    let Some(c) = char::from_u32(c) else { return c };
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one as u32,
        _ => c as u32,
    }
}

/// Every pair of different code points that are equal without regard to case.
fn case_pairs() -> &'static [(u32, u32)] {
    static PAIRS: OnceLock<Vec<(u32, u32)>> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let mut pairs = Vec::new();
        for c in 0..=0x1_ffff {
            for other in [lower(c), upper(c), lower(upper(c))] {
                if other != c {
                    pairs.push((c, other));
                    pairs.push((other, c));
                }
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    })
}

/// `\d`
pub fn digits() -> Set {
    Set::of(&[(0x30, 0x39)])
}

/// `\w`
pub fn word() -> Set {
    Set::of(&[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)])
}

/// `\s`
pub fn space() -> Set {
    Set::of(&[(0x09, 0x0d), (0x20, 0x20)])
}

/// `\h`
pub fn horizontal() -> Set {
    Set::of(&[
        (0x09, 0x09),
        (0x20, 0x20),
        (0xa0, 0xa0),
        (0x1680, 0x1680),
        (0x180e, 0x180e),
        (0x2000, 0x200a),
        (0x202f, 0x202f),
        (0x205f, 0x205f),
        (0x3000, 0x3000),
    ])
}

/// `\v`
pub fn vertical() -> Set {
    Set::of(&[(0x0a, 0x0d), (0x85, 0x85), (0x2028, 0x2029)])
}

/// The characters that end a line.
pub fn line_ends(unix: bool) -> Set {
    match unix {
        true => Set::single(0x0a),
        false => Set::of(&[(0x0a, 0x0a), (0x0d, 0x0d), (0x85, 0x85), (0x2028, 0x2029)]),
    }
}

/// The set of a property as `\p{name}` gives it: POSIX and `java` classes, categories, scripts,
/// binary properties (with or without `Is`), and the common blocks (`In`).
pub fn property(name: &str) -> Option<Set> {
    let posix = |ranges: &[(u32, u32)]| Some(Set::of(ranges));
    match name {
        "Lower" => return posix(&[(0x61, 0x7a)]),
        "Upper" => return posix(&[(0x41, 0x5a)]),
        "ASCII" => return posix(&[(0, 0x7f)]),
        "Alpha" => return posix(&[(0x41, 0x5a), (0x61, 0x7a)]),
        "Digit" => return Some(digits()),
        "Alnum" => return posix(&[(0x30, 0x39), (0x41, 0x5a), (0x61, 0x7a)]),
        "Punct" => return posix(&[(0x21, 0x2f), (0x3a, 0x40), (0x5b, 0x60), (0x7b, 0x7e)]),
        "Graph" => return posix(&[(0x21, 0x7e)]),
        "Print" => return posix(&[(0x20, 0x7e)]),
        "Blank" => return posix(&[(0x09, 0x09), (0x20, 0x20)]),
        "Cntrl" => return posix(&[(0, 0x1f), (0x7f, 0x7f)]),
        "XDigit" => return posix(&[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
        "Space" => return Some(space()),
        "all" => return posix(&[(0, LAST)]),
        "L1" => return posix(&[(0, 0xff)]),
        "javaLowerCase" => return unicode("Lowercase"),
        "javaUpperCase" => return unicode("Uppercase"),
        "javaAlphabetic" => return unicode("Alphabetic"),
        "javaTitleCase" => return unicode("Lt"),
        "javaDigit" => return unicode("Nd"),
        "javaDefined" => return unicode("Cn").map(|s| s.complement()),
        "javaLetter" => return unicode("L"),
        "javaLetterOrDigit" => return Some(unicode("L")?.union(&unicode("Nd")?)),
        "javaSpaceChar" => return unicode("Z"),
        "javaISOControl" => return posix(&[(0, 0x1f), (0x7f, 0x9f)]),
        "javaWhitespace" => {
            let kept = Set::of(&[(0xa0, 0xa0), (0x2007, 0x2007), (0x202f, 0x202f)]);
            let spaces = unicode("Z")?.intersection(&kept.complement());
            return Some(spaces.union(&Set::of(&[(0x09, 0x0d), (0x1c, 0x1f)])));
        }
        _ => {}
    }
    if let Some(block) = name.strip_prefix("In") {
        return block_named(block);
    }
    let name = name.strip_prefix("Is").unwrap_or(name);
    unicode(name)
}

/// A block by its name without spaces, hyphens and underscores.
fn block_named(name: &str) -> Option<Set> {
    let plain: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_lowercase();
    let range = match plain.as_str() {
        "basiclatin" => (0, 0x7f),
        "latin1supplement" => (0x80, 0xff),
        "latinextendeda" => (0x100, 0x17f),
        "latinextendedb" => (0x180, 0x24f),
        "combiningdiacriticalmarks" => (0x300, 0x36f),
        "greek" | "greekandcoptic" => (0x370, 0x3ff),
        "cyrillic" => (0x400, 0x4ff),
        "armenian" => (0x530, 0x58f),
        "hebrew" => (0x590, 0x5ff),
        "arabic" => (0x600, 0x6ff),
        "devanagari" => (0x900, 0x97f),
        "thai" => (0xe00, 0xe7f),
        "hanguljamo" => (0x1100, 0x11ff),
        "generalpunctuation" => (0x2000, 0x206f),
        "hiragana" => (0x3040, 0x309f),
        "katakana" => (0x30a0, 0x30ff),
        "cjkunifiedideographs" => (0x4e00, 0x9fff),
        "hangulsyllables" => (0xac00, 0xd7af),
        _ => return None,
    };
    Some(Set::of(&[range]))
}

/// A category, script or binary property, from `regex-syntax`'s tables.
fn unicode(name: &str) -> Option<Set> {
    // Two categories whose members no `char` can be.
    match name {
        "Cs" | "Surrogate" => Some(Set::of(&[(0xd800, 0xdfff)])),
        "C" | "Other" => Some(hir(name)?.union(&Set::of(&[(0xd800, 0xdfff)]))),
        _ => hir(name),
    }
}

fn hir(name: &str) -> Option<Set> {
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_ =".contains(c)) {
        return None;
    }
    let hir = regex_syntax::Parser::new().parse(&format!(r"\p{{{name}}}")).ok()?;
    match hir.into_kind() {
        regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            let ranges: Vec<_> =
                class.ranges().iter().map(|r| (r.start() as u32, r.end() as u32)).collect();
            Some(Set::of(&ranges))
        }
        _ => None,
    }
}
