//! Processes that want to hurt others. Each has an ordinary priority and what every client has: a
//! connection to the broker, and the memory that it shares with the server. Each goes on for ever.

use crate::child::say;
use crate::rt::stranger::Stranger;
use crate::service::Ask;
use crate::systems::typed;
use baton::{Handle, Parcel, Process};
use baton_abi::control::{ChannelId, End, Request as Control};
use baton_abi::lane::{LANES, area_at};
use rustix::mm::{MremapFlags, mremap, munmap};
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use strum::{IntoStaticStr, VariantArray};

/// Threads of those that have more than one.
const N_THREADS: usize = 4;
const CODE: u32 = 1;
/// Channels that are tried: more than there are.
const IDS: u64 = 32;
/// How long one channel is written to: its server may have given it up before.
const STINT: Duration = Duration::from_millis(20);
const PAGE_BYTES: usize = 4096;

/// What a process does to others.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Misuse {
    /// Asks for priorities that it does not have, on all channels there may be.
    Priority,
    /// Writes random words wherever it shares memory, and calls meanwhile.
    Garbage,
    /// Sends one-way calls as fast as it can.
    Oneway,
    /// Opens processes and their channels, and keeps as many as it may have.
    Channels,
}

impl Misuse {
    /// As rows and ratios have it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a process does, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Harm {
    pub misuse: Misuse,
    pub aim: Aim,
}

/// Whom a process wants to hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// The caller's server, and their broker.
    Here,
    /// Another server, with a broker of its own: what is left is the machine's.
    Elsewhere,
}

impl Harm {
    pub fn name(self) -> &'static str {
        match (self.misuse, self.aim) {
            (misuse, Aim::Here) => misuse.name(),
            (Misuse::Priority, Aim::Elsewhere) => "priority elsewhere",
            (Misuse::Garbage, Aim::Elsewhere) => "garbage elsewhere",
            (Misuse::Oneway, Aim::Elsewhere) => "oneway elsewhere",
            (Misuse::Channels, Aim::Elsewhere) => "channels elsewhere",
        }
    }
}

/// Says "ready" once it has begun, and does not come back but for an error.
pub fn commit(misuse: Misuse, broker: &Path) -> io::Result<()> {
    match misuse {
        Misuse::Priority => ask_for_priorities(broker),
        Misuse::Garbage => write_garbage(broker),
        Misuse::Oneway => flood(broker),
        Misuse::Channels => open_without_end(broker),
    }
}

/// A connection for each thread: one has one question at a time.
fn ask_for_priorities(broker: &Path) -> io::Result<()> {
    let connect = |_| Stranger::connect(broker, &context());
    let strangers = (0..N_THREADS).map(connect).collect::<io::Result<Vec<_>>>()?;
    let ask = |mut stranger: Stranger| -> io::Result<()> {
        loop {
            ask_for_all(&mut stranger)?;
        }
    };
    thread::scope(|scope| {
        let start = |stranger| scope.spawn(move || ask(stranger));
        let threads: Vec<_> = strangers.into_iter().map(start).collect();
        say("ready")?;
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

/// As client and as server, by its own threads and by others'. An error if the broker has had
/// enough of it.
fn ask_for_all(stranger: &mut Stranger) -> io::Result<()> {
    let own = getpid().as_raw_nonzero().get() as u32;
    for channel in (0..IDS).map(ChannelId) {
        for lane in 0..LANES as u32 {
            for tid in [own - 1, own, own + 1] {
                stranger.ask(&Control::RealTime { channel, lane, tid })?;
                stranger.ask(&Control::RealTimeLooper { channel, lane, tid })?;
            }
        }
    }
    Ok(())
}

/// Where its server is: an unmodified one's context is the environment's.
fn context() -> String {
    std::env::var("BATON_CONTEXT").unwrap_or_else(|_| typed::CONTEXT.to_owned())
}

fn reach(broker: &Path) -> io::Result<(Process, Handle)> {
    typed::reach(broker, &context())
}

fn call(manager: &Handle) -> io::Result<()> {
    let request = Parcel::from(&Ask::Time.bytes()[..]);
    manager.call(CODE, &request).map(drop).map_err(io::Error::other)
}

/// Where this process has Baton's memory that it can write.
fn shared() -> io::Result<BTreeSet<(usize, usize)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let range = |line: &str| -> Option<(usize, usize)> {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let is_writable = words.next()?.starts_with("rw-s");
        let at = |text| usize::from_str_radix(text, 16).ok();
        let (begin, end) = (at(begin)?, at(end)?);
        (is_writable && line.contains("/memfd:baton-")).then_some((begin, end - begin))
    };
    Ok(maps.lines().filter_map(range).collect())
}

/// One channel after the other: as soon as a server has given one up, it takes the next.
fn write_garbage(broker: &Path) -> io::Result<()> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0.. {
        let before = shared()?;
        let (process, manager) = reach(broker)?;
        call(&manager)?;
        let pages =
            shared()?.difference(&before).flat_map(pages).collect::<io::Result<Vec<_>>>()?;
        // What it comes to is for it to bear.
        thread::spawn(move || while call(&manager).is_ok() {});
        let begin = Instant::now();
        while begin.elapsed() < STINT {
            pages.iter().for_each(|&page| scribble(page, &mut random));
        }
        if round == 0 {
            say("ready")?;
        }
        process.close();
        for page in pages {
            // SAFETY: a map of its own, to which nothing points any more.
            unsafe { munmap(page as *mut _, PAGE_BYTES) }?;
        }
    }
    Ok(())
}

/// Maps of its own, which outlive the process's: of the header, and of the first lanes' heads.
fn pages(&(begin, bytes): &(usize, usize)) -> Vec<io::Result<usize>> {
    let heads = (0..4).flat_map(|lane| [End::Server, End::Client].map(|end| area_at(lane, end)));
    let places = [0].into_iter().chain(heads).filter(|at| at + PAGE_BYTES <= bytes);
    let again = |at| {
        // SAFETY: a fresh map at an address of the kernel's choice: of a shared one's no bytes it
        // makes another.
        let map = unsafe { mremap((begin + at) as *mut _, 0, PAGE_BYTES, MremapFlags::MAYMOVE) };
        Ok(map? as usize)
    };
    places.map(again).collect()
}

/// Random words, and small numbers, which are more often something.
fn scribble(page: usize, random: &mut u64) {
    for at in (0..256).step_by(4) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        // SAFETY: in a map that stays meanwhile. Others touch these words by atomics, too.
        let word = unsafe { AtomicU32::from_ptr((page + at) as *mut u32) };
        let value = (*random >> 32) as u32;
        word.store(if random.is_multiple_of(2) { value } else { value % 8 }, Ordering::Relaxed);
    }
}

fn flood(broker: &Path) -> io::Result<()> {
    let (_process, manager) = reach(broker)?;
    let request = Parcel::from(&Ask::Time.bytes()[..]);
    manager.one_way(CODE, &request).map_err(io::Error::other)?;
    thread::scope(|scope| {
        for _ in 0..N_THREADS {
            // That there is no room is what it wants.
            scope.spawn(|| {
                loop {
                    let _ = manager.one_way(CODE, &request);
                }
            });
        }
        say("ready")
    })
}

fn open_without_end(broker: &Path) -> io::Result<()> {
    let mut kept = VecDeque::new();
    let mut is_at_it = false;
    loop {
        let one = reach(broker).and_then(|(process, manager)| call(&manager).map(|()| process));
        match one {
            Ok(process) => kept.push_back(process),
            // Where it may have no more it goes on with another in place of its oldest.
            Err(error) => match kept.pop_front() {
                Some(oldest) => Process::close(&oldest),
                None => return Err(error),
            },
        }
        if !is_at_it && kept.len() == N_THREADS {
            say("ready")?;
            is_at_it = true;
        }
    }
}
