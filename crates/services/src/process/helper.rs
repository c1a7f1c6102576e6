//! The helper: a process with one thread, which forks the processes of applications.
//!
//! There is one for programs, which are executed, and one for each shared object, which that helper
//! has loaded: a **warm parent**, as Android's zygote. Its children find the object loaded,
//! relocated and initialised, and share its memory.
//!
//! ```text
//!   manager -- Request --> helper -- fork --> child: session, user, death signal
//!           <-- Answer --        <-- pipe --         then exec, or baton_main
//! ```
//!
//! - The socket's end ends the helper, and that its children: nothing outlives the manager, however
//!   it ends. A child also dies with its helper, by its death signal.
//! - **Invariant**: the helper waits for a child only when the manager says so ([`Request::Reap`]).
//!   Until then no other process can get the child's pid.
//!
//! Source: *Porting the Dalvik virtual machine to OKL4*, 6.2.3: forks behind an IPC interface.

use super::fork::{Entry, Forked, fork};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Gid, Pid, PidfdFlags, Signal, Uid, WaitOptions, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, setsid, waitpid,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The longest message.
const MOST_BYTES: usize = 64 << 10;

/// What the manager asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// A new process: the program's arguments, beginning with its name, and the user.
    Start(Vec<String>, Option<u32>),
    /// The status of a process that has ended.
    Reap(u32),
}

/// What the helper answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The helper is there.
    Ready,
    /// The process runs. Its pidfd comes with the message.
    Started(u32),
    /// It has ended as this says.
    Ended(String),
    /// That could not be done.
    Failed(String),
}

/// Sends a message, with a descriptor if there is one.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    fd: Option<&OwnedFd>,
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).expect("messages have strings and numbers only");
    if bytes.len() > MOST_BYTES {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [IoSlice::new(&bytes)];
    retry(|| sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives a message. `None` if the other end is gone.
pub fn receive<T: for<'a> Deserialize<'a>>(
    socket: impl AsFd,
) -> Result<Option<(T, Option<OwnedFd>)>, Errno> {
    let mut bytes = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        retry(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let n_bytes = match received {
        Ok(message) if message.bytes > 0 => message.bytes,
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let message = serde_json::from_slice(&bytes[..n_bytes]).map_err(|_| Errno::BADMSG)?;
    Ok(Some((message, fd)))
}

fn retry<T>(mut operation: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match operation() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Runs the helper until the manager is gone. Standard input is the socket to the manager.
///
/// # Errors
/// Of the system, or of standard input, if that is no such socket.
pub fn run(object: Option<&Path>) -> Result<(), std::io::Error> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let entry = match object.map(Entry::load).transpose() {
        Ok(entry) => entry,
        Err(error) => return Ok(send(&socket, &Answer::Failed(error), None)?),
    };
    send(&socket, &Answer::Ready, None)?;
    let parent = rustix::process::getpid();
    let mut children = BTreeSet::new();
    while let Some((request, _)) = receive(&socket)? {
        let (answer, pidfd) = match request {
            Request::Start(arguments, uid) => match start() {
                Ok(Started::Child(tell)) => {
                    drop(socket);
                    become_program(parent, entry, &arguments, uid, tell)
                }
                Ok(Started::Parent(pid, pidfd)) => {
                    children.insert(pid);
                    (Answer::Started(pid), Some(pidfd))
                }
                Err(error) => (Answer::Failed(error), None),
            },
            Request::Reap(pid) if children.remove(&pid) => (Answer::Ended(reap(pid)), None),
            Request::Reap(pid) => (Answer::Failed(format!("{pid} is none of its children")), None),
        };
        match send(&socket, &answer, pidfd.as_ref()) {
            Err(Errno::PIPE | Errno::CONNRESET) => break,
            sent => sent?,
        }
    }
    for pid in children.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    for pid in children {
        reap(pid);
    }
    Ok(())
}

/// The two sides of a start.
enum Started {
    /// The helper: the child runs its program.
    Parent(u32, OwnedFd),
    /// The child, which says here why it cannot become the program.
    Child(File),
}

/// Forks a child, and waits until it has become the program, or has failed to.
fn start() -> Result<Started, String> {
    let failed = |what: &str, errno: Errno| format!("{what}: {errno}");
    let (told, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed("pipe", errno))?;
    let pid = match fork().map_err(|errno| failed("fork", errno))? {
        Forked::Child => return Ok(Started::Child(File::from(tell))),
        Forked::Parent(pid) => pid,
    };
    drop(tell);
    let mut error = String::new();
    let _ = File::from(told).read_to_string(&mut error);
    if error.is_empty() {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => return Ok(Started::Parent(number(pid), pidfd)),
            Err(errno) => error = failed("pidfd_open", errno),
        }
        let _ = kill_process(pid, Signal::KILL);
    }
    reap(number(pid));
    Err(error)
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Becomes the program in a child, or says why it does not.
fn become_program(
    parent: Pid,
    entry: Option<Entry>,
    arguments: &[String],
    uid: Option<u32>,
    mut tell: File,
) -> ! {
    const FAILED: i32 = 127;
    let error = match (prepare(parent, uid), arguments.split_first()) {
        (Err(error), _) => error,
        (Ok(()), None) => "no program is given".to_owned(),
        (Ok(()), Some((program, rest))) => match entry {
            None => format!("{program}: {}", Command::new(program).args(rest).exec()),
            Some(entry) => {
                let arguments: Result<Vec<CString>, _> =
                    arguments.iter().map(|argument| CString::new(argument.as_bytes())).collect();
                match arguments {
                    Err(error) => error.to_string(),
                    Ok(arguments) => {
                        drop(tell);
                        std::process::exit(entry.run(&arguments));
                    }
                }
            }
        },
    };
    let _ = tell.write_all(error.as_bytes());
    std::process::exit(FAILED)
}

/// How a child has ended, in words.
fn reap(pid: u32) -> String {
    let status = retry(|| waitpid(Pid::from_raw(pid as i32), WaitOptions::empty()));
    match status.ok().flatten().map(|(_, status)| status) {
        Some(status) if status.signaled() => {
            format!("signal {}", status.terminating_signal().unwrap_or_default())
        }
        Some(status) => format!("exit code {}", status.exit_status().unwrap_or_default()),
        None => "unknown".to_owned(),
    }
}

/// The session, the user and the death signal of a child.
fn prepare(parent: Pid, uid: Option<u32>) -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |errno: Errno| format!("{what}: {errno}")
    };
    setsid().map_err(failed("setsid"))?;
    if let Some(uid) = uid {
        let tried = format!("become user {uid}");
        set_thread_groups(&[]).map_err(failed(&tried))?;
        set_thread_gid(Gid::from_raw(uid)).map_err(failed(&tried))?;
        set_thread_uid(Uid::from_raw(uid)).map_err(failed(&tried))?;
    }
    // After the change of the user, which clears it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("prctl"))?;
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err("the helper has ended".to_owned()),
    }
}
