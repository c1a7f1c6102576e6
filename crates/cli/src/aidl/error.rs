//! Errors of AIDL: of its files, of their declarations, and of values that do not fit.

use super::syntax::SyntaxError;
use std::path::PathBuf;

/// Why a method cannot be called by its AIDL, or its reply not be understood.
#[derive(Debug, thiserror::Error)]
pub enum AidlError {
    /// A file or a directory that cannot be read.
    #[error("{}: {error}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    /// A file that is no AIDL.
    #[error("{}:{}:{}: {}", .path.display(), .error.line, .error.column, .error.wrong)]
    Syntax { path: PathBuf, error: SyntaxError },
    /// A type that no file declares.
    #[error("the type {name}, which {user} uses, is not in the AIDL files")]
    Undeclared { name: String, user: String },
    /// A type whose values have no form here.
    #[error("the type {name} cannot be sent or received: {why}")]
    Unsupported { name: String, why: &'static str },
    /// A constant without a value.
    #[error("{user}: {text} has no value: {why}")]
    Constant { text: String, user: String, why: &'static str },
    /// Methods with numbers and methods without, or two with one number.
    #[error("{interface} gives its methods' numbers {why}")]
    Numbers { interface: String, why: &'static str },
    /// A value that is none of the type.
    #[error("{place}: expected {expected}, found {found}")]
    Mismatch { place: String, expected: String, found: String },
    /// A reply that does not have the form that the file tells.
    #[error("the reply is not of the form that the AIDL file tells: {place} {why}")]
    Garbled { place: String, why: &'static str },
}

impl AidlError {
    /// The error of a part, at its place in the whole.
    pub fn within(self, whole: &str) -> AidlError {
        let at = |place: String| format!("{whole}{place}");
        match self {
            AidlError::Mismatch { place, expected, found } => {
                AidlError::Mismatch { place: at(place), expected, found }
            }
            AidlError::Garbled { place, why } => AidlError::Garbled { place: at(place), why },
            other => other,
        }
    }
}
