//! A process's file as a reader sees it.

use crate::buffer::N_BUFFERS;
use crate::cursor::ATTEMPTS;
use crate::files::boot::Boot;
use crate::files::layout::{self, ARCHIVED_BYTES, Former, HEADER_BYTES, Header, Place};
use crate::files::lock;
use crate::files::opened::Opened;
use crate::files::place::Directory;
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

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// For what comes from now on.
    Late,
    /// For everything.
    Whole,
    /// For everything, again and again: a real-time writer that is too fast to be read is left
    /// alone for a while.
    Sparing,
}

pub(crate) struct Author {
    opened: Opened,
    pub origin: Origin,
    pub source: Source,
    pub boot: Boot,
    /// Of another start of the machine, so its clock is not ours.
    is_past: bool,
    pub tracks: Vec<Track>,
    /// Of an archive: whose rings those were that are to be read, by their place in the table.
    former: Option<HashMap<usize, Formerly>>,
    n_rings: usize,
    /// Where the last ring ends: none begins before.
    end: u64,
    /// Records without a ring, by buffer: how many there are, and how many of them were told.
    unlogged: [u64; N_BUFFERS],
    told: [u64; N_BUFFERS],
    /// Whether threads of it write and never ring.
    is_silent: bool,
    /// Whether they are not to be kept from writing.
    is_spared: bool,
}

/// Of a ring of an archive.
pub(crate) struct Formerly {
    pub origin: Origin,
    /// Which of its process's rings it was.
    pub ring: usize,
}

impl Author {
    /// Opens the file. `ENODATA`, `EPERM` and `EINVAL` for one that no writer of ours made, or
    /// could have.
    pub fn open(directory: &Directory, name: &CStr) -> Result<Author, Errno> {
        let opened = Opened::open(directory, name)?;
        let header = read_header(&opened)?;
        let origin = Origin::of(&opened, &header, &name.to_string_lossy());
        Ok(Author {
            opened,
            origin,
            source: header.source,
            boot: header.boot,
            is_past: header.boot != Boot::current(),
            tracks: Vec::new(),
            former: header.is_archive().then(HashMap::new),
            n_rings: 0,
            end: layout::STATUS_BYTES as u64,
            unlogged: [0; N_BUFFERS],
            told: [0; N_BUFFERS],
            is_silent: false,
            is_spared: false,
        })
    }

    /// Of an archive: reads what was of files that `is_new`, and nothing else.
    pub fn find_former(&mut self, mut is_new: impl FnMut(&str) -> bool) {
        let Some(former) = &mut self.former else { return };
        let n_rings = read_header(&self.opened).map_or(0, |header| header.n_rings);
        for ring in 0..n_rings {
            let Ok((_, of)) = read_archived(&self.opened, ring) else { return };
            let origin = Origin::of_former(&self.origin, &of);
            if is_new(&origin.file) {
                former.insert(ring, Formerly { origin, ring: of.ring as usize });
            }
        }
    }

    /// Whether it is an archive.
    pub fn is_archive(&self) -> bool {
        self.former.is_some()
    }

    /// A track, whose its records are, and in which of that process's rings they were.
    pub fn track(&mut self, index: usize) -> (&mut Track, &Origin, usize) {
        let track = &mut self.tracks[index];
        let former = self.former.as_ref().and_then(|former| former.get(&track.ring));
        let (origin, ring) =
            former.map_or((&self.origin, track.ring), |former| (&former.origin, former.ring));
        (track, origin, ring)
    }

    /// Which file it is, by any name.
    pub fn identity(&self) -> (u64, u64) {
        (self.opened.stat.st_dev, self.opened.stat.st_ino)
    }

    /// Whether its name is gone, and with it the last way to it.
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.opened).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether records may come that nobody rings for.
    pub fn has_to_be_watched(&self) -> bool {
        self.is_silent && lock::is_alive(&self.opened)
    }

    /// Looks for rings and counts that are new, and for records on every track that has none. What
    /// cannot be read is not there.
    pub fn look(&mut self, wanted: [bool; N_BUFFERS], manner: Manner) {
        if !self.look_for_rings(wanted, manner) {
            return;
        }
        self.is_spared = self.is_silent && manner == Manner::Sparing;
        for track in 0..self.tracks.len() {
            let file = self.opened.as_fd();
            if !self.is_spared || self.tracks[track].may_look(file, clock::now_ns()) {
                self.look_at(track);
            }
        }
    }

    /// Looks for rings and counts that are new. Whether the file could be read.
    fn look_for_rings(&mut self, wanted: [bool; N_BUFFERS], manner: Manner) -> bool {
        let Ok(header) = read_header(&self.opened) else { return false };
        // Pairs with the release store of the number of rings: their entries are there.
        fence(Ordering::Acquire);
        self.unlogged = header.unlogged;
        self.is_silent = header.n_silent > 0;
        if manner == Manner::Late {
            self.told = self.unlogged;
        }
        while self.n_rings < header.n_rings {
            let Ok(place) = self.next_place() else {
                // None of ours. What was sound before it still is.
                self.n_rings = usize::MAX;
                break;
            };
            let is_known =
                self.former.as_ref().is_none_or(|former| former.contains_key(&self.n_rings));
            if wanted[place.buffer as usize] && is_known {
                let mut track = Track::new(place, self.n_rings);
                if manner == Manner::Late {
                    track.skip(self.opened.as_fd(), self.source.sample());
                }
                self.tracks.push(track);
            }
            self.n_rings += 1;
        }
        true
    }

    /// Whether a ring is about to overwrite what was written to it behind where its track has come
    /// to.
    pub fn is_about_to_wrap(&mut self, wanted: [bool; N_BUFFERS]) -> bool {
        self.look_for_rings(wanted, Manner::Whole)
            && self.tracks.iter().any(|track| track.is_about_to_wrap(self.opened.as_fd()))
    }

    /// Looks at one track, if nothing is left on it.
    pub fn look_at(&mut self, track: usize) {
        let (source, is_past) = (self.source, self.is_past);
        let now = |track: &Track| if is_past { track.end() } else { source.sample() };
        // Each copy takes its lines from who writes, so a real-time writer is asked for them once.
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
        // Rings that share bytes could make more of them than there are.
        if place.offset < self.end {
            return Err(Errno::INVAL);
        }
        self.end = place.offset + place.capacity;
        Ok(place)
    }

    /// Records that found no ring since this was last asked, of one buffer.
    pub fn newly_unlogged(&mut self, buffer: usize) -> u64 {
        let told = std::mem::replace(&mut self.told[buffer], self.unlogged[buffer]);
        self.unlogged[buffer].saturating_sub(told)
    }
}

fn read_archived(opened: &Opened, ring: usize) -> Result<(Place, Former), Errno> {
    let mut bytes = [0; ARCHIVED_BYTES];
    read_exactly(opened, layout::entry_at(ring) as u64, &mut bytes)?;
    Place::decode_archived(&bytes).ok_or(Errno::INVAL)
}

fn read_header(opened: &Opened) -> Result<Header, Errno> {
    let mut bytes = [0; HEADER_BYTES];
    read_exactly(opened, 0, &mut bytes)?;
    Header::decode(&bytes).ok_or(Errno::INVAL)
}
