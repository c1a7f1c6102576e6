//! What can be wrong with an intent, a filter or a bundle that another process wrote.

/// A parcel that cannot be decoded: its writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The parcel ends within this field, or has another value there.
    #[error("{0} is malformed, or the parcel ends in it")]
    Malformed(&'static str),
    /// The field has more entries, bytes or levels than its limit.
    #[error("{field} exceeds its limit of {limit}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The field is set, and not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// An extra's value cannot be read.
    #[error("extra {key:?}: {error}")]
    Extra {
        /// The extra's key.
        key: String,
        /// What is wrong with its value.
        error: Box<DecodeError>,
    },
    /// An extra has a value of a type that cannot be passed over.
    #[error("values of type {0} are not supported")]
    ValueType(i32),
}
