//! Intents and what they match, with Android's meaning.
//!
//! - [`Intent`], its data a [`Uri`], its extras a [`Bundle`]; [`IntentFilter`], whose paths are
//!   [`Pattern`]s. Each reads and writes Android's parcel layout; a [`DecodeError`] tells what is
//!   wrong with a foreign one.
//! - [`Resolver`]: filters indexed by action, scheme and type; [`SharedResolver`]: one that threads
//!   read without a lock.
//! - [`Policy`]: permissions of users. [`Manifest`]: an application's components.
//!
//! Nothing here does I/O.

pub mod bundle;
pub mod decode;
pub mod filter;
#[expect(clippy::module_inception, reason = "the noun is the same")]
pub mod intent;
pub mod manifest;
pub mod pattern;
pub mod permission;
pub mod resolver;
pub mod uri;

pub use bundle::{Bundle, Value};
pub use decode::DecodeError;
pub use filter::{Authority, FilterError, IntentFilter, Match, Mismatch};
pub use intent::{ComponentName, Intent, flags};
pub use manifest::{Component, ComponentKind, Manifest, ManifestError, Program, ProgramForm};
pub use pattern::{Pattern, PatternKind};
pub use permission::Policy;
pub use resolver::{Entry, Key, Owner, Resolver, SharedResolver};
pub use uri::Uri;
