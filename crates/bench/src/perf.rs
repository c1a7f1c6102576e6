//! What the kernel counts of other processes, by `perf_event_open(2)`: their system calls, and
//! their calls of functions of the C library. The processes know nothing of it.
//!
//! It takes root or CAP_PERFMON, and, for system calls, tracefs.

use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Counter};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const UPROBES: &str = "/sys/bus/event_source/devices/uprobe/type";

/// All events together, in all threads of some processes.
pub struct Counters(Vec<Counter>);

impl Counters {
    /// Of system calls.
    pub fn of_system_calls(processes: &[u32]) -> io::Result<Counters> {
        const NAME: &str = "raw_syscalls/sys_enter";
        let event = Tracepoint::with_name(NAME).map_err(|error| at(NAME, error))?;
        Counters::start(&mut [Builder::new(event)], processes)
    }

    /// Of whatever takes memory from the C library, which is where Rust's own allocator has it
    /// from.
    pub fn of_allocations(processes: &[u32]) -> io::Result<Counters> {
        let functions = [
            libc::malloc as *const () as usize,
            libc::calloc as *const () as usize,
            libc::realloc as *const () as usize,
            libc::posix_memalign as *const () as usize,
        ];
        let places = functions.into_iter().map(place).collect::<io::Result<Vec<_>>>()?;
        let kind = std::fs::read_to_string(UPROBES).map_err(|error| at(UPROBES, error))?;
        let kind = kind.trim().parse().map_err(io::Error::other)?;
        let probe = |(path, offset): &(CString, u64)| {
            // The library has a `UProbe`, which is no event of its own.
            let mut probe = Builder::new(Software::DUMMY);
            let attributes = probe.attrs_mut();
            (attributes.type_, attributes.config) = (kind, 0);
            (attributes.uprobe_path, attributes.probe_offset) = (path.as_ptr() as u64, *offset);
            probe
        };
        let mut events: Vec<_> = places.iter().map(probe).collect();
        Counters::start(&mut events, processes)
    }

    /// Counts from now on, threads that are started later included.
    fn start(events: &mut [Builder<'_>], processes: &[u32]) -> io::Result<Counters> {
        let mut counters = Vec::new();
        for process in processes {
            for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let tid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
                let tid = tid.ok_or(io::ErrorKind::InvalidData)?;
                for event in &mut *events {
                    event.include_kernel().include_hv().inherit(true).enabled(true);
                    counters.push(event.observe_pid(tid).any_cpu().build()?);
                }
            }
        }
        Ok(Counters(counters))
    }

    pub fn read(&mut self) -> io::Result<u64> {
        self.0.iter_mut().map(Counter::read).sum()
    }
}

fn at(path: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The file that this program and the processes have a function from, and where in it.
fn place(function: usize) -> io::Result<(CString, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let place = maps.lines().find_map(|line| place_in(line, function));
    let (path, offset) = place.ok_or_else(|| io::Error::other("a function that is in no file"))?;
    Ok((CString::new(path.into_os_string().into_vec())?, offset))
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
        let Ok(mut counters) = Counters::of_system_calls(&[std::process::id()]) else {
            return println!("skipped: what_a_process_does_is_counted (this user may not count)");
        };
        let before = counters.read().unwrap();
        (0..100).for_each(|_| _ = rustix::process::getppid());
        assert!(counters.read().unwrap() >= before + 100);
    }
}
