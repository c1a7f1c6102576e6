//! Where the broker listens.

use std::path::{Path, PathBuf};

/// Names the broker's socket, for programs and the broker alike.
pub const SOCKET_VARIABLE: &str = "BATON_SOCKET";
/// The system-wide broker's socket.
pub const SYSTEM_SOCKET: &str = "/run/baton/broker.sock";

/// The directory beside the broker's socket with a placeholder for every device: made for the
/// programs that run, gone with a broker that has no client left.
pub fn devices_beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".dev");
    PathBuf::from(name)
}

/// The socket of a user's broker: `$BATON_SOCKET`; for root the system-wide one; else that of
/// `$XDG_RUNTIME_DIR` unless only a system-wide one exists; without that variable, one in `/tmp`.
pub fn socket_path(uid: u32) -> PathBuf {
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    let system = Path::new(SYSTEM_SOCKET);
    if uid == 0 {
        return system.to_owned();
    }
    let own = match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("baton/broker.sock"),
        None => PathBuf::from(format!("/tmp/baton-{uid}/broker.sock")),
    };
    if !own.exists() && system.exists() { system.to_owned() } else { own }
}
