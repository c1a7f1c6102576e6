//! Memory on pages of one size: a memfd, as lanes and receive buffers are, which nobody else maps.

use baton_shm::mapping;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Size of a superpage, and what such memory is a multiple of.
pub const SUPERPAGE_BYTES: usize = 2 << 20;

/// The pages that memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum Pages {
    /// 4 KiB.
    #[strum(serialize = "pages-4k")]
    Small,
    /// 2 MiB.
    #[strum(serialize = "pages-2m")]
    Super,
}

impl Pages {
    pub const ALL: [Pages; 2] = [Pages::Small, Pages::Super];

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Some memory, all of it there.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    /// What was reserved to find a superpage's boundary in.
    reserved: (NonNull<c_void>, usize),
}

// SAFETY: memory that this value alone refers to.
unsafe impl Send for Memory {}

fn advice(pages: Pages) -> libc::c_int {
    match pages {
        Pages::Small => libc::MADV_NOHUGEPAGE,
        // At once, and whatever the system does by itself (Linux 6.1).
        Pages::Super => libc::MADV_COLLAPSE,
    }
}

impl Memory {
    /// At least `bytes` of zeros. The system's errno if it does not grant such pages.
    pub fn new(bytes: usize, pages: Pages) -> Result<Memory, Errno> {
        let bytes = bytes.next_multiple_of(SUPERPAGE_BYTES);
        let reserved_bytes = bytes + SUPERPAGE_BYTES;
        let file = mapping::create("bench-pages", bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh map at an address of the kernel's choice.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved_bytes,
                ProtFlags::empty(),
                flags,
            )?
        };
        let reserved = NonNull::new(reserved).ok_or(Errno::FAULT)?;
        let gap = reserved.as_ptr().cast::<u8>().align_offset(SUPERPAGE_BYTES);
        // SAFETY: the next boundary lies within what was reserved.
        let base = unsafe { reserved.cast::<u8>().add(gap) };
        let memory = Memory { base, bytes, reserved: (reserved, reserved_bytes) };
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: over a part of what was just reserved, which nobody uses.
        unsafe { rustix::mm::mmap(base.as_ptr().cast(), bytes, protection, flags, &file, 0)? };
        // SAFETY: the map as just made; neither advice changes what lies there.
        let advise = || unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice(pages)) };
        if pages == Pages::Small {
            advise();
        }
        // SAFETY: the map as just made. Superpages are made of pages that are there.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        if pages == Pages::Super && advise() != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        Ok(memory)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped as long as this value is, initialised, and nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (reserved, bytes) = self.reserved;
        // SAFETY: this value's own map, which nobody refers to any more.
        let _ = unsafe { rustix::mm::munmap(reserved.as_ptr(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_on_whatever_pages_are_granted() {
        for pages in Pages::ALL {
            let Ok(mut memory) = Memory::new(300 << 10, pages) else {
                assert_eq!(pages, Pages::Super, "small pages are always granted");
                continue;
            };
            let bytes = memory.bytes();
            assert_eq!(bytes.len(), SUPERPAGE_BYTES);
            assert_eq!(bytes.as_ptr().align_offset(SUPERPAGE_BYTES), 0);
            (bytes[0], bytes[SUPERPAGE_BYTES - 1]) = (1, 2);
            assert_eq!((memory.bytes()[0], memory.bytes()[1]), (1, 0));
        }
    }
}
