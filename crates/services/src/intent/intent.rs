//! Intents, and their layout in a parcel.
//!
//! A parcel has an intent as Android 16 writes it. Strings marked 8 are in UTF-8, 16 in UTF-16.
//!
//! | field | bytes |
//! |---|---|
//! | action | string 8 or null |
//! | data | see [`uri`](super::uri) |
//! | type, identifier | string 8 or null, each |
//! | flags, extended flags | 4 each |
//! | package | string 8 or null |
//! | component | package and class: string 16 each; null is a null package |
//! | source bounds | 1 and four numbers, or 0 |
//! | categories | their number, and a string 8 each |
//! | selector, clip data | 0 each, if null |
//! | content user hint | 4: -2 is the current user |
//! | extras | see [`bundle`](super::bundle); null is a length of -1 |
//! | original intent, creator token | 0 each, if null |
//!
//! Other releases have other layouts, and a parcel does not name its release: Android 14 and 15
//! lack the creator token, Android 13 also the extended flags, Android 12 also the original intent.
//! [`Intent::read`] refuses a selector, clip data, an original intent and a creator token: it could
//! neither pass over them nor match by them. It drops the extended flags and the content user hint,
//! which concern activities and users that are not here.
//!
//! Source: `Intent.writeToParcel`, `ComponentName.writeToParcel`.

use super::bundle::Bundle;
use super::decode::{DecodeError, count, field};
use super::uri::Uri;
use baton::Parcel;
use baton::android::{Reader, Write};
use std::collections::BTreeSet;
use std::fmt;

/// Flags of an intent, with Android's values. An intent may have others: they are passed on.
pub mod flags {
    /// Components of stopped applications are no receivers.
    pub const EXCLUDE_STOPPED_PACKAGES: u32 = 0x0000_0010;
    /// Components of stopped applications are receivers, too.
    pub const INCLUDE_STOPPED_PACKAGES: u32 = 0x0000_0020;
    /// Only registered receivers get the broadcast; no component is started for it.
    pub const RECEIVER_REGISTERED_ONLY: u32 = 0x4000_0000;
    /// The broadcast replaces a pending one that [`Intent::filter_equals`](super::Intent).
    pub const RECEIVER_REPLACE_PENDING: u32 = 0x2000_0000;
    /// The receivers run at foreground priority.
    pub const RECEIVER_FOREGROUND: u32 = 0x1000_0000;
    /// Receivers of an ordered broadcast cannot abort it.
    pub const RECEIVER_NO_ABORT: u32 = 0x0800_0000;
}

const CURRENT_USER: i32 = -2;

/// The name of a component: the package of its application, and its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentName {
    /// The package.
    pub package: String,
    /// The full name of the class.
    pub class: String,
}

impl ComponentName {
    /// The component of a package. A class that begins with a dot has the package before it.
    pub fn new(package: &str, class: &str) -> ComponentName {
        let outer = if class.starts_with('.') { package } else { "" };
        ComponentName { package: package.to_owned(), class: format!("{outer}{class}") }
    }

    /// The component of a text `package/class`, as [`new`](ComponentName::new) reads it. `None` if
    /// it lacks either.
    pub fn parse(text: &str) -> Option<ComponentName> {
        let (package, class) = text.split_once('/')?;
        let is_complete = !package.is_empty() && !class.is_empty();
        is_complete.then(|| ComponentName::new(package, class))
    }

    /// Writes a component or null: see the module.
    pub fn write(component: Option<&ComponentName>, parcel: &mut Parcel) {
        let Some(component) = component else { return parcel.write_null_string() };
        parcel.write_string(&component.package);
        parcel.write_string(&component.class);
    }

    /// Reads a component or null: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<Option<ComponentName>, DecodeError> {
        let Some(package) = field("the component", reader.nullable_string())? else {
            return Ok(None);
        };
        let class = field("the component", reader.string())?;
        Ok(Some(ComponentName { package, class }))
    }
}

impl fmt::Display for ComponentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.package, self.class)
    }
}

/// A rectangle on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// The left edge.
    pub left: i32,
    /// The upper edge.
    pub top: i32,
    /// The right edge.
    pub right: i32,
    /// The lower edge.
    pub bottom: i32,
}

/// What one component asks of others, or tells them.
///
/// ```
/// use baton_services::intent::{Intent, IntentFilter, Uri};
/// let filter = IntentFilter::new("PACKAGE_ADDED").scheme("package");
/// let mut intent = Intent::new("PACKAGE_ADDED");
/// intent.data = Some(Uri::from("package:org.example"));
/// intent.extras.put("uid", 10_001);
/// assert!(filter.matches(&intent).is_ok());
/// ```
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
    /// [`flags`] and others.
    pub flags: u32,
    /// The place on the screen that the intent comes from. It has no part in matching.
    pub source_bounds: Option<Rect>,
    /// Values for the receivers.
    pub extras: Bundle,
}

impl Intent {
    /// An intent with this action.
    pub fn new(action: impl Into<String>) -> Intent {
        Intent { action: Some(action.into()), ..Intent::default() }
    }

    /// The scheme of the data.
    pub fn scheme(&self) -> Option<&str> {
        self.data.as_ref().and_then(Uri::scheme)
    }

    /// Whether all flags of `mask` are set.
    pub fn has_flags(&self, mask: u32) -> bool {
        self.flags & mask == mask
    }

    /// Whether both intents have the same action, data, type, identifier, package, component and
    /// categories. A sticky intent, and a pending one, is replaced by one that is equal in this way.
    pub fn filter_equals(&self, other: &Intent) -> bool {
        fn matched(intent: &Intent) -> impl PartialEq {
            let Intent { action, data, mime_type, identifier, .. } = intent;
            (
                action,
                data,
                mime_type,
                identifier,
                &intent.package,
                &intent.component,
                &intent.categories,
            )
        }
        matched(self) == matched(other)
    }

    /// Writes the intent: see the module.
    pub fn write(&self, parcel: &mut Parcel) {
        parcel.write_nullable_string8(self.action.as_deref());
        Uri::write(self.data.as_ref(), parcel);
        parcel.write_nullable_string8(self.mime_type.as_deref());
        parcel.write_nullable_string8(self.identifier.as_deref());
        parcel.write_i32(self.flags as i32);
        parcel.write_i32(0);
        parcel.write_nullable_string8(self.package.as_deref());
        ComponentName::write(self.component.as_ref(), parcel);
        match self.source_bounds {
            None => parcel.write_i32(0),
            Some(Rect { left, top, right, bottom }) => {
                for word in [1, left, top, right, bottom] {
                    parcel.write_i32(word);
                }
            }
        }
        parcel.write_i32(self.categories.len() as i32);
        self.categories.iter().for_each(|category| parcel.write_string8(category));
        // Selector and clip data.
        parcel.write_i32(0);
        parcel.write_i32(0);
        parcel.write_i32(CURRENT_USER);
        if self.extras.is_empty() {
            parcel.write_i32(-1)
        } else {
            self.extras.write(parcel)
        }
        // Original intent and creator token.
        parcel.write_i32(0);
        parcel.write_i32(0);
    }

    /// Reads an intent: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<Intent, DecodeError> {
        let action = field("the action", reader.nullable_string8())?;
        let data = Uri::read(reader)?;
        let mime_type = field("the MIME type", reader.nullable_string8())?;
        let identifier = field("the identifier", reader.nullable_string8())?;
        let flags = field("the flags", reader.i32())? as u32;
        let _extended_flags = field("the flags", reader.i32())?;
        let package = field("the package", reader.nullable_string8())?;
        let component = ComponentName::read(reader)?;
        let source_bounds = match field("the source bounds", reader.i32())? {
            0 => None,
            _ => Some(field("the source bounds", read_rect(reader))?),
        };
        let categories = (0..count("the categories", reader.i32())?)
            .map(|_| field("the categories", reader.nullable_string8().flatten()))
            .collect::<Result<_, _>>()?;
        refuse("a selector", reader)?;
        refuse("clip data", reader)?;
        let _content_user_hint = field("the content user hint", reader.i32())?;
        let extras = Bundle::read_nullable(reader)?.unwrap_or_default();
        refuse("an original intent", reader)?;
        refuse("a creator token", reader)?;
        Ok(Intent {
            action,
            data,
            mime_type,
            identifier,
            categories,
            package,
            component,
            flags,
            source_bounds,
            extras,
        })
    }
}

fn read_rect(reader: &mut Reader<'_>) -> Option<Rect> {
    let [left, top, right, bottom] = [reader.i32()?, reader.i32()?, reader.i32()?, reader.i32()?];
    Some(Rect { left, top, right, bottom })
}

/// Passes over a field that is null.
fn refuse(name: &'static str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    match field(name, reader.i32())? {
        0 => Ok(()),
        _ => Err(DecodeError::Unsupported(name)),
    }
}

impl fmt::Display for Intent {
    /// As Android's `Intent.toString` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intent {")?;
        let mut text = |name: &str, value: Option<&dyn fmt::Display>| match value {
            Some(value) => write!(f, " {name}={value}"),
            None => Ok(()),
        };
        text("act", self.action.as_ref().map(|it| it as _))?;
        let categories: Vec<&str> = self.categories.iter().map(String::as_str).collect();
        let categories = (!categories.is_empty()).then(|| format!("[{}]", categories.join(",")));
        text("cat", categories.as_ref().map(|it| it as _))?;
        text("dat", self.data.as_ref().map(|it| it as _))?;
        text("typ", self.mime_type.as_ref().map(|it| it as _))?;
        text("id", self.identifier.as_ref().map(|it| it as _))?;
        text(
            "flg",
            (self.flags != 0).then(|| format!("{:#x}", self.flags)).as_ref().map(|it| it as _),
        )?;
        text("pkg", self.package.as_ref().map(|it| it as _))?;
        text("cmp", self.component.as_ref().map(|it| it as _))?;
        f.write_str(if self.extras.is_empty() { " }" } else { " (has extras) }" })
    }
}
