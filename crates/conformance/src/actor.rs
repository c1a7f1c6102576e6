//! An actor: a process whose threads make the system calls that the director orders.
//!
//! All calls go through the C library, where a driver in user space may replace the kernel's.

use crate::arena::{Arena, Slot};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// An order to a thread. Its arguments are the system call's.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
pub enum Order {
    /// `open` the device with these flags.
    Open,
    /// `close`.
    Close,
    /// `mmap` of a descriptor: descriptor, length, protection.
    Map,
    /// `munmap`: address, length.
    Unmap,
    /// `ioctl`: descriptor, request, argument.
    Ioctl,
    /// `poll` of one descriptor for every event, without waiting: the events that it has.
    Poll,
    /// `fcntl`: descriptor, command, argument.
    Fcntl,
    /// `pipe2` with `O_CLOEXEC`: both descriptors in one result.
    Pipe,
    /// `_exit`.
    Exit,
    /// `execve` of a program that does nothing.
    Exec,
}

const ORDERS: [Order; 10] = [
    Order::Open,
    Order::Close,
    Order::Map,
    Order::Unmap,
    Order::Ioctl,
    Order::Poll,
    Order::Fcntl,
    Order::Pipe,
    Order::Exit,
    Order::Exec,
];

/// Argument that makes this program do nothing until it is killed.
pub const IDLE: &CStr = c"idle";

/// Starts a process with `threads` threads, which open this device. Returns its id.
pub fn start(arena: Arena, device: &'static CStr, process: usize, threads: usize) -> i32 {
    // SAFETY: this process has one thread, so its child may do anything.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => run(arena, device, process, threads),
        child => child,
    }
}

fn run(arena: Arena, device: &'static CStr, process: usize, threads: usize) -> ! {
    // SAFETY: system calls on values of ours. The handler does nothing, so it may interrupt any
    // code.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = heard as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    for thread in 1..threads {
        std::thread::spawn(move || drive(arena, device, arena.slot(process, thread)));
    }
    drive(arena, device, arena.slot(process, 0))
}

extern "C" fn heard(_signal: i32) {}

fn drive(arena: Arena, device: &CStr, slot: &'static Slot) -> ! {
    // SAFETY: a system call without arguments.
    slot.tid.store(unsafe { libc::gettid() } as u32, Ordering::Release);
    loop {
        slot.await_order();
        let order = ORDERS[slot.order.load(Ordering::Relaxed) as usize];
        let arguments = slot.arguments.each_ref().map(|place| place.load(Ordering::Relaxed));
        // SAFETY: addresses among the arguments are the director's, and the driver under test
        // checks them in an ioctl.
        let mut result = unsafe { carry_out(device, order, arguments) };
        if result < 0 {
            result = -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        slot.answer_with(result, arena.answered());
    }
}

/// # Safety
/// The arguments are what the system call takes.
unsafe fn carry_out(device: &CStr, order: Order, [first, second, third, _]: [u64; 4]) -> i64 {
    let fd = first as i32;
    // SAFETY: by this function's contract.
    unsafe {
        match order {
            Order::Open => i64::from(libc::open(device.as_ptr(), first as i32)),
            Order::Close => i64::from(libc::close(fd)),
            Order::Map => {
                let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
                let bytes = second as usize;
                libc::mmap(std::ptr::null_mut(), bytes, third as i32, flags, fd, 0) as i64
            }
            Order::Unmap => i64::from(libc::munmap(first as *mut _, second as usize)),
            Order::Ioctl => i64::from(libc::ioctl(fd, second as libc::c_ulong, third as usize)),
            Order::Poll => {
                let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                match libc::poll(&mut asked, 1, 0) {
                    0.. => i64::from(asked.revents),
                    error => i64::from(error),
                }
            }
            Order::Fcntl => i64::from(libc::fcntl(fd, second as i32, third)),
            Order::Pipe => {
                let mut both = [0; 2];
                match libc::pipe2(both.as_mut_ptr(), libc::O_CLOEXEC) {
                    0 => i64::from(both[0]) | i64::from(both[1]) << 32,
                    error => i64::from(error),
                }
            }
            Order::Exit => libc::_exit(0),
            Order::Exec => {
                let own = c"/proc/self/exe".as_ptr();
                let name = c"conformance".as_ptr();
                libc::execv(own, [name, IDLE.as_ptr(), std::ptr::null()].as_ptr()).into()
            }
        }
    }
}

/// The main function of the executed program.
pub fn idle() -> ! {
    // SAFETY: an array of integers, which the call fills.
    let mut none = unsafe { std::mem::zeroed() };
    // SAFETY: `none` lives.
    unsafe { libc::sigemptyset(&mut none) };
    loop {
        // Unlike `pause`, this is a system call of its own on each architecture.
        // SAFETY: as above.
        unsafe { libc::sigsuspend(&none) };
    }
}
