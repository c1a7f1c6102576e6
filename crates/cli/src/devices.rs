//! The directory that stands for `/dev`, with a placeholder for every path of Baton's.
//!
//! ```text
//!   <root>/binder  hwbinder  vndbinder
//!   <root>/binderfs/<context>...  binder-control
//!   <root>/binderfs/features/oneway_spam_detection ...
//! ```
//!
//! The directory contains no secret and grants no right: the broker decides who opens a context. It
//! lies beside the broker's socket, so that all users of the broker share it, and is removed with a
//! broker that has no clients. If that place is not writable for this user, the directory lies
//! among the user's own files, named after the socket's path.

use crate::failure::Failure;
use baton_abi::place::devices_beside;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Device names outside of binderfs.
const LEGACY: [&str; 3] = ["binder", "hwbinder", "vndbinder"];
/// Features that binderfs lists for the driver.
const FEATURES: [&str; 3] = ["oneway_spam_detection", "extended_error", "freeze_notification"];

/// Makes the directory for these contexts. Returns its path.
pub fn lay_out(socket: &Path, contexts: &[String]) -> Result<PathBuf, Failure> {
    let shared = devices_beside(socket);
    if fill(&shared, contexts).is_ok() {
        return Ok(shared);
    }
    let own = own_root(socket);
    make_private(&own).and_then(|()| fill(&own.1, contexts)).map_err(|error| {
        Failure::new(format!("make {}", own.1.display()), error)
            .advice("set XDG_RUNTIME_DIR to a directory in which you may make files")
    })?;
    Ok(own.1)
}

/// Adds a context's placeholder to every existing directory.
pub fn add(socket: &Path, context: &str) {
    // Opening a device needs no placeholder; only examining its path does.
    for binderfs in existing(socket) {
        let _ = make_placeholder(&binderfs.join(context), b"");
    }
}

/// Removes a context's placeholder from every existing directory.
pub fn remove(socket: &Path, context: &str) {
    for binderfs in existing(socket) {
        let _ = std::fs::remove_file(binderfs.join(context));
    }
}

/// Every directory that stands for this broker's `/dev/binderfs`.
fn existing(socket: &Path) -> impl Iterator<Item = PathBuf> {
    let roots = [devices_beside(socket), own_root(socket).1];
    roots.map(|root| root.join("binderfs")).into_iter().filter(|binderfs| binderfs.is_dir())
}

/// A directory of this user, and the directory of placeholders in it.
fn own_root(socket: &Path) -> (PathBuf, PathBuf) {
    let own = match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("baton"),
        None => PathBuf::from(format!("/tmp/baton-{}", rustix::process::geteuid().as_raw())),
    };
    let placeholders = own.join("dev").join(socket.strip_prefix("/").unwrap_or(socket));
    (own, placeholders)
}

/// Makes the directory private. In `/tmp` another user may have made a directory of this name.
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
        make_placeholder(&root.join(device), b"")?;
    }
    for name in contexts.iter().map(String::as_str).chain(["binder-control"]) {
        make_placeholder(&binderfs.join(name), b"")?;
    }
    for feature in FEATURES {
        make_placeholder(&features.join(feature), b"1\n")?;
    }
    Ok(())
}

/// Makes a file, unless it exists. The file gets its name last, so a program sees all of it or
/// nothing.
fn make_placeholder(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let mut file = File::create(&draft)?;
    file.write_all(contents)?;
    // Every user may open devices, whatever the umask.
    let mode = if contents.is_empty() { 0o666 } else { 0o444 };
    file.set_permissions(Permissions::from_mode(mode))?;
    std::fs::rename(&draft, path)
}
