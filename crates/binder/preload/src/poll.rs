//! Waiting for a device among other descriptors: `poll`, `select`, `epoll`.
//!
//! The program's descriptor is a memfd, which is always ready. In its place the system waits for a
//! descriptor on which the engine reports work. Only readability is requested, because a Binder
//! device is never writable or urgent.

use crate::table::{self, Open};
use crate::{files, real, signals};
use arc_swap::Guard;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::Arc;

type OpenGuard = Guard<Option<Arc<Open>>>;

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// The descriptor to wait for in place of a device's. It is valid as long as the guard lives.
fn pollable(fd: c_int) -> Option<(c_int, OpenGuard)> {
    pollable_of(files::current(fd)?)
}

fn pollable_of(guard: OpenGuard) -> Option<(c_int, OpenGuard)> {
    let pollable = guard.as_deref()?.device()?.readable().ok()?.as_raw_fd();
    Some((pollable, guard))
}

/// Whether the entries contain a device.
///
/// # Safety
/// `fds` is null or points to `count` entries.
pub unsafe fn has_device(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: by this function's contract.
    let mine = |index| table::contains(unsafe { (*fds.add(index)).fd });
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
    if !unsafe { has_device(fds, count) } {
        return real(fds);
    }
    let count = count as usize;
    // SAFETY: as above, and no other thread may write the array during the call. The copy is needed
    // because the program may read the array from another thread meanwhile.
    let theirs = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    let mut ours = theirs.to_vec();
    let mut guards = Vec::new();
    for entry in &mut ours {
        if let Some((fd, guard)) = pollable(entry.fd) {
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

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length.
    unsafe { poll_by(fds, count, |fds| real::poll(fds, count, timeout_ms)) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length. The C library reports too many
    // entries for `room` before it reads any.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__poll_chk(fds, count, timeout_ms, room);
        }
        poll_by(fds, count, |fds| real::__poll_chk(fds, count, timeout_ms, room))
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, or a copy of the same length.
    unsafe {
        signals::with_sigsys_unblocked(mask, |mask| {
            poll_by(fds, count, |fds| real::ppoll(fds, count, timeout, mask))
        })
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
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
        signals::with_sigsys_unblocked(mask, |mask| {
            poll_by(fds, count, |fds| real::__ppoll_chk(fds, count, timeout, mask, room))
        })
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
    // Only readability can come true for a device.
    let mut pollables = Vec::new();
    for fd in mine {
        // SAFETY: by this function's contract; the descriptor is below `count`.
        let is_in = |set: &*mut fd_set| unsafe { !set.is_null() && libc::FD_ISSET(fd, *set) };
        let is_read = is_in(&sets.read);
        if !is_read && ![sets.write, sets.except].iter().any(is_in) {
            continue;
        }
        let Some(guard) = files::current(fd) else { continue };
        for set in [sets.write, sets.except].iter().filter(|set| is_in(set)) {
            // SAFETY: as above.
            unsafe { libc::FD_CLR(fd, *set) };
        }
        let Some((pollable, guard)) = pollable_of(guard).filter(|_| is_read) else { continue };
        if pollable >= libc::FD_SETSIZE as c_int {
            return real::fail(libc::EBADF);
        }
        pollables.push((fd, pollable, guard));
    }
    if pollables.is_empty() {
        return real(count, sets);
    }
    // SAFETY: a set of bits is valid when it is zero.
    let mut read: fd_set = unsafe { std::mem::zeroed() };
    let mut our_count = count;
    for fd in 0..count {
        // SAFETY: both sets contain descriptors below FD_SETSIZE, and `count` is not more than
        // that.
        unsafe {
            if libc::FD_ISSET(fd, sets.read) && !pollables.iter().any(|(mine, ..)| *mine == fd) {
                libc::FD_SET(fd, &mut read);
            }
        }
    }
    for (_, pollable, _) in &pollables {
        // SAFETY: checked above.
        unsafe { libc::FD_SET(*pollable, &mut read) };
        our_count = our_count.max(pollable + 1);
    }
    let result = real(our_count, Sets { read: &mut read, ..sets });
    if result >= 0 {
        for fd in 0..count {
            let asked =
                pollables.iter().find(|(mine, ..)| *mine == fd).map_or(fd, |(_, fd, _)| *fd);
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

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
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

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
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
        signals::with_sigsys_unblocked(mask, |mask| {
            select_by(count, sets, |count, sets| {
                real::pselect(count, sets.read, sets.write, sets.except, timeout, mask)
            })
        })
    }
}

/// Interposes the C library's function. Closing a device removes it from the set, like closing a
/// file: the descriptor in its place is closed with it.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some((pollable, _guard)) = pollable(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    };
    if event.is_null() {
        // SAFETY: the caller's arguments but for the descriptor.
        return unsafe { real::epoll_ctl(epoll, operation, pollable, null_mut()) };
    }
    // SAFETY: by this function's contract; the structure is packed on x86-64.
    let mut ours = unsafe { event.read_unaligned() };
    let not_asked = libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND | libc::EPOLLPRI;
    ours.events &= !(not_asked as u32);
    // SAFETY: the caller's arguments but for the descriptor and a copy of the event.
    unsafe { real::epoll_ctl(epoll, operation, pollable, &mut ours) }
}
