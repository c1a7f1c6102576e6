//! `dlsym`: functions that a program looks up in the C library by its handle.
//!
//! Foreign function interfaces do that: `CDLL("libc.so.6")` of Python's ctypes, P/Invoke of .NET,
//! koffi of Node. They would get the C library's own function, past this library. They get this
//! library's, as a program does that is linked with the C library.
//!
//! `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller, whom the C library knows by the address to
//! which it returns. So such a call goes on as a jump.

use crate::real;
use libc::{c_char, c_void};
use std::arch::naked_asm;
use std::ffi::CStr;
use std::mem::{MaybeUninit, transmute};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`, once it is known: it may be called before our constructor.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The versions of `dlsym` in C libraries since 2.34, and in older ones.
#[cfg(target_arch = "x86_64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];
/// The versions of `dlsym` in C libraries since 2.34, and in older ones.
#[cfg(target_arch = "aarch64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.17"];

/// Finds the C library's `dlsym`, which is not null.
extern "C" fn find() -> *mut c_void {
    extern "C" fn nothing(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
        null_mut()
    }
    let in_version = |version: &CStr| {
        // SAFETY: C strings; RTLD_NEXT searches the objects loaded after this one.
        unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) }
    };
    let found = VERSIONS.into_iter().map(in_version).find(|found| !found.is_null());
    let found = found.unwrap_or(nothing as Lookup as *mut c_void);
    // Relaxed is enough: the pointer is to code, and all threads find the same one.
    REAL.store(found, Ordering::Relaxed);
    found
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "2:",
        // RTLD_NEXT is -1, and RTLD_DEFAULT 0.
        "lea rcx, [rdi + 1]",
        "cmp rcx, 1",
        "ja 3f",
        "jmp rax",
        "3:",
        "jmp {by_handle}",
        ".cfi_endproc",
        real = sym REAL,
        find = sym find,
        by_handle = sym by_handle,
    )
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "2:",
        // RTLD_NEXT is -1, and RTLD_DEFAULT 0.
        "add x17, x0, #1",
        "cmp x17, #1",
        "b.hi 3f",
        "br x16",
        "3:",
        "b {by_handle}",
        ".cfi_endproc",
        real = sym REAL,
        find = sym find,
        by_handle = sym by_handle,
    )
}

/// # Safety
/// The contract of `dlsym`, once `find` has been called.
unsafe extern "C" fn by_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: `find` has stored a function of this type.
    let real = unsafe { transmute::<*mut c_void, Lookup>(REAL.load(Ordering::Relaxed)) };
    // SAFETY: the caller's arguments.
    let found = unsafe { real(handle, name) };
    // SAFETY: a C string, since a name was found.
    if found.is_null() || !real::NAMES.contains(&unsafe { CStr::from_ptr(name) }) {
        return found;
    }
    // Another library with such a function may look for the one that its own calls. It gets what
    // it has asked for, since this library would call it in turn.
    // SAFETY: as above.
    let (next, first) = unsafe { (real(libc::RTLD_NEXT, name), real(libc::RTLD_DEFAULT, name)) };
    let is_ours = next == found && library(first) == library(by_handle as Lookup as *mut c_void);
    if is_ours { first } else { found }
}

/// The library that contains an address, by the address at which it is loaded.
fn library(address: *mut c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: a query, which fills its result where it does not return 0.
    unsafe {
        (libc::dladdr(address, found.as_mut_ptr()) != 0)
            .then(|| found.assume_init().dli_fbase as usize)
    }
}
