//! URIs as Android's `Uri` reads them.

/// A URI, as it was written. Any text is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri {
    text: String,
}

impl From<&str> for Uri {
    fn from(text: &str) -> Uri {
        Uri { text: text.to_owned() }
    }
}

impl Uri {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}
