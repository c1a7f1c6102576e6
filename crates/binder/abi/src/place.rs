//! The path of the broker's socket.

use std::path::{Path, PathBuf};

/// Environment variable with the path of the broker's socket, for programs and the broker alike.
pub const SOCKET_VARIABLE: &str = "BATON_SOCKET";
/// The system-wide broker's socket.
pub const SYSTEM_SOCKET: &str = "/run/baton/broker.sock";

/// The directory beside the broker's socket that contains a placeholder for every device. It exists
/// for running programs, and a broker without clients removes it.
pub fn devices_beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".dev");
    PathBuf::from(name)
}

/// The socket of a user's broker: `$BATON_SOCKET` if set, and the system-wide one for root.
/// Otherwise the one in `$XDG_RUNTIME_DIR`, or in `/tmp` without that variable, unless only a
/// system-wide one exists.
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
