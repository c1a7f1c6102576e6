//! The sizes of rings and the budget of dead processes: the `settings` file, which the directory's
//! owner writes.
//!
//! It has a line for each value: `main 262144`, `budget 16777216`. A value that is missing or not
//! valid has its default.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::directory::Directory;
use crate::files::layout::is_ring_size;
use rustix::io::Errno;
use std::path::Path;

/// The name of the file in the log's directory.
const NAME: &str = "settings";
const BUDGET: &str = "budget";
const RING_BYTES: usize = 64 * 1024;
const BUDGET_BYTES: u64 = 16 << 20;

/// The settings of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bytes of each thread's ring, by buffer: a power of two, from 64 KiB to 1 GiB.
    pub ring_bytes: [usize; N_BUFFERS],
    /// The bytes that the files of a user's dead processes may take.
    pub budget_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { ring_bytes: [RING_BYTES; N_BUFFERS], budget_bytes: BUDGET_BYTES }
    }
}

impl Settings {
    /// Reads the settings of a directory.
    pub fn read(path: &Path) -> Result<Settings, Errno> {
        Ok(Settings::of(&Directory::open_to_read(path)?))
    }

    pub(crate) fn of(directory: &Directory) -> Settings {
        directory.read(NAME).map_or_else(Settings::default, |text| Settings::parse(&text))
    }

    /// Writes the settings of a directory, for rings that are made from now on. `EPERM`: only the
    /// directory's owner may do this.
    pub fn write(&self, path: &Path) -> Result<(), Errno> {
        Directory::open_to_write(path)?.write(NAME, &self.text())
    }

    fn text(&self) -> String {
        let sizes = Buffer::ALL
            .map(|buffer| format!("{} {}\n", buffer.name(), self.ring_bytes[buffer as usize]));
        sizes.concat() + &format!("{BUDGET} {}\n", self.budget_bytes)
    }

    fn parse(text: &str) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            let Ok(bytes) = value.trim().parse::<u64>() else { continue };
            let size = usize::try_from(bytes).ok().filter(|&bytes| is_ring_size(bytes));
            match (name, Buffer::named(name), size) {
                (BUDGET, _, _) => settings.budget_bytes = bytes,
                (_, Some(buffer), Some(size)) => settings.ring_bytes[buffer as usize] = size,
                _ => {}
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    #[test]
    fn what_means_nothing_changes_nothing() {
        let check =
            |text: &str, expected: Settings| assert_eq!(Settings::parse(text), expected, "{text}");
        let default = Settings::default();
        let mut large = default;
        large.ring_bytes[Buffer::Crash as usize] = 1 << 20;
        check("", default);
        check("crash 1048576\n", large);
        check("crash 1048577\ncrash 12\nmain\nkernel 1048576\ncrash 99999999999999999999", default);
        check("budget 7\n", Settings { budget_bytes: 7, ..default });
        check(&large.text(), large);
    }

    #[test]
    fn a_directorys_settings_are_its_owners() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Settings::read(directory.path()), Ok(Settings::default()));
        let settings = Settings { ring_bytes: [1 << 17; N_BUFFERS], budget_bytes: 12345 };
        settings.write(directory.path()).unwrap();
        assert_eq!(Settings::read(directory.path()), Ok(settings));
        let file = std::fs::File::open(directory.path().join(NAME)).unwrap();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666)).unwrap();
        assert_eq!(Settings::read(directory.path()), Ok(Settings::default()));
    }
}
