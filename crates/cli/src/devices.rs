//! What a program finds in `/dev`: a directory with a placeholder for every path of Baton's.
//!
//! ```text
//!   <root>/binder  hwbinder  vndbinder
//!   <root>/binderfs/<context>...  binder-control
//!   <root>/binderfs/features/oneway_spam_detection ...
//! ```
//!
//! It says nothing that is secret and grants nothing: the broker decides who opens what. It lies
//! beside the broker's socket, so that everybody who uses the broker shares it, and ends with the
//! broker, if that has no client then; where that directory is not ours to write, it lies among our
//! own files, under the socket's path.

use crate::failure::Failure;
use baton_abi::place::devices_beside;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Devices outside of binderfs.
const LEGACY: [&str; 3] = ["binder", "hwbinder", "vndbinder"];
/// What binderfs says that the driver can do.
const FEATURES: [&str; 3] = ["oneway_spam_detection", "extended_error", "freeze_notification"];

/// Lays the directory out for these contexts; where it is.
pub fn lay_out(socket: &Path, contexts: &[String]) -> Result<PathBuf, Failure> {
    let shared = devices_beside(socket);
    if fill(&shared, contexts).is_ok() {
        return Ok(shared);
    }
    let own = own_root(socket);
    make_private(&own)
        .and_then(|()| fill(&own.1, contexts))
        .map_err(|error| Failure::new(format!("make {}", own.1.display()), error))?;
    Ok(own.1)
}

/// Adds a context's placeholder wherever there is a directory already.
pub fn add(socket: &Path, context: &str) {
    for root in [devices_beside(socket), own_root(socket).1] {
        let binderfs = root.join("binderfs");
        if binderfs.is_dir() {
            // A program that opens it needs no placeholder; only one that looks first does.
            let _ = place(&binderfs.join(context), b"");
        }
    }
}

/// A directory of this user's own, and the placeholders in it.
fn own_root(socket: &Path) -> (PathBuf, PathBuf) {
    let own = match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("baton"),
        None => PathBuf::from(format!("/tmp/baton-{}", rustix::process::geteuid().as_raw())),
    };
    let placeholders = own.join("dev").join(socket.strip_prefix("/").unwrap_or(socket));
    (own, placeholders)
}

/// In `/tmp` anybody may have made a directory of the name that we are about to use.
fn make_private((own, _): &(PathBuf, PathBuf)) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(own)?;
    let found = std::fs::symlink_metadata(own)?;
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::PermissionDenied, format!("{} is not ours", own.display())))
}

fn fill(root: &Path, contexts: &[String]) -> Result<(), Error> {
    let binderfs = root.join("binderfs");
    let features = binderfs.join("features");
    DirBuilder::new().recursive(true).mode(0o755).create(&features)?;
    for device in LEGACY {
        place(&root.join(device), b"")?;
    }
    for name in contexts.iter().map(String::as_str).chain(["binder-control"]) {
        place(&binderfs.join(name), b"")?;
    }
    for feature in FEATURES {
        place(&features.join(feature), b"1\n")?;
    }
    Ok(())
}

/// Makes one file, unless it is there. Written under another name first: a program that looks
/// meanwhile sees all of it or nothing.
fn place(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let mut file = File::create(&draft)?;
    file.write_all(contents)?;
    // Devices are open to everybody; the umask is not asked.
    let mode = if contents.is_empty() { 0o666 } else { 0o444 };
    file.set_permissions(Permissions::from_mode(mode))?;
    std::fs::rename(&draft, path)
}
