//! The times up to which buffers were cleared: the `cleared` file, which the directory's owner
//! writes.
//!
//! It has a line for each buffer, `main 123456789`: readers skip records before this time of
//! CLOCK_MONOTONIC. A line `boot 4a...` says in which start of the machine that was. The rings stay
//! as they are, since only their writers write them.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::Boot;
use crate::files::directory::Directory;
use baton_shm::clock;
use rustix::io::Errno;
use std::path::Path;

/// The name of the file in the log's directory.
const NAME: &str = "cleared";
const BOOT: &str = "boot";

/// Lets readers that are opened from now on skip the present records of these buffers. `EPERM`:
/// only the directory's owner may do this.
pub fn clear(path: &Path, buffers: &[Buffer]) -> Result<(), Errno> {
    let boot = Boot::current();
    let mut cleared = read(&Directory::open_to_read(path)?, boot);
    for &buffer in buffers {
        cleared[buffer as usize] = clock::now_ns();
    }
    let lines =
        Buffer::ALL.map(|buffer| format!("{} {}\n", buffer.name(), cleared[buffer as usize]));
    let text = format!("{BOOT} {boot}\n{}", lines.concat());
    Directory::open_to_write(path)?.write(NAME, &text)
}

/// The time of the last clear of each buffer in this start of the machine; 0: there was none.
pub(crate) fn read(directory: &Directory, boot: Boot) -> [u64; N_BUFFERS] {
    directory.read(NAME).map_or([0; N_BUFFERS], |text| parse(&text, boot))
}

fn parse(text: &str, boot: Boot) -> [u64; N_BUFFERS] {
    let mut cleared = [0; N_BUFFERS];
    let is_of = |line: &str| line.strip_prefix(BOOT).and_then(Boot::parse) == Some(boot);
    if !text.lines().any(is_of) {
        return cleared;
    }
    for (name, time) in text.lines().filter_map(|line| line.split_once(' ')) {
        if let (Some(buffer), Ok(time_ns)) = (Buffer::named(name), time.parse()) {
            cleared[buffer as usize] = time_ns;
        }
    }
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "boot e5998c1884f744168e6052881a2071dd\n";

    fn boot() -> Boot {
        Boot::parse("e5998c1884f744168e6052881a2071dd").unwrap()
    }

    #[test]
    fn lines_that_mean_nothing_clear_nothing() {
        let lines = "main 5\ncrash x\nkernel 7\nradio\nsystem 18446744073709551616\nevents -1\n";
        let cleared = parse(&format!("{BOOT}{lines}"), boot());
        let mut expected = [0; N_BUFFERS];
        expected[Buffer::Main as usize] = 5;
        assert_eq!(cleared, expected);
    }

    #[test]
    fn times_are_those_of_one_start() {
        for text in ["main 5\n", "boot 0\nmain 5\n", "boot\nmain 5\n"] {
            assert_eq!(parse(text, boot()), [0; N_BUFFERS], "{text}");
        }
        let other = Boot([1; 16]);
        assert_eq!(parse(&format!("{BOOT}main 5\n"), other), [0; N_BUFFERS]);
    }
}
