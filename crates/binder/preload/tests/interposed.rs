//! The interposer in a real process: each test runs itself again with the library loaded, against a
//! broker of its own, and acts there like a Binder program.

mod setting;

use baton::{Parcel, Process};
use baton_abi::uapi::*;
use baton_driver::observer::Observer;
use baton_log::{Buffer, Content, Item, Reader};
use libc::{c_int, c_void};
use setting::*;
use std::fs::{self, File};
use std::io::Error;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};

#[test]
fn calls_reach_the_driver_inline_and_through_libc() {
    if is_outside("calls_reach_the_driver_inline_and_through_libc") {
        return;
    }
    // A thread that is older than the filter has it too.
    let (send, receive) = std::sync::mpsc::channel();
    let early = std::thread::spawn(move || version(inline, &receive.recv().unwrap()));
    let device = device();
    for ioctl in [through_libc as Ioctl, inline] {
        assert_eq!(version(ioctl, &device), Ok(PROTOCOL_VERSION));
        assert_eq!(ioctl(&device, BINDER_VERSION, null_mut()), Err(libc::EINVAL));
        assert_eq!(ioctl(&device, 0x62fe, null_mut()), Err(libc::EINVAL));
        let null = open("/dev/null", 0);
        assert_eq!(version(ioctl, &null), Err(libc::ENOTTY));
    }
    send.send(device.try_clone().unwrap()).unwrap();
    assert_eq!(early.join().unwrap(), Ok(PROTOCOL_VERSION));
}

#[test]
fn duplicates_share_a_device_until_the_last_is_closed() {
    if is_outside("duplicates_share_a_device_until_the_last_is_closed") {
        return;
    }
    let device = device();
    let other = device.try_clone().unwrap();
    let onto = open("/dev/null", 0);
    // SAFETY: `onto` is this test's own.
    assert!(unsafe { libc::dup2(device.as_raw_fd(), onto.as_raw_fd()) } >= 0);
    let number = device.as_raw_fd();
    drop(device);
    for fd in [&other, &onto] {
        assert_eq!(version(through_libc, fd), Ok(PROTOCOL_VERSION));
        assert_eq!(version(inline, fd), Ok(PROTOCOL_VERSION));
    }
    // The number now belongs to another file.
    let reused = open("/dev/null", 0);
    assert_eq!(reused.as_raw_fd(), number);
    assert_eq!(version(through_libc, &reused), Err(libc::ENOTTY));
    // The number is closed unseen, and `open` returns it again for another file.
    // SAFETY: closed once, here, by the C library's own call; its owner is forgotten.
    unsafe { libc::fclose(libc::fdopen(other.as_raw_fd(), c"r".as_ptr())) };
    let number = other.as_raw_fd();
    std::mem::forget(other);
    let reused = open("/dev/null", 0);
    assert_eq!(reused.as_raw_fd(), number);
    assert_eq!(version(through_libc, &reused), Err(libc::ENOTTY));
    // SAFETY: the range is this descriptor alone, whose owner is forgotten.
    unsafe { libc::close_range(onto.as_raw_fd() as u32, onto.as_raw_fd() as u32, 0) };
    assert_eq!(version(through_libc, &onto), Err(libc::EBADF));
    std::mem::forget(onto);
}

/// One end of a pair of sockets, by the number of a device that was closed unseen. A byte waits in
/// it. The other end.
fn socket_with_a_devices_number() -> (OwnedFd, OwnedFd) {
    loop {
        let device = device();
        // SAFETY: closed once, here, by the C library's own call; its owner is forgotten.
        unsafe { libc::fclose(libc::fdopen(device.as_raw_fd(), c"r".as_ptr())) };
        let number = device.as_raw_fd();
        std::mem::forget(device);
        let (one, other) = UnixStream::pair().unwrap();
        // A control thread may have the number for a moment.
        if one.as_raw_fd() == number {
            (&other).write_all(b"b").unwrap();
            return (one.into(), other.into());
        }
    }
}

#[test]
fn a_number_that_was_closed_unseen_is_another_files() {
    if is_outside("a_number_that_was_closed_unseen_is_another_files") {
        return;
    }
    let kept = device();
    let mut n_bytes = 0i32;
    let (socket, _other) = socket_with_a_devices_number();
    let fionread = libc::FIONREAD as u32;
    assert_eq!(through_libc(&socket, fionread, (&raw mut n_bytes).cast()), Ok(0));
    assert_eq!(n_bytes, 1);

    let both = libc::POLLIN | libc::POLLOUT;
    let (socket, _other) = socket_with_a_devices_number();
    let mut fds = [libc::pollfd { fd: socket.as_raw_fd(), events: both, revents: 0 }];
    // SAFETY: one entry.
    assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, 10_000) }, 1);
    assert_eq!(fds[0].revents, both);

    let (socket, _other) = socket_with_a_devices_number();
    let fd = socket.as_raw_fd();
    // SAFETY: sets of bits; the descriptor is a small number.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &mut set);
        assert_eq!(libc::select(fd + 1, null_mut(), &mut set, null_mut(), null_mut()), 1);
        assert!(libc::FD_ISSET(fd, &set));
    }

    let (socket, _other) = socket_with_a_devices_number();
    // SAFETY: room for one event.
    unsafe {
        let epoll = epoll();
        let mut event = libc::epoll_event { events: libc::EPOLLOUT as u32, u64: 7 };
        let (set, fd) = (epoll.as_raw_fd(), socket.as_raw_fd());
        assert_eq!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event), 0);
        assert_eq!(libc::epoll_wait(set, &mut event, 1, 10_000), 1);
    }

    let (socket, _other) = socket_with_a_devices_number();
    // SAFETY: a structure of numbers; a map that does not come about.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(socket.as_raw_fd(), &mut status), 0);
        assert_eq!(status.st_mode & libc::S_IFMT, libc::S_IFSOCK);
    }

    let (socket, _other) = socket_with_a_devices_number();
    let (read, fd) = (libc::PROT_READ, socket.as_raw_fd());
    // SAFETY: nothing is mapped.
    let map = unsafe { libc::mmap(null_mut(), 4096, read, libc::MAP_SHARED, fd, 0) };
    assert_eq!((map, errno()), (libc::MAP_FAILED, libc::ENODEV));

    let (socket, _other) = socket_with_a_devices_number();
    let duplicate = socket.try_clone().unwrap();
    assert_eq!(version(through_libc, &duplicate), Err(libc::ENOTTY));
    assert_eq!(version(through_libc, &kept), Ok(PROTOCOL_VERSION));
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn polling_waits_for_work() {
    if is_outside("polling_waits_for_work") {
        return;
    }
    let (manager, client) = (device(), device());
    become_manager(&manager);
    let fd = manager.as_raw_fd();
    let wait_ms = std::cell::Cell::new(0);
    let poll = |events| {
        let mut fds = [libc::pollfd { fd, events, revents: 0 }];
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 1, wait_ms.get()) };
        assert_eq!(fds[0].fd, fd);
        (ready, fds[0].revents)
    };
    let select = || {
        // SAFETY: a set of bits; the descriptor is a small number.
        unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            libc::FD_SET(fd, &mut set);
            let mut now: libc::timeval = std::mem::zeroed();
            let ready = libc::select(fd + 1, &mut set, null_mut(), null_mut(), &mut now);
            (ready, libc::FD_ISSET(fd, &set))
        }
    };
    let epoll = epoll();
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLOUT) as u32, u64: 7 };
    let add = libc::EPOLL_CTL_ADD;
    // SAFETY: an event of our own, also below.
    assert_eq!(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, fd, &mut event) }, 0);
    let mut epolled = || {
        event.u64 = 0;
        // SAFETY: room for one event.
        let ready = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) };
        (ready, event.u64)
    };
    assert_eq!(poll(libc::POLLIN | libc::POLLOUT), (0, 0));
    assert_eq!((select(), epolled()), ((0, false), (0, 0)));
    send_one_way(&client);
    wait_ms.set(10_000);
    assert_eq!(poll(libc::POLLIN | libc::POLLOUT), (1, libc::POLLIN));
    wait_ms.set(0);
    assert_eq!(poll(libc::POLLOUT), (0, 0));
    assert_eq!((select(), epolled()), ((1, true), (1, 7)));
    assert_eq!(read(inline, &manager), Ok(BR_TRANSACTION));
    assert_eq!(poll(libc::POLLIN), (0, 0));
    assert_eq!((select(), epolled()), ((0, false), (0, 0)));
}

#[test]
fn a_mapping_keeps_its_device_open() {
    if is_outside("a_mapping_keeps_its_device_open") {
        return;
    }
    let map = |device: &OwnedFd, protection| {
        let fd = device.as_raw_fd();
        // SAFETY: a new map, which nothing points into.
        let map = unsafe { libc::mmap(null_mut(), 8192, protection, libc::MAP_PRIVATE, fd, 0) };
        if map == libc::MAP_FAILED { Err(Error::last_os_error().raw_os_error()) } else { Ok(map) }
    };
    let manager = open("/dev/binder", 0);
    become_manager(&manager);
    assert_eq!(map(&manager, libc::PROT_READ | libc::PROT_WRITE), Err(Some(libc::EPERM)));
    let address = map(&manager, libc::PROT_READ).unwrap();
    assert_eq!(map(&manager, libc::PROT_READ), Err(Some(libc::EBUSY)));
    // SAFETY: this test's own map.
    assert_eq!(unsafe { libc::mprotect(address, 8192, libc::PROT_READ | libc::PROT_WRITE) }, -1);
    drop(manager);
    let other = device();
    let become_manager = || {
        let mut unused = 0i32;
        through_libc(&other, BINDER_SET_CONTEXT_MGR, (&raw mut unused).cast())
    };
    assert_eq!(become_manager(), Err(libc::EBUSY));
    // SAFETY: nothing uses the map any more.
    assert_eq!(unsafe { libc::munmap(address, 8192) }, 0);
    // The broker learns of the end after a while.
    while become_manager() == Err(libc::EBUSY) {
        std::thread::yield_now();
    }
}

#[test]
fn nonblocking_mode_works_however_it_was_set() {
    if is_outside("nonblocking_mode_works_however_it_was_set") {
        return;
    }
    let opened = || {
        let device = open("/dev/binder", 0);
        // A thread's first call never waits, blocking or not.
        assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
        device
    };
    let device = open("/dev/binder", libc::O_NONBLOCK);
    assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
    assert_eq!(read(through_libc, &device), Err(libc::EAGAIN));
    assert_eq!(read(inline, &device), Err(libc::EAGAIN));
    let other = opened();
    let (fd, yes) = (other.as_raw_fd().into(), 1i32);
    let arguments = [fd, libc::FIONBIO as _, (&raw const yes) as _, 0, 0, 0];
    // SAFETY: a flag of our own descriptor, also below. No filter is about this request.
    unsafe { own_call(libc::SYS_ioctl, arguments) }.unwrap();
    assert_eq!(read(inline, &other), Err(libc::EAGAIN));
    let third = opened();
    // SAFETY: as above.
    unsafe { libc::fcntl(third.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(read(through_libc, &third), Err(libc::EAGAIN));
}

static INTERRUPTED: std::sync::Mutex<Option<(c_int, Result<i32, i32>)>> =
    std::sync::Mutex::new(None);

extern "C" fn call_again(signal: c_int) {
    let fd = open("/dev/binder", 0);
    *INTERRUPTED.lock().unwrap() = Some((signal, version(inline, &fd)));
}

/// Returns once the thread sleeps inside the driver, where threads wait on futexes.
fn wait_until_blocked(tid: libc::pid_t) {
    let futexes = [libc::SYS_futex, libc::SYS_futex_waitv].map(|number| number.to_string());
    let blocked = || {
        // The file contains "running", or the number of the system call and its arguments.
        let call = fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap();
        call.split(' ').next().is_some_and(|number| futexes.iter().any(|futex| futex == number))
    };
    while !blocked() {
        std::thread::yield_now();
    }
}

#[test]
fn a_handler_may_call_while_a_call_blocks() {
    if is_outside("a_handler_may_call_while_a_call_blocks") {
        return;
    }
    let device = device();
    write(inline, &device, &BC_ENTER_LOOPER.to_ne_bytes()).unwrap();
    // SAFETY: the handler is this test's; the signal goes to this very thread.
    let (thread, tid) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = call_again as *const () as usize;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGUSR1, &action, null_mut());
        (libc::pthread_self(), libc::gettid())
    };
    let waker = std::thread::spawn(move || {
        wait_until_blocked(tid);
        // SAFETY: the thread waits for this one.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    });
    assert_eq!(read(inline, &device), Err(libc::EINTR));
    waker.join().unwrap();
    let seen = INTERRUPTED.lock().unwrap().take();
    assert_eq!(seen, Some((libc::SIGUSR1, Ok(PROTOCOL_VERSION))));
}

extern "C" fn report_alternate_stack(out: *mut c_void) -> *mut c_void {
    // SAFETY: the address of a structure that outlives the thread.
    unsafe { libc::sigaltstack(null(), out.cast()) };
    null_mut()
}

#[test]
fn threads_have_no_alternate_stack_that_their_program_has_not_set() {
    const NAME: &str = "threads_have_no_alternate_stack_that_their_program_has_not_set";
    if std::env::var_os("BATON_SOCKET").is_none() {
        for trap in ["0", "1"] {
            run_inside(NAME, |command| _ = command.env("BATON_TRAP", trap));
        }
        return;
    }
    // SAFETY: a thread that fills one structure, and is waited for.
    let stack = unsafe {
        let (mut thread, mut stack) = (0, std::mem::zeroed::<libc::stack_t>());
        let argument = (&raw mut stack).cast();
        assert_eq!(libc::pthread_create(&mut thread, null(), report_alternate_stack, argument), 0);
        assert_eq!(libc::pthread_join(thread, null_mut()), 0);
        stack
    };
    assert_eq!((stack.ss_flags, stack.ss_sp), (libc::SS_DISABLE, null_mut()));
}

extern "C" fn programs_handler(_signal: c_int) {}

#[test]
fn programs_cannot_take_over_sigsys() {
    if is_outside("programs_cannot_take_over_sigsys") {
        return;
    }
    let device = device();
    // SAFETY: sets and actions of our own.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut()), 0);
        assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
        assert_eq!(libc::sigprocmask(libc::SIG_BLOCK, &all, null_mut()), 0);
        assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
        let mut now = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut now);
        let is_blocked = |signal| libc::sigismember(&now, signal) == 1;
        assert!(is_blocked(libc::SIGTERM) && !is_blocked(libc::SIGSYS));

        let handler = programs_handler as *const () as usize;
        assert_eq!(libc::signal(libc::SIGSYS, handler), libc::SIG_DFL);
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSYS, null(), &mut old), 0);
        assert_eq!(old.sa_sigaction, handler);
        // The program's handler gets signals that come from no Binder call.
        assert_eq!(libc::raise(libc::SIGSYS), 0);
    }
    assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
}

type Wait = fn(&libc::sigset_t) -> c_int;

/// Functions that wait with the mask that they are given, by name.
const WAITS: [(&str, Wait); 6] = [
    // SAFETY: of each function: a set of the caller's, and otherwise nothing or room for one event.
    ("sigsuspend", |mask| unsafe { libc::sigsuspend(mask) }),
    // SAFETY: as above.
    ("ppoll", |mask| unsafe { libc::ppoll(null_mut(), 0, null(), mask) }),
    // SAFETY: as above.
    ("__ppoll_chk", |mask| unsafe { __ppoll_chk(null_mut(), 0, null(), mask, 0) }),
    ("pselect", |mask| {
        let none = null_mut;
        // SAFETY: as above.
        unsafe { libc::pselect(0, none(), none(), none(), null(), mask) }
    }),
    ("epoll_pwait", |mask| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: as above.
        unsafe { libc::epoll_pwait(epoll().as_raw_fd(), &mut event, 1, -1, mask) }
    }),
    ("epoll_pwait2", |mask| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: as above.
        unsafe { libc::epoll_pwait2(epoll().as_raw_fd(), &mut event, 1, null(), mask) }
    }),
];

unsafe extern "C" {
    fn __ppoll_chk(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        room: usize,
    ) -> c_int;
    fn pthread_attr_setsigmask_np(
        attributes: *mut libc::pthread_attr_t,
        mask: *const libc::sigset_t,
    ) -> c_int;
}

/// A new epoll descriptor.
fn epoll() -> OwnedFd {
    // SAFETY: a descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(0)) }
}

/// The set of all signals but one.
fn all_but(signal: c_int) -> libc::sigset_t {
    // SAFETY: a set of our own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::sigdelset(&mut set, signal);
        set
    }
}

/// A device that was opened before: an open changes the signal mask, and restores it.
static OPENED: std::sync::OnceLock<OwnedFd> = std::sync::OnceLock::new();

extern "C" fn call_by_opened(signal: c_int) {
    *INTERRUPTED.lock().unwrap() = Some((signal, version(inline, OPENED.get().unwrap())));
}

#[test]
fn a_handler_may_call_during_a_wait_that_blocks_all_other_signals() {
    if is_outside("a_handler_may_call_during_a_wait_that_blocks_all_other_signals") {
        return;
    }
    OPENED.get_or_init(device);
    // SAFETY: an action and a set of our own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = call_by_opened as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
        let mut own = std::mem::zeroed();
        libc::sigaddset(&mut own, libc::SIGUSR1);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &own, null_mut()), 0);
    }
    for (function, wait) in WAITS {
        // SAFETY: a signal to this thread, which is pending until the wait.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        assert_eq!((wait(&all_but(libc::SIGUSR1)), errno()), (-1, libc::EINTR), "{function}");
        let seen = INTERRUPTED.lock().unwrap().take();
        assert_eq!(seen, Some((libc::SIGUSR1, Ok(PROTOCOL_VERSION))), "{function}");
    }
}

extern "C" fn call_in_thread(out: *mut c_void) -> *mut c_void {
    let seen = version(inline, OPENED.get().unwrap());
    // SAFETY: the address of a result that outlives the thread.
    unsafe { *out.cast() = seen };
    null_mut()
}

#[test]
fn a_thread_that_starts_with_all_signals_blocked_may_call() {
    if is_outside("a_thread_that_starts_with_all_signals_blocked_may_call") {
        return;
    }
    OPENED.get_or_init(device);
    let mut seen: Result<i32, i32> = Err(0);
    // SAFETY: attributes of our own, and a thread that fills one result, and is waited for.
    unsafe {
        let (mut thread, mut attributes) = (0, std::mem::zeroed());
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(pthread_attr_setsigmask_np(&mut attributes, &all_but(libc::SIGUSR1)), 0);
        let argument = (&raw mut seen).cast();
        let result = libc::pthread_create(&mut thread, &attributes, call_in_thread, argument);
        assert_eq!((result, libc::pthread_join(thread, null_mut())), (0, 0));
        libc::pthread_attr_destroy(&mut attributes);
    }
    assert_eq!(seen, Ok(PROTOCOL_VERSION));
}

#[test]
fn a_child_of_fork_has_no_device() {
    if is_outside("a_child_of_fork_has_no_device") {
        return;
    }
    let device = device();
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = version(through_libc, &device) == Err(libc::EBADF)
            && version(inline, &device) == Err(libc::EBADF);
        let own = version(inline, &open("/dev/binder", 0)) == Ok(PROTOCOL_VERSION);
        // SAFETY: a map that is refused.
        let map = unsafe {
            libc::mmap(null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, device.as_raw_fd(), 0)
        };
        let refused =
            map == libc::MAP_FAILED && Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        // SAFETY: ends the child without the test harness.
        unsafe { libc::_exit(if gone && own && refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(version(through_libc, &device), Ok(PROTOCOL_VERSION));
}

#[test]
fn a_filter_is_inherited_and_not_installed_twice() {
    if is_outside("a_filter_is_inherited_and_not_installed_twice") {
        return;
    }
    let device = device();
    assert_eq!(version(inline, &device), Ok(PROTOCOL_VERSION));
    let again = std::env::var_os("THIRD").is_some();
    // One filter for ioctls, and one for the code of each of the two executables.
    let n_filters = if again { 3 } else { 2 };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains(&format!("Seccomp_filters:\t{n_filters}")), "{status}");
    if !again {
        let own = std::env::current_exe().unwrap();
        let name = "a_filter_is_inherited_and_not_installed_twice";
        let status = Command::new(own).args(["--exact", name]).env("THIRD", "1").status().unwrap();
        assert!(status.success());
    }
}

/// Standard error, file and log of a process that breaks a rule and fails to send.
fn logged(name: &str, setting: Option<&str>) -> [String; 3] {
    let directory = tempfile::tempdir().unwrap();
    let (stderr, file) = (directory.path().join("stderr"), directory.path().join("file"));
    run_inside(name, |command| {
        command.stderr(File::create(&stderr).unwrap());
        command.env("BATON_LOG_DIR", directory.path().join("log"));
        if let Some(setting) = setting {
            command.env("BATON_LOG", setting.replace("FILE", file.to_str().unwrap()));
        }
    });
    let text = fs::read_to_string(file).unwrap_or_default();
    [fs::read_to_string(stderr).unwrap(), text, in_log(&directory.path().join("log"))]
}

/// The log's entries as lines.
fn in_log(directory: &Path) -> String {
    let mut lines = String::new();
    let Ok(mut reader) = Reader::open(directory) else { return lines };
    while let Some(Item::Record(record)) = reader.next_item() {
        let Content::Text { tag, message, .. } = record.content else { panic!() };
        assert_eq!(record.buffer, Buffer::System);
        let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        lines += &format!("{}: {}\n", words(tag), words(message));
    }
    lines
}

/// Breaks a rule, sends to a missing target, and calls with too much data.
fn break_rules() {
    let client = device();
    let mut commands = BC_FREE_BUFFER.to_ne_bytes().to_vec();
    commands.extend_from_slice(&0xabcdu64.to_ne_bytes());
    write(inline, &client, &commands).unwrap();
    send_one_way(&client);
    assert_eq!(read(inline, &client), Ok(BR_DEAD_REPLY));
    let manager = device();
    become_manager(&manager);
    let data = vec![0u8; 2 << 20];
    let (buffer, data_size) = (data.as_ptr() as u64, data.len() as u64);
    let transaction = TransactionData { buffer, data_size, ..bytemuck::Zeroable::zeroed() };
    let mut commands = BC_TRANSACTION.to_ne_bytes().to_vec();
    commands.extend_from_slice(bytemuck::bytes_of(&transaction));
    write(inline, &client, &commands).unwrap();
    assert_eq!(read(inline, &client), Ok(BR_FAILED_REPLY));
}

#[test]
fn broken_rules_are_logged_and_failures_at_level_debug() {
    let name = "broken_rules_are_logged_and_failures_at_level_debug";
    if std::env::var_os("BATON_SOCKET").is_some() {
        return break_rules();
    }
    let broken = "BC_FREE_BUFFER u000000000000abcd no match\n";
    let dead = "transaction failed 29189/-22, size 0-0\n";
    let full = "transaction failed 29201/-28, size 2097152-0\n";
    for (setting, on_stderr, in_file) in [
        (None, &[broken][..], &[][..]),
        (Some("debug"), &[broken, dead, full], &[]),
        (Some("warn,FILE"), &[], &[broken]),
        (Some("debug,FILE"), &[], &[broken, dead, full]),
        (Some("off"), &[], &[]),
    ] {
        let [stderr, file, log] = logged(name, setting);
        let all = [on_stderr, in_file].concat();
        for (text, expected) in [(stderr, on_stderr), (file, in_file), (log, &all)] {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            assert_eq!(lines.len(), expected.len(), "{setting:?}: {text}");
            for (line, expected) in lines.into_iter().zip(expected) {
                let (who, what) = line.strip_prefix("binder: ").unwrap().split_once(' ').unwrap();
                let (process, thread) = who.split_once(':').unwrap();
                assert!(process.parse::<u32>().is_ok() && thread.parse::<u32>().is_ok(), "{line}");
                assert_eq!(what, *expected);
            }
        }
    }
}

#[test]
fn a_log_file_that_cannot_be_opened_is_told_of_once() {
    let name = "a_log_file_that_cannot_be_opened_is_told_of_once";
    if std::env::var_os("BATON_SOCKET").is_some() {
        return break_rules();
    }
    let [stderr, ..] = logged(name, Some("debug,FILE/none"));
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{stderr}");
    assert!(lines[0].contains("/none: No such file"), "{stderr}");
    assert!(lines[1..].iter().all(|line| line.starts_with("binder: ")), "{stderr}");
}

#[test]
fn an_unread_log_blocks_no_call() {
    let name = "an_unread_log_blocks_no_call";
    if std::env::var_os("BATON_SOCKET").is_some() {
        return break_rules();
    }
    let (_reader, full) = std::io::pipe().unwrap();
    // SAFETY: a flag of our own descriptor, also below.
    unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    while std::io::Write::write(&mut &full, &[0; 4096]).is_ok() {}
    // SAFETY: as above.
    unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, 0) };
    run_inside(name, |command| {
        command.env("BATON_LOG_DIR", "/proc/nowhere");
        command.stderr(full);
    });
}

/// After each of the C library's functions that change a thread's scheduling, the thread's next
/// call asks the broker again.
#[test]
fn a_thread_calls_at_its_new_priority() {
    if is_outside("a_thread_calls_at_its_new_priority") {
        return;
    }
    if !can_be_real_time() {
        println!(
            "skipped: a_thread_calls_at_the_priority_that_it_has_got (no real-time priority here)"
        );
        return;
    }
    let socket = std::path::PathBuf::from(std::env::var_os("BATON_SOCKET").unwrap());
    let server = Process::open("binder", &socket).unwrap();
    let object = server.object(|_| Ok(Parcel::new())).add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    std::thread::spawn(move || serving.serve());
    let client = device();
    let priorities = || {
        let report = Observer::connect(&socket).unwrap().report().unwrap();
        let processes = report.contexts.into_iter().flat_map(|context| context.processes);
        let lanes = processes.flat_map(|process| process.real_time);
        lanes.map(|lane| lane.priority.sched_priority()).collect::<Vec<_>>()
    };
    // The thread has completed its first calls by then.
    (0..3).for_each(|_| call(&client));
    assert_eq!(priorities(), [0; 0]);
    for (function, change) in CHANGES {
        for priority in [7, 9] {
            assert_eq!(change(libc::SCHED_FIFO, priority), 0, "{function}");
            call(&client);
            assert_eq!(priorities(), [priority], "{function}");
            (0..3).for_each(|_| call(&client));
        }
    }
    assert_eq!(set_scheduler(libc::SCHED_OTHER, 0), 0);
    call(&client);
    while !priorities().is_empty() {
        std::thread::yield_now();
    }
    server.close();
}

type Change = fn(c_int, c_int) -> c_int;

/// Functions that change the scheduling. All but the first start from a real-time thread.
const CHANGES: [(&str, Change); 4] = [
    ("sched_setscheduler", set_scheduler),
    ("sched_setparam", |_, priority| {
        let parameters = libc::sched_param { sched_priority: priority };
        // SAFETY: changes the calling thread only, from a structure of ours, like the next two.
        unsafe { libc::sched_setparam(0, &parameters) }
    }),
    ("pthread_setschedparam", |policy, priority| {
        let parameters = libc::sched_param { sched_priority: priority };
        // SAFETY: as above.
        unsafe { libc::pthread_setschedparam(libc::pthread_self(), policy, &parameters) }
    }),
    ("pthread_setschedprio", |_, priority| {
        // SAFETY: as above.
        unsafe { libc::pthread_setschedprio(libc::pthread_self(), priority) }
    }),
];

fn set_scheduler(policy: c_int, priority: c_int) -> c_int {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: of the calling thread alone, by a structure of ours.
    unsafe { libc::sched_setscheduler(0, policy, &parameters) }
}

fn can_be_real_time() -> bool {
    std::thread::spawn(|| set_scheduler(libc::SCHED_FIFO, 1)).join().unwrap() == 0
}

/// Calls the context manager, and frees the buffer of the reply.
fn call(fd: &OwnedFd) {
    let transaction: TransactionData = bytemuck::Zeroable::zeroed();
    let mut commands = BC_TRANSACTION.to_ne_bytes().to_vec();
    commands.extend_from_slice(bytemuck::bytes_of(&transaction));
    let mut answer = None;
    while answer.is_none() {
        let mut returns = [0u8; 256];
        let mut exchange = WriteRead {
            write_size: commands.len() as u64,
            write_buffer: commands.as_ptr() as u64,
            read_size: returns.len() as u64,
            read_buffer: returns.as_mut_ptr() as u64,
            ..bytemuck::Zeroable::zeroed()
        };
        through_libc(fd, BINDER_WRITE_READ, (&raw mut exchange).cast()).unwrap();
        commands.clear();
        let mut at = 0;
        while at < exchange.read_consumed as usize {
            let command: u32 = bytemuck::pod_read_unaligned(&returns[at..at + 4]);
            let payload = &returns[at + 4..at + 4 + payload_bytes(command)];
            if command == BR_REPLY {
                answer = Some(bytemuck::pod_read_unaligned::<TransactionData>(payload).buffer);
            }
            at += 4 + payload.len();
        }
    }
    let mut free = BC_FREE_BUFFER.to_ne_bytes().to_vec();
    free.extend_from_slice(&answer.unwrap().to_ne_bytes());
    write(through_libc, fd, &free).unwrap();
}
