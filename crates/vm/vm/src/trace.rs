//! A trace of collections and pauses for Perfetto (ui.perfetto.dev) or chrome://tracing.
//!
//! It has the array form of the Trace Event Format, which may end anywhere: what a process that is
//! killed has written still loads. Times are those of the monotonic clock, as in the traces of
//! `baton logcat`.

use crate::heap::Statistics;
use rustc_hash::FxHashSet;
use rustix::thread::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Trace(Mutex<Sink>);

#[derive(Debug)]
struct Sink {
    to: BufWriter<File>,
    is_empty: bool,
    /// Threads that have a name in the trace
    named: FxHashSet<Pid>,
}

/// Microseconds.
fn time(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Sink {
    /// Writes an event. A disk that is full ends the trace, not the program.
    fn write(&mut self, event: &Value) {
        let before = if self.is_empty { "[\n" } else { ",\n" };
        self.is_empty = false;
        let _ = write!(self.to, "{before}{event}");
    }
}

impl Trace {
    /// Creates the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path) -> io::Result<Trace> {
        let to = BufWriter::new(File::create(path)?);
        Ok(Trace(Mutex::new(Sink { to, is_empty: true, named: FxHashSet::default() })))
    }

    fn with(&self, write: impl FnOnce(&mut Sink, u32)) {
        write(&mut self.0.lock().expect("no holder panics"), std::process::id());
    }

    /// What a thread did from one time to another. `name_of` is asked once for each thread.
    pub fn slice(
        &self,
        tid: Pid,
        name_of: impl FnOnce() -> String,
        what: &str,
        (start_ns, end_ns): (u64, u64),
    ) {
        self.with(|sink, pid| {
            let tid_number = tid.as_raw_nonzero().get();
            if sink.named.insert(tid) {
                sink.write(&json!({
                    "ph": "M", "name": "thread_name", "pid": pid, "tid": tid_number,
                    "args": { "name": name_of() },
                }));
            }
            sink.write(&json!({
                "ph": "X", "cat": "gc", "name": what, "pid": pid, "tid": tid_number,
                "ts": time(start_ns), "dur": time(end_ns.saturating_sub(start_ns)),
            }));
        });
    }

    /// How the heap's memory is used, in KiB.
    pub fn heap(&self, at_ns: u64, of: &Statistics) {
        self.with(|sink, pid| {
            sink.write(&json!({
                "ph": "C", "name": "heap", "pid": pid, "ts": time(at_ns), "args": {
                    "live KiB": of.live() / 1024,
                    "free in cells KiB": of.free_in_cells / 1024,
                },
            }));
        });
    }

    /// Hands all events to the system.
    pub fn flush(&self) {
        self.with(|sink, _| drop(sink.to.flush()));
    }

    /// Ends the trace: the process is about to end. Later events are lost.
    pub fn finish(&self) {
        self.with(|sink, _| {
            let end = if sink.is_empty { "[\n]\n" } else { "\n]\n" };
            let _ = write!(sink.to, "{end}");
            let _ = sink.to.flush();
            if let Ok(nowhere) = File::create("/dev/null") {
                sink.to = BufWriter::new(nowhere);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_loads_and_names_each_thread_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.json");
        let trace = Trace::create(&path).unwrap();
        let tid = rustix::thread::gettid();
        for start_ns in [2000, 7500] {
            trace.slice(tid, || "\"load\"".into(), "memory", (start_ns, start_ns + 500));
        }
        let used =
            Statistics { max: 8 << 20, used: 3 << 20, free_in_cells: 1 << 20, longest_free: 0 };
        trace.heap(9000, &used);
        trace.finish();
        trace.heap(9500, &used);
        let text = std::fs::read_to_string(path).unwrap();
        let events: Vec<Value> = serde_json::from_str(&text).unwrap();
        let kinds: Vec<&str> = events.iter().map(|it| it["ph"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["M", "X", "X", "C"]);
        assert_eq!(events[0]["args"]["name"], "\"load\"");
        assert_eq!((&events[2]["ts"], &events[2]["dur"]), (&json!(7.5), &json!(0.5)));
        assert_eq!(events[3]["args"]["live KiB"], 2048);
    }
}
