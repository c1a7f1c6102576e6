//! Formats entries as JSON: one object per line, or events of a trace for Perfetto or
//! chrome://tracing.
//!
//! A trace has the array form of the Trace Event Format, which may end anywhere: a truncated trace
//! still loads.

use baton_logcat::entry::{Body, Entry, Shown};
use serde_json::{Value, json};

/// Bytes as text, with replacement characters for invalid UTF-8.
fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The entry as one line.
pub fn object(entry: &Entry, shown: &Shown<'_>) -> String {
    let mut object = json!({
        "buffer": entry.buffer.name(),
        "wall_ns": entry.wall.as_nanos() as u64,
        "monotonic_ns": entry.monotonic.as_nanos() as u64,
        "uid": entry.uid,
        "pid": entry.pid,
        "tid": entry.tid,
        "priority": shown.level.letter().to_string(),
        "tag": words(&shown.tag),
        "message": words(&shown.message),
    });
    if let Body::Event { tag, .. } = &entry.body {
        object["event"] = json!(tag);
    }
    object.to_string() + "\n"
}

/// Text before the first event of a trace.
pub const TRACE_BEGINS: &str = "[\n";
/// Text between two events.
pub const TRACE_GOES_ON: &str = ",\n";
/// Text after the last event.
pub const TRACE_ENDS: &str = "\n]\n";

/// An event in the thread's row, at its time since boot.
pub fn instant(entry: &Entry, shown: &Shown<'_>) -> Value {
    let (tag, message) = (words(&shown.tag), words(&shown.message));
    let name = message.lines().next().unwrap_or_default();
    json!({
        "ph": "i",
        "s": "t",
        // Microseconds.
        "ts": entry.monotonic.as_nanos() as f64 / 1e3,
        "pid": entry.pid,
        "tid": entry.tid,
        "cat": tag,
        "name": format!("{tag}: {name}"),
        "args": {
            "message": message,
            "priority": shown.level.letter().to_string(),
            "buffer": entry.buffer.name(),
            "wall_ns": entry.wall.as_nanos() as u64,
            "uid": entry.uid,
        },
    })
}

/// The event that names a process's row.
pub fn process(pid: u32, program: &str) -> Value {
    json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": program } })
}
