//! Where the broker listens: the one thing about it that is no byte.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The system-wide broker's socket.
pub const SYSTEM: &str = "/run/baton/broker.sock";

/// The socket of the broker that this process belongs to.
///
/// `$BATON_SOCKET`; for root [`SYSTEM`]; else the user's own, if there is one or no system-wide
/// one: `$XDG_RUNTIME_DIR/baton/broker.sock`, without that variable `/tmp/baton-UID/broker.sock`.
///
/// Whoever connects there must still check by SO_PEERCRED that root or its own user listens:
/// anybody may have made the directory in `/tmp`.
pub fn socket_path() -> PathBuf {
    let uid = rustix::process::geteuid();
    let is_set_uid = rustix::process::getuid() != uid;
    choose(
        uid.as_raw(),
        // A set-uid program does not let its caller choose whom it believes.
        |name: &str| if is_set_uid { None } else { std::env::var_os(name) },
        |path: &Path| std::fs::metadata(path).ok().map(|file| file.uid()),
    )
}

/// `owner_of` is the user id of a file's owner, if there is such a file.
fn choose(
    uid: u32,
    variable: impl Fn(&str) -> Option<OsString>,
    owner_of: impl Fn(&Path) -> Option<u32>,
) -> PathBuf {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = variable("BATON_SOCKET") {
        return path.into();
    }
    let system = PathBuf::from(SYSTEM);
    if uid == 0 {
        return system;
    }
    let user = match variable("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory).join("baton"),
        None => PathBuf::from(format!("/tmp/baton-{uid}")),
    }
    .join("broker.sock");
    let is_own = owner_of(&user) == Some(uid);
    if is_own || owner_of(&system).is_none() { user } else { system }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIME: (&str, &str) = ("XDG_RUNTIME_DIR", "/run/user/7");
    const MINE: &str = "/run/user/7/baton/broker.sock";
    const TEMPORARY: &str = "/tmp/baton-7/broker.sock";

    fn check(uid: u32, variables: &[(&str, &str)], files: &[(&str, u32)], expect: &str) {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let owner_of = |path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, uid)| *uid)
        };
        assert_eq!(choose(uid, variable, owner_of), Path::new(expect));
    }

    #[test]
    fn the_variable_wins() {
        check(0, &[("BATON_SOCKET", "/x")], &[(SYSTEM, 0)], "/x");
        check(7, &[("BATON_SOCKET", "/x"), RUNTIME], &[(MINE, 7)], "/x");
        check(7, &[("BATON_SOCKET", ""), RUNTIME], &[(MINE, 7)], MINE);
    }

    #[test]
    fn root_serves_the_system() {
        check(0, &[RUNTIME], &[], SYSTEM);
    }

    #[test]
    fn a_user_prefers_his_own_to_the_systems() {
        check(7, &[RUNTIME], &[], MINE);
        check(7, &[RUNTIME], &[(MINE, 7), (SYSTEM, 0)], MINE);
        check(7, &[RUNTIME], &[(SYSTEM, 0)], SYSTEM);
        check(7, &[], &[], TEMPORARY);
        check(7, &[], &[(TEMPORARY, 7), (SYSTEM, 0)], TEMPORARY);
        check(7, &[], &[(SYSTEM, 0)], SYSTEM);
    }

    #[test]
    fn a_strangers_socket_is_nobodys_own() {
        check(7, &[], &[(TEMPORARY, 8), (SYSTEM, 0)], SYSTEM);
    }
}
