//! The broker's mapping of one engine's status page and tally page, and its holder list.
//!
//! The engine creates the status page, maps it for writing and passes it to the broker. The broker
//! maps the page too and then seals it: later mappings are read-only. So the broker can hand the
//! page to the engine's clients. The page can neither shrink nor grow, so that no access faults.
//!
//! The tally file goes on with the engine's [`holder_list`]. The broker does not map the list but
//! reads it, so that neither takes memory for what the engine has not written.

use crate::state::HolderList;
use baton_abi::control::{EngineReport, Event};
use baton_abi::holder_list::{self, ENTRIES, Entry, Holding, TALLY_FILE_BYTES};
use baton_abi::lane::{STATUS_BYTES, TALLY_BYTES, status, tally};
use baton_abi::ticket_ring::{self, Record};
use baton_shm::futex;
use baton_shm::mapping::{self, Access, Mapping, SealedFile};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{SealFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Upper bound of the two-way transactions that an engine can have received. A channel has 64 lanes
/// and costs its client three descriptors, of at most a million.
const MAX_OUTSTANDING: u32 = 1 << 25;
/// Attempts to read an entry that its owner is writing.
const MOST_READS: u32 = 8;
/// Bytes of a holder list that are read at once: whole entries.
const CHUNK_BYTES: usize = 64 << 10;

/// Both pages of one engine. The engine writes most words, so the broker treats every value as an
/// allegation.
pub(crate) struct StatusPages {
    file: SealedFile,
    page: Mapping<STATUS_BYTES>,
    tally: Mapping<TALLY_BYTES>,
    /// The file of the tally page and of the holder list.
    tally_file: SealedFile,
    ring: TicketRing,
    /// Whether broker or engine writes `FROZEN`.
    writer: Writer,
    frozen: bool,
}

/// The broker's end of the [`ticket_ring`] in an engine's tally page.
struct TicketRing {
    /// The engine's number of this connection; 0 if the engine takes no tickets there.
    connection: u32,
    /// Tickets put so far.
    tail: u32,
    /// Events of this connection so far.
    n_events: u32,
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
    /// file whose seals forbid writing or further seals. `connection` is the engine's number of its
    /// connection; see [`Request::Hello`](baton_abi::control::Request::Hello).
    pub fn map([file, tally]: [SealedFile; 2], connection: u32) -> Result<StatusPages, Errno> {
        check(&file, SealFlags::GROW)?;
        let page = Mapping::<STATUS_BYTES>::of(&file, Access::ReadWrite)?;
        let (tally, tally_file) = (map_tally(&tally)?, tally);
        mapping::forbid_new_writers(&file)?;
        let (writer, frozen) = (Writer::Broker, false);
        // The tally page is not touched before there is an event.
        let ring = TicketRing { connection, tail: 0, n_events: 0 };
        Ok(StatusPages { file, page, tally, tally_file, ring, writer, frozen })
    }

    /// Maps the pages of an engine that a previous broker admitted. `EINVAL` if the status page is
    /// not sealed as [`StatusPages::map`] seals it.
    pub fn map_sealed(
        [file, tally]: [SealedFile; 2],
        connection: u32,
    ) -> Result<StatusPages, Errno> {
        check(&file, SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        let page = Mapping::<STATUS_BYTES>::of(&file, Access::Read)?;
        let frozen = page.word(status::FROZEN).load(Ordering::SeqCst) != 0;
        let (tally, tally_file) = (map_tally(&tally)?, tally);
        let tail = tally.word(ticket_ring::TAIL).load(Ordering::Relaxed);
        let (writer, ring) = (Writer::Engine, TicketRing { connection, tail, n_events: 0 });
        Ok(StatusPages { file, page, tally, tally_file, ring, writer, frozen })
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
    pub fn count_event(&mut self) {
        self.ring.n_events = self.ring.n_events.wrapping_add(1);
        self.tally.word(tally::EVENTS).fetch_add(1, Ordering::Release);
    }

    /// Puts an event into the ticket ring, and counts it. False if it is no ticket of one object,
    /// or if the ring is full or not read: then the event goes to the socket.
    pub fn put_ticket(&mut self, event: &Event) -> bool {
        let &mut TicketRing { connection, tail, n_events } = &mut self.ring;
        if connection == 0 {
            return false;
        }
        let Some(record) = Record::of(event, connection, n_events) else { return false };
        // Acquire pairs with the engine's release: it has copied what is overwritten now.
        let head = self.tally.word(ticket_ring::HEAD).load(Ordering::Acquire);
        if tail.wrapping_sub(head) >= ticket_ring::RECORDS {
            return false;
        }
        let at = ticket_ring::record_at(tail);
        self.tally.view().write(at, bytemuck::bytes_of(&record));
        self.ring.tail = tail.wrapping_add(1);
        // Release pairs with the engine's acquire: it finds the whole record.
        self.tally.word(ticket_ring::TAIL).store(self.ring.tail, Ordering::Release);
        self.count_event();
        true
    }

    /// Wakes the standby looper, which has been given a lane and an event about it. Other threads
    /// that sleep on this word are the engine's own concern.
    pub fn wake_standby_looper(&self) {
        let word = self.tally.word(tally::LANES);
        // Release pairs with the engine's acquire, as in `count_event`.
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, 1);
    }

    /// What one entry of the engine's holder list says. `None` if it is free, out of bounds, or
    /// being written all the time.
    pub fn holding(&self, entry: u32) -> Option<Holding> {
        let mut bytes = [0; size_of::<Entry>()];
        let at = holder_list::entry_at(entry)? as u64;
        for _ in 0..MOST_READS {
            let n_read = rustix::io::pread(&self.tally_file, &mut bytes, at).ok()?;
            let read: Entry = bytemuck::pod_read_unaligned(&bytes);
            // The owner may be changing the strength of an entry that its holder rightly names.
            if read.holding().is_some() || read == Entry::default() || n_read < bytes.len() {
                return read.holding();
            }
        }
        None
    }

    /// The engine's whole holder list, as far as the engine has written it.
    pub fn holdings(&self) -> HolderList {
        let mut list = HolderList::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = TALLY_BYTES as u64;
        let end = at + u64::from(ENTRIES) * size_of::<Entry>() as u64;
        while at < end {
            // Pages that the engine has not written are holes. The file's position means nothing to
            // the engine. An error says that only holes follow.
            let Ok(data) = rustix::fs::seek(&self.tally_file, SeekFrom::Data(at)) else { break };
            let hole = rustix::fs::seek(&self.tally_file, SeekFrom::Hole(data)).unwrap_or(end);
            at = data.max(at);
            let stop = hole.min(end);
            while at < stop {
                let wanted = CHUNK_BYTES.min((stop - at) as usize);
                let read = rustix::io::pread(&self.tally_file, &mut chunk[..wanted], at);
                let entries = chunk[..read.unwrap_or(0)].chunks_exact(size_of::<Entry>());
                if entries.len() == 0 {
                    return list;
                }
                at += (entries.len() * size_of::<Entry>()) as u64;
                list.n_read += entries.len();
                let read = entries.map(bytemuck::pod_read_unaligned::<Entry>);
                list.holdings.extend(read.filter_map(Entry::holding));
            }
        }
        list
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

fn map_tally(file: &SealedFile) -> Result<Mapping<TALLY_BYTES>, Errno> {
    check(file, SealFlags::GROW)?;
    if file.bytes < TALLY_FILE_BYTES as u64 {
        return Err(Errno::INVAL);
    }
    Mapping::<TALLY_BYTES>::of(file, Access::ReadWrite)
}

/// Checks that a file has the wanted seals and consists of ordinary pages.
fn check(file: &SealedFile, wanted: SealFlags) -> Result<(), Errno> {
    // An access to a file of huge pages could fault for want of one. Also, single pages of such a
    // file cannot be unmapped.
    let pages = file.page_bytes == rustix::param::page_size();
    if file.seals.contains(wanted) && pages { Ok(()) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{Granted, NodeId, ProcessId, Strength, TicketId};
    use baton_abi::ticket_ring::{HEAD, RECORDS, TAIL, record_at};

    fn pages(connection: u32) -> (StatusPages, Mapping<TALLY_BYTES>) {
        let status = mapping::create("status", STATUS_BYTES).unwrap();
        let tally_file = mapping::create("tally", TALLY_FILE_BYTES).unwrap();
        let tally = Mapping::<TALLY_BYTES>::new(&tally_file, Access::ReadWrite).unwrap();
        let files = [status, tally_file].map(|file| SealedFile::new(file).unwrap());
        (StatusPages::map(files, connection).unwrap(), tally)
    }

    fn ticket(number: u64, n_objects: usize) -> Event {
        let (owner, node, strength) = (ProcessId(7), NodeId(number), Strength::Strong);
        let granted = Granted { owner, node, strength, flags: 0, manages: false };
        let (from, ticket) = (ProcessId(3), TicketId(number));
        Event::Ticket { from, ticket, objects: vec![granted; n_objects] }
    }

    #[test]
    fn a_ticket_of_one_object_goes_to_the_ring_while_that_has_room() {
        let (mut pages, tally) = pages(5);
        let word = |at| tally.word(at).load(Ordering::Relaxed);
        pages.count_event();
        assert!(
            !pages.put_ticket(&ticket(1, 2)) && !pages.put_ticket(&Event::Barrier { number: 1 })
        );
        for number in 0..RECORDS {
            assert!(pages.put_ticket(&ticket(number.into(), 1)), "{number}");
        }
        assert!(!pages.put_ticket(&ticket(9, 1)), "it is full");
        assert_eq!((word(TAIL), word(tally::EVENTS)), (RECORDS, RECORDS + 1));
        let mut last = Record::default();
        tally.view().read(record_at(RECORDS - 1), bytemuck::bytes_of_mut(&mut last));
        assert_eq!((last.connection, last.number), (5, RECORDS), "the first event is another one");
        assert_eq!(last.event(), ticket((RECORDS - 1).into(), 1));
        tally.word(HEAD).store(1, Ordering::Relaxed);
        assert!(pages.put_ticket(&ticket(9, 1)) && !pages.put_ticket(&ticket(9, 1)));
        // Whatever an engine writes there, it harms itself alone.
        tally.word(HEAD).store(u32::MAX - 7, Ordering::Relaxed);
        assert!(!pages.put_ticket(&ticket(9, 1)));
    }

    #[test]
    fn an_engine_that_does_not_read_the_ring_gets_its_tickets_by_the_socket() {
        let (mut pages, tally) = pages(0);
        assert!(!pages.put_ticket(&ticket(1, 1)));
        assert_eq!(tally.word(tally::EVENTS).load(Ordering::Relaxed), 0);
    }
}
