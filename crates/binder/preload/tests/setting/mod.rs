//! Shared parts of the interposer's tests: a process under the interposer, and Binder's calls.
#![allow(dead_code, reason = "each test program uses a part of it")]

use baton_abi::uapi::*;
use baton_broker::{Config, Running};
use libc::{c_int, c_long, c_void};
use std::fs::{self, File};
use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::ptr::null_mut;

/// Runs the test `name` again under the interposer. Returns false in that second run.
pub fn is_outside(name: &str) -> bool {
    if std::env::var_os("BATON_SOCKET").is_some() {
        return false;
    }
    run_inside(name, |_| ());
    true
}

/// Runs the test `name` under the interposer, by a command that `change` modifies.
pub fn run_inside(name: &str, change: impl FnOnce(&mut Command)) {
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libbaton_preload.so");
    assert!(library.is_file(), "cargo builds {} for this test", library.display());
    let directory = tempfile::tempdir().unwrap();
    let features = directory.path().join("dev/binderfs/features");
    fs::create_dir_all(&features).unwrap();
    fs::write(features.join("extended_error"), "1\n").unwrap();
    for device in ["binder", "binderfs/binder", "binderfs/binder-control"] {
        fs::write(directory.path().join("dev").join(device), "").unwrap();
    }
    let socket = directory.path().join("broker");
    let _broker = Running::start(Config::at(&socket)).unwrap();
    let mut command = Command::new(own);
    command
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("BATON_SOCKET", socket)
        .env("BATON_DEV", directory.path().join("dev"))
        .env("BATON_LOG_DIR", directory.path().join("log"))
        .env_remove("BATON_LOG");
    change(&mut command);
    let status = command.status().unwrap();
    assert!(status.success(), "{name}: {status}");
}

pub fn open(path: &str, flags: c_int) -> OwnedFd {
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap().into()
}

pub fn device() -> OwnedFd {
    let device = open("/dev/binder", 0);
    // SAFETY: a new mapping that only the driver's answers read.
    let map = unsafe {
        libc::mmap(null_mut(), 1 << 20, libc::PROT_READ, libc::MAP_PRIVATE, device.as_raw_fd(), 0)
    };
    assert_ne!(map, libc::MAP_FAILED);
    device
}

/// The way in which a program makes the system call.
pub type Ioctl = fn(&OwnedFd, u32, *mut c_void) -> Result<c_long, i32>;

pub fn through_libc(fd: &OwnedFd, request: u32, argument: *mut c_void) -> Result<c_long, i32> {
    // SAFETY: each caller passes what its request takes.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request.into(), argument) };
    if result < 0 { Err(Error::last_os_error().raw_os_error().unwrap()) } else { Ok(result.into()) }
}

pub fn inline(fd: &OwnedFd, request: u32, argument: *mut c_void) -> Result<c_long, i32> {
    let arguments = [fd.as_raw_fd().into(), request.into(), argument as c_long, 0, 0, 0];
    // SAFETY: as above.
    unsafe { own_call(libc::SYS_ioctl, arguments) }
}

/// A system call in this executable's own code: a value or an errno.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
pub unsafe fn own_call(number: c_long, arguments: [c_long; 6]) -> Result<c_long, i32> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: c_long;
    // SAFETY: by this function's contract; the kernel changes no register but these.
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result) }
}

/// A system call in this executable's own code: a value or an errno.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "aarch64")]
pub unsafe fn own_call(number: c_long, arguments: [c_long; 6]) -> Result<c_long, i32> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: c_long;
    // SAFETY: by this function's contract; the kernel changes no register but these.
    unsafe {
        std::arch::asm!(
            "svc 0", in("x8") number, inlateout("x0") first => result, in("x1") second,
            in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
        );
    }
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result) }
}

pub fn version(ioctl: Ioctl, fd: &OwnedFd) -> Result<i32, i32> {
    let mut version = 0i32;
    ioctl(fd, BINDER_VERSION, (&raw mut version).cast()).map(|_| version)
}

pub fn write(ioctl: Ioctl, fd: &OwnedFd, commands: &[u8]) -> Result<c_long, i32> {
    let mut exchange = WriteRead {
        write_size: commands.len() as u64,
        write_buffer: commands.as_ptr() as u64,
        ..bytemuck::Zeroable::zeroed()
    };
    ioctl(fd, BINDER_WRITE_READ, (&raw mut exchange).cast())
}

/// Reads the first return after the NOOP.
pub fn read(ioctl: Ioctl, fd: &OwnedFd) -> Result<u32, i32> {
    let mut returns = [0u32; 64];
    let mut exchange = WriteRead {
        read_size: size_of_val(&returns) as u64,
        read_buffer: (&raw mut returns) as u64,
        ..bytemuck::Zeroable::zeroed()
    };
    ioctl(fd, BINDER_WRITE_READ, (&raw mut exchange).cast())?;
    assert_eq!(returns[0], BR_NOOP);
    Ok(returns[1])
}

pub fn become_manager(fd: &OwnedFd) {
    let mut unused = 0i32;
    through_libc(fd, BINDER_SET_CONTEXT_MGR, (&raw mut unused).cast()).unwrap();
    write(through_libc, fd, &BC_ENTER_LOOPER.to_ne_bytes()).unwrap();
}

/// Sends a one-way transaction to the context manager.
pub fn send_one_way(fd: &OwnedFd) {
    let transaction = TransactionData { flags: TF_ONE_WAY, ..bytemuck::Zeroable::zeroed() };
    let mut commands = BC_TRANSACTION.to_ne_bytes().to_vec();
    commands.extend_from_slice(bytemuck::bytes_of(&transaction));
    write(through_libc, fd, &commands).unwrap();
}
