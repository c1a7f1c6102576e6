//! Threads that are in a system call on a socket, so that another thread can close it
//!
//! A closer writes -1 to the Java object, calls [`release`], and then closes the descriptor. A
//! caller calls [`Call::enter`], and reads the Java object only after that. So one of them sees the
//! other, by the order in which both take the lock of the list: either the caller sees -1, or the
//! closer sees the caller and waits until it has left. No caller is left in a system call on a
//! number that another file gets.

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A descriptor that a call uses.
struct Use {
    fd: RawFd,
    /// The call, which may use several descriptors.
    call: u64,
    /// Whether another thread closes the descriptor.
    is_closed: bool,
}

struct Uses {
    list: Vec<Use>,
    next_call: u64,
}

/// Every use by a thread of this process: at most the descriptors of one call for each thread.
static USES: Mutex<Uses> = Mutex::new(Uses { list: Vec::new(), next_call: 0 });
/// A call that was to leave has left.
static LEFT: Condvar = Condvar::new();

/// The time after which a closer wakes a call again. A call that had not begun to connect when its
/// socket was shut down waits nevertheless.
const AGAIN: Duration = Duration::from_millis(20);

/// A call that may wait. It leaves when it is dropped.
pub(super) struct Call(u64);

impl Call {
    /// Registers a call on descriptors. The lock is held for a moment, and no holder waits.
    pub(super) fn enter(fds: impl IntoIterator<Item = RawFd>) -> Call {
        let mut uses = uses();
        let call = uses.next_call;
        uses.next_call += 1;
        uses.list.extend(fds.into_iter().map(|fd| Use { fd, call, is_closed: false }));
        Call(call)
    }

    /// Whether another thread closes a descriptor of this call.
    pub(super) fn is_closed(&self) -> bool {
        uses().list.iter().any(|it| it.call == self.0 && it.is_closed)
    }

    /// The descriptors of this call that other threads close.
    pub(super) fn closed(&self) -> Vec<RawFd> {
        let uses = uses();
        let closed = uses.list.iter().filter(|it| it.call == self.0 && it.is_closed);
        closed.map(|it| it.fd).collect()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut uses = uses();
        let mut was_closed = false;
        uses.list.retain(|it| {
            was_closed |= it.call == self.0 && it.is_closed;
            it.call != self.0
        });
        drop(uses);
        if was_closed {
            LEFT.notify_all();
        }
    }
}

/// Ends all calls on a socket, and waits until they have left. The caller is a safe thread.
///
/// A call on another kind of file is marked only: nothing wakes it, and so nothing is waited for.
pub(super) fn release(fd: BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    let number = fd.as_raw_fd();
    let mut uses = uses();
    loop {
        let mut is_used = false;
        for one in uses.list.iter_mut().filter(|it| it.fd == number) {
            (one.is_closed, is_used) = (true, true);
        }
        // A socket without a peer is shut down, too, in spite of the error.
        if !is_used || !matches!(shutdown(fd, Shutdown::Both), Ok(()) | Err(Errno::NOTCONN)) {
            return;
        }
        uses = LEFT.wait_timeout(uses, AGAIN).expect("no holder panics").0;
    }
}

fn uses() -> MutexGuard<'static, Uses> {
    USES.lock().expect("no holder panics")
}
