//! Dumps: a service writes its state to a descriptor of the caller's.
//!
//! A reader may be slow, or never read. So each dump has a thread of its own, and each user a bound
//! of them: no looper waits for a reader, and no user's dumps keep another user from one.

use baton::Errno;
use baton_shm::lock::Lock;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::thread::Builder;

/// Dumps of a user that wait for their readers.
pub const MAX_DUMPS: u32 = 4;

/// The dumps of a service that are being written, by user.
#[derive(Clone, Debug, Default)]
pub struct Dumps(Arc<Lock<HashMap<u32, u32>>>);

/// A dump that counts for its user until it is dropped.
struct Counted {
    dumps: Dumps,
    uid: u32,
}

impl Dumps {
    /// Writes a text to a descriptor, which is closed then, and does not wait for its reader.
    ///
    /// # Errors
    /// `BUSY` if the user has [`MAX_DUMPS`] dumps that are not read; `AGAIN` without a thread.
    pub fn write(&self, uid: u32, output: OwnedFd, text: String) -> Result<(), Errno> {
        let counted = self.count(uid).ok_or(Errno::BUSY)?;
        let write = move || {
            // Whoever has closed the pipe does not want the rest.
            let _ = File::from(output).write_all(text.as_bytes());
            drop(counted);
        };
        let started = Builder::new().name("baton-dump".to_owned()).spawn(write);
        started.map(drop).map_err(|_| Errno::AGAIN)
    }

    fn count(&self, uid: u32) -> Option<Counted> {
        let mut by_user = self.0.lock();
        let n_dumps = by_user.entry(uid).or_default();
        if *n_dumps == MAX_DUMPS {
            return None;
        }
        *n_dumps += 1;
        Some(Counted { dumps: self.clone(), uid })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_user = self.dumps.0.lock();
        let n_dumps = by_user.entry(self.uid).or_default();
        *n_dumps -= 1;
        if *n_dumps == 0 {
            by_user.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, pipe};

    #[test]
    fn a_user_who_does_not_read_has_a_bound_and_keeps_nobody_else_from_a_dump() {
        let dumps = Dumps::default();
        // Longer than a pipe: the writer waits for the reader.
        let text = "state ".repeat(100_000);
        let dump = |uid| {
            let (reader, writer) = pipe().unwrap();
            dumps.write(uid, OwnedFd::from(writer), text.clone()).map(|()| reader)
        };
        let all = |mut reader: PipeReader| {
            let mut read = String::new();
            reader.read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        };
        let waiting: Vec<_> = (0..MAX_DUMPS).map(|_| dump(1).unwrap()).collect();
        assert_eq!(dump(1).unwrap_err(), Errno::BUSY);
        all(dump(2).unwrap());
        waiting.into_iter().for_each(all);
        // The count goes down behind the last byte.
        while !dumps.0.lock().is_empty() {
            std::thread::yield_now();
        }
        all(dump(1).unwrap());
    }
}
