//! Identifies the process at the other end of a connected socket.

use crate::shortage::is_shortage;
use crate::state::PidNamespace;
use baton_shm::namespaces::{depth_below_proc, pids_in};
use baton_shm::socket::{self, PeerCredentials};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// Longest security label that the broker accepts; SELinux' labels are shorter.
const MAX_LABEL_BYTES: usize = 1024;
/// The label of a process that no security module has labelled.
const NO_LABEL: &str = "unconfined";

/// Most supplementary groups that the broker looks at. A process with more groups counts as one
/// without.
const MAX_GROUPS: usize = 256;
/// Room for a file of /proc about one process, at first.
const PROC_BYTES: usize = 2048;
/// From `linux/magic.h`: the file system of pidfds since Linux 6.9, whose inode numbers are never
/// used twice.
const PID_FS_MAGIC: u64 = 0x5049_4446;
/// Marks an incarnation that is the number of a pidfd. A start time is smaller.
const IS_NUMBER: u64 = 1 << 63;

/// The process that connected, as the kernel recorded it at the connect.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// Thread group id in the broker's pid namespace, or 0 if that does not have the process. Any
    /// number of processes have the pid 0, so nothing is looked up or done by it.
    pub pid: u32,
    /// The pid namespace in which the process lives.
    pub pid_namespace: PidNamespace,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id, and the supplementary ones.
    pub gids: Vec<u32>,
    /// Security label, never empty.
    pub security_context: String,
    /// Distinguishes the process from all others that have or will have its pid: the number of its
    /// pidfd with [`IS_NUMBER`], or its start time where pidfds have no numbers.
    pub incarnation: Option<u64>,
    /// See [`baton_abi::control::Identity::is_served_by_root`].
    pub is_served_by_root: bool,
}

/// The process that was identified last, by the number of its pidfd, with its pid namespace. No
/// other process ever has that number, and no process ever changes its namespace.
#[derive(Debug, Default)]
pub(crate) struct LastPeer(Option<(u64, PidNamespace)>);

impl LastPeer {
    /// The pid namespace of the process of this incarnation, if that is the last one.
    fn known(&self, incarnation: Option<u64>) -> Option<PidNamespace> {
        self.0.filter(|(last, _)| Some(*last) == incarnation).map(|(_, namespace)| namespace)
    }

    /// The pid namespace of the process of this incarnation. `look_up` finds it out if this is
    /// another process than the last one.
    fn namespace(
        &mut self,
        incarnation: Option<u64>,
        look_up: impl FnOnce() -> Result<PidNamespace, Errno>,
    ) -> Result<PidNamespace, Errno> {
        if let Some(namespace) = self.known(incarnation) {
            return Ok(namespace);
        }
        let found = look_up()?;
        if found != PidNamespace::Unknown {
            let number = incarnation.filter(|incarnation| incarnation & IS_NUMBER != 0);
            self.0 = number.map(|number| (number, found));
        }
        Ok(found)
    }
}

/// The process that was served last, with its pid and its pidfd.
#[derive(Debug, Default)]
pub(crate) struct LastServed {
    peer: LastPeer,
    pidfd: Option<(u32, OwnedFd)>,
}

impl LastServed {
    /// A pidfd of the process that has this pid. Errors are those of `pidfd_open`.
    fn take_or_open(&mut self, pid: u32) -> Result<OwnedFd, Errno> {
        match self.pidfd.take() {
            // While that process lives, the pid is its own.
            Some((last, pidfd)) if last == pid && !has_ended(&pidfd)? => Ok(pidfd),
            _ => {
                let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
                rustix::process::pidfd_open(number, PidfdFlags::empty())
            }
        }
    }
}

/// Asks the kernel who connected. Returns a pidfd as well, which becomes readable when the process
/// ends; `None` where the kernel has no pidfds. `ESRCH` if the process has ended, `ERANGE` for a
/// label that is too long; other errors are shortages of the system.
///
/// User, groups and label are read from each socket, since a process may change them between two
/// connections.
pub(crate) fn identify(
    socket: impl AsFd,
    last: &mut LastPeer,
) -> Result<(Credentials, Option<OwnedFd>), Errno> {
    let peer = socket::peer_credentials(&socket)?;
    let security_context = match peer_label(&socket) {
        Ok(label) => label_text(&label),
        // The kernel has no security module that labels sockets.
        Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) => NO_LABEL.to_owned(),
        Err(errno) => return Err(errno),
    };
    let mut gids = peer_groups(&socket).unwrap_or_default();
    gids.push(peer.gid);
    let pidfd = pidfd(&socket, peer)?;
    let incarnation = incarnation(peer.pid, pidfd.as_ref())?;
    let look_up = || pid_namespace(peer.pid, pidfd.as_ref());
    let pid_namespace = last.namespace(incarnation, look_up)?;
    // All that was found by the pid was this process's if it still lives.
    if let Some(pidfd) = &pidfd
        && has_ended(pidfd)?
    {
        return Err(Errno::SRCH);
    }
    let PeerCredentials { pid, uid, .. } = peer;
    let is_served_by_root = false;
    let credentials = Credentials {
        pid,
        pid_namespace,
        uid,
        gids,
        security_context,
        incarnation,
        is_served_by_root,
    };
    #[cfg(simulated)]
    let credentials = match simulated_pid() {
        Some(pid) => Credentials { pid, incarnation: Some(pid.into()), ..credentials },
        None => credentials,
    };
    Ok((credentials, pidfd))
}

/// The credentials of a process whose device another one serves. A server that is root says who
/// the process is in every respect. Any other server lends its own groups and label, since a
/// process of the same user may have rights by its own that the server has not.
///
/// `last` is the process that was served last. Its user and group are asked for by its pidfd, which
/// is much faster than /proc. That does not tell the further groups, so /proc is read nevertheless
/// if somebody `needs_groups`.
pub(crate) fn on_behalf(
    server: &Credentials,
    pid: u32,
    needs_groups: bool,
    last: &mut LastServed,
) -> Result<Credentials, Errno> {
    if server.pid_namespace != PidNamespace::Brokers {
        return Err(Errno::PERM);
    }
    let pidfd = match last.take_or_open(pid) {
        // A thread that is not its process's first.
        Err(Errno::INVAL | Errno::NOENT) => return Err(Errno::SRCH),
        opened => opened?,
    };
    let incarnation = incarnation(pid, Some(&pidfd))?;
    let known = last.peer.known(incarnation).filter(|_| !needs_groups);
    let ids = known.and_then(|_| socket::effective_ids(&pidfd).ok());
    let (uid, own_gids, pid_namespace) = match (known, ids) {
        (Some(namespace), Some((uid, gid))) => (uid, vec![gid], namespace),
        _ => {
            let status = read_of(pid, "status")?.ok_or(Errno::SRCH)?;
            let (uid, gids) = ids_in(&status).ok_or(Errno::SRCH)?;
            let namespace = || Ok(namespace_of(pid, &status));
            (uid, gids, last.peer.namespace(incarnation, namespace)?)
        }
    };
    let is_root = server.uid == 0;
    if !is_root && uid != server.uid {
        return Err(Errno::PERM);
    }
    let (gids, security_context) = if is_root {
        let label = if has_labels() { read_of(pid, "attr/current")? } else { None };
        (own_gids, label_text(label.unwrap_or_default().as_bytes()))
    } else {
        (server.gids.clone(), server.security_context.clone())
    };
    // All of the files were this process's if it still lives.
    if has_ended(&pidfd)? {
        return Err(Errno::SRCH);
    }
    last.pidfd = Some((pid, pidfd));
    Ok(Credentials {
        pid,
        pid_namespace,
        uid,
        gids,
        security_context,
        incarnation,
        is_served_by_root: is_root,
    })
}

/// The effective user that /proc/PID/status tells, and all groups.
fn ids_in(status: &str) -> Option<(u32, Vec<u32>)> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    // The second id is the effective one.
    let effective = |name| numbers(name).and_then(|ids| ids.get(1).copied());
    let mut gids = numbers("Groups:").unwrap_or_default();
    gids.truncate(MAX_GROUPS);
    gids.push(effective("Gid:")?);
    Some((effective("Uid:")?, gids))
}

/// On a simulated machine all processes are one of the kernel's: the number of the simulated one.
#[cfg(simulated)]
fn simulated_pid() -> Option<u32> {
    baton_shm::simulation::machine()?.take_connection()
}

/// A pidfd of the process that connected. `ESRCH` if another process has its pid by now.
///
/// Since Linux 6.5 the kernel gives the pidfd itself. On older kernels the broker trusts the
/// process that has the pid now, if it belongs to the user that connected: no process can borrow a
/// pid of another user.
fn pidfd(socket: impl AsFd, peer: PeerCredentials) -> Result<Option<OwnedFd>, Errno> {
    match socket::peer_pidfd(socket) {
        Err(Errno::NOPROTOOPT | Errno::NODATA) => {}
        found => return found.map(Some),
    }
    // Without a pidfd only the socket tells of the process's end.
    let Some(pid) = Pid::from_raw(peer.pid.cast_signed()) else { return Ok(None) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return Ok(None),
        opened => opened?,
    };
    // The pidfd was opened before this check: while its process lives, the pid is that process's.
    let is_theirs = process_uids(peer.pid)?.is_none_or(|uids| uids.contains(&peer.uid));
    if is_theirs { Ok(Some(pidfd)) } else { Err(Errno::SRCH) }
}

/// See [`Credentials::incarnation`]. A start time is this process's if the process of the pidfd
/// still lives afterwards.
fn incarnation(pid: u32, pidfd: Option<&OwnedFd>) -> Result<Option<u64>, Errno> {
    match pidfd.and_then(number_of) {
        Some(number) => Ok(Some(number | IS_NUMBER)),
        None => started_or_shortage(pid),
    }
}

/// Whether a process has this incarnation, by the word of this broker or of an earlier version.
/// Those had the start time, or the bare number of a process that /proc did not show. An error is a
/// shortage of the system.
pub(crate) fn has_incarnation(who: &Credentials, claimed: u64) -> Result<bool, Errno> {
    match who.incarnation {
        Some(number) if number & IS_NUMBER != 0 && claimed & IS_NUMBER == 0 => {
            if is_in_proc(who.pid) {
                Ok(started_or_shortage(who.pid)? == Some(claimed))
            } else {
                Ok(number == claimed | IS_NUMBER)
            }
        }
        found => Ok(found == Some(claimed)),
    }
}

/// The number of a pidfd's process that no other process of this boot has.
fn number_of(pidfd: &OwnedFd) -> Option<u64> {
    static ARE_UNIQUE: OnceLock<bool> = OnceLock::new();
    let is_of_pid_fs = |fs: rustix::fs::StatFs| fs.f_type as u64 == PID_FS_MAGIC;
    let are_unique = || rustix::fs::fstatfs(pidfd).is_ok_and(is_of_pid_fs);
    let number = || rustix::fs::fstat(pidfd).ok().map(|found| found.st_ino);
    ARE_UNIQUE.get_or_init(are_unique).then(number).flatten()
}

/// The pid namespace of a process.
fn pid_namespace(pid: u32, pidfd: Option<&OwnedFd>) -> Result<PidNamespace, Errno> {
    if pid == 0 {
        return Ok(PidNamespace::Unknown);
    }
    let Some(pidfd) = pidfd else { return Ok(PidNamespace::Brokers) };
    let fdinfo = read(&format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    Ok(namespace_of(pid, &fdinfo.unwrap_or_default()))
}

/// The pid namespace of the process that has this pid. The text has the process's pids: see
/// [`pids_in`].
fn namespace_of(pid: u32, text: &str) -> PidNamespace {
    let pids = pids_in(text);
    // The process is in the broker's namespace or below it, so the depth decides.
    if pids.len() <= depth_below_proc() {
        return PidNamespace::Brokers;
    }
    let namespace = process_file(pid, "ns/pid").and_then(|path| std::fs::metadata(path).ok());
    match (namespace, pids.last()) {
        (Some(namespace), Some(&pid)) => PidNamespace::Other { number: namespace.ino(), pid },
        _ => PidNamespace::Unknown,
    }
}

/// Whether a security module labels processes. None comes later: without one, the kernel does not
/// know the file, for any process.
fn has_labels() -> bool {
    static HAS_LABELS: OnceLock<bool> = OnceLock::new();
    let read = || std::fs::read("/proc/self/attr/current");
    let is_unknown = |error: std::io::Error| error.raw_os_error() == Some(libc::EINVAL);
    *HAS_LABELS.get_or_init(|| !read().is_err_and(is_unknown))
}

/// Whether /proc can show the process with a pid: the mounted one may be another namespace's, whose
/// pids are other processes.
pub(crate) fn is_in_proc(pid: u32) -> bool {
    pid != 0 && depth_below_proc() == 1
}

/// Path of a file about a process. `None` if /proc cannot show the process.
pub(crate) fn process_file(pid: u32, name: &str) -> Option<String> {
    is_in_proc(pid).then(|| format!("/proc/{pid}/{name}"))
}

/// Whether the process of a pidfd has ended.
fn has_ended(pidfd: &OwnedFd) -> Result<bool, Errno> {
    let mut waits = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut waits, Some(&Timespec::default()))? > 0)
}

/// The user ids of a process: real, effective, saved and of file accesses. `None` if /proc does not
/// show them.
fn process_uids(pid: u32) -> Result<Option<Vec<u32>>, Errno> {
    let status = read_of(pid, "status")?.unwrap_or_default();
    let Some(uids) = status.lines().find_map(|line| line.strip_prefix("Uid:")) else {
        return Ok(None);
    };
    Ok(uids.split_whitespace().map(|uid| uid.parse().ok()).collect())
}

/// Reads a file of /proc. `None` if the file is missing or not readable. An error is a shortage of
/// the system and says nothing about the file.
fn read(path: &str) -> Result<Option<String>, Errno> {
    let read_all = || -> Result<Vec<u8>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let mut text = Vec::with_capacity(PROC_BYTES);
        loop {
            let room = text.capacity() - text.len();
            // The kernel makes the whole file for each read: one that fills less has read the end.
            match rustix::io::read(&file, spare_capacity(&mut text)) {
                Ok(n) if n < room => return Ok(text),
                Ok(_) => text.reserve(PROC_BYTES),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    };
    match read_all() {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(errno) if is_shortage(errno) => Err(errno),
        Err(_) => Ok(None),
    }
}

/// Reads a file about a process, like [`read`].
fn read_of(pid: u32, name: &str) -> Result<Option<String>, Errno> {
    process_file(pid, name).map_or(Ok(None), |path| read(&path))
}

/// Start time of a process, in the kernel's ticks since boot. Pid and start time together name one
/// process for ever. `None` if there is no such process or /proc does not show it.
pub(crate) fn started(pid: u32) -> Option<u64> {
    started_in(&process_file(pid, "stat")?)
}

/// Whether the process with this pid and incarnation may live, or is one that nobody can look up.
/// A process that nobody has waited for has ended, too.
pub(crate) fn may_live(pid: u32, incarnation: u64) -> bool {
    if cfg!(simulated) || !is_in_proc(pid) {
        return true;
    }
    let number = Pid::from_raw(pid.cast_signed());
    let pidfd = number.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let found = match &pidfd {
        Some(Ok(pidfd)) if has_ended(pidfd) == Ok(true) => return false,
        Some(Err(Errno::SRCH)) => return false,
        Some(Ok(pidfd)) if incarnation & IS_NUMBER != 0 => {
            number_of(pidfd).map(|number| number | IS_NUMBER)
        }
        // No descriptor is left for a pidfd.
        _ if incarnation & IS_NUMBER != 0 => None,
        Some(Ok(pidfd)) => started(pid).or_else(|| number_of(pidfd)),
        _ => started(pid),
    };
    found.is_none_or(|found| found == incarnation)
}

/// Like [`started`], but with an error if the system lacks resources for the lookup.
fn started_or_shortage(pid: u32) -> Result<Option<u64>, Errno> {
    Ok(read_of(pid, "stat")?.as_deref().and_then(start_of))
}

/// Start time of the process or thread whose `stat` file is at this path.
pub(crate) fn started_in(stat: &str) -> Option<u64> {
    start_of(&std::fs::read_to_string(stat).ok()?)
}

fn start_of(status: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, with any characters inside.
    let (_, rest) = status.rsplit_once(") ")?;
    rest.split(' ').nth(22 - 3)?.parse().ok()
}

fn peer_label(socket: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut label = vec![0; MAX_LABEL_BYTES];
    let bytes = socket::option(socket, libc::SO_PEERSEC, &mut label)?;
    label.truncate(bytes);
    Ok(label)
}

fn peer_groups(socket: impl AsFd) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0; MAX_GROUPS * size_of::<u32>()];
    let bytes = socket::option(socket, libc::SO_PEERGROUPS, &mut groups)?;
    Ok(groups[..bytes].chunks_exact(4).map(bytemuck::pod_read_unaligned).collect())
}

/// A label as label_text. Some security modules end a label with a zero byte or a new line.
fn label_text(label: &[u8]) -> String {
    let label = String::from_utf8_lossy(label);
    match label.trim_end_matches(['\0', '\n']) {
        "" => NO_LABEL.to_owned(),
        label => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_text_and_never_empty() {
        for (label, expected) in [
            (&b"u:r:system_server:s0\0"[..], "u:r:system_server:s0"),
            (b"/usr/bin/app (enforce)\n", "/usr/bin/app (enforce)"),
            (b"docker-default", "docker-default"),
            (b"\0", NO_LABEL),
            (b"", NO_LABEL),
            (b"a\xffb", "a\u{fffd}b"),
        ] {
            assert_eq!(label_text(label), expected, "{label:?}");
        }
    }

    #[test]
    fn a_connection_identifies_its_peer() {
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (credentials, pidfd) = identify(&theirs, &mut LastPeer::default()).unwrap();
        let own = (std::process::id(), PidNamespace::Brokers);
        assert_eq!((credentials.pid, credentials.pid_namespace), own);
        let pidfd = pidfd.unwrap();
        let number = number_of(&pidfd).map(|number| number | IS_NUMBER);
        assert_eq!(credentials.incarnation, number.or(started(std::process::id())));
        assert!(!has_ended(&pidfd).unwrap());
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
        // Where sockets have labels, the label is this process's own.
        let own = std::fs::read("/proc/self/attr/current").unwrap_or_default();
        match peer_label(&theirs) {
            Ok(_) => assert_eq!(credentials.security_context, label_text(&own)),
            Err(errno) => {
                println!("skipped: the label itself ({errno})");
                assert_eq!(credentials.security_context, NO_LABEL);
            }
        }
    }

    #[test]
    fn what_is_known_of_the_last_peer_is_of_no_other_process() {
        let known = |number| LastPeer(Some((number, PidNamespace::Unknown)));
        let namespace = |last: &mut LastPeer| {
            let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            identify(&theirs, last).unwrap().0.pid_namespace
        };
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = identify(&theirs, &mut LastPeer::default()).unwrap().0.incarnation.unwrap();
        if own & IS_NUMBER == 0 {
            return println!("skipped: no numbers before Linux 6.9");
        }
        assert_eq!(namespace(&mut known(own)), PidNamespace::Unknown, "it is this process");
        for other in [own + 1, own - 1, own & !IS_NUMBER] {
            let mut last = known(other);
            assert_eq!(namespace(&mut last), PidNamespace::Brokers, "it is another process");
            assert_eq!(last.0, Some((own, PidNamespace::Brokers)));
        }
    }

    #[test]
    fn a_namespace_is_looked_up_for_each_process_and_once_if_it_has_a_number() {
        let mut last = LastPeer::default();
        let (one, other) = (7 | IS_NUMBER, 8 | IS_NUMBER);
        let below = PidNamespace::Other { number: 1, pid: 2 };
        for (incarnation, found, is_looked_up) in [
            (Some(one), PidNamespace::Brokers, true),
            (Some(one), PidNamespace::Brokers, false),
            (Some(other), below, true),
            (Some(other), below, false),
            (Some(one), PidNamespace::Unknown, true),
            (Some(one), PidNamespace::Brokers, true),
            // A start time, and nothing.
            (Some(7), PidNamespace::Brokers, true),
            (Some(7), PidNamespace::Brokers, true),
            (None, PidNamespace::Brokers, true),
            (None, PidNamespace::Brokers, true),
            (Some(one), PidNamespace::Brokers, true),
        ] {
            let mut looks = 0;
            let mut look_up = || {
                looks += 1;
                Ok(found)
            };
            assert_eq!(last.namespace(incarnation, &mut look_up), Ok(found));
            assert_eq!(looks == 1, is_looked_up, "{incarnation:?}");
        }
        let shortage = last.namespace(Some(other), || Err(Errno::MFILE));
        assert_eq!(shortage, Err(Errno::MFILE));
    }

    /// A process that waits, killed at the end.
    fn sleeper() -> std::process::Child {
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        command.spawn().unwrap()
    }

    #[test]
    fn an_incarnation_is_of_one_process_by_the_word_of_either_version() {
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = identify(&theirs, &mut LastPeer::default()).unwrap().0;
        if own.incarnation.unwrap() & IS_NUMBER == 0 {
            return println!("skipped: no numbers before Linux 6.9");
        }
        let mut child = sleeper();
        let pid = child.id();
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let number = number_of(&pidfd.unwrap()).unwrap();
        let who = Credentials { pid, incarnation: Some(number | IS_NUMBER), ..own.clone() };
        let hidden = Credentials { pid: 0, ..who.clone() };
        let start = started(pid).unwrap();
        for (claimed, of_shown, of_hidden) in [
            (number | IS_NUMBER, true, true),
            (start, true, false),
            (number, false, true),
            (number + 1, false, false),
            ((number + 1) | IS_NUMBER, false, false),
            (start | IS_NUMBER, false, false),
            (start + 1, false, false),
            (0, false, false),
        ] {
            assert_eq!(has_incarnation(&who, claimed), Ok(of_shown), "{claimed}");
            assert_eq!(has_incarnation(&hidden, claimed), Ok(of_hidden), "{claimed} not in /proc");
            assert_eq!(may_live(pid, claimed), of_shown, "{claimed}");
        }
        for (known, claimed, expected) in [
            (Some(start), start, true),
            (Some(start), start + 1, false),
            (None, start, false),
            (None, 0, false),
        ] {
            let who = Credentials { incarnation: known, ..who.clone() };
            assert_eq!(has_incarnation(&who, claimed), Ok(expected), "{known:?}, {claimed}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!may_live(pid, number | IS_NUMBER) && !may_live(pid, start));
    }

    #[test]
    fn files_are_read_to_their_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file").display().to_string();
        assert_eq!(read(&path), Ok(None));
        for bytes in [0, 1, PROC_BYTES - 1, PROC_BYTES, PROC_BYTES + 1, 5 * PROC_BYTES] {
            let text: String = ('a'..='z').cycle().take(bytes).collect();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(read(&path), Ok(Some(text)), "{bytes}");
        }
        // A program may have any name.
        std::fs::write(&path, b"Name:\t\xff\n").unwrap();
        assert_eq!(read(&path), Ok(Some("Name:\t\u{fffd}\n".to_owned())));
    }

    #[test]
    fn the_pids_of_a_status_say_the_namespace() {
        let (pid, inner) = (std::process::id(), std::process::id() + 1);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(namespace_of(pid, &status), PidNamespace::Brokers);
        assert_eq!(namespace_of(pid, ""), PidNamespace::Brokers);
        let below = format!("Name:\tbelow\nNSpid:\t{pid}\t{inner}\n");
        let number = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        assert_eq!(namespace_of(pid, &below), PidNamespace::Other { number, pid: inner });
    }

    #[test]
    fn nothing_is_looked_up_by_the_pid_0() {
        assert_eq!((started(0), process_file(0, "stat")), (None, None));
        assert_eq!(
            (process_uids(0), pid_namespace(0, None)),
            (Ok(None), Ok(PidNamespace::Unknown))
        );
    }

    #[test]
    fn a_pidfd_has_one_number_for_one_process() {
        let open = |pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let own = || number_of(&open(rustix::process::getpid()));
        let Some(number) = own() else { return println!("skipped: no numbers before Linux 6.9") };
        let parent = rustix::process::getppid().expect("of this namespace");
        assert_eq!(own(), Some(number));
        assert_ne!(number_of(&open(parent)), Some(number));
    }
}
