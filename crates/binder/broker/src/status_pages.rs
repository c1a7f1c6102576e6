//! The broker's mapping of one engine's status page and tally page.
//!
//! The engine creates the status page, maps it for writing and passes it to the broker. The broker
//! maps the page too and then seals it: later mappings are read-only. So the broker can hand the
//! page to the engine's clients. The page can neither shrink nor grow, so that no access faults.

use baton_abi::control::EngineReport;
use baton_abi::lane::{STATUS_BYTES, TALLY_BYTES, status, tally};
use baton_shm::futex;
use baton_shm::mapping::{self, Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Upper bound of the two-way transactions that an engine can have received. A channel has 64 lanes
/// and costs its client two descriptors, of at most a million.
const MAX_OUTSTANDING: u32 = 1 << 25;

/// Both pages of one engine. The engine writes most words, so the broker treats every value as an
/// allegation.
pub(crate) struct StatusPages {
    file: OwnedFd,
    page: Mapping<STATUS_BYTES>,
    tally: Mapping<TALLY_BYTES>,
    /// Whether broker or engine writes `FROZEN`.
    writer: Writer,
    frozen: bool,
}

/// The party that writes the word `FROZEN`.
enum Writer {
    Broker,
    /// A previous broker sealed the page, so this broker cannot write it. The engine writes the
    /// word when it receives [`Event::Frozen`](baton_abi::control::Event::Frozen).
    Engine,
}

impl StatusPages {
    /// Checks, maps and seals the pages of a new engine. An error is the engine's fault. `EINVAL`:
    /// a file that is no memfd of whole pages with seals against shrinking and growing. `EPERM`: a
    /// file whose seals forbid writing or further seals.
    pub fn map([file, tally]: [OwnedFd; 2]) -> Result<StatusPages, Errno> {
        check(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let page = Mapping::<STATUS_BYTES>::new(&file, Access::ReadWrite)?;
        let tally = map_tally(tally)?;
        mapping::forbid_new_writers(&file)?;
        Ok(StatusPages { file, page, tally, writer: Writer::Broker, frozen: false })
    }

    /// Maps the pages of an engine that a previous broker admitted. `EINVAL` if the status page is
    /// not sealed as [`StatusPages::map`] seals it.
    pub fn map_sealed([file, tally]: [OwnedFd; 2]) -> Result<StatusPages, Errno> {
        check(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        let page = Mapping::<STATUS_BYTES>::new(&file, Access::Read)?;
        let frozen = page.word(status::FROZEN).load(Ordering::SeqCst) != 0;
        let tally = map_tally(tally)?;
        Ok(StatusPages { file, page, tally, writer: Writer::Engine, frozen })
    }

    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Stores `FROZEN`. The store pairs with the loads of clients before they send and of the
    /// engine before it receives.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
        if let Writer::Broker = self.writer {
            self.page.word(status::FROZEN).store(u32::from(frozen), Ordering::SeqCst);
        }
    }

    /// Counts one more event for the engine. Release pairs with the engine's acquire: an engine
    /// that sees the count finds the event in its socket, if the socket had room.
    pub fn count_event(&self) {
        self.tally.word(tally::EVENTS).fetch_add(1, Ordering::Release);
    }

    /// Wakes the standby looper, which has been given a lane and an event about it. Other threads
    /// that sleep on this word are the engine's own concern.
    pub fn wake_standby_looper(&self) {
        let word = self.tally.word(tally::LANES);
        // Release pairs with the engine's acquire, as in `count_event`.
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, 1);
    }

    /// Two-way transactions that the engine has received and not answered. The engine may lie,
    /// within `MAX_OUTSTANDING`. The result is at least 1 while the engine is frozen and clients
    /// cannot see so yet.
    pub fn outstanding(&self) -> u32 {
        let unseen = self.frozen && self.word(status::FROZEN) == 0;
        let open = slots().map(|slot| self.word(slot + status::SLOT_OPEN).min(1)).sum::<u32>();
        let counted = self.word(status::OUTSTANDING).saturating_add(open);
        counted.clamp(u32::from(unseen), MAX_OUTSTANDING)
    }

    /// Transactions that the engine has received, as the engine counts them.
    fn transactions(&self) -> u64 {
        let count = |at| self.page.double_word(at).load(Ordering::Relaxed);
        let of_threads = slots().map(|slot| count(slot + status::SLOT_TRANSACTIONS));
        of_threads.fold(count(status::TRANSACTIONS), u64::wrapping_add)
    }

    /// The engine's own figures for a report.
    pub fn report(&self) -> EngineReport {
        EngineReport {
            threads: self.word(status::THREADS),
            loopers: self.word(status::LOOPERS),
            lanes: self.word(status::LANES),
            buffer_bytes: self.word(status::BUFFER_BYTES),
            buffer_used_bytes: self.word(status::BUFFER_USED),
            buffers: self.word(status::BUFFERS),
            outstanding: self.outstanding(),
            transactions: self.transactions(),
        }
    }

    fn word(&self, at: usize) -> u32 {
        // SeqCst matters for OUTSTANDING: the broker that froze the engine must see every
        // transaction that the engine took before it saw FROZEN. The other words only appear in
        // reports.
        self.page.word(at).load(Ordering::SeqCst)
    }
}

/// Offsets of the threads' slots in the status page.
fn slots() -> impl Iterator<Item = usize> {
    (0..status::SLOTS as u8).map(status::slot_at)
}

fn map_tally(file: OwnedFd) -> Result<Mapping<TALLY_BYTES>, Errno> {
    check(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Mapping::<TALLY_BYTES>::new(&file, Access::ReadWrite)
}

/// Checks that a file has the wanted seals and consists of ordinary pages.
fn check(file: &OwnedFd, wanted: SealFlags) -> Result<(), Errno> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Errno::INVAL)?;
    let status = rustix::fs::fstat(file)?;
    // An access to a file of huge pages could fault for want of one. Also, single pages of such a
    // file cannot be unmapped.
    let pages = status.st_blksize as usize == rustix::param::page_size();
    if seals.contains(wanted) && pages { Ok(()) } else { Err(Errno::INVAL) }
}
