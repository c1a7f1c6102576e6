//! Examines an executable: whether its program uses Binder, and how Baton can serve it.
//!
//! A program that opens a device by an inline system call contains the device's name as a constant.
//! Only then are inline calls trapped, and only those from the program's own code. Calls of
//! libraries and of programs that the process executes later come from other addresses.
//!
//! Some programs cannot be served that way and would silently find no device. Baton reports them if
//! they contain a device's name ([`Unsupported`]).

use libc::{PF_R, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, PT_PHDR, c_void};
use rustix::fd::OwnedFd;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

type FileHeader = libc::Elf64_Ehdr;
type Header = libc::Elf64_Phdr;
/// Index and value of the 64-bit class in `FileHeader::e_ident`.
const CLASS_AT: usize = 4;
const CLASS: u8 = 2;

const NAMES: [&[u8]; 3] = [b"/dev/binder", b"/dev/hwbinder", b"/dev/vndbinder"];
/// Most bytes of an executable that are searched. The search costs a page fault for each page that
/// is not in memory.
const SEARCHED_BYTES: usize = 64 << 20;

/// The instruction of a system call.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
/// The instruction of a system call.
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

/// The reason for which a program that names a device does not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The program is statically linked, without a dynamic loader.
    Static,
    /// The program makes system calls itself and is loaded at a fixed address. A program that the
    /// process executes later may be loaded there too.
    Fixed,
    /// The program consists of Go's runtime without the C library.
    Go,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Unsupported::Static => {
                "is statically linked: it finds no Binder device of Baton's (link it dynamically)"
            }
            Unsupported::Fixed => {
                "is linked to a fixed address: system calls that it makes without the C library \
                 find no Binder \
                 device of Baton's (build it position-independent: -pie, for Go -buildmode=pie)"
            }
            Unsupported::Go => {
                "is a Go program without the C library: it finds no Binder device of Baton's \
                 (build it with \
                 CGO_ENABLED=1 -buildmode=pie, and import \"C\")"
            }
        })
    }
}

/// The way in which Baton serves the running program.
pub enum Support {
    /// System calls from this code are trapped.
    Watched(Range<usize>),
    /// The program names a device but cannot be served.
    Unsupported(Unsupported),
    /// The program needs no trap.
    Plain,
}

/// Examines the executable of this process.
pub fn check_own() -> Support {
    try_check_own().unwrap_or(Support::Plain)
}

/// `None` if the executable does not contain enough information.
fn try_check_own() -> Option<Support> {
    let headers = headers()?;
    let own = headers.iter().find(|header| header.p_type == PT_PHDR)?;
    let base = (headers.as_ptr() as usize).checked_sub(own.p_vaddr as usize)?;
    let loaded = || headers.iter().filter(|header| header.p_type == PT_LOAD);
    if !names_a_device(base, loaded()) {
        return None;
    }
    if is_go_without_c_library(base, headers) {
        return Some(Support::Unsupported(Unsupported::Go));
    }
    let code = || loaded().filter(|header| header.p_flags & PF_X != 0);
    if base == 0 {
        // SAFETY: the segment is loaded and, as code is on both architectures, readable.
        let calls = |header| unsafe { contains_bytes(segment(base, header), SYSTEM_CALL) };
        return code().any(calls).then_some(Support::Unsupported(Unsupported::Fixed));
    }
    let first = code().map(|header| base + header.p_vaddr as usize).min()?;
    let end = code().map(|header| base + (header.p_vaddr + header.p_memsz) as usize).max()?;
    Some(Support::Watched(first..end))
}

/// Address and length of a segment's bytes from the file.
fn segment(base: usize, header: &Header) -> (*const c_void, usize) {
    ((base + header.p_vaddr as usize) as *const c_void, header.p_filesz as usize)
}

/// Whether memory contains these bytes.
///
/// # Safety
/// The memory is readable.
unsafe fn contains_bytes((start, bytes): (*const c_void, usize), needle: &[u8]) -> bool {
    // SAFETY: by this function's contract.
    !unsafe { libc::memmem(start, bytes, needle.as_ptr().cast(), needle.len()) }.is_null()
}

/// Whether the program is Go's and loads no library. Its runtime then replaces the thread pointer
/// (x86-64) and the signal handlers.
fn is_go_without_c_library(base: usize, headers: &[Header]) -> bool {
    /// Name in the ELF note that Go's linker writes.
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
    !needs_a_library
        && of(PT_NOTE).any(|header| unsafe { contains_bytes(segment(base, header), GO) })
}

/// Whether a file is an unsupported program that names a device. May run in the child of a `vfork`,
/// so it does only what signal handlers may do.
pub fn check_file(path: &CStr) -> Option<Unsupported> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    // The ELF header is checked; the table of program headers may be anywhere in the file.
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
    file_names_a_device(&file).then_some(Unsupported::Static)
}

/// Reads a structure of integers at an offset.
fn read_at<T>(file: &OwnedFd, at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value's own bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<MaybeUninit<u8>>(), size_of::<T>())
    };
    let (read, _) = rustix::io::pread(file, bytes, at).ok()?;
    // SAFETY: all bytes have been read, and any bytes are valid integers.
    (read.len() == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Whether the first [`SEARCHED_BYTES`] of a file contain a device's name.
fn file_names_a_device(file: &OwnedFd) -> bool {
    const LONGEST: usize = 16;
    let mut buffer = [0u8; 8192];
    let (mut at, mut kept) = (0, 0);
    while at < SEARCHED_BYTES as u64 {
        let Ok(read @ 1..) = rustix::io::pread(file, &mut buffer[kept..], at) else { return false };
        let filled = kept + read;
        // SAFETY: the buffer is memory.
        let contains =
            |name: &&[u8]| unsafe { contains_bytes((buffer.as_ptr().cast(), filled), name) };
        if NAMES.iter().any(contains) {
            return true;
        }
        // A name may begin at the end of this part.
        let end = filled.saturating_sub(LONGEST);
        buffer.copy_within(end..filled, 0);
        (at, kept) = (at + read as u64, filled - end);
    }
    false
}

/// The executable's program headers, from the kernel's auxiliary vector.
fn headers() -> Option<&'static [Header]> {
    // SAFETY: queries without side effects.
    let (address, count) =
        unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    // SAFETY: the kernel says where they are loaded; an executable is never unloaded.
    (address != 0)
        .then(|| unsafe { std::slice::from_raw_parts(address as *const Header, count as usize) })
}

fn names_a_device<'a>(base: usize, loaded: impl Iterator<Item = &'a Header>) -> bool {
    let mut room = SEARCHED_BYTES;
    loaded.filter(|header| header.p_flags & (PF_R | PF_W) == PF_R).any(|header| {
        let bytes = (header.p_filesz as usize).min(room);
        room -= bytes;
        let (start, _) = segment(base, header);
        // SAFETY: the segment is loaded, readable and never written to.
        NAMES.iter().any(|name| unsafe { contains_bytes((start, bytes), name) })
    })
}
