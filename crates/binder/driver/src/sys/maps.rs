//! Finds this process's map of a file in /proc/self/maps.

use rustix::fd::BorrowedFd;

/// Address and length of the private map of a file at its offset 0, if there is one.
pub fn find_private(file: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let inode = rustix::fs::fstat(file).ok()?.st_ino;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| parse(line, inode))
}

/// `7f00-7f10 r--p 00000000 00:01 1234   /memfd:binder (deleted)`
fn parse(line: &str, inode: u64) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let line_inode: u64 = fields.nth(1)?.parse().ok()?;
    if line_inode != inode || !rights.ends_with('p') || offset.bytes().any(|b| b != b'0') {
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
                "7f0000000000-7f0000100000 {rights} {offset} 00:01 {inode}   /memfd:binder \
                 (deleted)"
            )
        };
        let check = |rights, offset, inode| parse(&line(rights, offset, inode), 77);
        assert_eq!(check("r--p", "00000000", 77), Some((0x7f00_0000_0000, 0x10_0000)));
        assert_eq!(check("rw-s", "00000000", 77), None);
        assert_eq!(check("r--p", "00001000", 77), None);
        assert_eq!(check("r--p", "00000000", 78), None);
        assert_eq!(parse("", 77), None);
    }
}
