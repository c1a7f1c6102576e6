//! Patterns of text, as Android's `PatternMatcher` compares them.
//!
//! A simple glob is no regular expression, and the matcher never goes back: `.*x` ends at the first
//! `x`, so that `.*\.pdf` does not match `a.b.pdf`. A quoted dot matches any character, as an
//! unquoted one does. A filter must match here exactly if it matches on Android, so these stay.
//!
//! In a parcel a pattern is its text as a string 16, its kind, and the parsed form of an advanced
//! pattern, which is null (-1) here.
//!
//! Source: `android.os.PatternMatcher` of Android 16.

use super::decode::{DecodeError, field};
use baton::Parcel;
use baton::android::{Reader, Write};

/// A pattern of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// How the text is compared.
    pub kind: PatternKind,
    /// The pattern.
    pub text: String,
}

/// How a pattern is compared. The numbers are Android's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PatternKind {
    /// The whole text.
    Literal = 0,
    /// The text's beginning.
    Prefix = 1,
    /// `.` is any character; `*` is any number of the one before; `\` quotes the next.
    SimpleGlob = 2,
    /// The text's end.
    Suffix = 4,
}

const ADVANCED_GLOB: i32 = 3;

impl Pattern {
    /// A pattern that is the whole text.
    pub fn literal(text: impl Into<String>) -> Pattern {
        Pattern { kind: PatternKind::Literal, text: text.into() }
    }

    /// A pattern that begins the text.
    pub fn prefix(text: impl Into<String>) -> Pattern {
        Pattern { kind: PatternKind::Prefix, text: text.into() }
    }

    /// A pattern that ends the text.
    pub fn suffix(text: impl Into<String>) -> Pattern {
        Pattern { kind: PatternKind::Suffix, text: text.into() }
    }

    /// A simple glob.
    pub fn glob(text: impl Into<String>) -> Pattern {
        Pattern { kind: PatternKind::SimpleGlob, text: text.into() }
    }

    /// Compares a text.
    pub fn matches(&self, text: &str) -> bool {
        match self.kind {
            PatternKind::Literal => text == self.text,
            PatternKind::Prefix => text.starts_with(&self.text),
            PatternKind::Suffix => text.ends_with(&self.text),
            PatternKind::SimpleGlob => matches_glob(&self.text, text),
        }
    }

    /// Writes the pattern: see the module.
    pub fn write(&self, parcel: &mut Parcel) {
        parcel.write_string(&self.text);
        parcel.write_i32(self.kind as i32);
        parcel.write_i32(-1);
    }

    /// Reads a pattern: see the module.
    ///
    /// # Errors
    /// The writer's fault. An advanced pattern is not supported.
    pub fn read(reader: &mut Reader<'_>) -> Result<Pattern, DecodeError> {
        let name = "a pattern";
        let text = field(name, reader.string())?;
        let kind = match field(name, reader.i32())? {
            0 => PatternKind::Literal,
            1 => PatternKind::Prefix,
            2 => PatternKind::SimpleGlob,
            ADVANCED_GLOB => return Err(DecodeError::Unsupported("an advanced pattern")),
            4 => PatternKind::Suffix,
            _ => return Err(DecodeError::Malformed(name)),
        };
        field(name, reader.i32().filter(|parsed| *parsed == -1))?;
        Ok(Pattern { kind, text })
    }
}

fn matches_glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    while !text.as_str().is_empty() {
        let Some((element, is_quoted)) = next_element(&mut pattern) else { return false };
        let is_repeated = pattern.as_str().starts_with('*');
        if is_repeated {
            pattern.next();
        }
        if !is_repeated {
            if text.next() != Some(element) && element != '.' {
                return false;
            }
        } else if element != '.' || is_quoted {
            text = text.as_str().trim_start_matches(element).chars();
        } else {
            if pattern.as_str().is_empty() {
                return true;
            }
            let Some((sought, _)) = next_element(&mut pattern) else { return false };
            if !text.any(|letter| letter == sought) {
                return false;
            }
        }
    }
    matches!(pattern.as_str(), "" | ".*")
}

/// The next character of a pattern, and whether it is quoted.
fn next_element(pattern: &mut std::str::Chars<'_>) -> Option<(char, bool)> {
    match pattern.next()? {
        '\\' => Some((pattern.next()?, true)),
        letter => Some((letter, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, matching, others) in [
            ("", &[""][..], &["a"][..]),
            ("a.c", &["abc", "a.c"], &["ac", "abbc", "abcd", ""]),
            ("a*b", &["b", "ab", "aaab"], &["", "a", "cb"]),
            (".*", &["", "a", "ab"], &[]),
            ("a.*", &["a", "ab", "abc"], &["", "b"]),
            (".*c", &["c", "abc"], &["", "ab", "abcd", "cc"]),
            ("/.*/x", &["//x", "/ab/x"], &["/x", "/a/b/x"]),
            (r".*\.pdf", &[".pdf", "a.pdf"], &["a.b.pdf", "pdf", "a.pdfs"]),
            // A quoted dot is any character, as on Android.
            (r"a\.b", &["a.b", "acb"], &["ab"]),
            (r"a\*b", &["a*b"], &["aab", "b"]),
            (r"a\.*b", &["ab", "a..b"], &["acb"]),
            // Repetitions of a character that the text has no room for.
            ("ab*", &["ab", "abb"], &["a"]),
            (r"a\", &[], &["a", "ab"]),
            (r".*\", &[], &["", "a"]),
        ] {
            for (texts, expected) in [(matching, true), (others, false)] {
                for text in texts {
                    assert_eq!(Pattern::glob(pattern).matches(text), expected, "{pattern} {text}");
                }
            }
        }
    }

    #[test]
    fn other_kinds() {
        for (pattern, matching, others) in [
            (Pattern::literal("/a.*"), "/a.*", "/a.b"),
            (Pattern::prefix("/a"), "/ab", "/b"),
            (Pattern::suffix(".x"), "/a.x", "/a.xy"),
        ] {
            assert!(pattern.matches(matching), "{pattern:?}");
            assert!(!pattern.matches(others), "{pattern:?}");
        }
    }
}
