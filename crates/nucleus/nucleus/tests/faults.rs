//! Faults that are no overflow, in a process that handled SIGSEGV before it had kernels.

use baton_nucleus::variant::StrictPlus;
use baton_nucleus::{Failure, Kernel, Options};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

const PAGE_BYTES: usize = 4096;

/// A page that may not be accessed until a handler has been called.
static PAGE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the kernel's signal was blocked in the handler.
static WAS_BLOCKED: AtomicBool = AtomicBool::new(false);

extern "C" fn repair(_: c_int) {
    let mut blocked = MaybeUninit::uninit();
    // SAFETY: the page is mapped. The set of blocked signals is only read.
    unsafe {
        libc::mprotect(PAGE.load(Relaxed), PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        WAS_BLOCKED.store(libc::sigismember(blocked.as_ptr(), libc::SIGURG) == 1, Relaxed);
    }
}

extern "C" fn repair_at(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system has passed `info` to the kernel's handler, for this fault.
    if unsafe { (*info).si_addr() } == PAGE.load(Relaxed) {
        repair(signal);
    }
}

/// Makes the page and its handler, as a program does before its first kernel.
fn prepare(handler: usize, flags: c_int) {
    // SAFETY: a new mapping; all zeroes is a value of `sigaction`.
    unsafe {
        let flags_of_page = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (no_address, none) = (std::ptr::null_mut(), libc::PROT_NONE);
        PAGE.store(libc::mmap(no_address, PAGE_BYTES, none, flags_of_page, -1, 0), Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    if depth == 0 { block[1] } else { recurse(depth - 1) + block[depth as usize % 64] }
}

fn a_fault_and_then_an_overflow() {
    let mut kernel = Kernel::<StrictPlus>::new(Options::default()).unwrap();
    kernel
        .spawn(9, |mut here| {
            // SAFETY: the closure writes to memory, and calls nothing.
            unsafe { here.preemptible(|_| PAGE.load(Relaxed).cast::<u8>().write_volatile(1)) }
        })
        .unwrap();
    let overflows = kernel.spawn(8, |_| _ = std::hint::black_box(recurse(1 << 30))).unwrap();
    let summary = kernel.run();
    assert_eq!(summary.failures, [(overflows, Failure::StackOverflow)]);
    assert!(WAS_BLOCKED.load(Relaxed));
}

/// Runs `work` in a process of its own: the process of all tests has one handler of SIGSEGV.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the child runs `work` and ends without code of the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child whose instruction faults for ever.
        unsafe { libc::alarm(60) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn a_former_handler_gets_faults_and_overflows_still_end_one_thread() {
    in_a_child(|| {
        prepare(repair_at as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
        a_fault_and_then_an_overflow();
    });
}

#[test]
fn a_former_handler_without_details_gets_faults_too() {
    in_a_child(|| {
        prepare(repair as *const () as usize, libc::SA_ONSTACK);
        a_fault_and_then_an_overflow();
    });
}
