//! Intent filters, and how they match.

use super::decode::DecodeError;
use super::intent::Intent;
use baton::Parcel;
use baton::android::Reader;
use std::collections::BTreeSet;

/// What intents a receiver wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentFilter {
    /// Actions, of which the intent has one. A filter without any cannot be registered.
    pub actions: BTreeSet<String>,
    /// Categories, which contain all of the intent's.
    pub categories: BTreeSet<String>,
    /// Schemes of data.
    pub schemes: BTreeSet<String>,
    /// Patterns of scheme-specific parts.
    pub scheme_specific_parts: Vec<Pattern>,
    /// Authorities of data. They count only beside schemes.
    pub authorities: Vec<Authority>,
    /// Patterns of paths. They count only beside authorities.
    pub paths: Vec<Pattern>,
    /// MIME types: `type/subtype`, `type/*` or `*/*`.
    pub mime_types: BTreeSet<String>,
    /// Receivers of a higher priority get an ordered broadcast earlier: -1000 to 1000.
    pub priority: i32,
}

/// A pattern of text, as Android's `PatternMatcher` reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// How the text is compared.
    pub kind: PatternKind,
    /// The pattern.
    pub text: String,
}

/// How a pattern is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternKind {
    /// All of the text.
    Literal,
    /// The text's beginning.
    Prefix,
    /// `.` is any character, `*` repeats the one before, `\` quotes the next.
    SimpleGlob,
}

/// A host, which may begin with a wildcard, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The host. `*` at its beginning matches any beginning.
    pub host: String,
    /// The port. Without one any port matches.
    pub port: Option<u16>,
}

/// How well a filter matches: Android's `MATCH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match(pub u32);

/// Why a filter does not match. The numbers are Android's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i32)]
pub enum Mismatch {
    /// `NO_MATCH_TYPE`
    #[error("the MIME type does not match")]
    Type = -1,
    /// `NO_MATCH_DATA`
    #[error("the data do not match")]
    Data = -2,
    /// `NO_MATCH_ACTION`
    #[error("the action does not match")]
    Action = -3,
    /// `NO_MATCH_CATEGORY`
    #[error("the filter lacks a category of the intent")]
    Category = -4,
}

/// Why a filter cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// It has no action.
    #[error("the filter has no action, so that no broadcast matches it")]
    NoAction,
    /// Its priority is not within -1000 to 1000.
    #[error("the priority {0} is not within -1000 to 1000")]
    Priority(i32),
}

impl IntentFilter {
    /// A filter with this action.
    pub fn new(action: impl Into<String>) -> IntentFilter {
        IntentFilter { actions: BTreeSet::from([action.into()]), ..IntentFilter::default() }
    }

    /// Compares an intent.
    ///
    /// # Errors
    /// The first test that the intent does not pass.
    pub fn matches(&self, _intent: &Intent) -> Result<Match, Mismatch> {
        todo!()
    }

    /// Writes the filter in Android's layout.
    pub fn write(&self, _parcel: &mut Parcel) {
        todo!()
    }

    /// Reads a filter in Android's layout.
    ///
    /// # Errors
    /// The writer's fault: see [`DecodeError`].
    pub fn read(_reader: &mut Reader<'_>) -> Result<IntentFilter, DecodeError> {
        todo!()
    }
}
