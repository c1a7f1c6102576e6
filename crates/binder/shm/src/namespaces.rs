//! The namespaces of the calling process, in which ids of other processes have a meaning.

use std::sync::OnceLock;

/// The kernel's default for `/proc/sys/kernel/overflowuid`.
const DEFAULT_OVERFLOW_UID: u32 = 65534;

/// Whether a user id only says that this process's user namespace does not have the user. Any
/// number of users have that id.
pub fn is_overflow_uid(uid: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    static HAS_OVERFLOW: OnceLock<bool> = OnceLock::new();
    let read = |path| std::fs::read_to_string(path).ok();
    let overflow = || read("/proc/sys/kernel/overflowuid")?.trim().parse().ok();
    // Without a /proc, the id is taken for a user's.
    let has_overflow = || read("/proc/self/uid_map").is_none_or(|map| maps(&map, uid));
    uid != 0
        && uid == *OVERFLOW.get_or_init(|| overflow().unwrap_or(DEFAULT_OVERFLOW_UID))
        && !*HAS_OVERFLOW.get_or_init(has_overflow)
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
