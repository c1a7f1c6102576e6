//! Memory and descriptors of a process, from /proc.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between two samples of a watched process.
const PERIOD: Duration = Duration::from_millis(20);

/// A sample of a process's resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vitals {
    /// VmRSS, in bytes.
    pub resident_bytes: u64,
    /// RssAnon, in bytes: memory of this process alone, except for pages shared with its parent.
    pub private_bytes: u64,
    /// Entries of /proc/PID/fd.
    pub descriptors: u64,
}

impl Vitals {
    /// Samples a process. All values are zero if it has ended.
    pub fn of(pid: u32) -> Vitals {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let bytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
            kib.map_or(0, |kib: u64| kib << 10)
        };
        let table = std::fs::read_dir(format!("/proc/{pid}/fd"));
        Vitals {
            resident_bytes: bytes("VmRSS:"),
            private_bytes: bytes("RssAnon:"),
            descriptors: table.map_or(0, |entries| entries.count() as u64),
        }
    }

    fn max(self, other: Vitals) -> Vitals {
        Vitals {
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            private_bytes: self.private_bytes.max(other.private_bytes),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// A process that is sampled periodically.
pub struct Watched {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vitals>>,
}

impl Watched {
    pub fn start(pid: u32) -> Watched {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut most = Vitals::of(pid);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PERIOD) {
                most = most.max(Vitals::of(pid));
            }
            most.max(Vitals::of(pid))
        });
        Watched { stop: Some(stop), thread: Some(thread) }
    }

    /// Ends the sampling and returns the maximum of each value.
    pub fn stop(mut self) -> Vitals {
        self.stop = None;
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("a look does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_this_process_is_not_zero() {
        let us = std::process::id();
        let before = Vitals::of(us);
        assert!(before.private_bytes > 0 && before.resident_bytes >= before.private_bytes);
        let watched = Watched::start(us);
        let files: Vec<_> =
            (0..300).map(|_| std::fs::File::open("/dev/null").expect("a file")).collect();
        let most = watched.stop();
        assert!(most.descriptors >= 300, "{most:?}");
        drop(files);
        assert_eq!(Vitals::of(u32::MAX).descriptors, 0);
    }
}
