//! The namespaces of the calling process, in which ids of other processes have a meaning.

use std::sync::OnceLock;

/// Where the system says which id users have that a namespace does not have.
const OVERFLOW_UID: &str = "/proc/sys/kernel/overflowuid";
/// The kernel's default for it.
const DEFAULT_OVERFLOW_UID: u32 = 65534;

/// Whether a user id only says that this process's user namespace does not have the user. Any
/// number of users have that id.
pub fn is_overflow_uid(uid: u32) -> bool {
    static HAS_OVERFLOW: OnceLock<bool> = OnceLock::new();
    is_overflow_number(uid) && !*HAS_OVERFLOW.get_or_init(|| own_map_is(|map| maps(map, uid)))
}

/// Whether a user id may say that this process's user namespace does not have the user: a namespace
/// that has some users only may have one with this number, too.
pub fn may_be_overflow_uid(uid: u32) -> bool {
    is_overflow_number(uid) && !own_map_is(|map| maps(map, u32::MAX - 1))
}

/// Whether the system shows users that a namespace does not have as this number.
fn is_overflow_number(uid: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    let overflow = || std::fs::read_to_string(OVERFLOW_UID).ok()?.trim().parse().ok();
    uid != 0 && uid == *OVERFLOW.get_or_init(|| overflow().unwrap_or(DEFAULT_OVERFLOW_UID))
}

/// Whether the map of this process's user namespace is like that. Without a /proc, each id is taken
/// for a user's.
fn own_map_is(is_so: impl FnOnce(&str) -> bool) -> bool {
    std::fs::read_to_string("/proc/self/uid_map").map_or(true, |map| is_so(&map))
}

/// Whether a namespace with this `uid_map` has a user with this id.
fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|number| number.parse::<u32>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, n)| uid.checked_sub(first).is_some_and(|at| at < n))
    })
}

/// The pids of a `NSpid:` line of `/proc/PID/status`, or of a pidfd's `fdinfo`: in the namespace of
/// the mounted /proc and in those below it, the process's own last. Empty without such a line.
pub fn pids_in(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().map_while(|pid| pid.parse().ok()).collect()
}

/// The number of pid namespaces from that of the mounted /proc down to the calling process's: 1 if
/// /proc shows the pids that system calls use, 0 without a /proc.
pub fn depth_below_proc() -> usize {
    static DEPTH: OnceLock<usize> = OnceLock::new();
    let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    *DEPTH.get_or_init(|| pids_in(&status()).len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_its_ranges() {
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        let whole = "         0          0 4294967295\n";
        for (map, uid, expect) in [
            (rootless, 0, true),
            (rootless, 65534, true),
            (rootless, 65536, true),
            (rootless, 65537, false),
            (whole, 65534, true),
            (whole, u32::MAX - 1, true),
            (rootless, u32::MAX - 1, false),
            ("0 1000 1\n", 65534, false),
            ("5 1000 1\n", 0, false),
            ("", 0, false),
            ("nonsense", 0, false),
        ] {
            assert_eq!(maps(map, uid), expect, "{uid} in {map:?}");
        }
    }

    #[test]
    fn pids_are_those_from_proc_inwards() {
        assert_eq!(pids_in("Pid:\t7\nNSpid:\t4711\t17\t1\nNSpgid:\t0\n"), [4711, 17, 1]);
        assert_eq!(pids_in("Pid:\t7\n"), [0; 0]);
        let own = pids_in(&std::fs::read_to_string("/proc/self/status").unwrap());
        assert_eq!(own.len(), depth_below_proc());
        assert_eq!(own.last(), Some(&std::process::id()));
    }
}
