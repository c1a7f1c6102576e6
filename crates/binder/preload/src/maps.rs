//! `mmap` and `munmap` of a device.
//!
//! As in the kernel, the process that opened a device maps it once and read-only. A child of fork
//! does not get the mapping. A device whose descriptors are closed lives on until its mapping is
//! gone as well.
//!
//! **Invariant**: `munmap` of other memory neither allocates nor locks. Allocators call it under
//! their own locks, and jemalloc while it initializes itself.

use crate::table::{self, Open};
use crate::{files, real};
use arc_swap::ArcSwapOption;
use libc::{c_int, c_long, c_void, off_t, size_t};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A mapped receive buffer, which keeps its device open.
#[derive(Debug)]
struct Map {
    address: usize,
    bytes: usize,
    open: Arc<Open>,
    /// `None`: counted in [`N_WITHOUT_RANGE`].
    range: Option<&'static MappedRange>,
}

/// The addresses of a mapped device; none if `from` is 0.
#[derive(Debug)]
struct MappedRange {
    from: AtomicUsize,
    to: AtomicUsize,
}

/// All mapped devices, mostly one. A thread's first look at this list allocates.
static MAPS: ArcSwapOption<Vec<Arc<Map>>> = ArcSwapOption::const_empty();
/// The addresses of mapped devices, at which every `munmap` looks first.
static RANGES: [MappedRange; 16] =
    [const { MappedRange { from: AtomicUsize::new(0), to: AtomicUsize::new(0) } }; 16];
/// Mapped devices that found no room in [`RANGES`].
static N_WITHOUT_RANGE: AtomicUsize = AtomicUsize::new(0);
/// A range that is being filled, and lies nowhere.
const CLAIMED: usize = usize::MAX;

impl Map {
    /// Enters a map into [`RANGES`]. The program has not yet got its address, so whoever unmaps it
    /// later finds the range.
    fn new(address: usize, bytes: usize, open: Arc<Open>) -> Map {
        let claim = |range: &&MappedRange| {
            range.from.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let range = RANGES.iter().find(claim);
        match range {
            Some(range) => {
                range.to.store(address + bytes, Ordering::Relaxed);
                // Pairs with the load in `may_overlap`: the end is this range's.
                range.from.store(address, Ordering::Release);
            }
            None => _ = N_WITHOUT_RANGE.fetch_add(1, Ordering::Relaxed),
        }
        Map { address, bytes, open, range }
    }

    /// Whether the mapping overlaps the range.
    fn overlaps(&self, from: usize, to: usize) -> bool {
        from < self.address + self.bytes && self.address < to
    }

    /// Whether the mapping lies within the range.
    fn is_within(&self, from: usize, to: usize) -> bool {
        from <= self.address && self.address + self.bytes <= to
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        match self.range {
            Some(range) => range.from.store(0, Ordering::Relaxed),
            None => _ = N_WITHOUT_RANGE.fetch_sub(1, Ordering::Relaxed),
        }
    }
}

/// Whether a range may overlap a mapped device: a few loads.
fn may_overlap(from: usize, to: usize) -> bool {
    N_WITHOUT_RANGE.load(Ordering::Relaxed) > 0
        || RANGES.iter().any(|range| {
            // Pairs with the store in `Map::new`.
            let start = range.from.load(Ordering::Acquire);
            start != 0 && start < to && from < range.to.load(Ordering::Relaxed)
        })
}

fn update_maps(update_maps: impl Fn(&mut Vec<Arc<Map>>)) {
    MAPS.rcu(|maps| {
        let mut maps = maps.as_deref().cloned().unwrap_or_default();
        update_maps(&mut maps);
        Some(Arc::new(maps))
    });
}

/// Maps a receive buffer. As in the kernel, the whole length is mapped although the driver uses at
/// most 4 MiB: the program will unmap the length that it asked for. `None` if the descriptor is no
/// device's.
///
/// The map is made by its number: another library's `mmap` might come back here, see [`calls`].
///
/// # Safety
/// That of `mmap`, which may replace a map of the program's.
///
/// [`calls`]: crate::calls
pub unsafe fn map_device(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
) -> Option<*mut c_void> {
    if flags & libc::MAP_ANONYMOUS != 0 || !table::contains(fd) {
        return None;
    }
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
    let arguments =
        [address as c_long, bytes as c_long, protection.into(), flags.into(), fd.into(), 0];
    // SAFETY: by this function's contract.
    let address = unsafe { real::system_call(libc::SYS_mmap, arguments) } as *mut c_void;
    if address != libc::MAP_FAILED {
        // SAFETY: the range has just been mapped. If the call fails, children keep a harmless
        // read-only mapping.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) };
        device.mapped(address as usize, used_bytes);
        let map = Arc::new(Map::new(address as usize, bytes, Arc::clone(&open)));
        update_maps(|maps| maps.push(Arc::clone(&map)));
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
            unsafe {
                map_device(address, bytes, protection, flags, fd)
                    .unwrap_or_else(|| real::$name(address, bytes, protection, flags, fd, offset))
            }
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
    munmap_by(address as usize, bytes, || unsafe { real::munmap(address, bytes) })
}

/// Unmaps a range by `real`. Devices hear of what is gone.
pub fn munmap_by(address: usize, bytes: size_t, real: impl FnOnce() -> c_int) -> c_int {
    let result = real();
    baton_driver::device::memory_changes();
    if result == 0 {
        unmapped(address, address.saturating_add(bytes));
    }
    result
}

/// Tells devices that parts of their mappings are gone, and drops mappings that are gone entirely.
fn unmapped(from: usize, to: usize) {
    let met = |map: &&Arc<Map>| map.overlaps(from, to);
    if !may_overlap(from, to)
        || !MAPS.load().as_deref().is_some_and(|maps| maps.iter().any(|map| met(&map)))
    {
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
