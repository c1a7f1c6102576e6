//! The C library's own functions: for each name the next definition after ours, looked up once.
//!
//! Each function is looked up at its first use instead of in the constructor: constructors of other
//! libraries run earlier and may call these functions. Variadic ones (`open`, `fcntl`, `ioctl`) are
//! declared with their longest fixed form. On x86-64 and aarch64 an integer argument travels in the
//! same register either way.

use libc::{
    DIR, FILE, c_char, c_int, c_long, c_uint, c_ulong, c_void, cpu_set_t, epoll_event, fd_set,
    gid_t, id_t, mode_t, nfds_t, off_t, pid_t, pollfd, posix_spawn_file_actions_t,
    posix_spawnattr_t, pthread_attr_t, pthread_t, sched_param, sigaction as SigAction,
    sighandler_t, sigset_t, size_t, ssize_t, stack_t, stat as Stat, statx as Statx, timespec,
    timeval, uid_t,
};
use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An array of C strings that ends with a null pointer.
pub type StringArray = *const *const c_char;
/// `thrd_error` of C's `<threads.h>`.
const THRD_ERROR: c_int = 2;

/// Sets the calling thread's `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library's errno location is valid for the life of the thread.
    unsafe { *libc::__errno_location() = errno }
}

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: as in `set_errno`.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` and returns -1, as a C function fails.
pub fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// Address of the next definition of a name, null if there is none.
fn next(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // Relaxed is enough: the pointer is to code, and two threads that look it up find the same
    // address.
    let cached = cache.load(Ordering::Relaxed);
    if !cached.is_null() {
        return cached;
    }
    // SAFETY: the name is a C string; RTLD_NEXT searches the objects loaded after this one.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Relaxed);
    found
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("an identifier has no zero byte"),
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, else $failed:expr;)*) => {
        /// The names of these functions.
        pub const NAMES: &[&CStr] = &[$(c_name(concat!(stringify!($name), "\0"))),*];
        $(
        /// The C library's function of this name; `ENOSYS` where it has none.
        ///
        /// # Safety
        /// As the C function's.
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
            let address = next(&ADDRESS, NAME);
            if address.is_null() {
                set_errno(libc::ENOSYS);
                return $failed;
            }
            // SAFETY: the address is of the C library's function of this name, whose C
            // declaration this signature repeats; the caller vouches for the arguments.
            unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> $result>(address)(
                    $($argument),*
                )
            }
        }
    )*};
}

real! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    __open_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;
    __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut();
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut();
    close(fd: c_int) -> c_int, else -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else -1;
    closefrom(first: c_int) -> (), else Default::default();
    dup(fd: c_int) -> c_int, else -1;
    dup2(from: c_int, to: c_int) -> c_int, else -1;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int, else -1;
    fcntl(fd: c_int, command: c_int, argument: size_t) -> c_int, else -1;
    fcntl64(fd: c_int, command: c_int, argument: size_t) -> c_int, else -1;
    ioctl(fd: c_int, request: c_ulong, argument: size_t) -> c_int, else -1;
    mmap(address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int,
        offset: off_t)
        -> *mut c_void, else libc::MAP_FAILED;
    mmap64(address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int,
        offset: off_t)
        -> *mut c_void, else libc::MAP_FAILED;

    munmap(address: *mut c_void, bytes: size_t) -> c_int, else -1;
    mprotect(address: *mut c_void, bytes: size_t, protection: c_int) -> c_int, else -1;

    stat(path: *const c_char, out: *mut Stat) -> c_int, else -1;
    stat64(path: *const c_char, out: *mut Stat) -> c_int, else -1;
    lstat(path: *const c_char, out: *mut Stat) -> c_int, else -1;
    lstat64(path: *const c_char, out: *mut Stat) -> c_int, else -1;
    fstat(fd: c_int, out: *mut Stat) -> c_int, else -1;
    fstat64(fd: c_int, out: *mut Stat) -> c_int, else -1;
    fstatat(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, else -1;
    fstatat64(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, else -1;
    __xstat(version: c_int, path: *const c_char, out: *mut Stat) -> c_int, else -1;
    __xstat64(version: c_int, path: *const c_char, out: *mut Stat) -> c_int, else -1;
    __lxstat(version: c_int, path: *const c_char, out: *mut Stat) -> c_int, else -1;
    __lxstat64(version: c_int, path: *const c_char, out: *mut Stat) -> c_int, else -1;
    __fxstat(version: c_int, fd: c_int, out: *mut Stat) -> c_int, else -1;
    __fxstat64(version: c_int, fd: c_int, out: *mut Stat) -> c_int, else -1;
    __fxstatat(version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int)
        -> c_int, else -1;
    __fxstatat64(version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int)
        -> c_int, else -1;
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int,
        else -1;
    access(path: *const c_char, mode: c_int) -> c_int, else -1;
    euidaccess(path: *const c_char, mode: c_int) -> c_int, else -1;
    eaccess(path: *const c_char, mode: c_int) -> c_int, else -1;
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else -1;
    realpath(path: *const c_char, out: *mut c_char) -> *mut c_char, else null_mut();
    __realpath_chk(path: *const c_char, out: *mut c_char, room: size_t) -> *mut c_char,
        else null_mut();
    readlink(path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, else -1;
    readlinkat(dir: c_int, path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, else -1;
    getxattr(path: *const c_char, name: *const c_char, out: *mut c_void, room: size_t) -> ssize_t,
        else -1;
    lgetxattr(path: *const c_char, name: *const c_char, out: *mut c_void,
        room: size_t) -> ssize_t, else -1;
    listxattr(path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, else -1;
    llistxattr(path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t, else -1;
    mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void
    ) -> c_int, else -1;
    symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int, else -1;
    opendir(path: *const c_char) -> *mut DIR, else null_mut();
    chmod(path: *const c_char, mode: mode_t) -> c_int, else -1;
    fchmod(fd: c_int, mode: mode_t) -> c_int, else -1;
    fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, else -1;
    chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, else -1;
    lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, else -1;
    fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int, else -1;
    fchownat(dir: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int,
        else -1;

    poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int, else -1;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) -> c_int, else -1;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec,
        mask: *const sigset_t) -> c_int, else -1;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t)
        -> c_int, else -1;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval)
        -> c_int, else -1;
    pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int, else -1;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int, else -1;
    epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout_ms: c_int,
        mask: *const sigset_t
    ) -> c_int, else -1;
    epoll_pwait2(
        epoll: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int, else -1;

    sigaction(signal: c_int, action: *const SigAction, old: *mut SigAction) -> c_int, else -1;
    signal(signal: c_int, handler: sighandler_t) -> sighandler_t, else libc::SIG_ERR;
    bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, else libc::SIG_ERR;
    sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, else libc::SIG_ERR;
    __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, else libc::SIG_ERR;
    sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int, else -1;
    sigsuspend(mask: *const sigset_t) -> c_int, else -1;
    syscall(
        number: c_long,
        first: c_long,
        second: c_long,
        third: c_long,
        fourth: c_long,
        fifth: c_long,
        sixth: c_long
    ) -> c_long, else -1;
    sched_setscheduler(thread: pid_t, policy: c_int, parameters: *const sched_param) -> c_int,
        else -1;
    sched_setparam(thread: pid_t, parameters: *const sched_param) -> c_int, else -1;
    pthread_setschedparam(thread: pthread_t, policy: c_int, parameters: *const sched_param)
        -> c_int, else libc::ENOSYS;
    pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int, else libc::ENOSYS;
    sched_setaffinity(thread: pid_t, bytes: size_t, processors: *const cpu_set_t) -> c_int, else -1;
    pthread_setaffinity_np(thread: pthread_t, bytes: size_t, processors: *const cpu_set_t)
        -> c_int, else libc::ENOSYS;
    setpriority(which: c_uint, who: id_t, nice: c_int) -> c_int, else -1;
    nice(change: c_int) -> c_int, else -1;
    sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int, else -1;
    pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        routine: size_t,
        argument: *mut c_void
    ) -> c_int, else libc::ENOSYS;
    thrd_create(thread: *mut pthread_t, routine: size_t, argument: *mut c_void) -> c_int,
        else THRD_ERROR;
    execve(path: *const c_char, words: StringArray, environment: StringArray) -> c_int, else -1;
    execvpe(file: *const c_char, words: StringArray, environment: StringArray) -> c_int, else -1;
    posix_spawn(
        child: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: StringArray,
        environment: StringArray
    ) -> c_int, else libc::ENOSYS;
    posix_spawnp(
        child: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: StringArray,
        environment: StringArray
    ) -> c_int, else libc::ENOSYS;
    pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int,
        else libc::ENOSYS;
    pthread_attr_setsigmask_np(attributes: *mut pthread_attr_t, mask: *const sigset_t) -> c_int,
        else libc::ENOSYS;
}

/// Makes a system call through the C library's `syscall`. Returns a value, or -1 with an errno.
///
/// # Safety
/// The contract of the system call.
pub unsafe fn system_call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: by this function's contract.
    unsafe { syscall(number, first, second, third, fourth, fifth, sixth) }
}
