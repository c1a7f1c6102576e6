//! The destination of entries: standard output, or a file with older files beside it.
//!
//! ```text
//!   FILE  --rotate-->  FILE.1  -->  FILE.2  --> ... FILE.n, of which an older one is overwritten
//! ```
//!
//! Entries in a file are complete: on a full disk, the last entry in the file is still whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Entries are written when this many bytes have gathered, or when no more entries are available.
const GATHERED_BYTES: usize = 64 * 1024;

/// The destination of entries.
#[derive(Debug)]
pub struct Output {
    to: To,
    /// Bytes to write.
    gathered: Vec<u8>,
    /// Ends of the entries in `gathered`.
    ends: Vec<usize>,
}

#[derive(Debug)]
enum To {
    Standard,
    File(LogFile),
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    rotation: Option<Rotation>,
}

/// The size of a full file, and the number of older files.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    pub kibibytes: u64,
    pub count: u32,
}

impl Output {
    /// Output to standard output.
    pub fn standard() -> Output {
        Output { to: To::Standard, gathered: Vec::new(), ends: Vec::new() }
    }

    /// Output to the end of a file, or to a device or a pipe, which cannot be rotated.
    pub fn file(path: &Path, rotation: Option<Rotation>) -> io::Result<Output> {
        if rotation.is_some() {
            check_replaceable(path)?;
        }
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let path = path.to_owned();
        let to = To::File(LogFile { path, file, bytes, rotation });
        Ok(Output { to, gathered: Vec::new(), ends: Vec::new() })
    }

    /// Adds an entry.
    pub fn put(&mut self, entry: &[u8]) -> io::Result<()> {
        self.gathered.extend(entry);
        self.ends.push(self.gathered.len());
        let full = match &self.to {
            To::File(file) => file.is_full(self.gathered.len()),
            To::Standard => false,
        };
        if full || self.gathered.len() >= GATHERED_BYTES {
            self.flush()?;
        }
        match &mut self.to {
            To::File(file) if full => file.rotate(),
            _ => Ok(()),
        }
    }

    /// Writes the gathered entries.
    pub fn flush(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let ends = std::mem::take(&mut self.ends);
        match &mut self.to {
            To::Standard => {
                let mut out = io::stdout().lock();
                out.write_all(&gathered)?;
                out.flush()
            }
            To::File(file) => file.write(&gathered, &ends),
        }
    }
}

impl LogFile {
    fn is_full(&self, more: usize) -> bool {
        let bytes = self.bytes + more as u64;
        self.rotation.is_some_and(|rotation| bytes / 1024 >= rotation.kibibytes)
    }

    fn write(&mut self, entries: &[u8], ends: &[usize]) -> io::Result<()> {
        let mut written = 0;
        while written < entries.len() {
            match self.file.write(&entries[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let whole = ends.iter().rev().find(|end| **end <= written).unwrap_or(&0);
                    // A destination that is no regular file cannot be truncated.
                    let _ = self.file.set_len(self.bytes + *whole as u64);
                    return Err(error);
                }
            }
        }
        self.bytes += written as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Some(rotation) = self.rotation else { return Ok(()) };
        for index in (1..=rotation.count).rev() {
            let newer = match index {
                1 => self.path.clone(),
                _ => older(&self.path, index - 1, rotation.count),
            };
            match std::fs::rename(newer, older(&self.path, index, rotation.count)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        (self.file, self.bytes) = (open(&self.path)?, 0);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// The path of an older file, such as `FILE.1`, with as many digits as the greatest number has.
fn older(path: &Path, index: u32, count: u32) -> PathBuf {
    let digits = count.to_string().len();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index:0digits$}"));
    name.into()
}

/// Fails if the path leads to a device, a pipe or a link, none of which may be removed or renamed.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The last bytes of a regular file, at most `longest`, from the beginning of a line on. `None` of
/// any other file.
pub fn tail(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    // An open of a pipe could wait for its writer.
    if !path.metadata()?.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(longest);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(longest).read_to_end(&mut bytes)?;
    if skipped > 0 {
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        bytes.drain(..line);
    }
    Ok(Some(bytes))
}

/// The file and its older files, the newest first.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?.file_name();
        let number = match entry.to_string_lossy().strip_prefix(&*name) {
            Some("") => Some(0),
            Some(suffix) => suffix.strip_prefix('.').and_then(|digits| digits.parse::<u32>().ok()),
            None => None,
        };
        found.extend(number.map(|number| (number, directory.join(entry))));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn full_files_become_older_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = Some(Rotation { kibibytes: 1, count: 10 });
        let line = |letter: char| letter.to_string().repeat(1023) + "\n";
        let mut output = Output::file(&path, rotation).unwrap();
        "abc".chars().for_each(|letter| output.put(line(letter).as_bytes()).unwrap());
        output.put(b"rest\n").unwrap();
        output.flush().unwrap();
        let older = |index| read(&older(&path, index, 10));
        assert_eq!(read(&path), "rest\n");
        assert_eq!((older(1), older(2), older(3)), (line('c'), line('b'), line('a')));
        assert!(directory.path().join("log.01").exists());
        let names: Vec<_> = files(&path).unwrap();
        assert_eq!(names.len(), 4);
        assert_eq!(names[0], path);
    }

    #[test]
    fn only_so_many_are_kept_and_what_was_there_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "x".repeat(1000)).unwrap();
        let rotation = Some(Rotation { kibibytes: 1, count: 1 });
        let mut output = Output::file(&path, rotation).unwrap();
        output.put(&[b'y'; 24]).unwrap();
        assert_eq!(read(&path), "");
        assert!(read(&directory.path().join("log.1")).ends_with('y'));
        output.put(&[b'z'; 1024]).unwrap();
        assert!(read(&directory.path().join("log.1")).starts_with('z'));
        assert_eq!(files(&path).unwrap().len(), 2);
    }

    #[test]
    fn the_end_of_a_file_begins_with_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "first\nsecond\nthird\n").unwrap();
        for (longest, expected) in [
            (100, "first\nsecond\nthird\n"),
            (19, "first\nsecond\nthird\n"),
            (18, "second\nthird\n"),
            (9, "third\n"),
            (3, ""),
        ] {
            let found = tail(&path, longest).unwrap().unwrap();
            assert_eq!(String::from_utf8_lossy(&found), expected, "{longest}");
        }
        assert_eq!(tail(Path::new("/dev/full"), 100).unwrap(), None);
    }

    #[test]
    fn only_regular_files_are_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("log"), directory.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let rotation = Some(Rotation { kibibytes: 1, count: 1 });
        assert!(Output::file(&link, rotation).is_err());
        assert!(!file.exists());
        assert!(Output::file(&file, rotation).is_ok());
        assert!(Output::file(&link, None).is_ok());
    }

    #[test]
    fn a_full_disk_is_told_of() {
        let mut output = Output::file(Path::new("/dev/full"), None).unwrap();
        output.put(b"words\n").unwrap();
        assert_eq!(output.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
