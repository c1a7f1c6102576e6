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

use crate::arrivals;
use crate::service::{CLOCK_BYTES, Service, now_ns};
use crate::system::{Client, Consume, Sender};
use baton_rt::SchedPriority;
use baton_rt::schedule::current_priority;
use nix::errno::Errno;
use nix::mqueue::{MQ_OFlag, MqAttr, MqdT, mq_open, mq_receive, mq_send, mq_unlink};
use nix::sys::stat::Mode;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;

/// Requests that wait: more than callers, so that no caller waits for room; where that is not
/// allowed, what everybody may have.
const DEPTHS: [i64; 2] = [256, 10];
const REQUEST_BYTES: usize = 8 + CLOCK_BYTES;
/// The end of that queue's name.
const REQUESTS: &str = "requests";

/// An open queue, which its process closes when it ends.
struct Queue(MqdT);

fn name(directory: &Path, suffix: &str) -> String {
    let directory = directory.file_name().unwrap_or_default().to_string_lossy();
    format!("/baton-bench{directory}-{suffix}")
}

impl Queue {
    fn make(name: &str, depth: i64, bytes: usize) -> nix::Result<Queue> {
        let flags = MQ_OFlag::O_RDWR | MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_CLOEXEC;
        let attributes = MqAttr::new(0, depth, bytes as i64, 0);
        mq_open(name, flags, Mode::S_IRUSR | Mode::S_IWUSR, Some(&attributes)).map(Queue)
    }

    fn open(name: &str) -> nix::Result<Queue> {
        mq_open(name, MQ_OFlag::O_RDWR | MQ_OFlag::O_CLOEXEC, Mode::empty(), None).map(Queue)
    }

    fn send(&self, message: &[u8], priority: u32) -> io::Result<()> {
        Ok(mq_send(&self.0, message, priority)?)
    }

    /// A message of exactly this size.
    fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut message = [0; N];
        match mq_receive(&self.0, &mut message, &mut 0)? {
            bytes if bytes == N => Ok(message),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The queue of requests of a server that has ended.
pub fn forget(directory: &Path) {
    // That there is no such name any more is as good.
    let _ = mq_unlink(&*name(directory, REQUESTS));
}

/// The queue of all requests, or of messages without an answer.
fn make_requests(directory: &Path, bytes: usize) -> nix::Result<Queue> {
    let make = |depth| Queue::make(&name(directory, REQUESTS), depth, bytes);
    match make(DEPTHS[0]) {
        Err(Errno::EINVAL | Errno::EMFILE) => make(DEPTHS[1]),
        made => made,
    }
}

/// Starts a thread that serves all callers, at the priority of the one that starts it.
pub fn pool(directory: &Path, service: Service) -> io::Result<()> {
    let requests = make_requests(directory, REQUEST_BYTES)?;
    let directory = directory.to_owned();
    std::thread::spawn(move || {
        let Err::<std::convert::Infallible, _>(error) = serve(&requests, &directory, service);
        eprintln!("message queues: {error}");
        std::process::exit(1);
    });
    Ok(())
}

fn serve(
    requests: &Queue,
    directory: &Path,
    service: Service,
) -> io::Result<std::convert::Infallible> {
    let mut replies = HashMap::new();
    loop {
        let message: [u8; REQUEST_BYTES] = requests.receive()?;
        let (number, request) = message.split_at(8);
        let number = u64::from_ne_bytes(number.try_into().expect("eight bytes"));
        let reply = |answer: &[u8]| {
            let replies = match replies.entry(number) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let name = name(directory, &number.to_string());
                    let queue = Queue::open(&name)?;
                    let _ = mq_unlink(&*name);
                    unknown.insert(queue)
                }
            };
            replies.send(answer, 0)
        };
        service.answer(request, reply).ok_or(io::ErrorKind::InvalidData)??;
    }
}

/// A thread's end that only sends, each message at its thread's priority and once there is room.
pub struct MessageSender {
    queue: Queue,
    /// Of the thread that sends, from its first message on.
    priority: Option<u32>,
}

/// Starts a thread that notes messages, at the priority of the one that starts it.
pub fn receive(directory: &Path) -> io::Result<()> {
    let queue = make_requests(directory, arrivals::BYTES)?;
    std::thread::spawn(move || {
        while let Ok(message) = queue.receive::<{ arrivals::BYTES }>() {
            arrivals::note(&message, now_ns()).expect("a message");
        }
    });
    Ok(())
}

/// The sender to the thread that [`receive`] has started.
pub fn sender(directory: &Path) -> io::Result<MessageSender> {
    Ok(MessageSender { queue: Queue::open(&name(directory, REQUESTS))?, priority: None })
}

impl Sender for MessageSender {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let priority = *self.priority.get_or_insert_with(own_priority);
        self.queue.send(message, priority)
    }
}

/// The calling thread's priority, as messages have it.
fn own_priority() -> u32 {
    let level = current_priority().ok().and_then(SchedPriority::real_time);
    level.unwrap_or(0).into()
}

/// One thread's end.
pub struct Caller {
    requests: Queue,
    replies: Queue,
    message: [u8; REQUEST_BYTES],
    /// Of the thread that calls, from its first call on.
    priority: Option<u32>,
}

pub fn connect(directory: &Path, number: usize) -> io::Result<Caller> {
    let requests = Queue::open(&name(directory, REQUESTS))?;
    let number = u64::from(std::process::id()) << 32 | number as u64;
    let mut message = [0; REQUEST_BYTES];
    message[..8].copy_from_slice(&number.to_ne_bytes());
    let replies = Queue::make(&name(directory, &number.to_string()), 1, CLOCK_BYTES)?;
    Ok(Caller { requests, replies, message, priority: None })
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let priority = *self.priority.get_or_insert_with(own_priority);
        self.message[8..].copy_from_slice(request);
        self.requests.send(&self.message, priority)?;
        consume(&self.replies.receive::<CLOCK_BYTES>()?);
        Ok(())
    }
}
