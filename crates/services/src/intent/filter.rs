//! Intent filters: which intents they match, how well, and their layout in a parcel.
//!
//! An intent must pass three tests, in this order:
//!
//! 1. *Action*: the filter has the intent's. An intent without an action passes.
//! 2. *Data*: see the table.
//! 3. *Category*: the filter has all of the intent's.
//!
//! | the filter has | the intent's data pass if |
//! |---|---|
//! | neither schemes nor types | it has neither URI nor type |
//! | schemes | the filter has the URI's, and its scheme-specific part, or its authority and then its path, match, of those that the filter has |
//! | types, no schemes | it has no scheme, or `content` or `file` |
//! | types | its type matches: `image/png`, `image/*`, `*/*`, on either side |
//! | no types | it has no type |
//!
//! Schemes, types and paths are compared letter by letter, and hosts regardless of case.
//!
//! A parcel has a filter as Android 15 and 16 write it: actions, and for categories, schemes,
//! static types, all types and MIME groups 1 and the list, or 0; then the numbers of patterns of
//! scheme-specific parts, of authorities and of patterns of paths, and each of them; priority, two
//! marks for types with wildcards, three fields of activities, 0 for null extras, and 0 groups of
//! relative URIs. A list is its length and its strings 16. An authority is the host as it was
//! written, the host without its wildcard, 1 if it has one, and the port or -1.
//! [`IntentFilter::read`] refuses MIME groups, extras and groups of relative URIs. Android 13 lacks
//! the last two fields, Android 14 the last one.
//!
//! Source: `android.content.IntentFilter`; the guide to intents and intent filters.

use super::decode::{DecodeError, MAX_ENTRIES, count, field};
use super::intent::Intent;
use super::pattern::Pattern;
use super::uri::Uri;
use baton::Parcel;
use baton::android::{Reader, Write};
use std::collections::BTreeSet;

/// Priorities that a filter may have.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -1000..=1000;
/// The type that matches any type.
const ANY_TYPE: &str = "*/*";

/// Which intents a receiver wants.
///
/// ```
/// use baton_services::intent::{Intent, IntentFilter, Match, Mismatch, Pattern, Uri};
/// let filter = IntentFilter::new("VIEW")
///     .scheme("http")
///     .authority("*.example.org", None)
///     .path(Pattern::prefix("/docs"));
/// let mut intent = Intent::new("VIEW");
/// assert_eq!(filter.matches(&intent), Err(Mismatch::Data));
/// intent.data = Some(Uri::from("http://www.example.org/docs/1"));
/// assert_eq!(filter.matches(&intent).map(Match::category), Ok(Match::PATH));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentFilter {
    /// Actions, one of which the intent has. A filter without any cannot be registered.
    pub actions: BTreeSet<String>,
    /// Categories that an intent may have.
    pub categories: BTreeSet<String>,
    /// Schemes of data.
    pub schemes: BTreeSet<String>,
    /// Patterns of scheme-specific parts. They count beside schemes.
    pub scheme_specific_parts: Vec<Pattern>,
    /// Authorities of data. They count beside schemes.
    pub authorities: Vec<Authority>,
    /// Patterns of paths. They count beside authorities.
    pub paths: Vec<Pattern>,
    /// MIME types: `type/subtype`, `type/*` or `*/*`.
    pub mime_types: BTreeSet<String>,
    /// Receivers of a higher priority get an ordered broadcast earlier: one of [`PRIORITIES`].
    pub priority: i32,
}

/// A host and a port of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The host. `*` at its beginning matches any beginning.
    pub host: String,
    /// The port. Without one any port matches.
    pub port: Option<u16>,
}

/// How well a filter matches: a category and an adjustment, as Android's `MATCH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match(u32);

/// The first test that an intent does not pass. The numbers are Android's `NO_MATCH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i32)]
pub enum Mismatch {
    /// The MIME type.
    #[error("the MIME type does not match")]
    Type = -1,
    /// The URI.
    #[error("the data do not match")]
    Data = -2,
    /// The action.
    #[error("the action does not match")]
    Action = -3,
    /// A category that the filter lacks.
    #[error("the filter lacks a category of the intent")]
    Category = -4,
}

/// Why a filter cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// It has no action.
    #[error("the filter has no action, so that no intent with an action matches it")]
    NoAction,
    /// Its priority is none of [`PRIORITIES`].
    #[error("the priority {0} is not within -1000 to 1000")]
    Priority(i32),
    /// A type is not of the form `type/subtype`.
    #[error("{0:?} is no MIME type: they have the form type/subtype, type/* or */*")]
    MimeType(String),
    /// A list has more than [`MAX_ENTRIES`].
    #[error("the filter has more than {MAX_ENTRIES} {0}")]
    TooLarge(&'static str),
    /// Its actions, schemes and types have more combinations than an index holds of one filter.
    #[error("the filter has {0} combinations of action, scheme and MIME type: split it")]
    TooManyCombinations(usize),
}

impl Match {
    /// The filter has no data.
    pub const EMPTY: Match = Match(0x0010_0000);
    /// The filter has the URI's scheme.
    pub const SCHEME: Match = Match(0x0020_0000);
    /// The filter has the URI's host.
    pub const HOST: Match = Match(0x0030_0000);
    /// The filter has the URI's host and port.
    pub const PORT: Match = Match(0x0040_0000);
    /// The filter has the URI's authority and path.
    pub const PATH: Match = Match(0x0050_0000);
    /// The filter has the URI's scheme-specific part.
    pub const SCHEME_SPECIFIC_PART: Match = Match(0x0058_0000);
    /// The filter has the type.
    pub const TYPE: Match = Match(0x0060_0000);
    /// The adjustment of every match: neither better nor worse than its category.
    const NORMAL: u32 = 0x0000_8000;
    const CATEGORY_MASK: u32 = 0x0fff_0000;

    /// The number, as Android's `IntentFilter.match` returns it.
    pub fn code(self) -> i32 {
        self.0 as i32
    }

    /// The category alone.
    pub fn category(self) -> Match {
        Match(self.0 & Match::CATEGORY_MASK)
    }
}

impl Authority {
    /// Compares a URI's authority.
    fn matches(&self, uri: &Uri) -> Option<Match> {
        let host = uri.host()?;
        let is_host = match self.host.strip_prefix('*') {
            None => host.eq_ignore_ascii_case(&self.host),
            Some(end) => {
                let at = host.len().checked_sub(end.len())?;
                host.get(at..).is_some_and(|behind| behind.eq_ignore_ascii_case(end))
            }
        };
        match self.port {
            _ if !is_host => None,
            None => Some(Match::HOST),
            port => (port == uri.port()).then_some(Match::PORT),
        }
    }

    fn write(&self, parcel: &mut Parcel) {
        let host = self.host.strip_prefix('*');
        parcel.write_string(&self.host);
        parcel.write_string(host.unwrap_or(&self.host));
        parcel.write_i32(host.is_some().into());
        parcel.write_i32(self.port.map_or(-1, i32::from));
    }

    fn read(reader: &mut Reader<'_>) -> Option<Authority> {
        let host = reader.string()?;
        let (_without_wildcard, _has_wildcard) = (reader.string()?, reader.i32()?);
        let port = match reader.i32()? {
            ..0 => None,
            port => Some(u16::try_from(port).ok()?),
        };
        Some(Authority { host, port })
    }
}

/// Type and subtype of a MIME type.
fn split_type(mime_type: &str) -> Option<(&str, &str)> {
    mime_type.split_once('/').filter(|(base, sub)| !base.is_empty() && !sub.is_empty())
}

impl IntentFilter {
    /// A filter with this action.
    pub fn new(action: impl Into<String>) -> IntentFilter {
        IntentFilter::default().action(action)
    }

    /// Adds an action.
    pub fn action(mut self, action: impl Into<String>) -> IntentFilter {
        self.actions.insert(action.into());
        self
    }

    /// Adds a category.
    pub fn category(mut self, category: impl Into<String>) -> IntentFilter {
        self.categories.insert(category.into());
        self
    }

    /// Adds a scheme.
    pub fn scheme(mut self, scheme: impl Into<String>) -> IntentFilter {
        self.schemes.insert(scheme.into());
        self
    }

    /// Adds a pattern of scheme-specific parts.
    pub fn scheme_specific_part(mut self, pattern: Pattern) -> IntentFilter {
        self.scheme_specific_parts.push(pattern);
        self
    }

    /// Adds an authority.
    pub fn authority(mut self, host: impl Into<String>, port: Option<u16>) -> IntentFilter {
        self.authorities.push(Authority { host: host.into(), port });
        self
    }

    /// Adds a pattern of paths.
    pub fn path(mut self, pattern: Pattern) -> IntentFilter {
        self.paths.push(pattern);
        self
    }

    /// Adds a MIME type.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> IntentFilter {
        self.mime_types.insert(mime_type.into());
        self
    }

    /// Sets the priority.
    pub fn priority(mut self, priority: i32) -> IntentFilter {
        self.priority = priority;
        self
    }

    /// Checks that the filter can be registered.
    ///
    /// # Errors
    /// The registrant's fault.
    pub fn check(&self) -> Result<(), FilterError> {
        if self.actions.is_empty() {
            return Err(FilterError::NoAction);
        }
        if !PRIORITIES.contains(&self.priority) {
            return Err(FilterError::Priority(self.priority));
        }
        if let Some(wrong) = self.mime_types.iter().find(|it| split_type(it).is_none()) {
            return Err(FilterError::MimeType(wrong.clone()));
        }
        let lists = [
            (self.actions.len(), "actions"),
            (self.categories.len(), "categories"),
            (self.schemes.len(), "schemes"),
            (self.scheme_specific_parts.len(), "scheme-specific parts"),
            (self.authorities.len(), "authorities"),
            (self.paths.len(), "paths"),
            (self.mime_types.len(), "MIME types"),
        ];
        match lists.into_iter().find(|(n, _)| *n > MAX_ENTRIES) {
            Some((_, name)) => Err(FilterError::TooLarge(name)),
            None => Ok(()),
        }
    }

    /// Compares an intent, regardless of its package and component.
    ///
    /// # Errors
    /// The first test that the intent does not pass.
    pub fn matches(&self, intent: &Intent) -> Result<Match, Mismatch> {
        if intent.action.as_ref().is_some_and(|action| !self.actions.contains(action)) {
            return Err(Mismatch::Action);
        }
        let quality = self.match_data(intent.data.as_ref(), intent.mime_type.as_deref())?;
        if !intent.categories.is_subset(&self.categories) {
            return Err(Mismatch::Category);
        }
        Ok(quality)
    }

    fn match_data(&self, uri: Option<&Uri>, mime_type: Option<&str>) -> Result<Match, Mismatch> {
        if self.schemes.is_empty() && self.mime_types.is_empty() {
            return match (uri, mime_type) {
                (None, None) => Ok(Match(Match::EMPTY.0 + Match::NORMAL)),
                _ => Err(Mismatch::Data),
            };
        }
        let scheme = uri.and_then(Uri::scheme).unwrap_or_default();
        let mut quality = if !self.schemes.is_empty() {
            self.schemes.contains(scheme).then(|| self.match_uri(uri)).flatten()
        } else {
            ["", "content", "file"].contains(&scheme).then_some(Match::EMPTY)
        }
        .ok_or(Mismatch::Data)?;
        match mime_type {
            None if self.mime_types.is_empty() => {}
            Some(mime_type) if self.has_type(mime_type) => quality = Match::TYPE,
            _ => return Err(Mismatch::Type),
        }
        Ok(Match(quality.0 + Match::NORMAL))
    }

    /// Compares a URI whose scheme the filter has.
    fn match_uri(&self, uri: Option<&Uri>) -> Option<Match> {
        let parts = &self.scheme_specific_parts;
        let without_part = match uri.filter(|_| !parts.is_empty()) {
            None => Some(Match::SCHEME),
            Some(uri) if matches_any(parts, &uri.scheme_specific_part()) => {
                return Some(Match::SCHEME_SPECIFIC_PART);
            }
            Some(_) => None,
        };
        if self.authorities.is_empty() {
            return without_part;
        }
        let uri = uri?;
        let quality = self.authorities.iter().find_map(|authority| authority.matches(uri))?;
        match self.paths.is_empty() {
            true => Some(quality),
            false => matches_any(&self.paths, &uri.path()?).then_some(Match::PATH),
        }
    }

    fn has_type(&self, mime_type: &str) -> bool {
        let types = &self.mime_types;
        if types.contains(mime_type) || types.contains(ANY_TYPE) {
            return true;
        }
        if mime_type == ANY_TYPE {
            return !types.is_empty();
        }
        let Some((base, sub)) = mime_type.split_once('/') else { return false };
        let mut known = types.iter().filter_map(|known| known.split_once('/'));
        known.any(|(its_base, its_sub)| its_base == base && (its_sub == "*" || sub == "*"))
    }

    /// Writes the filter: see the module.
    pub fn write(&self, parcel: &mut Parcel) {
        write_strings(self.actions.iter(), parcel);
        write_nullable(self.categories.iter(), parcel);
        write_nullable(self.schemes.iter(), parcel);
        // Android keeps `type/*` as `type`, and a mark that there is one.
        let types = || self.mime_types.iter().map(|it| it.strip_suffix("/*").unwrap_or(it));
        let has_wildcard = self.mime_types.iter().any(|it| it.ends_with("/*"));
        write_nullable(types(), parcel);
        write_nullable(types(), parcel);
        let mime_groups = 0;
        parcel.write_i32(mime_groups);
        parcel.write_i32(self.scheme_specific_parts.len() as i32);
        self.scheme_specific_parts.iter().for_each(|pattern| pattern.write(parcel));
        parcel.write_i32(self.authorities.len() as i32);
        self.authorities.iter().for_each(|authority| authority.write(parcel));
        parcel.write_i32(self.paths.len() as i32);
        self.paths.iter().for_each(|pattern| pattern.write(parcel));
        parcel.write_i32(self.priority);
        let (static_wildcard, dynamic_wildcard) = (has_wildcard.into(), 0);
        let (auto_verify, instant_apps, order, extras, groups) = (0, 0, 0, 0, 0);
        for word in
            [static_wildcard, dynamic_wildcard, auto_verify, instant_apps, order, extras, groups]
        {
            parcel.write_i32(word);
        }
    }

    /// Reads a filter: see the module. [`check`](IntentFilter::check) tells whether it can be
    /// registered.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<IntentFilter, DecodeError> {
        let actions = read_strings("the actions", reader)?;
        let categories = read_nullable("the categories", reader)?;
        let schemes = read_nullable("the schemes", reader)?;
        let _static_types = read_nullable("the MIME types", reader)?;
        let types = read_nullable("the MIME types", reader)?;
        let mime_groups = read_nullable("the MIME groups", reader)?;
        if !mime_groups.is_empty() {
            return Err(DecodeError::Unsupported("a MIME group"));
        }
        let scheme_specific_parts = read_patterns("the scheme-specific parts", reader)?;
        let name = "the authorities";
        let authorities = (0..count(name, reader.i32())?)
            .map(|_| field(name, Authority::read(reader)))
            .collect::<Result<_, _>>()?;
        let paths = read_patterns("the paths", reader)?;
        let mut word = |name| field(name, reader.i32());
        let priority = word("the priority")?;
        for name in ["a mark for wildcards"; 2] {
            word(name)?;
        }
        let [_auto_verify, _instant_apps, _order] =
            [word("auto-verify")?, word("the visibility")?, word("the order")?];
        for name in ["extras of a filter", "a group of relative URIs"] {
            if word(name)? != 0 {
                return Err(DecodeError::Unsupported(name));
            }
        }
        let whole = |it: String| if it.contains('/') { it } else { format!("{it}/*") };
        let mime_types = types.into_iter().map(whole).collect();
        Ok(IntentFilter {
            actions,
            categories,
            schemes,
            scheme_specific_parts,
            authorities,
            paths,
            mime_types,
            priority,
        })
    }
}

fn matches_any(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

fn write_strings(texts: impl ExactSizeIterator<Item: AsRef<str>>, parcel: &mut Parcel) {
    parcel.write_i32(texts.len() as i32);
    texts.for_each(|text| parcel.write_string(text.as_ref()));
}

/// Writes a list, which is null if it is empty.
fn write_nullable(texts: impl ExactSizeIterator<Item: AsRef<str>>, parcel: &mut Parcel) {
    if texts.len() == 0 {
        return parcel.write_i32(0);
    }
    parcel.write_i32(1);
    write_strings(texts, parcel);
}

fn read_strings(
    name: &'static str,
    reader: &mut Reader<'_>,
) -> Result<BTreeSet<String>, DecodeError> {
    (0..count(name, reader.i32())?).map(|_| field(name, reader.string())).collect()
}

fn read_nullable(
    name: &'static str,
    reader: &mut Reader<'_>,
) -> Result<BTreeSet<String>, DecodeError> {
    match field(name, reader.i32())? {
        0 => Ok(BTreeSet::new()),
        _ => read_strings(name, reader),
    }
}

fn read_patterns(name: &'static str, reader: &mut Reader<'_>) -> Result<Vec<Pattern>, DecodeError> {
    (0..count(name, reader.i32())?).map(|_| Pattern::read(reader)).collect()
}
