//! Descriptors that the server watches: the end, the threads of clients, polls, and a timer.

use crate::client_memory::process_of;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, test_kill_process};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of one look.
const EVENTS: usize = 64;
/// `PIDFD_THREAD`: the pidfd of a thread, readable once that has ended. The flag is O_EXCL.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());

/// Time between two looks at threads that have no pidfd.
const THREAD_PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Something that the server waits for.
#[derive(Clone, Debug)]
pub enum Watch {
    /// The end of the thread that reads requests.
    Reader,
    /// The end of serving.
    Stop,
    /// Ioctls have waited for a while.
    Ioctls,
    /// Those have left for whom the file system was mounted.
    Left,
    /// The end of a thread that uses an open device.
    Thread {
        /// The server's number of the device.
        handle: u64,
        /// The client's thread.
        tid: u32,
        /// That thread's pidfd.
        pidfd: Arc<OwnedFd>,
    },
    /// Work for a thread that polls.
    Poll {
        /// The kernel's number of the open device.
        kernel_handle: u64,
        /// See [`PollWatch::want`].
        is_wanted: Arc<AtomicBool>,
    },
}

/// A descriptor of the driver that polls readable while one thread of a client would find work.
///
/// The kernel does not ask again before each wait: an edge-triggered epoll set asks once for each
/// notification, which may be long before the work comes. So the watch reports each arrival of
/// work, also while older work is there, and one notification follows each request for one.
#[derive(Debug)]
pub struct PollWatch {
    readable: Arc<OwnedFd>,
    number: u64,
    is_wanted: Arc<AtomicBool>,
}

impl PollWatch {
    /// Has the kernel notified of the next work. To be called before [`PollWatch::is_readable`], so
    /// that work that comes in between is either seen or notified of.
    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Whether it is readable now.
    pub fn is_readable(&self) -> Result<bool, Errno> {
        is_readable(&self.readable)
    }
}

/// Whether a descriptor is readable now. A thread's pidfd is once the thread has ended.
pub fn is_readable(fd: &OwnedFd) -> Result<bool, Errno> {
    let mut waits = [PollFd::new(fd, PollFlags::IN)];
    Ok(poll(&mut waits, Some(&Timespec::default()))? > 0)
}

/// All watches.
#[derive(Debug)]
pub struct Watches {
    epoll: OwnedFd,
    all: Mutex<HashMap<u64, Watch>>,
    last_number: AtomicU64,
    /// Linux before 6.9 has no pidfds of threads: see [`Watches::ended_threads`].
    lacks_thread_pidfds: bool,
}

impl Watches {
    /// No watches.
    pub fn new() -> Result<Watches, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Watches {
            epoll,
            all: Mutex::default(),
            last_number: AtomicU64::new(0),
            lacks_thread_pidfds: pidfd_open(getpid(), PIDFD_THREAD).err() == Some(Errno::INVAL),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Watch>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a descriptor. Returns the watch's number.
    pub fn add(&self, fd: impl AsFd, flags: EventFlags, watch: Watch) -> Result<u64, Errno> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        // Known before the first event comes.
        self.all().insert(number, watch);
        match epoll::add(&self.epoll, fd, EventData::new_u64(number), flags) {
            Ok(()) => Ok(number),
            Err(errno) => {
                self.all().remove(&number);
                Err(errno)
            }
        }
    }

    /// Waits for events, and returns what has come.
    pub fn wait(&self, patience: Option<&Timespec>) -> Vec<Watch> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, patience) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("epoll_wait of a set of our own: {errno}"),
        }
        let all = self.all();
        events.iter().filter_map(|event| all.get(&event.data.u64()).cloned()).collect()
    }

    /// Watches a thread that uses an open device, whose request has no answer yet. Returns its
    /// pidfd, or that of its process where there are no pidfds of threads. The process need not be
    /// the device's opener.
    pub fn add_thread(&self, handle: u64, tid: u32) -> Result<Arc<OwnedFd>, Errno> {
        let (number, flags) = match self.lacks_thread_pidfds {
            true => (process_of(tid).ok_or(Errno::SRCH)?, PidfdFlags::empty()),
            false => (tid, PIDFD_THREAD),
        };
        let number = Pid::from_raw(number.cast_signed()).ok_or(Errno::SRCH)?;
        let pidfd = Arc::new(pidfd_open(number, flags)?);
        let watch = Watch::Thread { handle, tid, pidfd: Arc::clone(&pidfd) };
        self.add(&pidfd, EventFlags::IN | EventFlags::ONESHOT, watch)?;
        Ok(pidfd)
    }

    /// Time after which [`Watches::ended_threads`] is to be asked, if it is to be.
    pub fn thread_patience(&self) -> Option<&'static Timespec> {
        self.lacks_thread_pidfds.then_some(&THREAD_PATIENCE)
    }

    /// The watches of threads that have ended, where pidfds do not say so: those are of whole
    /// processes.
    pub fn ended_threads(&self) -> Vec<Watch> {
        let has_ended = |watch: &&Watch| match watch {
            Watch::Thread { tid, .. } => Pid::from_raw(tid.cast_signed())
                .is_some_and(|tid| test_kill_process(tid) == Err(Errno::SRCH)),
            _ => false,
        };
        self.all().values().filter(has_ended).cloned().collect()
    }

    /// Ends the watches of threads that use an open device: of one of them, or of all.
    pub fn forget_threads(&self, of: u64, only: Option<u32>) {
        self.all().retain(|_, watch| match watch {
            Watch::Thread { handle, tid, pidfd }
                if *handle == of && only.is_none_or(|only| only == *tid) =>
            {
                let _ = epoll::delete(&self.epoll, pidfd);
                false
            }
            _ => true,
        });
    }

    /// Watches a descriptor of the driver: each time when there is work.
    pub fn add_poll(&self, readable: Arc<OwnedFd>, kernel_handle: u64) -> Result<PollWatch, Errno> {
        let is_wanted = Arc::new(AtomicBool::new(false));
        let watch = Watch::Poll { kernel_handle, is_wanted: Arc::clone(&is_wanted) };
        let number = self.add(&readable, EventFlags::IN | EventFlags::ET, watch)?;
        Ok(PollWatch { readable, number, is_wanted })
    }

    /// Ends a watch. The driver has the eventfd, too, so dropping it here does not.
    pub fn forget_poll(&self, poll: &PollWatch) {
        let _ = epoll::delete(&self.epoll, &poll.readable);
        self.all().remove(&poll.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_memory::duplicate;
    use rustix::fd::AsRawFd;
    use std::sync::mpsc::channel;

    #[test]
    fn a_threads_pidfd_leads_to_its_own_process_on_any_kernel() {
        let (tell, told) = channel();
        let (end, ends) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(baton_shm::thread::id()).unwrap();
            _ = ends.recv();
        });
        let tid = told.recv().unwrap();
        let file = tempfile::tempfile().unwrap();
        let new = || Watches::new().unwrap();
        for watches in [new(), Watches { lacks_thread_pidfds: true, ..new() }] {
            let lacks_thread_pidfds = watches.lacks_thread_pidfds;
            let pidfd = watches.add_thread(1, tid).unwrap();
            let same = duplicate(&pidfd, file.as_raw_fd()).unwrap();
            let inode = |file| rustix::fs::fstat(file).unwrap().st_ino;
            assert_eq!(inode(same.as_fd()), inode(file.as_fd()), "{lacks_thread_pidfds}");
            assert_eq!(watches.add_thread(1, 0).err(), Some(Errno::SRCH));
        }
        drop(end);
        thread.join().unwrap();
    }
}
