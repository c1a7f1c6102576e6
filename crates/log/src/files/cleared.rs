//! Until when each buffer has been cleared: the `cleared` file, which the directory's owner writes.
//!
//! A line for each buffer, `main 123456789`: what was logged before that time of CLOCK_MONOTONIC is not read any more. The rings stay
//! as they are, because they are their writers' alone.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::place::Directory;
use baton_shm::clock;
use rustix::io::Errno;
use std::path::Path;

/// The file, in the log's directory.
const NAME: &str = "cleared";

/// Has readers that are opened from now on pass over what is in these buffers. Only the directory's owner can: `EPERM`.
pub fn clear(path: &Path, buffers: &[Buffer]) -> Result<(), Errno> {
    let mut cleared = read(&Directory::open_to_read(path)?);
    for &buffer in buffers {
        cleared[buffer as usize] = clock::now_ns();
    }
    let lines =
        Buffer::ALL.map(|buffer| format!("{} {}\n", buffer.name(), cleared[buffer as usize]));
    Directory::open_to_write(path)?.write(NAME, &lines.concat())
}

/// When each buffer was cleared last.
pub(crate) fn read(directory: &Directory) -> [u64; N_BUFFERS] {
    directory.read(NAME).map_or([0; N_BUFFERS], |text| parse(&text))
}

fn parse(text: &str) -> [u64; N_BUFFERS] {
    let mut cleared = [0; N_BUFFERS];
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

    #[test]
    fn lines_that_mean_nothing_clear_nothing() {
        let cleared =
            parse("main 5\ncrash x\nkernel 7\nradio\nsystem 18446744073709551616\nevents -1\n");
        let mut expected = [0; N_BUFFERS];
        expected[Buffer::Main as usize] = 5;
        assert_eq!(cleared, expected);
    }
}
