//! Protection from the kernel's out-of-memory killer.

use crate::error::Error;
use std::io;

const PATH: &str = "/proc/self/oom_score_adj";
/// The value that protects a process.
const PROTECTED: i32 = -1000;

/// Protects this process, and those that it starts, from the out-of-memory killer until dropped.
#[derive(Debug)]
pub struct Protection {
    before: i32,
}

/// The process's `oom_score_adj`: -1000 never kills it, 1000 always kills it first.
pub fn adjustment() -> Result<i32, Error> {
    let text = std::fs::read_to_string(PATH)
        .map_err(|error| Error::system(format!("read {PATH}"), error))?;
    text.trim()
        .parse()
        .map_err(|_| Error::system(format!("read {PATH}"), io::ErrorKind::InvalidData))
}

fn adjust(to: i32) -> Result<(), Error> {
    std::fs::write(PATH, to.to_string()).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Denied {
            what: "protection from being killed for memory".to_owned(),
            needs: "CAP_SYS_RESOURCE".to_owned(),
            advice: "run it as root, or give the service OOMScoreAdjust=-1000 in its systemd unit",
        },
        _ => Error::system(format!("write {to} to {PATH}"), error),
    })
}

impl Protection {
    /// Protects this process. `Error::Denied` without CAP_SYS_RESOURCE.
    pub fn new() -> Result<Protection, Error> {
        let before = adjustment()?;
        adjust(PROTECTED)?;
        Ok(Protection { before })
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        // Raising the value needs no right.
        let _ = adjust(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_ends_when_dropped() {
        let before = adjustment().unwrap();
        match Protection::new() {
            Ok(protection) => {
                assert_eq!(adjustment().unwrap(), PROTECTED);
                drop(protection);
            }
            Err(error) => assert!(error.advice().is_some(), "{error}"),
        }
        assert_eq!(adjustment().unwrap(), before);
    }
}
