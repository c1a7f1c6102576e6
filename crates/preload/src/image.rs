//! What the program's own executable says of it.
//!
//! A program that opens a device by an inline system call has the device's name among its
//! constants. That is reason enough to look at its inline calls, and they come from its code: the
//! calls of a library, and of whatever the process executes later, come from elsewhere.

use libc::{PF_R, PF_W, PF_X, PT_LOAD, PT_PHDR, c_void};
use std::ops::Range;

#[cfg(target_pointer_width = "64")]
type Header = libc::Elf64_Phdr;
#[cfg(target_pointer_width = "32")]
type Header = libc::Elf32_Phdr;

const NAMES: [&[u8]; 3] = [b"/dev/binder", b"/dev/hwbinder", b"/dev/vndbinder"];
/// An executable is searched this far: it costs a page fault for each page not yet in memory.
const SEARCHED_BYTES: usize = 64 << 20;

/// Where the executable's code is, if the executable names a device. `None` also if it is loaded
/// at a fixed address, where a program that the process executes later may be as well.
pub fn code_that_names_a_device() -> Option<Range<usize>> {
    let headers = headers()?;
    let own = headers.iter().find(|header| header.p_type == PT_PHDR)?;
    let base = (headers.as_ptr() as usize).checked_sub(own.p_vaddr as usize)?;
    let loaded = || headers.iter().filter(|header| header.p_type == PT_LOAD);
    if base == 0 || !names_a_device(base, loaded()) {
        return None;
    }
    let code = || loaded().filter(|header| header.p_flags & PF_X != 0);
    let first = code().map(|header| base + header.p_vaddr as usize).min()?;
    let end = code().map(|header| base + (header.p_vaddr + header.p_memsz) as usize).max()?;
    Some(first..end)
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
