//! POSIX message queues, as one who knows them would do it by hand: requests in one queue, each at
//! its caller's priority, so that the most urgent is received first; a queue of each caller's own
//! for its answers; one thread that serves, at the highest priority.
//!
//! ```text
//!   caller --- reply queue's number, request ---> /...-requests --> server at SCHED_FIFO
//!   caller <--------------- answer --- /...-NUMBER <---------------'
//! ```
//!
//! A queue has a name in the whole system, which the directory's makes one of this run. A caller's
//! loses it as soon as both ends have opened it.

use crate::endpoint::say;
use crate::rt::request::{BYTES, answer};
use crate::rt::way::{Call, Ends, Place};
use baton_rt::SchedPriority;
use baton_rt::schedule::set_priority;
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

/// Requests that wait: more than callers, so that no caller waits for room; where that is not
/// allowed, what everybody may have.
const DEPTHS: [i64; 2] = [256, 10];
const REQUEST_BYTES: usize = 8 + BYTES;

pub const ENDS: Ends = Ends { serve, callers };

/// One open queue.
struct Queue {
    descriptor: libc::mqd_t,
    name: CString,
}

impl Queue {
    fn name(directory: &Path, suffix: &str) -> io::Result<CString> {
        let directory = directory.file_name().unwrap_or_default().to_string_lossy();
        Ok(CString::new(format!("/baton-bench{directory}-{suffix}"))?)
    }

    fn make(name: CString, depth: i64, bytes: usize) -> io::Result<Queue> {
        // SAFETY: a structure of numbers, whose other members mean nothing to mq_open.
        let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
        (attributes.mq_maxmsg, attributes.mq_msgsize) = (depth, bytes as i64);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a C string and a structure, which outlive the call.
        let descriptor =
            unsafe { libc::mq_open(name.as_ptr(), flags, 0o600 as libc::mode_t, &attributes) };
        Queue::opened(descriptor, name)
    }

    fn open(name: CString) -> io::Result<Queue> {
        // SAFETY: a C string, which outlives the call.
        let descriptor = unsafe { libc::mq_open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        Queue::opened(descriptor, name)
    }

    fn opened(descriptor: libc::mqd_t, name: CString) -> io::Result<Queue> {
        if descriptor < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Queue { descriptor, name })
        }
    }

    fn send(&self, message: &[u8], priority: u32) -> io::Result<()> {
        let (data, bytes) = (message.as_ptr().cast(), message.len());
        // SAFETY: the call reads the message, and nothing beyond.
        match unsafe { libc::mq_send(self.descriptor, data, bytes, priority) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A message of exactly this size.
    fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut message = [0; N];
        let data = message.as_mut_ptr().cast();
        // SAFETY: the call writes no more than the message has room for.
        let n = unsafe { libc::mq_receive(self.descriptor, data, N, std::ptr::null_mut()) };
        match n {
            ..0 => Err(io::Error::last_os_error()),
            _ if n as usize == N => Ok(message),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: a descriptor of its own.
        unsafe { libc::mq_close(self.descriptor) };
    }
}

fn unlink(name: &CStr) {
    // SAFETY: a C string. That there is no such name any more is as good.
    let _ = unsafe { libc::mq_unlink(name.as_ptr()) };
}

/// The queue of requests of a server that has ended.
pub fn forget(directory: &Path) {
    if let Ok(name) = Queue::name(directory, "requests") {
        unlink(&name);
    }
}

fn requests(place: &Place) -> io::Result<Queue> {
    let mut made = Err(io::ErrorKind::Unsupported.into());
    for depth in DEPTHS {
        made = Queue::make(Queue::name(&place.directory, "requests")?, depth, REQUEST_BYTES);
        let refused = |error: &io::Error| {
            [Errno::INVAL, Errno::MFILE]
                .map(Errno::raw_os_error)
                .contains(&error.raw_os_error().unwrap_or(0))
        };
        if !made.as_ref().is_err_and(refused) {
            break;
        }
    }
    made
}

fn serve(place: &Place) -> io::Result<()> {
    let requests = requests(place)?;
    set_priority(SchedPriority::fifo(place.level), None).map_err(io::Error::other)?;
    say("ready")?;
    let mut replies = HashMap::new();
    loop {
        let message: [u8; REQUEST_BYTES] = requests.receive()?;
        let (number, request) = message.split_at(8);
        let answer = answer(request).ok_or(io::ErrorKind::InvalidData)?;
        let number = u64::from_ne_bytes(number.try_into().expect("eight bytes"));
        let replies = match replies.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let queue = Queue::open(Queue::name(&place.directory, &number.to_string())?)?;
                unlink(&queue.name);
                unknown.insert(queue)
            }
        };
        replies.send(&answer, 0)?;
    }
}

fn callers(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let caller = |caller: usize| -> io::Result<Call> {
        let requests = Queue::open(Queue::name(&place.directory, "requests")?)?;
        let number = u64::from(std::process::id()) << 32 | caller as u64;
        let replies = Queue::make(Queue::name(&place.directory, &number.to_string())?, 1, BYTES)?;
        let priority = u32::from(place.level);
        let mut message = [0; REQUEST_BYTES];
        message[..8].copy_from_slice(&number.to_ne_bytes());
        Ok(Box::new(move |request| {
            message[8..].copy_from_slice(&request.bytes());
            requests.send(&message, priority)?;
            replies.receive()
        }))
    };
    (0..n_callers).map(caller).collect()
}
