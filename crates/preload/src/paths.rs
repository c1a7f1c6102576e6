//! Which paths are Baton's, and where they are redirected to.
//!
//! ```text
//!   /dev/binder  /dev/hwbinder  /dev/vndbinder    devices: the context is the last component
//!   /dev/binderfs/<context>                       devices
//!   /dev/binderfs/binder-control                  adds contexts
//!   /dev/binderfs  /dev/binderfs/features/...     plain directories and files
//! ```
//!
//! `baton run` lays out a directory, `$BATON_DEV`, in which every one of these exists under its
//! name without `/dev`. Calls that look at a path rather than open it go there.

use baton_abi::place::socket_path;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What a path of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A device, with its context's name.
    Device(&'a str),
    /// `binder-control`.
    Control,
    /// A directory or feature file: the placeholder is all there is.
    Plain,
}

impl Place<'_> {
    /// Whether binderfs shows a character device here.
    pub fn is_device(self) -> bool {
        self != Place::Plain
    }
}

/// What `baton run` said in the environment, read once: a program may change its environment.
#[derive(Debug)]
pub struct Settings {
    /// Where the broker listens: `BATON_SOCKET`, or the default place.
    pub socket: PathBuf,
    /// `BATON_DEV`: the placeholders.
    pub placeholders: Option<Vec<u8>>,
    /// `BATON_CONTEXT`: the context behind the devices called `binder`.
    pub context: Option<String>,
    /// Not `BATON_TRAP=0`: inline system calls may be trapped.
    pub trap: bool,
}

/// The settings of this process.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        socket: socket_path(rustix::process::geteuid().as_raw()),
        placeholders: std::env::var_os("BATON_DEV").map(OsStringExt::into_vec),
        context: std::env::var("BATON_CONTEXT").ok(),
        trap: std::env::var_os("BATON_TRAP").is_none_or(|value| value != "0"),
    })
}

/// What a path is to us; `None` sends it on unchanged.
#[inline]
pub fn place(path: &CStr) -> Option<Place<'_>> {
    let rest = path.to_bytes().strip_prefix(b"/dev/")?;
    match rest {
        b"binder" | b"hwbinder" | b"vndbinder" => device(rest),
        _ => place_in_binderfs(rest.strip_prefix(b"binderfs")?),
    }
}

fn place_in_binderfs(rest: &[u8]) -> Option<Place<'_>> {
    match rest {
        b"" | b"/" | b"/." | b"/.." | b"/features" => Some(Place::Plain),
        b"/binder-control" => Some(Place::Control),
        _ if rest.starts_with(b"/features/") => Some(Place::Plain),
        _ => device(rest.strip_prefix(b"/")?),
    }
}

fn device(name: &[u8]) -> Option<Place<'_>> {
    let sound = (1..=255).contains(&name.len()) && !name.contains(&b'/');
    let name = std::str::from_utf8(name).ok().filter(|_| sound)?;
    let renamed = settings().context.as_deref().filter(|_| name == "binder");
    Some(Place::Device(renamed.unwrap_or(name)))
}

/// The placeholder of a path of ours; `None` if `baton run` laid none out.
pub fn placeholder(path: &CStr) -> Option<CString> {
    under(settings().placeholders.as_deref()?, path)
}

fn under(root: &[u8], path: &CStr) -> Option<CString> {
    let rest = path.to_bytes().strip_prefix(b"/dev")?;
    CString::new([root, rest].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (path, expected) in [
            (c"/dev/binder", Some(Place::Device("binder"))),
            (c"/dev/hwbinder", Some(Place::Device("hwbinder"))),
            (c"/dev/vndbinder", Some(Place::Device("vndbinder"))),
            (c"/dev/binderfs/binder", Some(Place::Device("binder"))),
            (c"/dev/binderfs/anything-else", Some(Place::Device("anything-else"))),
            (c"/dev/binderfs/binder-control", Some(Place::Control)),
            (c"/dev/binderfs", Some(Place::Plain)),
            (c"/dev/binderfs/", Some(Place::Plain)),
            (c"/dev/binderfs/features/extended_error", Some(Place::Plain)),
            (c"/dev/binderfs/a/b", None),
            (c"/dev/binderfs/..", Some(Place::Plain)),
            (c"/dev/binderfsx", None),
            (c"/dev/binder2", None),
            (c"/dev/null", None),
            (c"binder", None),
            (c"", None),
        ] {
            assert_eq!(place(path), expected, "{path:?}");
        }
    }

    #[test]
    fn placeholders_keep_the_name() {
        assert_eq!(
            under(b"/run/x", c"/dev/binderfs/binder").as_deref(),
            Some(c"/run/x/binderfs/binder")
        );
    }
}
