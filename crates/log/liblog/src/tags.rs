//! The names of events: `<log/event_tag_map.h>`.

use crate::ffi::{guard, string};
use baton_logcat::tags::Tags;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `EVENT_TAG_MAP_FILE`
const FILE: &[u8] = b"/system/etc/event-log-tags";

/// `EventTagMap`'s type, of which programs know only a pointer.
#[derive(Debug)]
pub struct EventTagMap {
    pub(crate) tags: Tags,
    /// The name and the format of each event, as C strings.
    strings: HashMap<u32, [CString; 2]>,
}

/// Reads a tags file, or the system's if `name` is null. Returns null and sets `errno` if it cannot
/// be read.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_openEventTagMap(name: *const c_char) -> *mut EventTagMap {
    // SAFETY: by this function's contract.
    let name = unsafe { string(name) }.unwrap_or(FILE);
    let read = guard(Err(libc::EINVAL), || open(Path::new(OsStr::from_bytes(name))));
    match read {
        Ok(map) => Box::into_raw(Box::new(map)),
        Err(errno) => {
            // SAFETY: the pointer is to this thread's errno.
            unsafe { *libc::__errno_location() = errno };
            std::ptr::null_mut()
        }
    }
}

fn open(path: &Path) -> Result<EventTagMap, c_int> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
    let tags = Tags::parse(&text).map_err(|_| libc::EINVAL)?;
    let string = |words: &str| CString::new(words).unwrap_or_default();
    let strings =
        tags.iter().map(|(number, tag)| (number, [string(&tag.name), string(&tag.format)]));
    let strings = strings.collect();
    Ok(EventTagMap { tags, strings })
}

/// Frees a map.
///
/// # Safety
/// `map` is null, or was made by [`android_openEventTagMap`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_closeEventTagMap(map: *mut EventTagMap) {
    if !map.is_null() {
        // SAFETY: by this function's contract.
        guard((), || drop(unsafe { Box::from_raw(map) }));
    }
}

/// One of an event's strings.
#[derive(Clone, Copy)]
enum Part {
    Name = 0,
    Format = 1,
}

/// # Safety
/// `map` is null or a map; `n_bytes` is null or writable.
unsafe fn look_up(
    map: *const EventTagMap,
    n_bytes: *mut usize,
    number: c_uint,
    part: Part,
) -> *const c_char {
    guard(std::ptr::null(), || {
        // SAFETY: by this function's contract.
        let found = unsafe { map.as_ref() }.and_then(|map| map.strings.get(&number));
        let string = found.map(|strings| &strings[part as usize]);
        // SAFETY: as above.
        if let Some(n_bytes) = unsafe { n_bytes.as_mut() } {
            *n_bytes = string.map_or(0, |string| string.count_bytes());
        }
        string.map_or(std::ptr::null(), |string| string.as_ptr())
    })
}

/// The name of an event.
///
/// # Safety
/// `map` is null or a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_lookupEventTag(
    map: *const EventTagMap,
    number: c_uint,
) -> *const c_char {
    // SAFETY: by this function's contract.
    unsafe { look_up(map, std::ptr::null_mut(), number, Part::Name) }
}

/// The name of an event, and its bytes.
///
/// # Safety
/// `map` is null or a map; `n_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_lookupEventTag_len(
    map: *const EventTagMap,
    n_bytes: *mut usize,
    number: c_uint,
) -> *const c_char {
    // SAFETY: by this function's contract.
    unsafe { look_up(map, n_bytes, number, Part::Name) }
}

/// The descriptions of an event's values, and their bytes.
///
/// # Safety
/// `map` is null or a map; `n_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_lookupEventFormat_len(
    map: *const EventTagMap,
    n_bytes: *mut usize,
    number: c_uint,
) -> *const c_char {
    // SAFETY: by this function's contract.
    unsafe { look_up(map, n_bytes, number, Part::Format) }
}

/// The number of the event with this name, and with this format if it is not null; -1 if there is
/// none. No new numbers are assigned.
///
/// # Safety
/// `map` is null or a map; `name` and `format` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_lookupEventTagNum(
    map: *mut EventTagMap,
    name: *const c_char,
    format: *const c_char,
    _priority: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: by this function's contract.
        let Some(map) = (unsafe { map.as_ref() }) else { return -1 };
        // SAFETY: as above.
        let (name, format) = unsafe { (string(name), string(format)) };
        let is_meant = |[known_name, known_format]: &[CString; 2]| {
            Some(known_name.to_bytes()) == name
                && format.is_none_or(|format| known_format.to_bytes() == format)
        };
        let found = map.strings.iter().filter(|(_, strings)| is_meant(strings));
        found.map(|(number, _)| number.cast_signed()).min().unwrap_or(-1)
    })
}
