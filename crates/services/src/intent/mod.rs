//! Intents and what they match, with Android's meaning.

pub mod bundle;
pub mod decode;
pub mod filter;
#[allow(clippy::module_inception, reason = "an intent")]
pub mod intent;
pub mod manifest;
pub mod permission;
pub mod resolver;
pub mod uri;

pub use bundle::{Bundle, Value};
pub use decode::DecodeError;
pub use filter::{Authority, FilterError, IntentFilter, Match, Mismatch, Pattern, PatternKind};
pub use intent::{ComponentName, Intent, flags};
pub use manifest::{Component, ComponentKind, Manifest, ManifestError};
pub use permission::Policy;
pub use resolver::{Key, Owner, Resolver, SharedResolver};
pub use uri::Uri;
