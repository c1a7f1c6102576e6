//! Waiting for a device among other descriptors: `poll`, `select`, `epoll`.
//!
//! The program's descriptor is a memfd, which is always ready. In its place the system waits for a
//! descriptor on which the engine reports work. Only readability is requested, because a Binder
//! device is never writable or urgent.

use crate::table::{self, Open};
use crate::{files, real, signals};
use baton_driver::device::Device;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// The thing to wait for in place of a device's descriptor.
enum Pollable {
    /// The calling thread's descriptor, and the device, which stays open while a thread waits.
    Open(Arc<OwnedFd>, #[expect(dead_code, reason = "kept open")] Arc<Open>),
    /// A parent process opened the device: in its child it counts as closed.
    Closed,
}

impl Pollable {
    fn number(&self) -> c_int {
        match self {
            Pollable::Open(fd, _) => fd.as_raw_fd(),
            Pollable::Closed => CLOSED,
        }
    }
}

/// A number that no descriptor has.
const CLOSED: c_int = c_int::MAX;

/// The descriptor to wait for in place of a device's.
fn pollable(fd: c_int) -> Option<Pollable> {
    pollable_of(files::current(fd)?.as_ref()?)
}

fn pollable_of(open: &Arc<Open>) -> Option<Pollable> {
    let device = open.device()?;
    // The state that the parent's threads share with each other is not the child's to look at.
    match open.is_inherited() {
        true => Some(Pollable::Closed),
        false => Some(Pollable::Open(device.readable().ok()?, open.clone())),
    }
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
    let mut pollables = Vec::new();
    for entry in &mut ours {
        if let Some(pollable) = pollable(entry.fd) {
            entry.fd = pollable.number();
            entry.events &= READABLE;
            pollables.push(pollable);
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
        let pollable = guard.as_ref().and_then(pollable_of).filter(|_| is_read);
        let Some(pollable) = pollable else { continue };
        if pollable.number() >= libc::FD_SETSIZE as c_int {
            return real::fail(libc::EBADF);
        }
        pollables.push((fd, pollable));
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
            if libc::FD_ISSET(fd, sets.read) && !pollables.iter().any(|(mine, _)| *mine == fd) {
                libc::FD_SET(fd, &mut read);
            }
        }
    }
    for (_, pollable) in &pollables {
        // SAFETY: checked above.
        unsafe { libc::FD_SET(pollable.number(), &mut read) };
        our_count = our_count.max(pollable.number() + 1);
    }
    let result = real(our_count, Sets { read: &mut read, ..sets });
    if result >= 0 {
        for fd in 0..count {
            let pollable = pollables.iter().find(|(mine, _)| *mine == fd);
            let asked = pollable.map_or(fd, |(_, pollable)| pollable.number());
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

/// Interposes the C library's function. The descriptor in a device's place is closed with the
/// device, and so leaves the set as the device's would.
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
    let guard = files::current(fd);
    let open = guard.as_ref().and_then(|guard| guard.as_deref());
    let Some((open, device)) = open.and_then(|open| Some((open, open.device()?))) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    };
    if open.is_inherited() {
        return real::fail(libc::EBADF);
    }
    // SAFETY: by this function's contract; the structure is packed on x86-64.
    let mut ours = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    let not_asked = libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND | libc::EPOLLPRI;
    if let Some(ours) = &mut ours {
        ours.events &= !(not_asked as u32);
    }
    let event = ours.as_mut().map_or(null_mut(), |ours| ours as *mut _);
    // SAFETY: the caller's arguments but for the descriptor and a copy of the event.
    let control =
        |fd: &OwnedFd| unsafe { real::epoll_ctl(epoll, operation, fd.as_raw_fd(), event) };
    if operation == libc::EPOLL_CTL_ADD {
        return add(epoll, device, control);
    }
    // Any thread may have added the device.
    let mut results = device.all_readable_for_sets().into_iter().map(|fd| control(&fd));
    results.find(|result| *result == 0 || real::errno() != libc::ENOENT).unwrap_or_else(|| {
        // A set that is none fails the same with any descriptor.
        device.readable().map_or_else(|errno| real::fail(errno.raw_os_error()), |fd| control(&fd))
    })
}

/// Adds the calling thread's descriptor to a set. `EEXIST` if it has another thread's.
fn add(epoll: c_int, device: &Device, control: impl Fn(&OwnedFd) -> c_int) -> c_int {
    let own = match device.readable_for_sets() {
        Ok(own) => own,
        Err(errno) => return real::fail(errno.raw_os_error()),
    };
    let is_other = |fd: &Arc<OwnedFd>| !Arc::ptr_eq(fd, &own);
    if device.all_readable_for_sets().iter().filter(|fd| is_other(fd)).any(|fd| is_in(epoll, fd)) {
        return real::fail(libc::EEXIST);
    }
    control(&own)
}

/// Whether a set contains a thread's descriptor.
fn is_in(epoll: c_int, fd: &OwnedFd) -> bool {
    // An eventfd has no event that nobody asks for, so nothing comes of it while it is in the set.
    let mut event = epoll_event { events: 0, u64: 0 };
    let fd = fd.as_raw_fd();
    // SAFETY: an event of this function's own.
    unsafe {
        let result = real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event);
        if result == 0 {
            real::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, null_mut());
        }
        result != 0 && real::errno() == libc::EEXIST
    }
}
