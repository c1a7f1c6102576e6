//! System calls by number, from the C library's `syscall` or from the program's own code
//! ([`trap`](crate::trap)).
//!
//! **Invariant**: a call that came by its number goes on by its number. The next function of the
//! call's name may be another library's that makes the call by `syscall` itself, as tcmalloc's
//! `mmap` and `munmap` do: it would come back here without end.

use crate::{device, files, maps, poll, real, scheduling, table};
use libc::{c_char, c_int, c_long, c_void, epoll_event, pollfd, timespec};

/// Emulates the system call if it can concern a device. Returns a value, or -1 and sets errno.
/// `None` for every other call.
///
/// # Safety
/// The contract of the system call.
pub unsafe fn call(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, fourth, ..] = arguments;
    let (fd, is_ours) = (first as c_int, table::contains(first as c_int));
    // SAFETY: by this function's contract, with another path at most.
    let real = |arguments| unsafe { real::system_call(number, arguments) as c_int };
    // SAFETY: by this function's contract. Each function gets the arguments of the system call of
    // its name.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => {
                let open = |path| real([path as c_long, second, third, 0, 0, 0]);
                files::open_by(libc::AT_FDCWD, path(first), second as c_int, &open)
            }
            libc::SYS_openat => {
                let open = |path| real([first, path as c_long, third, fourth, 0, 0]);
                files::open_by(fd, path(second), third as c_int, &open)
            }
            libc::SYS_close if is_ours => files::close(fd),
            libc::SYS_dup => files::duplicated(fd, real(arguments)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => files::duplicated(fd, real(arguments)),
            libc::SYS_dup3 => files::duplicated(fd, real(arguments)),
            libc::SYS_fcntl if is_ours => {
                files::after_fcntl(fd, second as c_int, third as usize, real(arguments))
            }
            libc::SYS_ioctl if is_ours => {
                device::ioctl_by(fd, second as u64, third as usize, || real(arguments))
            }
            libc::SYS_mmap => {
                let [address, bytes, protection, flags, fd, _] = arguments;
                let (protection, flags, fd) = (protection as c_int, flags as c_int, fd as c_int);
                let address = address as *mut c_void;
                return maps::map_device(address, bytes as usize, protection, flags, fd)
                    .map(|mapped| mapped as c_long);
            }
            libc::SYS_munmap => {
                maps::munmap_by(first as usize, second as usize, || real(arguments))
            }
            _ => return wait(number, arguments),
        }
    };
    Some(result.into())
}

fn path(argument: c_long) -> *const c_char {
    argument as *const c_char
}

/// # Safety
/// The contract of the system call.
unsafe fn wait(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, fourth, ..] = arguments;
    let fds = first as *mut pollfd;
    // SAFETY: by this function's contract.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll if poll::has_device(fds, second as u64) => {
                poll::poll(fds, second as u64, third as c_int)
            }
            // The C library's signal set begins with the kernel's.
            libc::SYS_ppoll if poll::has_device(fds, second as u64) => {
                poll::ppoll(fds, second as u64, third as *const timespec, fourth as *const _)
            }
            libc::SYS_epoll_ctl if table::contains(third as c_int) => poll::epoll_ctl(
                first as c_int,
                second as c_int,
                third as c_int,
                fourth as *mut epoll_event,
            ),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Interposes the C library's function, declared with its longest form: see [`real`].
///
/// # Safety
/// As the system call's of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let arguments = [first, second, third, fourth, fifth, sixth];
    // SAFETY: the caller's arguments.
    let result =
        unsafe { call(number, arguments).unwrap_or_else(|| real::system_call(number, arguments)) };
    if scheduling::changes_scheduling(number) {
        baton_driver::device::priorities_change();
    }
    result
}
