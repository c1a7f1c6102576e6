//! Whom the kernel kills when memory runs out.

use crate::error::Error;
use std::io;

const PATH: &str = "/proc/self/oom_score_adj";
/// Never this one.
const PROTECTED: i32 = -1000;

/// This process is not killed for memory, nor are those that it starts; until it is dropped.
#[derive(Debug)]
pub struct Protection {
    before: i32,
}

/// How much more than its size this process is worth killing: -1000 is never, 1000 always first.
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
    /// Protects this process.
    pub fn new() -> Result<Protection, Error> {
        let before = adjustment()?;
        adjust(PROTECTED)?;
        Ok(Protection { before })
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        // Raising it needs no right.
        let _ = adjust(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_ends() {
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
