//! Finds this process's map of a file in /proc/self/maps.

use rustix::fd::BorrowedFd;

/// Address and length of the private map of a file at its offset 0, if there is one.
pub fn find_private(file: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let found = rustix::fs::fstat(file).ok()?;
    let device = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| parse(line, device, found.st_ino))
}

/// `7f00-7f10 r--p 00000000 00:01 1234   /memfd:binder (deleted)`
fn parse(line: &str, device: (u32, u32), inode: u64) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = fields.next()?.split_once(':')?;
    let [major, minor] = [major, minor].map(|part| u32::from_str_radix(part, 16));
    let line_inode: u64 = fields.next()?.parse().ok()?;
    let is_file = (major.ok()?, minor.ok()?) == device && line_inode == inode;
    if !is_file || !rights.ends_with('p') || offset.bytes().any(|b| b != b'0') {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let from = usize::from_str_radix(from, 16).ok()?;
    Some((from, usize::from_str_radix(to, 16).ok()? - from))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_the_private_map_of_the_file_counts() {
        let line = |rights, offset, inode| {
            format!(
                "7f0000000000-7f0000100000 {rights} {offset} fd:1a {inode}   /memfd:binder \
                 (deleted)"
            )
        };
        const DEVICE: (u32, u32) = (0xfd, 0x1a);
        let check = |rights, offset, inode| parse(&line(rights, offset, inode), DEVICE, 77);
        assert_eq!(check("r--p", "00000000", 77), Some((0x7f00_0000_0000, 0x10_0000)));
        assert_eq!(check("rw-s", "00000000", 77), None);
        assert_eq!(check("r--p", "00001000", 77), None);
        assert_eq!(check("r--p", "00000000", 78), None);
        for device in [(0xfd, 0x1b), (0xfc, 0x1a)] {
            assert_eq!(parse(&line("r--p", "00000000", 77), device, 77), None, "{device:?}");
        }
        assert_eq!(parse("", DEVICE, 77), None);
    }
}
