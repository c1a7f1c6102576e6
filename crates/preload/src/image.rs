//! What an executable says of the program in it.
//!
//! A program that opens a device by an inline system call has the device's name among its
//! constants. That is reason enough to look at its inline calls, and they come from its code: the
//! calls of a library, and of whatever the process executes later, come from elsewhere.
//!
//! Some programs cannot be served that way. What they would find is nothing, silently; so they are
//! told of, if they name a device ([`Hopeless`]).

use libc::{PF_R, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, PT_PHDR, c_void};
use rustix::fd::OwnedFd;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

type FileHeader = libc::Elf64_Ehdr;
type Header = libc::Elf64_Phdr;
/// Of `FileHeader::e_ident`: 64 bits.
const CLASS_AT: usize = 4;
const CLASS: u8 = 2;

const NAMES: [&[u8]; 3] = [b"/dev/binder", b"/dev/hwbinder", b"/dev/vndbinder"];
/// An executable is searched this far: it costs a page fault for each page not yet in memory.
const SEARCHED_BYTES: usize = 64 << 20;

/// A system call's instruction.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
/// A system call's instruction.
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

/// Why a program that names a device does not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hopeless {
    /// It has no dynamic loader.
    Static,
    /// It makes system calls itself, and is loaded at a fixed address, where a program that the
    /// process executes later may be as well.
    Fixed,
    /// Go's runtime without the C library.
    Go,
}

impl fmt::Display for Hopeless {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Hopeless::Static => {
                "is statically linked: it finds no Binder device of Baton's (link it dynamically)"
            }
            Hopeless::Fixed => {
                "is linked to a fixed address: system calls that it makes without the C library \
                 find no Binder \
                 device of Baton's (build it position-independent: -pie, for Go -buildmode=pie)"
            }
            Hopeless::Go => {
                "is a Go program without the C library: it finds no Binder device of Baton's \
                 (build it with \
                 CGO_ENABLED=1 -buildmode=pie, and import \"C\")"
            }
        })
    }
}

/// The program that runs.
pub enum Own {
    /// Its code is to be watched.
    Watched(Range<usize>),
    /// It names a device in vain.
    Hopeless(Hopeless),
    /// There is nothing to be done for it.
    Plain,
}

/// What the executable of this process says.
pub fn own() -> Own {
    try_own().unwrap_or(Own::Plain)
}

/// `None` where the executable does not say enough.
fn try_own() -> Option<Own> {
    let headers = headers()?;
    let own = headers.iter().find(|header| header.p_type == PT_PHDR)?;
    let base = (headers.as_ptr() as usize).checked_sub(own.p_vaddr as usize)?;
    let loaded = || headers.iter().filter(|header| header.p_type == PT_LOAD);
    if !names_a_device(base, loaded()) {
        return None;
    }
    if is_go_alone(base, headers) {
        return Some(Own::Hopeless(Hopeless::Go));
    }
    let code = || loaded().filter(|header| header.p_flags & PF_X != 0);
    if base == 0 {
        // SAFETY: the segment is loaded and, as code is on both architectures, readable.
        let calls = |header| unsafe { has(segment(base, header), SYSTEM_CALL) };
        return code().any(calls).then_some(Own::Hopeless(Hopeless::Fixed));
    }
    let first = code().map(|header| base + header.p_vaddr as usize).min()?;
    let end = code().map(|header| base + (header.p_vaddr + header.p_memsz) as usize).max()?;
    Some(Own::Watched(first..end))
}

/// A segment, as the file has it.
fn segment(base: usize, header: &Header) -> (*const c_void, usize) {
    ((base + header.p_vaddr as usize) as *const c_void, header.p_filesz as usize)
}

/// Whether these bytes are somewhere in a memory.
///
/// # Safety
/// It can be read.
unsafe fn has((start, bytes): (*const c_void, usize), needle: &[u8]) -> bool {
    // SAFETY: by this function's contract.
    !unsafe { libc::memmem(start, bytes, needle.as_ptr().cast(), needle.len()) }.is_null()
}

/// Whether the program is Go's and loads no library: its runtime then replaces the thread pointer
/// (x86-64) and the handlers of signals.
fn is_go_alone(base: usize, headers: &[Header]) -> bool {
    /// Of the ELF note that Go's linker writes, name first.
    const GO: &[u8] = b"Go\0\0";
    const DT_NULL: usize = 0;
    const DT_NEEDED: usize = 1;
    let of = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let needs_a_library = of(PT_DYNAMIC).any(|header| {
        let (start, bytes) = segment(base, header);
        // SAFETY: the loader itself has read this segment, which is a table of tags and values.
        let entries = unsafe {
            std::slice::from_raw_parts(start.cast::<[usize; 2]>(), bytes / size_of::<[usize; 2]>())
        };
        entries
            .iter()
            .map(|[tag, _]| *tag)
            .take_while(|tag| *tag != DT_NULL)
            .any(|tag| tag == DT_NEEDED)
    });
    // SAFETY: a note is part of a loaded segment.
    !needs_a_library && of(PT_NOTE).any(|header| unsafe { has(segment(base, header), GO) })
}

/// Whether a file is a program for which nothing can be done, that names a device. It runs where
/// only what a handler of signals may do is allowed, in memory that may be another process's: the
/// child's of a `vfork`.
pub fn of_file(path: &CStr) -> Option<Hopeless> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    // An ELF header, and a table of headers where its writer has put it, which has been checked.
    let header: FileHeader = read_at(&file, 0)?;
    let is_elf = header.e_ident.starts_with(b"\x7fELF") && header.e_ident[CLASS_AT] == CLASS;
    if !is_elf || usize::from(header.e_phentsize) != size_of::<Header>() {
        return None;
    }
    for index in 0..u64::from(header.e_phnum) {
        let header: Header =
            read_at(&file, header.e_phoff.checked_add(index * size_of::<Header>() as u64)?)?;
        if header.p_type == PT_INTERP {
            return None;
        }
    }
    file_names_a_device(&file).then_some(Hopeless::Static)
}

/// Reads a structure of plain integers.
fn read_at<T>(file: &OwnedFd, at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value's own bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<MaybeUninit<u8>>(), size_of::<T>())
    };
    let (read, _) = rustix::io::pread(file, bytes, at).ok()?;
    // SAFETY: all of it has been read, and any bytes are a value of integers.
    (read.len() == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Whether a file has the name of a device in it, as far as it is searched.
fn file_names_a_device(file: &OwnedFd) -> bool {
    const LONGEST: usize = 16;
    let mut buffer = [0u8; 8192];
    let (mut at, mut kept) = (0, 0);
    while at < SEARCHED_BYTES as u64 {
        let Ok(read @ 1..) = rustix::io::pread(file, &mut buffer[kept..], at) else { return false };
        let filled = kept + read;
        // SAFETY: the buffer is memory.
        if NAMES.iter().any(|name| unsafe { has((buffer.as_ptr().cast(), filled), name) }) {
            return true;
        }
        // A name may begin at the end.
        let end = filled.saturating_sub(LONGEST);
        buffer.copy_within(end..filled, 0);
        (at, kept) = (at + read as u64, filled - end);
    }
    false
}

/// The executable's program headers, as the kernel tells of them.
fn headers() -> Option<&'static [Header]> {
    // SAFETY: plain questions.
    let (address, count) =
        unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    // SAFETY: the kernel's own word for where they are loaded; an executable is never unloaded.
    (address != 0)
        .then(|| unsafe { std::slice::from_raw_parts(address as *const Header, count as usize) })
}

fn names_a_device<'a>(base: usize, loaded: impl Iterator<Item = &'a Header>) -> bool {
    let mut room = SEARCHED_BYTES;
    loaded.filter(|header| header.p_flags & (PF_R | PF_W) == PF_R).any(|header| {
        let bytes = (header.p_filesz as usize).min(room);
        room -= bytes;
        let start = (base + header.p_vaddr as usize) as *const c_void;
        NAMES.iter().any(|name| {
            // SAFETY: the segment is loaded, readable and never written to.
            !unsafe { libc::memmem(start, bytes, name.as_ptr().cast(), name.len()) }.is_null()
        })
    })
}
