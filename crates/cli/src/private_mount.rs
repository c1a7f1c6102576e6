//! A binderfs for one program and its children: for `baton run` of programs that nothing can be
//! loaded into.
//!
//! ```text
//!   baton run: a mount namespace of its own
//!     /dev            a tmpfs, with everything that was there, and binder -> binderfs/CONTEXT ...
//!     /dev/binderfs   of `baton mount --background`, which ends after the program
//!   baton run becomes the program
//! ```
//!
//! The program and its children have a pipe open. The server ends once nobody has it, and no device
//! is open.

use crate::background;
use crate::failure::{Failure, Kind};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::PipeFlags;
use std::ffi::OsString;
use std::path::Path;

const DEV: &str = "/dev";
/// Devices outside of binderfs: symbolic links into it.
const LEGACY: [&str; 3] = ["binder", "hwbinder", "vndbinder"];
const BINDERFS: &str = "binderfs";

/// Gives this process, which has one thread, a mount namespace in which /dev has the devices of
/// these contexts; `binder` is the given one. Returns what the program has to keep open.
pub fn enter(contexts: &[String], binder: &str, socket: &Path) -> Result<OwnedFd, Failure> {
    let tried = "mount a binderfs for the program";
    let failed = |operation: &'static str| {
        move |errno: Errno| {
            let failure = Failure::new(tried, format!("{operation}: {errno}"));
            failure.kind(Kind::NotExecutable)
        }
    };
    let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS);
    unshared.map_err(|errno| {
        failed("unshare")(Errno::from_raw_os_error(errno as i32)).advice(
            "a container needs CAP_SYS_ADMIN for that; or mount a binderfs outside, and give the \
             container its directory",
        )
    })?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation).map_err(failed("mount /"))?;
    cover_dev(binder).map_err(failed("mount /dev"))?;
    let (read, kept) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe"))?;
    rustix::io::fcntl_setfd(&read, rustix::io::FdFlags::empty()).map_err(failed("fcntl"))?;
    // A name with a comma would be two, and `baton mount` has no other way to say one.
    let contexts: Vec<&str> =
        contexts.iter().map(String::as_str).filter(|name| !name.contains(',')).collect();
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--background".into()];
    arguments.extend(["--socket".into(), socket.into(), "--contexts".into()]);
    arguments.extend([contexts.join(",").into(), "--kept-open".into()]);
    arguments.extend([read.as_raw_fd().to_string().into(), format!("{DEV}/{BINDERFS}").into()]);
    background::run_itself(tried, &arguments)?;
    Ok(kept)
}

/// Mounts a directory over /dev that has everything that was there, and Binder's devices.
fn cover_dev(binder: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let before = rustix::fs::open(DEV, flags, Mode::empty())?;
    let mode = Some(c"mode=755");
    rustix::mount::mount("baton", DEV, "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, mode)?;
    let dev = rustix::fs::open(DEV, flags, Mode::empty())?;
    for entry in Dir::read_from(&before)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = LEGACY.iter().chain([&BINDERFS]).any(|own| own.as_bytes() == name.to_bytes());
        if is_ours || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match carry_over(&before, &dev, &entry) {
            // It has gone, or this process may not have it.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::mkdirat(&dev, BINDERFS, Mode::from_raw_mode(0o755))?;
    for name in LEGACY {
        let context = if name == "binder" { binder } else { name };
        rustix::fs::symlinkat(format!("{BINDERFS}/{context}"), &dev, name)?;
    }
    Ok(())
}

/// Makes an entry of the covered directory one of the new one.
fn carry_over(before: &OwnedFd, dev: &OwnedFd, entry: &rustix::fs::DirEntry) -> Result<(), Errno> {
    let name = entry.file_name();
    match entry.file_type() {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(before, name, Vec::new())?;
            return rustix::fs::symlinkat(target, dev, name);
        }
        FileType::Directory => rustix::fs::mkdirat(dev, name, Mode::from_raw_mode(0o755))?,
        _ => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(dev, name, flags, Mode::from_raw_mode(0o600)).map(drop)?;
        }
    }
    // With whatever is mounted in it.
    let below = |directory: &OwnedFd| {
        let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
        path.extend(name.to_bytes());
        path
    };
    rustix::mount::mount_bind_recursive(below(before), below(dev))
}
