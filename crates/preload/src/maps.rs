//! `mmap` and `munmap` of a device.
//!
//! As in the kernel, a device is mapped once, to read, by the process that opened it; a child of
//! fork does not get the map; and a device whose descriptors are closed lives on until its map is
//! gone as well.

use crate::real;
use crate::table::{self, Open};
use arc_swap::ArcSwapOption;
use libc::{c_int, c_void, off_t, size_t};
use rustix::io::Errno;
use std::sync::Arc;

/// A receive buffer in the program's memory, which keeps its device open.
#[derive(Clone, Debug)]
struct Map {
    address: usize,
    bytes: usize,
    open: Arc<Open>,
}

impl Map {
    /// Whether it has something of the range.
    fn meets(&self, from: usize, to: usize) -> bool {
        from < self.address + self.bytes && self.address < to
    }

    /// Whether it has nothing outside of the range.
    fn is_within(&self, from: usize, to: usize) -> bool {
        from <= self.address && self.address + self.bytes <= to
    }
}

/// All there are, mostly one. Read by every `munmap`, without a lock.
static MAPS: ArcSwapOption<Vec<Map>> = ArcSwapOption::const_empty();

fn change(change: impl Fn(&mut Vec<Map>)) {
    MAPS.rcu(|maps| {
        let mut maps = maps.as_deref().cloned().unwrap_or_default();
        change(&mut maps);
        Some(Arc::new(maps))
    });
}

/// Maps a receive buffer by `map`, which is given the kind of map and the offset. The whole length
/// is mapped although the driver uses 4 MiB of it at most, as in the kernel: the program will
/// unmap what it asked for. `None` if the descriptor is not a device's.
fn map_device(
    fd: c_int,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    map: impl FnOnce(c_int, off_t) -> *mut c_void,
) -> Option<*mut c_void> {
    let open = table::get(fd)?.clone()?;
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
    // The memfd's seal keeps a shared map from being made writable later. A private one could
    // be, and would then no longer show what the driver writes.
    let flags = flags & !libc::MAP_TYPE | libc::MAP_SHARED;
    let address = map(flags, 0);
    if address != libc::MAP_FAILED {
        // SAFETY: the range has just been mapped. Failing to keep it from children harms nobody.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) };
        device.mapped(address as usize, used_bytes);
        let map = Map { address: address as usize, bytes, open: Arc::clone(&open) };
        change(|maps| maps.push(map.clone()));
    }
    Some(address)
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
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
            let file = flags & libc::MAP_ANONYMOUS == 0 && table::is_mine(fd);
            file.then(|| map_device(fd, bytes, protection, flags, map))
                .flatten()
                .unwrap_or_else(|| map(flags, offset))
        }
    )*};
}

mmaps! { mmap mmap64 }

/// As the C library's.
///
/// # Safety
/// As the C library's.
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

/// Tells the devices whose maps met the range, and lets go of those whose maps are gone.
fn unmapped(from: usize, to: usize) {
    let met = |map: &&Map| map.meets(from, to);
    if !MAPS.load().as_deref().is_some_and(|maps| maps.iter().any(|map| met(&map))) {
        return;
    }
    let errno = real::errno();
    for map in MAPS.load_full().iter().flat_map(|maps| maps.iter()).filter(met) {
        // A child of fork has no such map: its parent has.
        if let Some(device) = map.open.device().filter(|_| !map.open.is_inherited()) {
            device.unmapped();
        }
    }
    // Dropping the last hold on a device closes it.
    change(|maps| maps.retain(|map| !map.is_within(from, to)));
    real::set_errno(errno);
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::mprotect(address, bytes, protection) };
    baton_driver::device::memory_changes();
    result
}
