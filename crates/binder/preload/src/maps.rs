//! `mmap` and `munmap` of a device.
//!
//! As in the kernel, the process that opened a device maps it once and read-only. A child of fork
//! does not get the mapping. A device whose descriptors are closed lives on until its mapping is
//! gone as well.

use crate::table::{self, Open};
use crate::{files, real};
use arc_swap::ArcSwapOption;
use libc::{c_int, c_void, off_t, size_t};
use rustix::io::Errno;
use std::sync::Arc;

/// A mapped receive buffer, which keeps its device open.
#[derive(Clone, Debug)]
struct Map {
    address: usize,
    bytes: usize,
    open: Arc<Open>,
}

impl Map {
    /// Whether the mapping overlaps the range.
    fn overlaps(&self, from: usize, to: usize) -> bool {
        from < self.address + self.bytes && self.address < to
    }

    /// Whether the mapping lies within the range.
    fn is_within(&self, from: usize, to: usize) -> bool {
        from <= self.address && self.address + self.bytes <= to
    }
}

/// All mapped devices, mostly one. Every `munmap` reads this list, without a lock.
static MAPS: ArcSwapOption<Vec<Map>> = ArcSwapOption::const_empty();

fn update_maps(update_maps: impl Fn(&mut Vec<Map>)) {
    MAPS.rcu(|maps| {
        let mut maps = maps.as_deref().cloned().unwrap_or_default();
        update_maps(&mut maps);
        Some(Arc::new(maps))
    });
}

/// Maps a receive buffer by `map`, which takes the flags and the offset. As in the kernel, the
/// whole length is mapped although the driver uses at most 4 MiB: the program will unmap the length
/// that it asked for. `None` if the descriptor is no device's.
fn map_device(
    fd: c_int,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    map: impl FnOnce(c_int, off_t) -> *mut c_void,
) -> Option<*mut c_void> {
    let open = files::current(fd)?.clone()?;
    let device = open.device()?;
    let used_bytes = match open.is_inherited() {
        true => Err(Errno::INVAL),
        false => device.before_map(bytes, protection & libc::PROT_WRITE != 0),
    };
    let used_bytes = match used_bytes {
        Ok(used_bytes) => used_bytes,
        Err(errno) => {
            real::set_errno(errno.raw_os_error());
            return Some(libc::MAP_FAILED);
        }
    };
    // The memfd's seal prevents a shared mapping from becoming writable later. A private one could
    // become writable, and would then no longer show the driver's writes.
    let flags = flags & !libc::MAP_TYPE | libc::MAP_SHARED;
    let address = map(flags, 0);
    if address != libc::MAP_FAILED {
        // SAFETY: the range has just been mapped. If the call fails, children keep a harmless
        // read-only mapping.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) };
        device.mapped(address as usize, used_bytes);
        let map = Map { address: address as usize, bytes, open: Arc::clone(&open) };
        update_maps(|maps| maps.push(map.clone()));
    }
    Some(address)
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            bytes: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            // SAFETY: the caller's arguments.
            let map = |flags, offset| unsafe {
                real::$name(address, bytes, protection, flags, fd, offset)
            };
            let is_ours = flags & libc::MAP_ANONYMOUS == 0 && table::contains(fd);
            is_ours.then(|| map_device(fd, bytes, protection, flags, map))
                .flatten()
                .unwrap_or_else(|| map(flags, offset))
        }
    )*};
}

mmaps! { mmap mmap64 }

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::munmap(address, bytes) };
    baton_driver::device::memory_changes();
    if result == 0 {
        unmapped(address as usize, (address as usize).saturating_add(bytes));
    }
    result
}

/// Tells devices that parts of their mappings are gone, and drops mappings that are gone entirely.
fn unmapped(from: usize, to: usize) {
    let met = |map: &&Map| map.overlaps(from, to);
    if !MAPS.load().as_deref().is_some_and(|maps| maps.iter().any(|map| met(&map))) {
        return;
    }
    let errno = real::errno();
    for map in MAPS.load_full().iter().flat_map(|maps| maps.iter()).filter(met) {
        // A child of fork has no such mapping; its parent has.
        if let Some(device) = map.open.device().filter(|_| !map.open.is_inherited()) {
            device.unmapped();
        }
    }
    // Dropping the last reference to a device closes it.
    update_maps(|maps| maps.retain(|map| !map.is_within(from, to)));
    real::set_errno(errno);
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::mprotect(address, bytes, protection) };
    baton_driver::device::memory_changes();
    result
}
