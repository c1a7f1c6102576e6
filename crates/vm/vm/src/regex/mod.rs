//! Java's regular expressions over UTF-16: `java.util.regex` without its Java half.
//!
//! [`Pattern::compile`] parses a pattern into a tree, and compiles the tree into a program for a
//! backtracking machine. The machine keeps its branches in a vector, so that no input overflows
//! the stack. Groups that are matched apart (lookaround, atomic groups) nest as deep as the
//! pattern does, and the parser bounds this depth.
//!
//! Meaning follows `java.util.regex.Pattern`: leftmost match, ordered alternatives, possessive
//! quantifiers, class intersection, regions with anchoring and transparent bounds. A letter
//! matches without regard to case by Unicode's simple mappings, as on Android.

mod compile;
mod exec;
mod flags;
mod parse;
mod set;

pub use exec::{Input, Outcome};
pub use parse::SyntaxError;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    program: compile::Program,
}

impl Pattern {
    /// Compiles a pattern with Java's flags.
    pub fn compile(pattern: &[u16], flags: u32) -> Result<Pattern, SyntaxError> {
        let parsed = parse::parse(pattern, flags)?;
        Ok(Pattern { program: compile::compile(parsed) })
    }

    /// The number of capturing groups, without group 0.
    pub fn groups(&self) -> usize {
        self.program.groups
    }

    /// The leftmost match that begins at `from` or later.
    pub fn find(&self, input: &Input<'_>, from: usize) -> Outcome {
        exec::search(&self.program, input, from)
    }

    /// The match that begins at `from` exactly.
    pub fn match_at(&self, input: &Input<'_>, from: usize) -> Outcome {
        exec::match_at(&self.program, input, from, exec::End::Anywhere)
    }

    /// The match that begins at `from` and ends with the region.
    pub fn match_all(&self, input: &Input<'_>, from: usize) -> Outcome {
        exec::match_at(&self.program, input, from, exec::End::Region)
    }
}

#[cfg(test)]
mod tests;
