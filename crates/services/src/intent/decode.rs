//! Errors of decoders, and the limits that they hold a foreign parcel to.
//!
//! Sizes need few limits: a decoder allocates as much as the parcel has bytes, times a small
//! constant. Counts are limited where matching takes time for each entry, and nesting where the
//! stack holds each level.

/// Entries of one list of an intent or a filter: categories, actions, schemes, paths, ...
pub const MAX_ENTRIES: usize = 512;
/// Bundles within each other.
pub const MAX_DEPTH: usize = 16;

/// A parcel that cannot be decoded: its writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The parcel ends within this field, or has a value there that no writer writes.
    #[error("{0} is malformed, or the parcel ends there")]
    Malformed(&'static str),
    /// The field has more entries or levels than it may have.
    #[error("{field} has more than {limit} entries")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Bundles stand within each other more often than [`MAX_DEPTH`].
    #[error("bundles are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// The field is set, and this decoder cannot pass over it.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// A value has a type whose size nobody can tell who does not know the type.
    #[error("values of type {0} are not supported")]
    ValueType(i32),
    /// A bundle's value cannot be read.
    #[error("the value of {key:?}: {error}")]
    Value {
        /// The value's key.
        key: String,
        /// What is wrong with it.
        error: Box<DecodeError>,
    },
}

/// The value of a field, which is malformed if there is none.
pub fn field<T>(name: &'static str, value: Option<T>) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::Malformed(name))
}

/// The number of a list's entries, which is limited.
pub fn count(name: &'static str, value: Option<i32>) -> Result<usize, DecodeError> {
    let n = field(name, value.and_then(|n| usize::try_from(n).ok()))?;
    let too_large = DecodeError::TooLarge { field: name, limit: MAX_ENTRIES };
    if n > MAX_ENTRIES { Err(too_large) } else { Ok(n) }
}
