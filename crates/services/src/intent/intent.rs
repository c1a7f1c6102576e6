//! Intents.

use super::bundle::Bundle;
use super::decode::DecodeError;
use super::uri::Uri;
use baton::Parcel;
use baton::android::Reader;
use std::collections::BTreeSet;

/// Flags of an intent, with Android's values.
pub mod flags {
    /// Only registered receivers get the broadcast; no component is started for it.
    pub const RECEIVER_REGISTERED_ONLY: u32 = 0x4000_0000;
    /// A newer broadcast replaces one that matches it and is pending.
    pub const RECEIVER_REPLACE_PENDING: u32 = 0x2000_0000;
    /// The receivers run at foreground priority.
    pub const RECEIVER_FOREGROUND: u32 = 0x1000_0000;
    /// Receivers of an ordered broadcast cannot abort it.
    pub const RECEIVER_NO_ABORT: u32 = 0x0800_0000;
}

/// The name of a component: the package of its application, and its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentName {
    /// The package.
    pub package: String,
    /// The full name of the class.
    pub class: String,
}

/// What one component asks of others, or tells them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intent {
    /// What is to be done, or has happened.
    pub action: Option<String>,
    /// What it concerns.
    pub data: Option<Uri>,
    /// The MIME type of the data.
    pub mime_type: Option<String>,
    /// A mark that tells otherwise equal intents apart. It has no part in matching.
    pub identifier: Option<String>,
    /// Further conditions on receivers.
    pub categories: BTreeSet<String>,
    /// The only package whose components may receive it.
    pub package: Option<String>,
    /// The only component that may receive it: such an intent is explicit.
    pub component: Option<ComponentName>,
    /// [`flags`].
    pub flags: u32,
    /// Values for the receivers.
    pub extras: Bundle,
}

impl Intent {
    /// An intent with this action.
    pub fn new(action: impl Into<String>) -> Intent {
        Intent { action: Some(action.into()), ..Intent::default() }
    }

    /// Writes the intent in Android's layout.
    pub fn write(&self, _parcel: &mut Parcel) {
        todo!()
    }

    /// Reads an intent in Android's layout.
    ///
    /// # Errors
    /// The writer's fault: see [`DecodeError`].
    pub fn read(_reader: &mut Reader<'_>) -> Result<Intent, DecodeError> {
        todo!()
    }
}
