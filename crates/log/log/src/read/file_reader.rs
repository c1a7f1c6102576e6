//! A process's file as a reader sees it.

use crate::buffer::N_BUFFERS;
use crate::cursor::ATTEMPTS;
use crate::files::boot::Boot;
use crate::files::directory::Directory;
use crate::files::layout::{self, ARCHIVED_BYTES, ArchivedRing, HEADER_BYTES, Header, Place};
use crate::files::lock;
use crate::files::opened::Opened;
use crate::memory::read_exactly;
use crate::moment::Source;
use crate::read::origin::Origin;
use crate::read::track::Track;
use baton_shm::clock;
use baton_shm::sync::{Ordering, fence};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;

/// The way in which a reader looks at rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookMode {
    /// Reads the records that are written from now on.
    Late,
    /// Reads all records.
    Whole,
    /// Reads all records, again and again. It leaves a real-time writer alone for a while that
    /// writes faster than it reads.
    Sparing,
}

pub(crate) struct FileReader {
    opened: Opened,
    pub origin: Origin,
    pub source: Source,
    pub boot: Boot,
    /// Whether the file is of another start of the machine, whose clock means nothing now.
    is_past: bool,
    pub tracks: Vec<Track>,
    /// `Some` for an archive: the former place of each ring that is to be read, by its index in the
    /// table.
    former: Option<HashMap<usize, ArchivedTrack>>,
    n_rings: usize,
    /// The end of the last ring. No other ring may begin before it.
    end: u64,
    /// Records that found no ring, by buffer: how many there are, and how many were reported.
    unlogged: [u64; N_BUFFERS],
    told: [u64; N_BUFFERS],
    /// Whether threads of the process write and wake no follower.
    is_silent: bool,
    /// Whether those threads are real-time threads that the reader must not slow down.
    is_spared: bool,
}

/// The former place of an archive's ring.
pub(crate) struct ArchivedTrack {
    pub origin: Origin,
    /// The ring's index in its process's file.
    pub ring: usize,
}

impl FileReader {
    /// Opens a file. `ENODATA`, `EPERM`, `EINVAL`: no writer of this crate has made it, or another
    /// user could have.
    pub fn open(directory: &Directory, name: &CStr) -> Result<FileReader, Errno> {
        let opened = Opened::open(directory, name)?;
        let header = read_header(&opened)?;
        let origin = Origin::of(&opened, &header, &name.to_string_lossy());
        Ok(FileReader {
            opened,
            origin,
            source: header.source,
            boot: header.boot,
            is_past: header.boot != Boot::current(),
            tracks: Vec::new(),
            former: header.is_archive().then(HashMap::new),
            n_rings: 0,
            end: layout::FRONT_BYTES as u64,
            unlogged: [0; N_BUFFERS],
            told: [0; N_BUFFERS],
            is_silent: false,
            is_spared: false,
        })
    }

    /// For an archive: selects the rings of former files for which `is_new` returns true.
    pub fn find_former(&mut self, mut is_new: impl FnMut(&str) -> bool) {
        let Some(former) = &mut self.former else { return };
        let n_rings = read_header(&self.opened).map_or(0, |header| header.n_rings);
        for ring in 0..n_rings {
            let Ok((_, of)) = read_archived(&self.opened, ring) else { return };
            let origin = Origin::of_former(&self.origin, &of);
            if is_new(&origin.file) {
                former.insert(ring, ArchivedTrack { origin, ring: of.ring as usize });
            }
        }
    }

    /// Whether the file is an archive.
    pub fn is_archive(&self) -> bool {
        self.former.is_some()
    }

    /// A track, the process of its records, and the index of its ring in that process's file.
    pub fn track(&mut self, index: usize) -> (&mut Track, &Origin, usize) {
        let track = &mut self.tracks[index];
        let former = self.former.as_ref().and_then(|former| former.get(&track.ring));
        let (origin, ring) =
            former.map_or((&self.origin, track.ring), |former| (&former.origin, former.ring));
        (track, origin, ring)
    }

    /// The device and inode numbers of the file.
    pub fn identity(&self) -> (u64, u64) {
        (self.opened.stat.st_dev, self.opened.stat.st_ino)
    }

    /// Whether the file was unlinked, so that no other reader can find it.
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.opened).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether records may come for which no follower is woken.
    pub fn has_to_be_watched(&self) -> bool {
        self.is_silent && lock::is_alive(&self.opened)
    }

    /// Looks for new rings and counts, and for records on each track that has none left. A file
    /// that cannot be read counts as empty.
    pub fn look(&mut self, wanted: [bool; N_BUFFERS], mode: LookMode) {
        if !self.look_for_rings(wanted, mode) {
            return;
        }
        self.is_spared = self.is_silent && mode == LookMode::Sparing;
        for track in 0..self.tracks.len() {
            let file = self.opened.as_fd();
            if !self.is_spared || self.tracks[track].may_look(file, clock::now_ns()) {
                self.look_at(track);
            }
        }
    }

    /// Looks for new rings and counts. `false`: the file could not be read.
    fn look_for_rings(&mut self, wanted: [bool; N_BUFFERS], mode: LookMode) -> bool {
        let Ok(header) = read_header(&self.opened) else { return false };
        // Pairs with the release store of the number of rings: their entries are complete.
        fence(Ordering::Acquire);
        self.unlogged = header.unlogged;
        self.is_silent = header.n_silent > 0;
        if mode == LookMode::Late {
            self.told = self.unlogged;
        }
        while self.n_rings < header.n_rings {
            let Ok(place) = self.next_place() else {
                // An entry that is not sound. Those before it still are.
                self.n_rings = usize::MAX;
                break;
            };
            let is_known =
                self.former.as_ref().is_none_or(|former| former.contains_key(&self.n_rings));
            if wanted[place.buffer as usize] && is_known {
                let mut track = Track::new(place, self.n_rings);
                if mode == LookMode::Late {
                    track.skip(self.opened.as_fd(), self.source.sample());
                }
                self.tracks.push(track);
            }
            self.n_rings += 1;
        }
        true
    }

    /// Whether the writer is about to overwrite records that a track has not read.
    pub fn is_about_to_wrap(&mut self, wanted: [bool; N_BUFFERS]) -> bool {
        self.look_for_rings(wanted, LookMode::Whole)
            && self.tracks.iter().any(|track| track.is_about_to_wrap(self.opened.as_fd()))
    }

    /// Looks at one track, unless it has records left.
    pub fn look_at(&mut self, track: usize) {
        let (source, is_past) = (self.source, self.is_past);
        let now = |track: &Track| if is_past { track.end() } else { source.sample() };
        // Each copy takes cache lines from the writer, so a real-time writer's ring is copied once.
        let attempts = if self.is_spared { 1 } else { ATTEMPTS };
        self.tracks[track].look(self.opened.as_fd(), attempts, now);
    }

    fn next_place(&mut self) -> Result<Place, Errno> {
        let place = if self.is_archive() {
            read_archived(&self.opened, self.n_rings)?.0
        } else {
            let mut bytes = [0; 24];
            read_exactly(&self.opened, layout::entry_at(self.n_rings) as u64, &mut bytes)?;
            Place::decode(&bytes).ok_or(Errno::INVAL)?
        };
        // Rings that overlap could have more bytes than the file.
        if place.offset < self.end {
            return Err(Errno::INVAL);
        }
        self.end = place.offset + place.capacity;
        Ok(place)
    }

    /// The number of records of a buffer that found no ring since the last call.
    pub fn newly_unlogged(&mut self, buffer: usize) -> u64 {
        let told = std::mem::replace(&mut self.told[buffer], self.unlogged[buffer]);
        self.unlogged[buffer].saturating_sub(told)
    }
}

fn read_archived(opened: &Opened, ring: usize) -> Result<(Place, ArchivedRing), Errno> {
    let mut bytes = [0; ARCHIVED_BYTES];
    read_exactly(opened, layout::entry_at(ring) as u64, &mut bytes)?;
    Place::decode_archived(&bytes).ok_or(Errno::INVAL)
}

fn read_header(opened: &Opened) -> Result<Header, Errno> {
    let mut bytes = [0; HEADER_BYTES];
    read_exactly(opened, 0, &mut bytes)?;
    Header::decode(&bytes).ok_or(Errno::INVAL)
}
