//! A program that uses a device without the C library's functions: by `syscall`, and by system
//! calls in its own code.

mod setting;

use baton_abi::uapi::*;
use libc::{c_int, c_long};
use setting::*;
use std::os::fd::{FromRawFd, OwnedFd};

type Call = unsafe fn(c_long, [c_long; 6]) -> Result<c_long, i32>;

/// # Safety
/// As the system call's.
unsafe fn by_number(number: c_long, arguments: [c_long; 6]) -> Result<c_long, i32> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: by this function's contract.
    match unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        value => Ok(value),
    }
}

/// A program's descriptor of a device, and its way of making system calls.
struct Program {
    call: Call,
    fd: c_long,
}

impl Program {
    fn open(call: Call, flags: c_int) -> Program {
        let path = c"/dev/binder".as_ptr() as c_long;
        let arguments = [libc::AT_FDCWD.into(), path, flags.into(), 0, 0, 0];
        // SAFETY: a path of our own.
        Program { call, fd: unsafe { call(libc::SYS_openat, arguments) }.unwrap() }
    }

    fn call(&self, number: c_long, arguments: [c_long; 3]) -> Result<c_long, i32> {
        let [second, third, fourth] = arguments;
        // SAFETY: each caller passes what its call takes after a descriptor.
        unsafe { (self.call)(number, [self.fd, second, third, fourth, 0, 0]) }
    }

    fn map(&self, protection: c_int, flags: c_int) -> Result<c_long, i32> {
        let arguments = [0, 8192, protection.into(), flags.into(), self.fd, 0];
        // SAFETY: a new map, which nothing points into.
        unsafe { (self.call)(libc::SYS_mmap, arguments) }
    }

    fn manage(&self) -> Result<c_long, i32> {
        let unused = 0i32;
        self.call(
            libc::SYS_ioctl,
            [BINDER_SET_CONTEXT_MGR.into(), (&raw const unused) as c_long, 0],
        )
    }

    /// Whether the device becomes readable within `seconds`.
    fn poll(&self, seconds: i64) -> bool {
        let (fd, limit) = (self.fd as c_int, libc::timespec { tv_sec: seconds, tv_nsec: 0 });
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let arguments = [(&raw mut entry) as c_long, 1, (&raw const limit) as c_long, 0, 0, 0];
        // SAFETY: one entry, and a time.
        let ready = unsafe { (self.call)(libc::SYS_ppoll, arguments) }.unwrap();
        assert_eq!((ready, entry.fd), (c_long::from(entry.revents & libc::POLLIN), fd));
        ready == 1
    }

    fn watch(&self, epoll: &OwnedFd) -> Result<c_long, i32> {
        use std::os::fd::AsRawFd;
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        let (add, event) = (libc::EPOLL_CTL_ADD, (&raw const event) as c_long);
        let arguments = [epoll.as_raw_fd().into(), add.into(), self.fd, event, 0, 0];
        // SAFETY: an event of our own.
        unsafe { (self.call)(libc::SYS_epoll_ctl, arguments) }
    }
}

fn n_ready(epoll: &OwnedFd) -> c_int {
    use std::os::fd::AsRawFd;
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) }
}

fn check_device_use(call: Call) {
    let program = Program::open(call, libc::O_RDWR | libc::O_CLOEXEC);
    let write = libc::PROT_READ | libc::PROT_WRITE;
    assert_eq!(program.map(write, libc::MAP_PRIVATE), Err(libc::EPERM));
    let address = program.map(libc::PROT_READ, libc::MAP_SHARED).unwrap();
    assert_eq!(program.map(libc::PROT_READ, libc::MAP_PRIVATE), Err(libc::EBUSY));
    program.manage().unwrap();

    // SAFETY: a new epoll descriptor.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(0)) };
    program.watch(&epoll).unwrap();
    assert!(!program.poll(0) && n_ready(&epoll) == 0);
    send_one_way(&device());
    assert!(program.poll(10) && n_ready(&epoll) == 1);

    // The device lives until the last duplicate of its descriptor and its map are gone.
    let duplicates = [
        program.call(libc::SYS_dup, [0; 3]).unwrap(),
        program.call(libc::SYS_dup3, [900, 0, 0]).unwrap(),
        program.call(libc::SYS_fcntl, [libc::F_DUPFD_CLOEXEC.into(), 800, 0]).unwrap(),
    ];
    for fd in duplicates {
        let duplicate = Program { call, fd };
        assert_eq!(duplicate.manage(), Err(libc::EBUSY));
        duplicate.call(libc::SYS_close, [0; 3]).unwrap();
        assert_eq!(duplicate.manage(), Err(libc::EBADF));
    }
    let heir = Program::open(call, libc::O_RDONLY);
    program.call(libc::SYS_close, [0; 3]).unwrap();
    assert_eq!(heir.manage(), Err(libc::EBUSY));
    // SAFETY: nothing uses the map any more.
    unsafe { call(libc::SYS_munmap, [address, 8192, 0, 0, 0, 0]) }.unwrap();
    // The broker learns of the end after a while.
    while heir.manage() == Err(libc::EBUSY) {
        std::thread::yield_now();
    }
    heir.call(libc::SYS_close, [0; 3]).unwrap();
}

#[test]
fn syscall_works_like_the_functions() {
    if is_outside("syscall_works_like_the_functions") {
        return;
    }
    check_device_use(by_number);
}

#[test]
fn the_executables_own_calls_are_trapped() {
    if is_outside("the_executables_own_calls_are_trapped") {
        return;
    }
    check_device_use(own_call);
}
