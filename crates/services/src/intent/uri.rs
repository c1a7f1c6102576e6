//! URIs as Android's `Uri` reads them.
//!
//! Android splits a URI leniently, keeps its text as it was written, and compares parts byte for
//! byte. RFC 3986 parsers refuse or normalize texts that Android passes on (spaces, `package:`
//! names, upper-case hosts), so this one splits as Android does:
//!
//! ```text
//! hierarchical   scheme : // user@host:port /path ? query # fragment
//! opaque         scheme : scheme-specific part            # fragment
//! ```
//!
//! A URI is opaque if it has a scheme that no slash follows. It has no authority and no path then.
//!
//! In a parcel a URI is its kind and its parts, each in UTF-8: 0 for null; 1 and the text; 2 and
//! the parts of an opaque URI; 3 and those of a hierarchical one. A part is 1 and its encoded form,
//! or 2 and its decoded form. This module reads all of them and writes the text.
//!
//! Source: `android.net.Uri` of Android 16.

use super::decode::{DecodeError, field};
use baton::Parcel;
use baton::android::{Reader, Write};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt;

const NULL: i32 = 0;
const TEXT: i32 = 1;
const OPAQUE: i32 = 2;
const HIERARCHICAL: i32 = 3;
const ENCODED: i32 = 1;
const DECODED: i32 = 2;

/// Bytes that `Uri.encode` replaces: all but letters, digits and these marks.
const REPLACED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'_')
    .remove(b'-')
    .remove(b'!')
    .remove(b'.')
    .remove(b'~')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*');
/// The same in a path, whose slashes stay.
const REPLACED_IN_PATH: &AsciiSet = &REPLACED.remove(b'/');

/// A URI, as it was written. Any text is one.
///
/// ```
/// use baton_services::intent::Uri;
/// let uri = Uri::from("http://example.org:80/a%20b?q");
/// assert_eq!(uri.scheme(), Some("http"));
/// assert_eq!(uri.host().as_deref(), Some("example.org"));
/// assert_eq!(uri.port(), Some(80));
/// assert_eq!(uri.path().as_deref(), Some("/a b"));
/// let package = Uri::from("package:org.example");
/// assert_eq!(package.scheme_specific_part(), "org.example");
/// assert_eq!(package.path(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri {
    text: String,
}

impl From<&str> for Uri {
    fn from(text: &str) -> Uri {
        Uri { text: text.to_owned() }
    }
}

impl From<String> for Uri {
    fn from(text: String) -> Uri {
        Uri { text }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A part without its percent escapes. U+FFFD stands for what is no UTF-8.
fn decoded(part: &str) -> Cow<'_, str> {
    percent_decode_str(part).decode_utf8_lossy()
}

impl Uri {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme, as it was written. `None` of a relative URI.
    pub fn scheme(&self) -> Option<&str> {
        self.text.split_once(':').map(|(scheme, _)| scheme)
    }

    /// The text behind the scheme.
    fn behind_scheme(&self) -> &str {
        self.text.split_once(':').map_or(&self.text, |(_, rest)| rest)
    }

    fn without_fragment(&self) -> &str {
        let rest = self.behind_scheme();
        rest.split_once('#').map_or(rest, |(before, _)| before)
    }

    /// The text between scheme and fragment, decoded.
    pub fn scheme_specific_part(&self) -> Cow<'_, str> {
        decoded(self.without_fragment())
    }

    /// Whether the URI has a scheme that no slash follows.
    pub fn is_opaque(&self) -> bool {
        self.scheme().is_some() && !self.behind_scheme().starts_with('/')
    }

    /// The authority, encoded, and the text behind it.
    fn split_authority(&self) -> (Option<&str>, &str) {
        let rest = self.without_fragment();
        let Some(behind) = rest.strip_prefix("//") else { return (None, rest) };
        // Browsers take a backslash for a slash. So does Android, lest a host be mistaken.
        let end = behind.find(['/', '\\', '?']).unwrap_or(behind.len());
        (Some(&behind[..end]), &behind[end..])
    }

    /// The authority, encoded: `user@host:port`.
    pub fn authority(&self) -> Option<&str> {
        self.split_authority().0
    }

    /// User and host, and the digits behind the last colon, if nothing but digits follows it.
    fn split_port(&self) -> Option<(&str, Option<&str>)> {
        let authority = self.authority()?;
        Some(match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, Some(port))
            }
            _ => (authority, None),
        })
    }

    /// The host, decoded.
    pub fn host(&self) -> Option<Cow<'_, str>> {
        let (host, _) = self.split_port()?;
        Some(decoded(host.rsplit_once('@').map_or(host, |(_, host)| host)))
    }

    /// The port.
    pub fn port(&self) -> Option<u16> {
        self.split_port()?.1?.parse().ok()
    }

    /// The path, decoded. `None` of an opaque URI.
    pub fn path(&self) -> Option<Cow<'_, str>> {
        if self.is_opaque() {
            return None;
        }
        let (_, rest) = self.split_authority();
        Some(decoded(rest.split_once('?').map_or(rest, |(path, _)| path)))
    }

    /// The query, decoded.
    pub fn query(&self) -> Option<Cow<'_, str>> {
        self.without_fragment().split_once('?').map(|(_, query)| decoded(query))
    }

    /// Writes a URI or null: see the module.
    pub fn write(uri: Option<&Uri>, parcel: &mut Parcel) {
        let Some(uri) = uri else { return parcel.write_i32(NULL) };
        parcel.write_i32(TEXT);
        parcel.write_string8(&uri.text);
    }

    /// Reads a URI or null: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<Option<Uri>, DecodeError> {
        let text = match reader.i32() {
            Some(NULL) => return Ok(None),
            Some(TEXT) => reader.nullable_string8().flatten(),
            Some(OPAQUE) => read_opaque(reader),
            Some(HIERARCHICAL) => read_hierarchical(reader),
            _ => None,
        };
        field("the URI", text).map(|text| Some(Uri { text }))
    }
}

/// A part in its encoded form.
fn read_part(reader: &mut Reader<'_>, replaced: &'static AsciiSet) -> Option<Option<String>> {
    let form = reader.i32()?;
    let part = reader.nullable_string8()?;
    match form {
        ENCODED => Some(part),
        DECODED => Some(part.map(|part| utf8_percent_encode(&part, replaced).to_string())),
        _ => None,
    }
}

fn read_opaque(reader: &mut Reader<'_>) -> Option<String> {
    let scheme = reader.nullable_string8()??;
    let part = read_part(reader, REPLACED)?.unwrap_or_default();
    let fragment = read_part(reader, REPLACED)?;
    Some(format!("{scheme}:{part}{}", marked('#', fragment)))
}

fn read_hierarchical(reader: &mut Reader<'_>) -> Option<String> {
    let scheme = reader.nullable_string8()?;
    let authority = read_part(reader, REPLACED)?;
    let mut path = read_part(reader, REPLACED_IN_PATH)?.unwrap_or_default();
    let query = read_part(reader, REPLACED)?;
    let fragment = read_part(reader, REPLACED)?;
    let is_absolute = [&scheme, &authority].into_iter().flatten().any(|part| !part.is_empty());
    if is_absolute && !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    let scheme = scheme.map_or_else(String::new, |scheme| format!("{scheme}:"));
    let authority = authority.map_or_else(String::new, |authority| format!("//{authority}"));
    let (query, fragment) = (marked('?', query), marked('#', fragment));
    Some(format!("{scheme}{authority}{path}{query}{fragment}"))
}

/// A part behind its mark, or nothing if it is empty.
fn marked(mark: char, part: Option<String>) -> String {
    part.filter(|part| !part.is_empty()).map_or_else(String::new, |part| format!("{mark}{part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        type Parts<'a> =
            (Option<&'a str>, &'a str, Option<&'a str>, Option<u16>, Option<&'a str>, bool);
        for (text, expected) in [
            ("", (None, "", None, None, Some(""), false)),
            ("tel:", (Some("tel"), "", None, None, None, true)),
            ("tel:12%203#x", (Some("tel"), "12 3", None, None, None, true)),
            ("a/b?c", (None, "a/b?c", None, None, Some("a/b"), false)),
            ("//h", (None, "//h", Some("h"), None, Some(""), false)),
            ("http://h:8/p", (Some("http"), "//h:8/p", Some("h"), Some(8), Some("/p"), false)),
            ("http://u@h?q#f", (Some("http"), "//u@h?q", Some("h"), None, Some(""), false)),
            // A user with a colon and an at, and no port.
            ("http://u:1@x@h/", (Some("http"), "//u:1@x@h/", Some("h"), None, Some("/"), false)),
            // A port that is no number, and one that is too large.
            ("s://h:8x/", (Some("s"), "//h:8x/", Some("h:8x"), None, Some("/"), false)),
            ("s://h:65536/", (Some("s"), "//h:65536/", Some("h"), None, Some("/"), false)),
            ("s://h:/", (Some("s"), "//h:/", Some("h"), None, Some("/"), false)),
            ("s://[::1]:9", (Some("s"), "//[::1]:9", Some("[::1]"), Some(9), Some(""), false)),
            ("s://a\\b/c", (Some("s"), "//a\\b/c", Some("a"), None, Some("\\b/c"), false)),
            ("file:///a%2Fb", (Some("file"), "///a/b", Some(""), None, Some("/a/b"), false)),
            ("S:/x", (Some("S"), "/x", None, None, Some("/x"), false)),
            (":x", (Some(""), "x", None, None, None, true)),
            // An escape of no UTF-8, and one that is none.
            ("s:/%ff%zz", (Some("s"), "/\u{fffd}%zz", None, None, Some("/\u{fffd}%zz"), false)),
        ] as [(&str, Parts<'_>); 17]
        {
            let uri = Uri::from(text);
            let (part, host, path) = (uri.scheme_specific_part(), uri.host(), uri.path());
            let parts = (
                uri.scheme(),
                part.as_ref(),
                host.as_deref(),
                uri.port(),
                path.as_deref(),
                uri.is_opaque(),
            );
            assert_eq!(parts, expected, "{text:?}");
        }
        assert_eq!(Uri::from("s:/p?q%20r?#f").query().as_deref(), Some("q r?"));
        assert_eq!(Uri::from("s:/p#f?q").query(), None);
    }

    fn part(parcel: &mut Parcel, form: i32, text: Option<&str>) {
        parcel.write_i32(form);
        parcel.write_nullable_string8(text);
    }

    #[test]
    fn all_kinds_are_read() {
        let mut opaque = Parcel::new();
        opaque.write_i32(OPAQUE);
        opaque.write_string8("package");
        part(&mut opaque, DECODED, Some("a b/c"));
        part(&mut opaque, ENCODED, None);
        let mut hierarchical = Parcel::new();
        hierarchical.write_i32(HIERARCHICAL);
        hierarchical.write_string8("http");
        part(&mut hierarchical, ENCODED, Some("h:1"));
        part(&mut hierarchical, DECODED, Some("a b/c"));
        part(&mut hierarchical, ENCODED, Some("q=%20"));
        part(&mut hierarchical, DECODED, Some("f#"));
        let mut text = Parcel::new();
        Uri::write(Some(&Uri::from("a:b#c")), &mut text);
        for (parcel, expected) in [
            (&opaque, "package:a%20b%2Fc"),
            (&hierarchical, "http://h:1/a%20b/c?q=%20#f%23"),
            (&text, "a:b#c"),
        ] {
            let mut reader = Reader::new(parcel.data());
            assert_eq!(Uri::read(&mut reader), Ok(Some(Uri::from(expected))));
            assert!(reader.is_empty(), "{expected}");
            for length in 0..parcel.data().len() {
                let cut = Uri::read(&mut Reader::new(&parcel.data()[..length]));
                assert_eq!(cut, Err(DecodeError::Malformed("the URI")), "{expected}, {length}");
            }
        }
        let mut null = Parcel::new();
        Uri::write(None, &mut null);
        assert_eq!(Uri::read(&mut Reader::new(null.data())), Ok(None));
        let wrong = Err(DecodeError::Malformed("the URI"));
        assert_eq!(Uri::read(&mut Reader::new(&4i32.to_le_bytes())), wrong);
    }
}
