//! What the service keeps for its successor: a file in memory, mapped, written without a lock.
//!
//! A record of a broadcast is written before its sender is answered, and ends when all receivers
//! have been called. What the process has stored stays when it is killed. The file belongs to the
//! service's user alone, and a lock on it to the service, as long as it lives.
//!
//! **Invariant**: only the service that holds the file's lock writes to it. The kernel lets go of
//! the lock after the last instruction of the service.
//!
//! Records of real-time broadcasts have one half of the blocks, all other records the other half.
//! A user may have at most as many blocks of a half as are left for others.

use super::account::{Accounts, Charge, Exhausted, Memory};
use super::blocks::Blocks;
use super::priority::ORDINARY;
use super::record::{self, BLOCK_BYTES, BLOCK_WORDS, Corrupt, Draft, Kept};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The bytes of a journal.
pub const FILE_BYTES: usize = 16 << 20;
const N_BLOCKS: u32 = (FILE_BYTES / BLOCK_BYTES) as u32;
/// Says what the file is, and how it is laid out.
const MAGIC: u32 = u32::from_be_bytes(*b"bcj\x02");
/// The type of a file system in memory: `linux/magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// Words of the first block.
const MAGIC_WORD: usize = 0;
const EPOCH_WORD: usize = 1;

/// A journal that this process writes.
#[derive(Debug)]
pub struct Journal {
    words: Words,
    ordinary: Blocks,
    real_time: Blocks,
    epoch: u32,
    is_closed: AtomicBool,
    /// Holds the lock.
    _file: File,
}

/// A journal, and what a service before this one has left in it.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Arc<Journal>,
    /// The records, in no order.
    pub kept: Vec<Kept>,
    /// Why the records that were there are refused, and gone.
    pub refused: Option<Corrupt>,
    /// Whether no page is ever written to a disk.
    pub is_in_memory: bool,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The system refuses.
    #[error("{0}: {1}")]
    System(PathBuf, #[source] Errno),
    /// It is another user's, or others may write to it.
    #[error("{0} is no file of user {1} alone")]
    Foreign(PathBuf, u32),
    /// Another service uses it.
    #[error("{0} is the journal of another broadcast service, which runs")]
    InUse(PathBuf),
}

/// A record in the journal. It ends when this is dropped, unless the journal is closed.
#[derive(Debug)]
pub struct Record {
    journal: Arc<Journal>,
    blocks: Vec<u32>,
    _charge: Charge,
}

impl Journal {
    /// Opens a journal, or makes one. One that is corrupt is begun anew.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(path: &Path) -> Result<Opened, JournalError> {
        let system = |errno| JournalError::System(path.to_owned(), errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A FIFO of somebody else's must not hold the service up.
        let flags = flags | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::open(path, flags, mode).map_err(system)?);
        let status = rustix::fs::fstat(&file).map_err(system)?;
        let user = rustix::process::geteuid().as_raw();
        let is_regular = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
        if !is_regular || status.st_uid != user || status.st_mode & 0o077 != 0 {
            return Err(JournalError::Foreign(path.to_owned(), user));
        }
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            match errno {
                Errno::WOULDBLOCK => JournalError::InUse(path.to_owned()),
                errno => system(errno),
            }
        })?;
        // Again, under the lock.
        let bytes = rustix::fs::fstat(&file).map_err(system)?.st_size as usize;
        if bytes > FILE_BYTES {
            rustix::fs::ftruncate(&file, FILE_BYTES as u64).map_err(system)?;
        }
        // No store finds that the file system is full.
        let all = FILE_BYTES as u64;
        baton_shm::file_size::check(all).map_err(system)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, all).map_err(system)?;
        let is_in_memory = rustix::fs::fstatfs(&file).map_err(system)?.f_type == TMPFS_MAGIC;
        let words = Words::map(&file).map_err(system)?;
        let read = match (bytes, words.load(MAGIC_WORD)) {
            (0 | FILE_BYTES, 0) => Ok(None),
            (FILE_BYTES, MAGIC) => record::read_all(N_BLOCKS, |at| words.load(at)).map(Some),
            _ => Err(Corrupt { block: 0, wrong: "is that of another file, or of another version" }),
        };
        let (kept, refused) = match read {
            Ok(kept) => (kept, None),
            Err(corrupt) => (None, Some(corrupt)),
        };
        let epoch = match kept {
            Some(_) => words.load(EPOCH_WORD).wrapping_add(1),
            None => std::hash::RandomState::new().hash_one(MAGIC) as u32,
        };
        if kept.is_none() && bytes != 0 {
            // The first word goes first and comes last: a half of this is no journal.
            (0..FILE_BYTES / 4).for_each(|at| words.store(at, 0));
        }
        words.store(EPOCH_WORD, epoch);
        words.store(MAGIC_WORD, MAGIC);
        let half = N_BLOCKS / 2;
        let (ordinary, real_time) = (Blocks::new(1, half - 1), Blocks::new(half, N_BLOCKS - half));
        let is_closed = AtomicBool::new(false);
        let kept = kept.unwrap_or_default();
        for block in kept.iter().flat_map(|kept| &kept.blocks) {
            let _ = ordinary.take_this(*block) || real_time.take_this(*block);
        }
        let journal = Journal { words, ordinary, real_time, epoch, is_closed, _file: file };
        Ok(Opened { journal: Arc::new(journal), kept, refused, is_in_memory })
    }

    /// The epoch of this service: one more than the last one's.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Keeps a record on a user's account.
    ///
    /// # Errors
    /// The user has as many blocks as others may still have.
    pub fn keep(
        self: &Arc<Self>,
        accounts: &Accounts,
        uid: u32,
        level: usize,
        draft: &Draft<'_>,
    ) -> Result<Record, Exhausted> {
        let (pool, memory) = match level {
            ORDINARY => (&self.ordinary, Memory::Ordinary),
            _ => (&self.real_time, Memory::RealTime),
        };
        let (n_blocks, n_free) = (draft.n_blocks(), pool.n_free());
        let charge = accounts.charge_memory(uid, memory, n_blocks, n_free)?;
        let blocks = pool.take(n_blocks).ok_or_else(|| memory.exhausted(uid, n_free))?;
        draft.write(&blocks, |at, word| self.words.store(at, word));
        Ok(Record { journal: Arc::clone(self), blocks, _charge: charge })
    }

    /// A record that was read, on a user's account.
    pub fn adopt(self: &Arc<Self>, accounts: &Accounts, uid: u32, kept: &Kept) -> Record {
        let memory = match kept.blocks[0] < N_BLOCKS / 2 {
            true => Memory::Ordinary,
            false => Memory::RealTime,
        };
        // It was within the user's bounds before.
        let charge = accounts.adopt_memory(uid, memory, kept.blocks.len() as u32);
        Record { journal: Arc::clone(self), blocks: kept.blocks.clone(), _charge: charge }
    }

    /// Ends a record that was read and is of no use.
    pub fn discard(&self, kept: &Kept) {
        self.end(&kept.blocks);
    }

    /// From now on no record ends: the next service has them all.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn end(&self, blocks: &[u32]) {
        // Release of the state: all marks come before.
        self.words.store(record::state(blocks), 0);
        let pool = match blocks[0] < N_BLOCKS / 2 {
            true => &self.ordinary,
            false => &self.real_time,
        };
        pool.release(blocks);
    }
}

impl Record {
    /// Sets a mark. For the one thread that sets this record's marks.
    pub fn mark(&self, mark: u32) {
        let words = &self.journal.words;
        let (at, bit) = record::mark(&self.blocks, mark);
        words.store(at, words.load(at) | bit);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.journal.is_closed.load(Ordering::Acquire) {
            self.journal.end(&self.blocks);
        }
    }
}

/// The words of the mapped file.
#[derive(Debug)]
struct Words(MmapRaw);

impl Words {
    fn map(file: &File) -> Result<Words, Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let map = MmapOptions::new().len(FILE_BYTES).populate().map_raw(file).map_err(failed)?;
        // Without the right to it, pages may be swapped out.
        let _ = map.lock();
        Ok(Words(map))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < FILE_BYTES / 4, "a word of the journal");
        // SAFETY: the word lies within the map, which lives as long as this; only atomics access
        // it. The file keeps its length: only its user's processes can open it.
        unsafe { AtomicU32::from_ptr(self.0.as_mut_ptr().cast::<u32>().add(at)) }
    }

    fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Release keeps the stores in their order: whoever is killed has made none before an earlier
    /// one.
    fn store(&self, at: usize, word: u32) {
        self.word(at).store(word, Ordering::Release);
    }
}

const _: () = assert!(FILE_BYTES.is_multiple_of(BLOCK_BYTES) && EPOCH_WORD < BLOCK_WORDS);

#[cfg(test)]
mod tests {
    use super::super::record::Kind;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn draft(id: u64, body: &[u8]) -> Draft<'_> {
        Draft { kind: Kind::Broadcast, id, n_marks: 2, body }
    }

    #[test]
    fn the_next_service_finds_what_has_not_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let accounts = Accounts::default();
        let open = || Journal::open(&path).unwrap();
        let Opened { journal, kept, refused, .. } = open();
        assert!(kept.is_empty() && refused.is_none());
        let keep = |level, id| journal.keep(&accounts, 1, level, &draft(id, &[7; 900])).unwrap();
        let (ended, marked, epoch) = (keep(0, 1), keep(80, 2), journal.epoch());
        marked.mark(1);
        drop(ended);
        journal.close();
        drop((marked, journal));
        let Opened { journal, kept, .. } = open();
        let [only] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!(
            (only.id, &only.marks[..], &only.body[..]),
            (2, &[false, true][..], &[7; 900][..])
        );
        assert_eq!(journal.epoch(), epoch.wrapping_add(1));
        let n_free = journal.real_time.n_free();
        drop(journal.adopt(&accounts, 1, only));
        assert_eq!(journal.real_time.n_free(), n_free + 2);
        drop(journal);
        assert!(open().kept.is_empty());
    }

    #[test]
    fn a_user_leaves_room_for_others() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = Accounts::default();
        let Opened { journal, .. } = Journal::open(&directory.path().join("journal")).unwrap();
        let large = vec![1; 100_000];
        let mut held = Vec::new();
        for (uid, least) in [(1, 41), (2, 20), (3, 10)] {
            let mut n_kept = 0;
            let refused = loop {
                match journal.keep(&accounts, uid, 0, &draft(n_kept, &large)) {
                    Ok(record) => held.push(record),
                    Err(refused) => break refused.to_string(),
                }
                n_kept += 1;
            };
            assert!(n_kept >= least, "{n_kept} of user {uid}");
            assert!(refused.contains("blocks of the journal"), "{refused}");
            assert!(journal.keep(&accounts, uid, 1, &draft(0, b"")).is_ok(), "the other half");
        }
        drop(held);
        assert_eq!(journal.ordinary.n_free(), N_BLOCKS / 2 - 1);
    }

    #[test]
    fn a_journal_that_is_foreign_or_in_use_is_refused_and_a_corrupt_one_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let said = || Journal::open(&path).unwrap_err().to_string();
        let Opened { journal, .. } = Journal::open(&path).unwrap();
        assert!(said().ends_with("is the journal of another broadcast service, which runs"));
        journal.words.store(BLOCK_WORDS, 1);
        drop(journal);
        let refused = |path| Journal::open(path).unwrap().refused.map(|it| it.to_string());
        let text = "block 1 of the journal begins no record";
        assert_eq!(refused(&path).as_deref(), Some(text));
        assert_eq!(refused(&path), None, "it is begun anew");
        let text = "block 0 of the journal is that of another file, or of another version";
        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(refused(&path).as_deref(), Some(text));
        std::fs::write(&path, vec![1; FILE_BYTES + 1]).unwrap();
        assert_eq!(refused(&path).as_deref(), Some(text));
        assert_eq!(refused(&path), None);
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o660);
        assert!(said().contains("is no file of user"), "{}", said());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Journal::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(said().contains("is no file of user"), "{}", said());
        std::fs::remove_file(&path).unwrap();
        assert!(said_in_no_directory(directory.path()).contains("No such file"));
    }

    fn said_in_no_directory(directory: &Path) -> String {
        Journal::open(&directory.join("none/journal")).unwrap_err().to_string()
    }
}
