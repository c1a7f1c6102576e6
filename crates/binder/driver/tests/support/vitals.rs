//! A process as `/proc` shows it: descriptors, threads, and where each thread waits.

use std::fs;

/// Descriptors and threads.
pub fn counts(pid: u32) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("it lives").count();
    (count("fd"), count("task"))
}

pub fn open_files(pid: u32) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let name = |path: std::path::PathBuf| fs::read_link(path).unwrap_or_default();
    all.flatten().map(|entry| name(entry.path()).display().to_string()).collect()
}

/// Writes where each thread waits to standard error, as far as this user may read it.
pub fn print_waits(pid: u32) {
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        eprintln!("{} {} {}", read("comm").trim(), read("wchan"), read("syscall").trim());
        eprint!("{}", read("stack"));
    }
}
