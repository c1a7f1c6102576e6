//! Reading: all rings, in the order of time.
//!
//! A *look* copies what every ring has, and sets the *horizon*: the time at which it began. Records
//! up to there are handed out in order, whichever ring they are from. Those beyond wait for the
//! next look, because a ring that was copied before may have got an earlier one since. Whatever was
//! there when a look began comes in order; a writer that is halted between its stamp and its record
//! may come late.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::Boot;
use crate::files::cleared;
use crate::files::last_boot::last_boot;
use crate::files::layout::is_name_of_a_file;
use crate::files::place::Directory;
use crate::moment::Moment;
use crate::read::author::{Author, Manner};
use crate::read::follow::{Follow, Looked, News};
use crate::read::item::{Content, Item, Loss, Lost, Record};
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

/// Files of one user that a reader has open at once. Who has more keeps nobody else's from being
/// read.
const MAX_FILES_OF_A_USER: usize = 1024;

/// Files that have been read and are gone, of which a reader knows that they were read when they
/// come to an archive.
const MAX_GONE: usize = 4096;
/// How often a directory is listed, of which a file goes meanwhile.
const LISTINGS: usize = 16;

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record that is there.
    Oldest,
    /// At the first that is written after the reader was opened.
    Newest,
}

/// One reader of a log. Readers know nothing of each other.
pub struct Reader {
    directory: Directory,
    /// The start of the machine that is read.
    boot: Boot,
    /// Whether that is another one than this: nothing more comes.
    is_past: bool,
    wanted: [bool; N_BUFFERS],
    /// What is older was cleared.
    cleared_ns: [u64; N_BUFFERS],
    authors: BTreeMap<usize, Author>,
    /// Files by name: which author's, or none of ours.
    known: HashMap<CString, Option<usize>>,
    /// By user, files whose records are in archives: which author's.
    archived: HashMap<(u32, String), usize>,
    /// By user, files that have been read and are gone, which may come to an archive.
    gone: VecDeque<(u32, String)>,
    next_author: usize,
    /// Tracks with a record, by its time.
    fronts: BinaryHeap<Reverse<(u64, usize, usize)>>,
    horizon_ns: u64,
    looked: Looked,
    /// Who follows looks once after each wait: writers are not to be chased.
    may_look: bool,
    /// Counts that are to be told before anything else.
    unlogged: VecDeque<(usize, Buffer, u64, Moment)>,
    /// A track that may have more, once what was handed out of it is no longer looked at.
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
    /// Reads all buffers of a log, from the oldest record on.
    ///
    /// `ENOENT` if nobody has logged there, `EACCES` if this user may not read it.
    pub fn open(path: &Path) -> Result<Reader, Errno> {
        Reader::open_from(path, &Buffer::ALL, Start::Oldest)
    }

    /// Reads some buffers of a log.
    pub fn open_from(path: &Path, buffers: &[Buffer], start: Start) -> Result<Reader, Errno> {
        let mut reader = Reader::new(Directory::open_to_read(path)?, Boot::current(), buffers);
        reader.find_authors()?;
        if start == Start::Newest {
            let wanted = reader.wanted;
            reader.authors.values_mut().for_each(|author| author.look(wanted, Manner::Late));
        }
        Ok(reader)
    }

    /// Reads some buffers of what was logged before the machine's last start, from the oldest
    /// record on. `None` if there is nothing, as ever in a directory in memory.
    ///
    /// Which start that was, the directory's owner's files say, or others' where the owner has
    /// none. A writer that the machine stopped at any instant leaves whole records; of a disk that
    /// did not get everything, what is sound, and [`Loss::Damaged`].
    pub fn open_last(path: &Path, buffers: &[Buffer]) -> Result<Option<Reader>, Errno> {
        let (directory, current) = (Directory::open_to_read(path)?, Boot::current());
        let Some(boot) = last_boot(&directory, current)? else { return Ok(None) };
        let mut reader = Reader::new(directory, boot, buffers);
        reader.is_past = true;
        reader.find_authors()?;
        Ok(Some(reader))
    }

    fn new(directory: Directory, boot: Boot, buffers: &[Buffer]) -> Reader {
        Reader {
            cleared_ns: cleared::read(&directory, boot),
            directory,
            boot,
            is_past: false,
            wanted: std::array::from_fn(|index| {
                buffers.iter().any(|&buffer| buffer as usize == index)
            }),
            authors: BTreeMap::new(),
            known: HashMap::new(),
            archived: HashMap::new(),
            gone: VecDeque::new(),
            next_author: 0,
            fronts: BinaryHeap::new(),
            horizon_ns: 0,
            looked: Looked::default(),
            may_look: true,
            unlogged: VecDeque::new(),
            taken_from: None,
            follow: None,
        }
    }

    /// What comes next, `None` if there is nothing now. Within what one look has found, in the
    /// order of time.
    ///
    /// From the first [`Reader::wait`] on, `None` if there was nothing after the last one.
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        self.pass_cleared();
        if let Some((author, buffer, n_records, moment)) = self.unlogged.pop_front() {
            let origin = &self.authors.get(&author)?.origin;
            let loss = Loss::Unlogged { n_records };
            return Some(Item::Lost(Lost { buffer, moment, origin, loss }));
        }
        if !self.is_ready() {
            return None;
        }
        let Reverse((_, author, track)) = self.fronts.pop()?;
        self.taken_from = Some((author, track));
        item(self.authors.get_mut(&author)?, track)
    }

    /// Looks, if nothing can be handed out without.
    fn get_ready(&mut self) {
        self.refill();
        if self.is_ready() || !self.may_look {
            return;
        }
        self.may_look = self.follow.is_none();
        self.look();
        if !self.is_ready() && !self.fronts.is_empty() {
            // What was copied is younger than that look, and older than this one.
            self.look();
        }
    }

    /// Gets ready, and passes over what was cleared.
    fn pass_cleared(&mut self) {
        loop {
            self.get_ready();
            if !self.is_ready() {
                return;
            }
            let Some(&Reverse((moment_ns, number, track))) = self.fronts.peek() else { return };
            let Some(author) = self.authors.get_mut(&number) else { return };
            let buffer = author.tracks[track].place.buffer;
            if moment_ns >= self.cleared_ns[buffer as usize] {
                return;
            }
            self.fronts.pop();
            self.taken_from = Some((number, track));
            author.tracks[track].take();
        }
    }

    /// Hands out what there is and what comes, until told to stop.
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

    /// Sleeps until there may be something new, or for so long. May return for no reason: look by
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
        let is_unrung = self.authors.values().any(Author::has_to_be_watched);
        let news = follow.wait(timeout, self.looked, is_unrung);
        self.looked.has_found = false;
        self.follow = Some(follow);
        self.hear(news?)
    }

    /// Sleeps until a ring is about to overwrite what has been written to it since this reader was
    /// opened from [`Start::Newest`], or for so long. Whether one is. For who reads from time to
    /// time, by another reader, and wants to miss nothing.
    pub fn wait_for_wrap(&mut self, timeout: Duration) -> Result<bool, Errno> {
        let wait_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock::now_ns().saturating_add(wait_ns);
        loop {
            let wanted = self.wanted;
            if self.authors.values_mut().any(|author| author.is_about_to_wrap(wanted)) {
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
            let is_unrung = self.authors.values().any(Author::has_to_be_watched);
            let news = follow.wait_for_part(Duration::from_nanos(left_ns), is_unrung);
            self.follow = Some(follow);
            self.hear(news?)?;
        }
    }

    /// Readable when it is time to look again, from the first [`Reader::wait`] on: whoever polls it
    /// waits for no time at all, and takes what there is.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.follow.as_ref().map(AsFd::as_fd)
    }

    fn hear(&mut self, news: News) -> Result<(), Errno> {
        if news.is_anything {
            self.find_authors()?;
        }
        for name in news.changed.iter().chain(&news.removed) {
            match self.known.get(name) {
                Some(None) if news.removed.contains(name) => drop(self.known.remove(name)),
                Some(_) => {}
                None => _ = self.find_author(name),
            }
        }
        Ok(())
    }

    fn find_authors(&mut self) -> Result<(), Errno> {
        for _ in 0..LISTINGS {
            let names: Result<Vec<CString>, Errno> = Dir::read_from(&self.directory.file)?
                .map(|entry| Ok(entry?.file_name().to_owned()))
                .collect();
            let n_gone = names?.iter().filter(|name| !self.find_author(name)).count();
            // What is gone may be in an archive that was not there yet.
            if n_gone == 0 {
                break;
            }
        }
        Ok(())
    }

    /// False if there is no such file any more.
    fn find_author(&mut self, name: &CStr) -> bool {
        let is_shown = !name.to_bytes().starts_with(b".") && is_name_of_a_file(name.to_bytes());
        if !is_shown || self.known.contains_key(name) {
            return true;
        }
        let opened = Author::open(&self.directory, name);
        if matches!(opened, Err(Errno::NOENT)) {
            return false;
        }
        let mut author = opened.ok().filter(|author| self.is_welcome(author));
        let number = self.next_author;
        if let Some(author) = &mut author {
            let user = author.origin.user;
            author.find_former(|file| self.is_new_in_archive(user, file, number));
        }
        let number = author.map(|author| {
            self.authors.insert(number, author);
            self.next_author += 1;
            number
        });
        self.known.insert(name.to_owned(), number);
        true
    }

    /// Whether an archive, which this author is to be, has a file's records that are known from
    /// nowhere else.
    fn is_new_in_archive(&mut self, user: u32, file: &str, archive: usize) -> bool {
        let author = CString::new(file).ok().and_then(|name| self.known.get(&name).copied()?);
        let is_read = author
            .and_then(|author| self.authors.get(&author))
            .is_some_and(|author| author.origin.user == user)
            || self.gone.iter().any(|gone| *gone == (user, file.to_owned()));
        !is_read && *self.archived.entry((user, file.to_owned())).or_insert(archive) == archive
    }

    fn is_welcome(&self, author: &Author) -> bool {
        if author.boot != self.boot {
            return false;
        }
        let of_user = self.authors.values().filter(|other| other.origin.user == author.origin.user);
        let is_new = self.authors.values().all(|other| other.identity() != author.identity());
        let archived =
            self.archived.contains_key(&(author.origin.user, author.origin.file.clone()));
        is_new && !archived && of_user.count() < MAX_FILES_OF_A_USER
    }

    /// Whether something can be handed out without another look.
    fn is_ready(&self) -> bool {
        let in_sight = |front: &Reverse<(u64, usize, usize)>| front.0.0 <= self.horizon_ns;
        !self.unlogged.is_empty() || self.fronts.peek().is_some_and(in_sight)
    }

    /// Copies what all rings have. Who follows hears first which files are new: a log that never
    /// rests is not waited for.
    fn look(&mut self) {
        if let Some(Ok(news)) = self.follow.as_mut().map(Follow::told) {
            // What could not be found now is there at the next look.
            let _ = self.hear(news);
        }
        let began_ns = clock::now_ns();
        self.horizon_ns = if self.is_past { u64::MAX } else { began_ns };
        let has_found = self.look_at_all() || self.looked.has_found;
        let took_ns = clock::now_ns() - began_ns;
        self.looked = Looked { began_ns, took_ns, has_found };
    }

    /// Whether there is anything new.
    fn look_at_all(&mut self) -> bool {
        let mut has_found = false;
        let manner = if self.follow.is_some() { Manner::Sparing } else { Manner::Whole };
        let mut removed = Vec::new();
        for (&number, author) in &mut self.authors {
            let had: Vec<bool> =
                author.tracks.iter().map(|track| track.front().is_some()).collect();
            author.look(self.wanted, manner);
            let moment = Moment { monotonic_ns: self.horizon_ns, wall_ns: clock::wall_ns() };
            for buffer in Buffer::ALL.into_iter().filter(|&buffer| self.wanted[buffer as usize]) {
                let n_records = author.newly_unlogged(buffer as usize);
                if n_records > 0 {
                    has_found = true;
                    self.unlogged.push_back((number, buffer, n_records, moment));
                }
            }
            for (index, track) in author.tracks.iter().enumerate() {
                let had = had.get(index).copied().unwrap_or(false);
                if let Some(moment) = track.front().filter(|_| !had) {
                    has_found = true;
                    self.fronts.push(Reverse((moment.monotonic_ns, number, index)));
                }
            }
            has_found |= author.tracks.iter().any(Track::is_ahead);
            let is_empty =
                author.tracks.iter().all(|track| track.front().is_none() && !track.is_left());
            if is_empty && author.is_removed() && self.unlogged.is_empty() {
                removed.push(number);
            }
        }
        for number in removed {
            if let Some(author) = self.authors.remove(&number) {
                self.gone.push_back((author.origin.user, author.origin.file));
                self.gone.drain(..self.gone.len().saturating_sub(MAX_GONE));
            }
            self.archived.retain(|_, archive| *archive != number);
            self.known.retain(|_, author| *author != Some(number));
        }
        has_found
    }

    /// Sees what the last track has next that something was taken from.
    fn refill(&mut self) {
        let Some((number, track)) = self.taken_from.take() else { return };
        let Some(author) = self.authors.get_mut(&number) else { return };
        if author.tracks[track].has_more {
            author.look_at(track);
        }
        if let Some(moment) = author.tracks[track].front() {
            self.fronts.push(Reverse((moment.monotonic_ns, number, track)));
        }
    }
}

fn item(author: &mut Author, index: usize) -> Option<Item<'_>> {
    let (track, origin, ring) = author.track(index);
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
