//! The threads that open devices. Each is then the control thread of its device.
//!
//! Two that have served a device are kept for the next opens: a program that opens and closes in
//! turn starts no thread each time, even if it opens while the last thread still closes.

use rustix::io::Errno;
use std::sync::mpsc::{SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All of the work on one device: its open, and its control thread.
type Work = Box<dyn FnOnce() + Send>;

/// The threads that wait for work.
type Spare = Mutex<Vec<Sender<Work>>>;

/// Most threads that wait for work.
const MOST_SPARE: usize = 2;

/// The threads that open devices. Those that wait end when this is dropped.
#[derive(Debug, Default)]
pub struct DeviceThreads {
    spare: Arc<Spare>,
}

fn lock(spare: &Spare) -> MutexGuard<'_, Vec<Sender<Work>>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceThreads {
    /// Gives a device to a thread that waits, or to a new one. `ENOMEM` if there can be none.
    pub fn give(&self, mut work: Work) -> Result<(), Errno> {
        let spare = lock(&self.spare).pop();
        if let Some(spare) = spare {
            match spare.send(work) {
                Ok(()) => return Ok(()),
                // It has panicked.
                Err(SendError(back)) => work = back,
            }
        }
        let spare = Arc::downgrade(&self.spare);
        let thread = std::thread::Builder::new().name("binderfs-device".to_owned());
        thread.spawn(move || serve(work, &spare)).map(drop).map_err(|_| Errno::NOMEM)
    }
}

/// Does this work, and then what comes, until enough others wait or nothing comes any more.
fn serve(mut work: Work, spare: &Weak<Spare>) {
    loop {
        work();
        let Some(place) = spare.upgrade() else { return };
        let (give, next) = channel();
        {
            let mut spare = lock(&place);
            if spare.len() == MOST_SPARE {
                return;
            }
            spare.push(give);
        }
        drop(place);
        match next.recv() {
            Ok(next) => work = next,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, TryRecvError};
    use std::thread::{self, ThreadId};

    /// Has a thread tell its id, and end its work when it may.
    fn work(tell: &Sender<ThreadId>) -> (Work, Sender<()>) {
        let (tell, (end, ends)) = (tell.clone(), channel());
        let work = Box::new(move || {
            tell.send(thread::current().id()).unwrap();
            _ = ends.recv();
        });
        (work, end)
    }

    #[test]
    fn one_thread_serves_what_comes_in_turn() {
        let threads = DeviceThreads::default();
        let (tell, told) = channel();
        let (first, end_first) = work(&tell);
        let (second, end_second) = work(&tell);
        threads.give(first).unwrap();
        let first = told.recv().unwrap();
        threads.give(second).unwrap();
        let second = told.recv().unwrap();
        assert_ne!(first, second, "the first thread has work");
        drop(end_first);
        while lock(&threads.spare).is_empty() {
            thread::yield_now();
        }
        let (third, end_third) = work(&tell);
        threads.give(third).unwrap();
        assert_eq!(told.recv().unwrap(), first);
        drop((end_second, end_third));
    }

    #[test]
    fn of_three_threads_without_work_two_wait() {
        let threads = DeviceThreads::default();
        let (ready, is_ready) = channel();
        let start = || {
            let ((alive, ended), (end, ends)) = (channel::<()>(), channel::<()>());
            let ready = ready.clone();
            let work = move || {
                ALIVE.set(Some(alive));
                ready.send(()).unwrap();
                _ = ends.recv();
            };
            threads.give(Box::new(work)).unwrap();
            (ended, end)
        };
        let (alive, ends): (Vec<_>, Vec<_>) = [start(), start(), start()].into_iter().unzip();
        (0..3).for_each(|_| is_ready.recv().unwrap());
        drop(ends);
        let has_ended = |ended: &Receiver<()>| ended.try_recv() == Err(TryRecvError::Disconnected);
        while lock(&threads.spare).len() < 2 || !alive.iter().any(has_ended) {
            thread::yield_now();
        }
        assert_eq!(alive.iter().filter(|ended| has_ended(ended)).count(), 1);
        drop(threads);
        assert!(alive.iter().all(|ended| ended.recv().is_err()));
    }

    #[test]
    fn threads_that_wait_end_with_the_server() {
        let threads = DeviceThreads::default();
        let (alive, ended) = channel::<()>();
        threads.give(Box::new(move || ALIVE.set(Some(alive)))).unwrap();
        while lock(&threads.spare).is_empty() {
            thread::yield_now();
        }
        drop(threads);
        assert!(ended.recv().is_err());
    }

    thread_local! {
        /// Dropped when its thread ends.
        static ALIVE: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
    }
}
