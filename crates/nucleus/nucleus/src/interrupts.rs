//! The sources of interrupts: times, and descriptors that become readable.
//!
//! An interrupt comes once, and again only after its handler has asked for it (`set_time`,
//! `acknowledge`). So a slow handler gets no more interrupts than it can handle.

use crate::thread_id::N_INTERRUPTS;
use crate::timer::UNSET;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;

/// The interrupt sources of one kernel.
#[derive(Debug)]
pub(crate) struct Interrupts {
    /// Created with the first descriptor.
    epoll: Option<OwnedFd>,
    descriptors: BTreeMap<u8, OwnedFd>,
    /// The time of each timer interrupt; 0: it is not set.
    times_ns: [u64; N_INTERRUPTS as usize],
    /// The earliest of these times, or `UNSET`.
    next_ns: u64,
}

impl Interrupts {
    pub(crate) fn new() -> Interrupts {
        Interrupts {
            epoll: None,
            descriptors: BTreeMap::new(),
            times_ns: [0; N_INTERRUPTS as usize],
            next_ns: UNSET,
        }
    }

    /// Lets an interrupt come once, at this time.
    pub(crate) fn set_time(&mut self, number: u8, at_ns: u64) {
        self.times_ns[usize::from(number)] = at_ns.max(1);
        self.next_ns = self.least_ns();
    }

    fn least_ns(&self) -> u64 {
        self.times_ns.iter().copied().filter(|&at_ns| at_ns != 0).min().unwrap_or(UNSET)
    }

    /// Lets an interrupt come when the descriptor is readable.
    pub(crate) fn set_descriptor(&mut self, number: u8, fd: OwnedFd) -> io::Result<()> {
        if self.epoll.is_none() {
            self.epoll = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        }
        let epoll = self.epoll.as_ref().expect("made above");
        let data = epoll::EventData::new_u64(number.into());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(epoll, &fd, data, flags)?;
        self.descriptors.insert(number, fd);
        Ok(())
    }

    /// Lets an interrupt of a descriptor come again, after its handler has read.
    pub(crate) fn acknowledge(&mut self, number: u8) -> io::Result<()> {
        let fd = self.descriptors.get(&number).ok_or(io::ErrorKind::NotFound)?;
        let epoll = self.epoll.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let data = epoll::EventData::new_u64(number.into());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::modify(epoll, fd, data, flags)?)
    }

    /// The time of the next timer interrupt, or `UNSET`.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A descriptor that is readable when a source is.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }

    /// The interrupts that are due, as bits by their numbers.
    pub(crate) fn take(&mut self, now_ns: u64) -> u64 {
        let mut come = 0;
        if self.next_ns <= now_ns {
            for (number, at_ns) in self.times_ns.iter_mut().enumerate() {
                if *at_ns != 0 && *at_ns <= now_ns {
                    *at_ns = 0;
                    come |= 1 << number;
                }
            }
            self.next_ns = self.least_ns();
        }
        come | self.take_descriptors()
    }

    fn take_descriptors(&self) -> u64 {
        let Some(epoll) = &self.epoll else { return 0 };
        let mut events = [const { MaybeUninit::uninit() }; 16];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = epoll::wait(epoll, &mut events, Some(&now));
        let events = ready.map_or(&[][..], |(events, _)| events);
        events.iter().fold(0, |come, event| come | 1 << event.data.u64())
    }
}
