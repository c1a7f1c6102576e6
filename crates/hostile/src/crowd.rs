//! Many honest processes at once: copies of one small process, each with a device of its own.

use crate::attacker::CONTEXT;
use crate::fork::{Forked, end, fork};
use baton::{CallError, Parcel, Process};
use baton_shm::clock::now_ns;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time from a member's open to the reply of its first call, or why there was none.
pub type Called = Result<Duration, Errno>;

/// Size of a member's message: a time in nanoseconds, or a negative errno.
const WORD_BYTES: usize = 8;

/// Processes that have called the server once and stay.
pub struct Crowd {
    members: usize,
    words: OwnedFd,
    /// Closing this pipe lets the members end.
    stay: Option<OwnedFd>,
}

impl Crowd {
    /// Starts members, which all begin at once. Errors are the system's.
    pub fn start(socket: &Path, members: usize) -> io::Result<Crowd> {
        let (words, report) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait_to_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait_to_leave, stay) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut started = 0;
        while started < members {
            match fork()? {
                Forked::Parent(_) => started += 1,
                Forked::Child => {
                    drop((go, stay, words));
                    member(socket, &wait_to_go, &report, &wait_to_leave);
                }
            }
        }
        drop(go);
        Ok(Crowd { members, words, stay: Some(stay) })
    }

    /// Collects the members' results until all have arrived or `patience` is over: then there are
    /// fewer.
    pub fn collect(&self, patience: Duration) -> Vec<Called> {
        let late = Instant::now() + patience;
        let mut heard = Vec::new();
        let mut bytes = Vec::new();
        while heard.len() < self.members {
            let left = late.saturating_duration_since(Instant::now());
            let timeout = left.try_into().expect("it is short");
            let mut waited =
                [rustix::event::PollFd::new(&self.words, rustix::event::PollFlags::IN)];
            if left.is_zero() || rustix::event::poll(&mut waited, Some(&timeout)) == Ok(0) {
                break;
            }
            let mut some = [0; 4096];
            let Ok(length @ 1..) = rustix::io::read(&self.words, &mut some) else { break };
            bytes.extend_from_slice(&some[..length]);
            let words = bytes.chunks_exact(WORD_BYTES);
            let rest = words.remainder().to_vec();
            heard.extend(words.map(|word| called(i64::from_ne_bytes(word.try_into().expect("8")))));
            bytes = rest;
        }
        heard
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stay = None;
        // All children of this process are members.
        while waitpid(None, WaitOptions::empty()).is_ok() {}
    }
}

fn called(word: i64) -> Called {
    match u64::try_from(word) {
        Ok(time_ns) => Ok(Duration::from_nanos(time_ns)),
        Err(_) => Err(Errno::from_raw_os_error((-word).clamp(1, 4095) as i32)),
    }
}

/// Waits until the pipe's other end is closed.
fn await_end(pipe: impl AsFd) {
    while let Ok(1..) | Err(Errno::INTR) = rustix::io::read(&pipe, &mut [0; 8]) {}
}

fn member(socket: &Path, go: &OwnedFd, report: &OwnedFd, leave: &OwnedFd) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    await_end(go);
    let begin_ns = now_ns();
    let first_call = || -> Result<Process, Errno> {
        let process = Process::open(CONTEXT, socket).map_err(|error| error.errno())?;
        let manager = process.context_manager().map_err(CallError::errno)?;
        let answer = manager.call(1, &Parcel::from(&b"12345678"[..]));
        let is_right = answer.map_err(CallError::errno)?.data() == b"12345678";
        is_right.then_some(process).ok_or(Errno::BADMSG)
    };
    let process = first_call();
    let word = match &process {
        Ok(_) => (now_ns() - begin_ns) as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    };
    // A pipe writes this few bytes at once.
    let _ = rustix::io::write(report, &word.to_ne_bytes());
    await_end(leave);
    end(0)
}
