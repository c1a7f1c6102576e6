//! The paths of Binder devices, and the placeholder files behind them.
//!
//! ```text
//!   /dev/binder  /dev/hwbinder  /dev/vndbinder    devices: the context is the last component
//!   /dev/binderfs/<context>                       devices
//!   /dev/binderfs/binder-control                  adds contexts
//!   /dev/binderfs  /dev/binderfs/features/...     plain directories and files
//! ```
//!
//! `baton run` makes a directory, `$BATON_DEV`, that contains a placeholder for each of these paths
//! under its name without `/dev`. Functions that examine a path instead of opening it use the
//! placeholder.

use baton_abi::place::socket_path;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The kind of a device path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonPath<'a> {
    /// The device of the named context.
    Device(&'a str),
    /// `binder-control`.
    Control,
    /// A directory or feature file, which consists of the placeholder alone.
    Plain,
}

impl BatonPath<'_> {
    /// Whether binderfs has a character device at this path.
    pub fn is_device(self) -> bool {
        self != BatonPath::Plain
    }
}

/// Settings from the environment, read once because a program may change its environment.
#[derive(Debug)]
pub struct Settings {
    /// `BATON_SOCKET`, or the default: the broker's socket.
    pub socket: PathBuf,
    /// `BATON_DEV`: the directory of placeholders.
    pub placeholders: Option<Vec<u8>>,
    /// `BATON_CONTEXT`: the context of the devices named `binder`.
    pub context: Option<String>,
    /// `BATON_PROGRAM`: the path of `baton`.
    pub program: Option<PathBuf>,
    /// Whether inline system calls may be trapped: false for `BATON_TRAP=0`.
    pub trap: bool,
}

/// The settings of this process.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        socket: socket_path(rustix::process::geteuid().as_raw()),
        placeholders: std::env::var_os("BATON_DEV").map(OsStringExt::into_vec),
        context: std::env::var("BATON_CONTEXT").ok(),
        program: std::env::var_os("BATON_PROGRAM").map(PathBuf::from),
        trap: std::env::var_os("BATON_TRAP").is_none_or(|value| value != "0"),
    })
}

/// The kind of a path. `None` if it is no device path.
#[inline]
pub fn classify(path: &CStr) -> Option<BatonPath<'_>> {
    let rest = path.to_bytes().strip_prefix(b"/dev/")?;
    match rest {
        b"binder" | b"hwbinder" | b"vndbinder" => device(rest),
        _ => classify_in_binderfs(rest.strip_prefix(b"binderfs")?),
    }
}

fn classify_in_binderfs(rest: &[u8]) -> Option<BatonPath<'_>> {
    match rest {
        b"" | b"/" | b"/." | b"/.." | b"/features" => Some(BatonPath::Plain),
        b"/binder-control" => Some(BatonPath::Control),
        _ if rest.starts_with(b"/features/") => Some(BatonPath::Plain),
        _ => device(rest.strip_prefix(b"/")?),
    }
}

fn device(name: &[u8]) -> Option<BatonPath<'_>> {
    let is_valid = (1..=255).contains(&name.len()) && !name.contains(&b'/');
    let name = std::str::from_utf8(name).ok().filter(|_| is_valid)?;
    let renamed = settings().context.as_deref().filter(|_| name == "binder");
    Some(BatonPath::Device(renamed.unwrap_or(name)))
}

/// The placeholder of a device path. `None` without a directory of placeholders.
pub fn placeholder(path: &CStr) -> Option<CString> {
    path_below(settings().placeholders.as_deref()?, path)
}

fn path_below(root: &[u8], path: &CStr) -> Option<CString> {
    let rest = path.to_bytes().strip_prefix(b"/dev")?;
    CString::new([root, rest].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_classified() {
        for (path, expected) in [
            (c"/dev/binder", Some(BatonPath::Device("binder"))),
            (c"/dev/hwbinder", Some(BatonPath::Device("hwbinder"))),
            (c"/dev/vndbinder", Some(BatonPath::Device("vndbinder"))),
            (c"/dev/binderfs/binder", Some(BatonPath::Device("binder"))),
            (c"/dev/binderfs/anything-else", Some(BatonPath::Device("anything-else"))),
            (c"/dev/binderfs/binder-control", Some(BatonPath::Control)),
            (c"/dev/binderfs", Some(BatonPath::Plain)),
            (c"/dev/binderfs/", Some(BatonPath::Plain)),
            (c"/dev/binderfs/features/extended_error", Some(BatonPath::Plain)),
            (c"/dev/binderfs/a/b", None),
            (c"/dev/binderfs/..", Some(BatonPath::Plain)),
            (c"/dev/binderfsx", None),
            (c"/dev/binder2", None),
            (c"/dev/null", None),
            (c"binder", None),
            (c"", None),
        ] {
            assert_eq!(classify(path), expected, "{path:?}");
        }
    }

    #[test]
    fn placeholders_keep_the_name() {
        assert_eq!(
            path_below(b"/run/x", c"/dev/binderfs/binder").as_deref(),
            Some(c"/run/x/binderfs/binder")
        );
    }
}
