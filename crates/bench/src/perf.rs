//! What the kernel counts of other processes, by `perf_event_open(2)`: their system calls, and
//! their calls of functions of the C library. The processes know nothing of it.
//!
//! It takes root or CAP_PERFMON, and, for system calls, tracefs.

use rustix::fd::{FromRawFd, OwnedFd};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `perf_event_attr` up to its second configuration word (PERF_ATTR_SIZE_VER1).
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    bytes: u32,
    configuration: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    first: u64,
    second: u64,
}

const _: () = assert!(size_of::<Attributes>() == 72);

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// Bit 1: threads that are started later are counted, too.
const INHERIT: u64 = 1 << 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

const TRACE_FS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PROBES: &str = "/sys/bus/event_source/devices/uprobe/type";

pub struct Event {
    kind: u32,
    configuration: u64,
    /// Which file, and where in it.
    probe: Option<(CString, u64)>,
}

pub struct Counter {
    events: Vec<OwnedFd>,
}

fn number(path: &Path) -> io::Result<u64> {
    let why =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(why)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

impl Event {
    pub fn system_call() -> io::Result<Event> {
        let place = |root| Path::new(root).join("events/raw_syscalls/sys_enter/id");
        let configuration = number(&place(TRACE_FS[0]))
            .or_else(|error| number(&place(TRACE_FS[1])).or(Err(error)))?;
        Ok(Event { kind: PERF_TYPE_TRACEPOINT, configuration, probe: None })
    }

    /// A call of a function that this program and the processes have from the same file.
    fn call(function: usize) -> io::Result<Event> {
        let kind = number(Path::new(PROBES))? as u32;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let (path, offset) = maps
            .lines()
            .find_map(|line| place_in(line, function))
            .ok_or_else(|| io::Error::other("a function that is in no file"))?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Event { kind, configuration: 0, probe: Some((path, offset)) })
    }

    /// Whatever takes memory from the C library, which is where Rust's own allocator has it from.
    pub fn allocations() -> io::Result<Vec<Event>> {
        let functions = [
            libc::malloc as *const () as usize,
            libc::calloc as *const () as usize,
            libc::realloc as *const () as usize,
            libc::posix_memalign as *const () as usize,
        ];
        functions.into_iter().map(Event::call).collect()
    }

    fn open(&self, tid: i32) -> io::Result<OwnedFd> {
        let (path, offset) =
            self.probe.as_ref().map_or((0, 0), |(path, offset)| (path.as_ptr() as u64, *offset));
        let attributes = Attributes {
            kind: self.kind,
            bytes: size_of::<Attributes>() as u32,
            configuration: self.configuration,
            flags: INHERIT,
            first: path,
            second: offset,
            ..Attributes::default()
        };
        let (any_processor, no_group) = (-1, -1);
        // SAFETY: a structure and, in it, the address of a C string, which both outlive the call.
        let file = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid,
                any_processor,
                no_group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(file as i32) })
    }
}

/// The file that is mapped there, and what of it, if a line of a process's maps tells of that
/// address.
fn place_in(line: &str, address: usize) -> Option<(PathBuf, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text| usize::from_str_radix(text, 16).ok();
    let (begin, end) = (hexadecimal(begin)?, hexadecimal(end)?);
    let offset = hexadecimal(words.nth(1)?)?;
    let path = words.nth(2).filter(|path| path.starts_with('/'))?;
    (begin..end).contains(&address).then(|| (path.into(), (address - begin + offset) as u64))
}

impl Counter {
    /// Of all events together, in all threads of these processes.
    pub fn new(events: &[Event], processes: &[u32]) -> io::Result<Counter> {
        let mut opened = Vec::new();
        for process in processes {
            for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let tid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
                let tid = tid.ok_or(io::ErrorKind::InvalidData)?;
                for event in events {
                    opened.push(event.open(tid)?);
                }
            }
        }
        Ok(Counter { events: opened })
    }

    pub fn read(&self) -> io::Result<u64> {
        let read = |event: &OwnedFd| -> io::Result<u64> {
            let mut value = [0; 8];
            rustix::io::read(event, &mut value)?;
            Ok(u64::from_ne_bytes(value))
        };
        self.events.iter().map(read).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_files() {
        let line = "7f00-7f80 r-xp 00001000 fe:01 1234    /usr/lib/libc.so.6";
        assert_eq!(place_in(line, 0x7f10), Some(("/usr/lib/libc.so.6".into(), 0x1010)));
        for (line, address) in [
            (line, 0x7eff),
            (line, 0x7f80),
            ("7f00-7f80 rw-p 00000000 00:00 0 [heap]", 0x7f10),
            ("", 0),
        ] {
            assert_eq!(place_in(line, address), None, "{line} {address:x}");
        }
    }

    #[test]
    fn what_a_process_does_is_counted() {
        let Ok(events) = Event::system_call() else {
            return println!("skipped: what_a_process_does_is_counted (no tracefs here)");
        };
        let Ok(counter) = Counter::new(&[events], &[std::process::id()]) else {
            return println!("skipped: what_a_process_does_is_counted (this user may not count)");
        };
        let before = counter.read().unwrap();
        (0..100).for_each(|_| _ = rustix::process::getppid());
        assert!(counter.read().unwrap() >= before + 100);
    }
}
