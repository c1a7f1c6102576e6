//! An engine's front page in the broker's hands, and its tally page.
//!
//! The engine made it, has mapped it for writing, and then gave it to the broker. The broker maps
//! it too and seals it: from then on it can be mapped only for reading, so that it may be handed
//! to the engine's clients. It can neither shrink nor grow, so that no access faults.

use baton_abi::control::EngineReport;
use baton_abi::lane::{FRONT_BYTES, TALLY_BYTES, front, tally};
use baton_shm::futex;
use baton_shm::mapping::{self, Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// More two-way transactions than any engine can have received: 64 lanes a channel, and a channel
/// costs its client two descriptors of at most a million.
const MAX_OUTSTANDING: u32 = 1 << 25;

pub(crate) struct Front {
    file: OwnedFd,
    page: Mapping<FRONT_BYTES>,
    tally: Mapping<TALLY_BYTES>,
    /// Who writes `FROZEN`.
    writer: Writer,
    frozen: bool,
}

enum Writer {
    Broker,
    /// Another broker had sealed the page: the engine does, when it hears of it.
    Engine,
}

impl Front {
    /// Checks, maps and seals. An error is the engine's fault: `EINVAL` for a file that is not a
    /// memfd of whole pages that can neither shrink nor grow, `EPERM` for one that it has sealed
    /// against writing or against the seals that are needed.
    pub fn adopt([file, tally]: [OwnedFd; 2]) -> Result<Front, Errno> {
        check(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let page = Mapping::<FRONT_BYTES>::new(&file, Access::ReadWrite)?;
        let tally = map_tally(tally)?;
        mapping::forbid_new_writers(&file)?;
        Ok(Front { file, page, tally, writer: Writer::Broker, frozen: false })
    }

    /// The same of a page that another broker has sealed. `EINVAL` if it is not.
    pub fn readopt([file, tally]: [OwnedFd; 2]) -> Result<Front, Errno> {
        check(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        let page = Mapping::<FRONT_BYTES>::new(&file, Access::Read)?;
        let frozen = page.word(front::FROZEN).load(Ordering::SeqCst) != 0;
        let tally = map_tally(tally)?;
        Ok(Front { file, page, tally, writer: Writer::Engine, frozen })
    }

    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Pairs with the loads of clients and of the engine itself before they post or take.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
        if let Writer::Broker = self.writer {
            self.page.word(front::FROZEN).store(u32::from(frozen), Ordering::SeqCst);
        }
    }

    /// One more event is on its way to the engine. Release pairs with the engine's acquire: whoever
    /// sees the count finds the event in its socket, if there was room.
    pub fn count_event(&self) {
        self.tally.word(tally::EVENTS).fetch_add(1, Ordering::Release);
    }

    /// The spare looper has a lane, and been told of it. Who else sleeps there is the engine's
    /// business.
    pub fn wake_spare(&self) {
        let word = self.tally.word(tally::LANES);
        // Release pairs with the engine's acquire, as in `count_event`.
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, 1);
    }

    /// An allegation, but for its size. Not zero while it is frozen and clients cannot see so.
    pub fn outstanding(&self) -> u32 {
        let unseen = self.frozen && self.word(front::FROZEN) == 0;
        let open = slots().map(|slot| self.word(slot + front::SLOT_OPEN).min(1)).sum::<u32>();
        let counted = self.word(front::OUTSTANDING).saturating_add(open);
        counted.clamp(u32::from(unseen), MAX_OUTSTANDING)
    }

    fn transactions(&self) -> u64 {
        let count = |at| self.page.double_word(at).load(Ordering::Relaxed);
        let of_threads = slots().map(|slot| count(slot + front::SLOT_TRANSACTIONS));
        of_threads.fold(count(front::TRANSACTIONS), u64::wrapping_add)
    }

    /// What the engine says of itself.
    pub fn report(&self) -> EngineReport {
        EngineReport {
            threads: self.word(front::THREADS),
            loopers: self.word(front::LOOPERS),
            lanes: self.word(front::LANES),
            buffer_bytes: self.word(front::BUFFER_BYTES),
            buffer_used_bytes: self.word(front::BUFFER_USED),
            buffers: self.word(front::BUFFERS),
            outstanding: self.outstanding(),
            transactions: self.transactions(),
        }
    }

    fn word(&self, at: usize) -> u32 {
        // SeqCst for OUTSTANDING: whoever froze the engine must not miss a transaction that was
        // taken before it saw FROZEN. The others are only shown.
        self.page.word(at).load(Ordering::SeqCst)
    }
}

/// Where each thread's slot begins.
fn slots() -> impl Iterator<Item = usize> {
    (0..front::SLOTS as u8).map(front::slot_at)
}

fn map_tally(file: OwnedFd) -> Result<Mapping<TALLY_BYTES>, Errno> {
    check(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Mapping::<TALLY_BYTES>::new(&file, Access::ReadWrite)
}

fn check(file: &OwnedFd, wanted: SealFlags) -> Result<(), Errno> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Errno::INVAL)?;
    let status = rustix::fs::fstat(file)?;
    // A file of huge pages could fault for want of one, and is not unmapped by the page.
    let pages = status.st_blksize as usize == rustix::param::page_size();
    if seals.contains(wanted) && pages { Ok(()) } else { Err(Errno::INVAL) }
}
