//! Reading: all rings, in the order of time.
//!
//! A *look* copies the new records of every ring, and sets the *horizon*: the time at which the
//! look began. Records up to the horizon are returned in order, across all rings. Later ones wait
//! for the next look, because a ring that was copied earlier may have got an older record since. So
//! all records that were complete when a look began come in order. A writer that is stopped between
//! stamp and record may come late.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::Boot;
use crate::files::cleared;
use crate::files::directory::Directory;
use crate::files::last_boot::last_boot;
use crate::files::layout::is_name_of_a_file;
use crate::moment::Moment;
use crate::read::file_reader::{FileReader, LookMode};
use crate::read::follow::{Follow, Looked, News};
use crate::read::item::{Content, Item, Loss, Lost, Record};
use crate::read::origin::Origin;
use crate::read::track::{Next, Track};
use crate::record::{Header, Kind};
use baton_shm::clock;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::Dir;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Files of one user that a reader has open at once. A user with more does not keep other users'
/// files from being read.
const MAX_FILES_OF_A_USER: usize = 1024;

/// Removed files whose names a reader remembers, as it has read their records before they came into
/// an archive.
const MAX_GONE: usize = 4096;
/// How often a directory is listed again from which files disappear meanwhile.
const LISTINGS: usize = 16;

/// The record at which a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The oldest record that is there.
    Oldest,
    /// The first record that is written after the reader was opened.
    Newest,
}

/// A reader's knowledge of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownFile {
    /// The file has the reader of this number.
    Read(usize),
    /// There is no room for the file. This user owns it.
    Waits(u32),
    /// No writer of this crate has made the file, or its records are read elsewhere.
    Ignored,
}

/// A reader of a log. Readers do not affect each other.
pub struct Reader {
    directory: Directory,
    /// The start of the machine whose records are read.
    boot: Boot,
    /// Whether that is an earlier start, so that no more records come.
    is_past: bool,
    start: Start,
    wanted: [bool; N_BUFFERS],
    /// Records before these times were cleared.
    cleared_ns: [u64; N_BUFFERS],
    file_readers: BTreeMap<usize, FileReader>,
    known: HashMap<CString, KnownFile>,
    /// ArchivedRing files whose records are in archives, by user and name.
    archived: HashMap<(u32, String), usize>,
    /// Files that were read and removed, by user and name. Their records may come into an archive.
    gone: VecDeque<(u32, String)>,
    next_author: usize,
    /// Tracks with a record, by its time.
    fronts: BinaryHeap<Reverse<(u64, usize, usize)>>,
    horizon_ns: u64,
    looked: Looked,
    /// Whether a look is allowed: a follower looks once after each wait, so as not to disturb
    /// writers.
    may_look: bool,
    /// Losses that are reported before anything else.
    unlogged: VecDeque<(usize, Buffer, u64, Moment)>,
    /// Processes whose files have no room, which are reported then.
    unread: VecDeque<(Origin, Moment)>,
    /// The last one that was reported.
    last_unread: Option<Origin>,
    /// The track of the last item. It may have more, once that item is no longer borrowed.
    taken_from: Option<(usize, usize)>,
    follow: Option<Follow>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("directory", &self.directory.path)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens all buffers of a log, from the oldest record on.
    ///
    /// `ENOENT`: the log does not exist. `EACCES`: this user may not read it.
    pub fn open(path: &Path) -> Result<Reader, Errno> {
        Reader::open_from(path, &Buffer::ALL, Start::Oldest)
    }

    /// Opens some buffers of a log.
    pub fn open_from(path: &Path, buffers: &[Buffer], start: Start) -> Result<Reader, Errno> {
        let directory = Directory::open_to_read(path)?;
        let mut reader = Reader::new(directory, Boot::current(), buffers, start);
        reader.find_authors()?;
        if start == Start::Newest {
            let wanted = reader.wanted;
            reader
                .file_readers
                .values_mut()
                .for_each(|file_reader| file_reader.look(wanted, LookMode::Late));
        }
        Ok(reader)
    }

    /// Opens some buffers of the log of the machine's last start, from the oldest record on.
    /// `None`: there are no such records, as always in a directory in memory.
    ///
    /// The files of the directory's owner say which start that was, or other users' if the owner
    /// has none. A writer that the machine stopped at any instant leaves whole records. If the disk
    /// did not get all writes, the sound records are read and the rest is reported as
    /// [`Loss::Damaged`].
    pub fn open_last(path: &Path, buffers: &[Buffer]) -> Result<Option<Reader>, Errno> {
        let (directory, current) = (Directory::open_to_read(path)?, Boot::current());
        let Some(boot) = last_boot(&directory, current)? else { return Ok(None) };
        let mut reader = Reader::new(directory, boot, buffers, Start::Oldest);
        reader.is_past = true;
        reader.find_authors()?;
        Ok(Some(reader))
    }

    fn new(directory: Directory, boot: Boot, buffers: &[Buffer], start: Start) -> Reader {
        Reader {
            cleared_ns: cleared::read(&directory, boot),
            directory,
            boot,
            is_past: false,
            start,
            wanted: std::array::from_fn(|index| {
                buffers.iter().any(|&buffer| buffer as usize == index)
            }),
            file_readers: BTreeMap::new(),
            known: HashMap::new(),
            archived: HashMap::new(),
            gone: VecDeque::new(),
            next_author: 0,
            fronts: BinaryHeap::new(),
            horizon_ns: 0,
            looked: Looked::default(),
            may_look: true,
            unlogged: VecDeque::new(),
            unread: VecDeque::new(),
            last_unread: None,
            taken_from: None,
            follow: None,
        }
    }

    /// The next item, or `None` if there is none now. The items of one look are in the order of
    /// time.
    ///
    /// After the first [`Reader::wait`]: `None` if there was nothing after the last wait.
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        self.pass_cleared();
        if let Some((file_reader, buffer, n_records, moment)) = self.unlogged.pop_front() {
            let origin = &self.file_readers.get(&file_reader)?.origin;
            let loss = Loss::Unlogged { n_records };
            return Some(Item::Lost(Lost { buffer, moment, origin, loss }));
        }
        if let Some((origin, moment)) = self.unread.pop_front() {
            let buffer = Buffer::ALL.into_iter().find(|&buffer| self.wanted[buffer as usize])?;
            let origin = self.last_unread.insert(origin);
            return Some(Item::Lost(Lost { buffer, moment, origin, loss: Loss::Unread }));
        }
        if !self.is_ready() {
            return None;
        }
        let Reverse((_, file_reader, track)) = self.fronts.pop()?;
        self.taken_from = Some((file_reader, track));
        item(self.file_readers.get_mut(&file_reader)?, track)
    }

    /// Looks, if nothing can be returned without a look.
    fn get_ready(&mut self) {
        self.refill();
        if self.is_ready() || !self.may_look {
            return;
        }
        self.may_look = self.follow.is_none();
        self.look();
        if !self.is_ready() && !self.fronts.is_empty() {
            // The copied records are younger than the last look, and older than this one.
            self.look();
        }
    }

    /// Like `get_ready`, and skips cleared records.
    fn pass_cleared(&mut self) {
        loop {
            self.get_ready();
            if !self.is_ready() {
                return;
            }
            let Some(&Reverse((moment_ns, number, track))) = self.fronts.peek() else { return };
            let Some(file_reader) = self.file_readers.get_mut(&number) else { return };
            let buffer = file_reader.tracks[track].place.buffer;
            if moment_ns >= self.cleared_ns[buffer as usize] {
                return;
            }
            self.fronts.pop();
            self.taken_from = Some((number, track));
            file_reader.tracks[track].take();
        }
    }

    /// The number of a buffer's rings that the last look has found, and their bytes together. They
    /// may have other sizes than [`Settings`](crate::Settings) has now.
    pub fn rings(&self, buffer: Buffer) -> (usize, u64) {
        let tracks = self.file_readers.values().flat_map(|file_reader| &file_reader.tracks);
        let of_buffer = tracks.filter(|track| track.place.buffer == buffer);
        of_buffer.fold((0, 0), |(n, bytes), track| (n + 1, bytes + track.place.capacity))
    }

    /// Passes present and future items to a function, until that says to stop.
    pub fn follow(
        &mut self,
        mut each: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        loop {
            while let Some(item) = self.next_item() {
                if each(item).is_break() {
                    return Ok(());
                }
            }
            self.wait(None)?;
        }
    }

    /// Sleeps until something new may be there, at most for `timeout`. It may return early: call
    /// [`Reader::next_item`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.refill();
        self.may_look = true;
        if self.is_ready() {
            return Ok(());
        }
        self.looked.has_found |= !self.fronts.is_empty();
        let mut follow = match self.follow.take() {
            Some(follow) => follow,
            None => Follow::begin(&self.directory)?,
        };
        let has_silent_writers = self.file_readers.values().any(FileReader::has_to_be_watched);
        let news = follow.wait(timeout, self.looked, has_silent_writers);
        self.looked.has_found = false;
        self.follow = Some(follow);
        self.hear(news?)
    }

    /// Sleeps until a ring is about to overwrite records that were written since this reader was
    /// opened from [`Start::Newest`], at most for `timeout`. Says whether one is. It serves
    /// programs that read from time to time, by another reader, and want to miss nothing.
    pub fn wait_for_wrap(&mut self, timeout: Duration) -> Result<bool, Errno> {
        let wait_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock::now_ns().saturating_add(wait_ns);
        loop {
            let wanted = self.wanted;
            if self
                .file_readers
                .values_mut()
                .any(|file_reader| file_reader.is_about_to_wrap(wanted))
            {
                return Ok(true);
            }
            let left_ns = end_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 {
                return Ok(false);
            }
            let mut follow = match self.follow.take() {
                Some(follow) => follow,
                None => Follow::begin(&self.directory)?,
            };
            let has_silent_writers = self.file_readers.values().any(FileReader::has_to_be_watched);
            let news = follow.wait_for_part(Duration::from_nanos(left_ns), has_silent_writers);
            self.follow = Some(follow);
            self.hear(news?)?;
        }
    }

    /// A descriptor that is readable when a look is due, after the first [`Reader::wait`]. A
    /// program that polls it waits with a timeout of zero, and takes all items.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.follow.as_ref().map(AsFd::as_fd)
    }

    fn hear(&mut self, news: News) -> Result<(), Errno> {
        if news.is_anything {
            self.find_authors()?;
        }
        for name in news.changed.iter().chain(&news.removed) {
            match self.known.get(name) {
                // A look finds that.
                Some(KnownFile::Read(_)) => {}
                Some(_) if news.removed.contains(name) => drop(self.known.remove(name)),
                _ => _ = self.find_file_reader(name),
            }
        }
        Ok(())
    }

    fn find_authors(&mut self) -> Result<(), Errno> {
        for _ in 0..LISTINGS {
            let names: Result<Vec<CString>, Errno> = Dir::read_from(&self.directory.file)?
                .map(|entry| Ok(entry?.file_name().to_owned()))
                .collect();
            let n_gone = names?.iter().filter(|name| !self.find_file_reader(name)).count();
            // The records of a removed file may be in an archive that was not there yet.
            if n_gone == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Opens a file by name, if there is room. `false`: there is no such file any more.
    fn find_file_reader(&mut self, name: &CStr) -> bool {
        let is_shown = !name.to_bytes().starts_with(b".") && is_name_of_a_file(name.to_bytes());
        let before = self.known.get(name).copied();
        let is_due = match before {
            None => is_shown,
            Some(KnownFile::Waits(user)) => self.has_room(user),
            Some(KnownFile::Read(_) | KnownFile::Ignored) => false,
        };
        if !is_due {
            return true;
        }
        let has_waited = before.is_some();
        let known = match FileReader::open(&self.directory, name) {
            Ok(file_reader) if !self.is_welcome(&file_reader) => KnownFile::Ignored,
            Ok(file_reader) if !self.has_room(file_reader.origin.user) => {
                self.let_wait(file_reader.origin, has_waited)
            }
            Ok(file_reader) => self.admit(file_reader, has_waited),
            Err(Errno::MFILE | Errno::NFILE) => Origin::of_unopened(&self.directory, name)
                .map_or(KnownFile::Ignored, |origin| self.let_wait(origin, has_waited)),
            Err(Errno::NOENT) => {
                self.known.remove(name);
                return false;
            }
            Err(_) => KnownFile::Ignored,
        };
        self.known.insert(name.to_owned(), known);
        true
    }

    fn admit(&mut self, mut file_reader: FileReader, has_waited: bool) -> KnownFile {
        let (number, user) = (self.next_author, file_reader.origin.user);
        self.next_author += 1;
        file_reader.find_former(|file| self.is_new_in_archive(user, file, number));
        if has_waited && self.start == Start::Newest {
            file_reader.look(self.wanted, LookMode::Late);
        }
        self.file_readers.insert(number, file_reader);
        KnownFile::Read(number)
    }

    /// Leaves a file unread for now, and reports that once.
    fn let_wait(&mut self, origin: Origin, has_waited: bool) -> KnownFile {
        let user = origin.user;
        if !has_waited {
            let (monotonic_ns, wall_ns) = (clock::now_ns(), clock::wall_ns());
            self.unread.push_back((origin, Moment { monotonic_ns, wall_ns }));
        }
        KnownFile::Waits(user)
    }

    /// Opens the files that have waited, as far as there is room.
    fn find_waiting(&mut self) {
        let waits = |known: &KnownFile| matches!(known, KnownFile::Waits(_));
        let waiting = self.known.iter().filter(|(_, known)| waits(known));
        let waiting: Vec<CString> = waiting.map(|(name, _)| name.clone()).collect();
        for name in waiting {
            self.find_file_reader(&name);
        }
    }

    /// Whether this archive has records of a former file that the reader knows from nowhere else.
    fn is_new_in_archive(&mut self, user: u32, file: &str, archive: usize) -> bool {
        let known = CString::new(file).ok().and_then(|name| self.known.get(&name).copied());
        let is_users = |number| {
            let file_reader = self.file_readers.get(&number);
            file_reader.is_some_and(|file_reader| file_reader.origin.user == user)
        };
        let is_known = match known {
            Some(KnownFile::Read(number)) => is_users(number),
            // The older records were reported as lost.
            Some(KnownFile::Waits(owner)) => owner == user && self.start == Start::Newest,
            Some(KnownFile::Ignored) | None => false,
        };
        let is_read = is_known || self.gone.iter().any(|gone| *gone == (user, file.to_owned()));
        !is_read && *self.archived.entry((user, file.to_owned())).or_insert(archive) == archive
    }

    fn is_welcome(&self, file_reader: &FileReader) -> bool {
        if file_reader.boot != self.boot {
            return false;
        }
        let is_new =
            self.file_readers.values().all(|other| other.identity() != file_reader.identity());
        let archived =
            self.archived.contains_key(&(file_reader.origin.user, file_reader.origin.file.clone()));
        is_new && !archived
    }

    /// Whether one more file of the user may be open.
    fn has_room(&self, user: u32) -> bool {
        let of_user = self.file_readers.values().filter(|other| other.origin.user == user);
        of_user.count() < MAX_FILES_OF_A_USER
    }

    /// Whether an item can be returned without another look.
    fn is_ready(&self) -> bool {
        let in_sight = |front: &Reverse<(u64, usize, usize)>| front.0.0 <= self.horizon_ns;
        let has_loss = !self.unlogged.is_empty() || !self.unread.is_empty();
        has_loss || self.fronts.peek().is_some_and(in_sight)
    }

    /// Copies the new records of all rings. A follower first learns which files are new, and does
    /// not wait for a log that never rests.
    fn look(&mut self) {
        if let Some(Ok(news)) = self.follow.as_mut().map(Follow::told) {
            // A file that could not be opened now is found at the next look.
            let _ = self.hear(news);
        }
        let began_ns = clock::now_ns();
        self.horizon_ns = if self.is_past { u64::MAX } else { began_ns };
        let has_found = self.look_at_all() || self.looked.has_found;
        let took_ns = clock::now_ns() - began_ns;
        self.looked = Looked { began_ns, took_ns, has_found };
    }

    /// Looks at all files, and at those for which there is room now. Says whether there is anything
    /// new.
    fn look_at_all(&mut self) -> bool {
        let mut has_found = self.look_at_files_from(0);
        let first_new = self.next_author;
        if self.let_go_of_removed() {
            self.find_waiting();
            has_found |= self.look_at_files_from(first_new);
        }
        has_found
    }

    /// Looks at the files from one number on. Says whether there is anything new.
    fn look_at_files_from(&mut self, first: usize) -> bool {
        let mut has_found = false;
        let mode = if self.follow.is_some() { LookMode::Sparing } else { LookMode::Whole };
        for (&number, file_reader) in self.file_readers.range_mut(first..) {
            let had: Vec<bool> =
                file_reader.tracks.iter().map(|track| track.front().is_some()).collect();
            file_reader.look(self.wanted, mode);
            let moment = Moment { monotonic_ns: self.horizon_ns, wall_ns: clock::wall_ns() };
            for buffer in Buffer::ALL.into_iter().filter(|&buffer| self.wanted[buffer as usize]) {
                let n_records = file_reader.newly_unlogged(buffer as usize);
                if n_records > 0 {
                    has_found = true;
                    self.unlogged.push_back((number, buffer, n_records, moment));
                }
            }
            for (index, track) in file_reader.tracks.iter().enumerate() {
                let had = had.get(index).copied().unwrap_or(false);
                if let Some(moment) = track.front().filter(|_| !had) {
                    has_found = true;
                    self.fronts.push(Reverse((moment.monotonic_ns, number, index)));
                }
            }
            has_found |= file_reader.tracks.iter().any(Track::is_ahead);
        }
        has_found
    }

    /// Lets go of the files that were removed and have no more records. Says whether there are any.
    fn let_go_of_removed(&mut self) -> bool {
        if !self.unlogged.is_empty() {
            return false;
        }
        let is_empty = |file_reader: &FileReader| {
            file_reader.tracks.iter().all(|track| track.front().is_none() && !track.is_left())
        };
        let is_over = |file_reader: &FileReader| is_empty(file_reader) && file_reader.is_removed();
        let files = self.file_readers.iter();
        let removed: Vec<usize> = files
            .filter(|(_, file_reader)| is_over(file_reader))
            .map(|(&number, _)| number)
            .collect();
        for &number in &removed {
            if let Some(file_reader) = self.file_readers.remove(&number) {
                self.gone.push_back((file_reader.origin.user, file_reader.origin.file));
                self.gone.drain(..self.gone.len().saturating_sub(MAX_GONE));
            }
            self.archived.retain(|_, archive| *archive != number);
            self.known.retain(|_, known| *known != KnownFile::Read(number));
        }
        !removed.is_empty()
    }

    /// Updates the track of the last item.
    fn refill(&mut self) {
        let Some((number, track)) = self.taken_from.take() else { return };
        let Some(file_reader) = self.file_readers.get_mut(&number) else { return };
        if file_reader.tracks[track].has_more {
            file_reader.look_at(track);
        }
        if let Some(moment) = file_reader.tracks[track].front() {
            self.fronts.push(Reverse((moment.monotonic_ns, number, track)));
        }
    }
}

fn item(file_reader: &mut FileReader, index: usize) -> Option<Item<'_>> {
    let (track, origin, ring) = file_reader.track(index);
    let (buffer, moment) = (track.place.buffer, track.front()?);
    let lost = |loss| Item::Lost(Lost { buffer, moment, origin, loss });
    Some(match track.take()? {
        Next::Lost(n_records) => lost(Loss::Overwritten { ring, n_records }),
        Next::Damaged => lost(Loss::Damaged { ring }),
        Next::Record(header, bytes) => Item::Record(Record {
            buffer,
            moment,
            origin,
            thread: header.thread,
            ring,
            sequence: header.sequence,
            content: content(header, bytes)?,
        }),
    })
}

fn content<'a>(header: &Header, bytes: &'a [u8]) -> Option<Content<'a>> {
    let (tag, rest) = bytes.split_at(usize::from(header.tag_bytes));
    match header.kind {
        Kind::Text(priority) => Some(Content::Text { priority, tag, message: rest }),
        Kind::Event => {
            Some(Content::Event { tag: u32::from_le_bytes(tag.try_into().ok()?), payload: rest })
        }
        Kind::Sample | Kind::Gap => None,
    }
}
