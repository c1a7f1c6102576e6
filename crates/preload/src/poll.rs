//! Waiting for a device among other descriptors: `poll`, `select`, `epoll`.
//!
//! The program's descriptor is a memfd, which is always ready. In its place the system waits for
//! the descriptor with which the engine says that there is work to read. Only readability is
//! asked of it: a Binder device is never writable nor urgent.

use crate::real;
use crate::table::{self, Open};
use arc_swap::Guard;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::Arc;

type OpenGuard = Guard<Option<Arc<Open>>>;

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// The descriptor to wait for in place of a device's, valid while the guard is kept.
fn stand_in(fd: c_int) -> Option<(c_int, OpenGuard)> {
    let guard = table::get(fd)?;
    let stand_in = guard.as_deref()?.device()?.readable().ok()?.as_raw_fd();
    Some((stand_in, guard))
}

/// Whether a device is among the descriptors.
///
/// # Safety
/// `fds` is null or points to `count` entries.
pub unsafe fn has_mine(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: by this function's contract.
    let mine = |index| table::is_mine(unsafe { (*fds.add(index)).fd });
    !fds.is_null() && (0..count as usize).any(mine)
}

/// # Safety
/// `fds` points to `count` entries, or `real` is to report that it does not.
unsafe fn poll_by(
    fds: *mut pollfd,
    count: nfds_t,
    real: impl FnOnce(*mut pollfd) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    if !unsafe { has_mine(fds, count) } {
        return real(fds);
    }
    let count = count as usize;
    // SAFETY: as above, and nobody else may write to the array during the call. A copy, since
    // the program may read the array's descriptors from another thread meanwhile.
    let theirs = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    let mut ours = theirs.to_vec();
    let mut guards = Vec::new();
    for entry in &mut ours {
        if let Some((fd, guard)) = stand_in(entry.fd) {
            entry.fd = fd;
            entry.events &= READABLE;
            guards.push(guard);
        }
    }
    let result = real(ours.as_mut_ptr());
    if result >= 0 {
        for (theirs, ours) in theirs.iter_mut().zip(&ours) {
            theirs.revents = ours.revents;
        }
    }
    result
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length.
    unsafe { poll_by(fds, count, |fds| real::poll(fds, count, timeout_ms)) }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length. Too many entries for the
    // room are the C library's to report, before anything is read.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__poll_chk(fds, count, timeout_ms, room);
        }
        poll_by(fds, count, |fds| real::__poll_chk(fds, count, timeout_ms, room))
    }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length.
    unsafe { poll_by(fds, count, |fds| real::ppoll(fds, count, timeout, mask)) }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as in `__poll_chk`.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(fds, count, timeout, mask, room);
        }
        poll_by(fds, count, |fds| real::__ppoll_chk(fds, count, timeout, mask, room))
    }
}

/// The three sets of a `select`.
#[derive(Clone, Copy)]
struct Sets {
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
}

/// # Safety
/// Each set is null or a set of at least `count` descriptors.
unsafe fn select_by(count: c_int, sets: Sets, real: impl FnOnce(c_int, Sets) -> c_int) -> c_int {
    let within = 0..libc::FD_SETSIZE as c_int + 1;
    let mine: Vec<c_int> = match count {
        1.. if within.contains(&count) => table::in_range(0, count as usize - 1).collect(),
        _ => Vec::new(),
    };
    if mine.is_empty() {
        return real(count, sets);
    }
    // What is asked of a device: only readability can come true.
    let mut stand_ins = Vec::new();
    for fd in mine {
        // SAFETY: by this function's contract; the descriptor is below `count`.
        unsafe {
            for set in [sets.write, sets.except] {
                if !set.is_null() && table::get(fd).is_some() {
                    libc::FD_CLR(fd, set);
                }
            }
            if sets.read.is_null() || !libc::FD_ISSET(fd, sets.read) {
                continue;
            }
            let Some((stand_in, guard)) = stand_in(fd) else { continue };
            if stand_in >= libc::FD_SETSIZE as c_int {
                return real::fail(libc::EBADF);
            }
            stand_ins.push((fd, stand_in, guard));
        }
    }
    if stand_ins.is_empty() {
        return real(count, sets);
    }
    // SAFETY: a set of bits is valid when it is zero.
    let mut read: fd_set = unsafe { std::mem::zeroed() };
    let mut our_count = count;
    for fd in 0..count {
        // SAFETY: both sets hold descriptors below FD_SETSIZE, and `count` is no more than that.
        unsafe {
            if libc::FD_ISSET(fd, sets.read) && !stand_ins.iter().any(|(mine, ..)| *mine == fd) {
                libc::FD_SET(fd, &mut read);
            }
        }
    }
    for (_, stand_in, _) in &stand_ins {
        // SAFETY: checked above.
        unsafe { libc::FD_SET(*stand_in, &mut read) };
        our_count = our_count.max(stand_in + 1);
    }
    let result = real(our_count, Sets { read: &mut read, ..sets });
    if result >= 0 {
        for fd in 0..count {
            let asked =
                stand_ins.iter().find(|(mine, ..)| *mine == fd).map_or(fd, |(_, fd, _)| *fd);
            // SAFETY: as above.
            unsafe {
                if libc::FD_ISSET(fd, sets.read) && !libc::FD_ISSET(asked, &read) {
                    libc::FD_CLR(fd, sets.read);
                }
            }
        }
    }
    result
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = Sets { read, write, except };
    // SAFETY: the caller's arguments, with at most one set replaced by a larger one.
    unsafe {
        select_by(count, sets, |count, sets| {
            real::select(count, sets.read, sets.write, sets.except, timeout)
        })
    }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = Sets { read, write, except };
    // SAFETY: the caller's arguments, with at most one set replaced by a larger one.
    unsafe {
        select_by(count, sets, |count, sets| {
            real::pselect(count, sets.read, sets.write, sets.except, timeout, mask)
        })
    }
}

/// As the C library's. Closing a device takes it out of the set, as closing a file does: its
/// stand-in is closed with it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some((stand_in, _guard)) = stand_in(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    };
    if event.is_null() {
        // SAFETY: the caller's arguments but for the descriptor.
        return unsafe { real::epoll_ctl(epoll, operation, stand_in, null_mut()) };
    }
    // SAFETY: by this function's contract; the structure is packed on x86-64.
    let mut ours = unsafe { event.read_unaligned() };
    let not_asked = libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND | libc::EPOLLPRI;
    ours.events &= !(not_asked as u32);
    // SAFETY: the caller's arguments but for the descriptor and a copy of the event.
    unsafe { real::epoll_ctl(epoll, operation, stand_in, &mut ours) }
}
