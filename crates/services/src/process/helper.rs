//! The helper: a process with one thread, which forks the processes of applications.
//!
//! There is one for programs, which are executed, and one for each shared object, which that helper
//! has loaded: a **warm parent**, as Android's zygote. Its children find the object loaded,
//! relocated and initialised, and share its memory. A virtual machine with its class library is a
//! warm parent, too ([`zygote`](crate::zygote)).
//!
//! ```text
//!   manager -- Request --> helper -- fork --> child: session, user, death signal
//!           <-- Answer --        <-- pipe --         then exec, or Main
//! ```
//!
//! - The socket's end ends the helper, and that its children: nothing outlives the manager, however
//!   it ends. A child also dies with its helper, by its death signal.
//! - **Invariant**: the helper waits for a child only when the manager says so ([`Request::Reap`]).
//!   Until then no other process can get the child's pid.
//!
//! Source: *Porting the Dalvik virtual machine to OKL4*, 6.2.3: forks behind an IPC interface.

use super::fork::{Entry, Forked, fork, set_environment};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Gid, Pid, PidfdFlags, Signal, Uid, WaitOptions, fchdir, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, setsid, waitpid,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The longest message.
const MOST_BYTES: usize = 128 << 10;
/// The most descriptors of a message: see [`Start::environment`].
const MOST_FDS: usize = 4;

/// What a warm parent's children run: gets the arguments, beginning with the program's name, and
/// returns the exit code.
pub type Main = Box<dyn FnOnce(Vec<String>) -> i32>;

/// What the manager asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// A new process.
    Start(Start),
    /// The status of a process that has ended.
    Reap(u32),
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The program's arguments, beginning with its name.
    pub arguments: Vec<String>,
    /// The user, if it is not the helper's.
    pub uid: Option<u32>,
    /// The variables, if these are not the helper's. Then four descriptors come with the message:
    /// standard input, output and error, and the current directory.
    pub environment: Option<Vec<(String, String)>>,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself.
    Code(u8),
    /// By a signal.
    Signal(u8),
    /// Together with its helper, so that nobody knows.
    Unknown,
}

impl Display for Ended {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "exit code {code}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
            Ended::Unknown => f.write_str("it died with its helper"),
        }
    }
}

/// What the helper answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The helper is there.
    Ready,
    /// The process runs. Its pidfd comes with the message.
    Started(u32),
    /// It has ended as this says.
    Ended(Ended),
    /// That could not be done.
    Failed(String),
}

/// Sends a message, with at most four descriptors.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).expect("messages have strings and numbers only");
    if bytes.len() > MOST_BYTES {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "at most {MOST_FDS}");
    }
    let parts = [IoSlice::new(&bytes)];
    retry(|| sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives a message. `None` if the other end is gone.
pub fn receive<T: for<'a> Deserialize<'a>>(
    socket: impl AsFd,
) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    // Room for this message alone: a child of the helper's keeps what the helper writes over next.
    let peek = RecvFlags::PEEK | RecvFlags::TRUNC;
    let length = match retry(|| recv(&socket, &mut [0u8], peek)) {
        Ok((_, length)) => length,
        Err(Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut bytes = vec![0; length];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        retry(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let n_bytes = match received {
        Ok(message) if message.bytes > 0 => message.bytes,
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let message = serde_json::from_slice(&bytes[..n_bytes]).map_err(|_| Errno::BADMSG)?;
    Ok(Some((message, fds)))
}

fn retry<T>(mut operation: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match operation() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Loads a shared object, whose `baton_main` its children call.
///
/// # Errors
/// The loader's.
pub fn load(object: &Path) -> Result<Main, String> {
    let entry = Entry::load(object)?;
    Ok(Box::new(move |arguments| {
        let arguments = arguments.into_iter().map(CString::new);
        let arguments: Result<Vec<CString>, _> = arguments.collect();
        entry.run(&arguments.expect("no argument has a zero: see become_program"))
    }))
}

/// Runs the helper until the manager is gone. Standard input is the socket to the manager. `load`
/// prepares what children run; programs are executed without it. The process has one thread, or its
/// others wait for this one and hold no lock.
///
/// # Errors
/// Of the system, or of standard input, if that is no such socket.
pub fn run(load: impl FnOnce() -> Result<Option<Main>, String>) -> Result<(), std::io::Error> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let main = match load() {
        Ok(main) => main,
        Err(error) => return Ok(send(&socket, &Answer::Failed(error), &[])?),
    };
    send(&socket, &Answer::Ready, &[])?;
    let parent = rustix::process::getpid();
    let mut children = BTreeSet::new();
    while let Some((request, fds)) = receive(&socket)? {
        let (answer, pidfd) = match request {
            Request::Start(wanted) => match start() {
                Ok(Started::Child(tell)) => {
                    drop(socket);
                    become_program(parent, main, wanted, fds, tell)
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
        let pidfd: Vec<BorrowedFd<'_>> = pidfd.iter().map(AsFd::as_fd).collect();
        match send(&socket, &answer, &pidfd) {
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
    main: Option<Main>,
    wanted: Start,
    fds: Vec<OwnedFd>,
    mut tell: File,
) -> ! {
    const FAILED: i32 = 127;
    let Start { arguments, uid, environment } = wanted;
    let prepared = prepare(parent, uid).and_then(|()| match environment {
        Some(environment) => surround(&environment, fds),
        None => Ok(()),
    });
    let error = match (prepared, arguments.split_first(), main) {
        (Err(error), ..) => error,
        (Ok(()), None, _) => "no program is given".to_owned(),
        _ if arguments.iter().any(|it| it.contains('\0')) => "an argument has a zero".to_owned(),
        (Ok(()), Some((program, rest)), None) => {
            format!("{program}: {}", Command::new(program).args(rest).exec())
        }
        (Ok(()), Some(_), Some(main)) => {
            drop(tell);
            std::process::exit(main(arguments));
        }
    };
    let _ = tell.write_all(error.as_bytes());
    std::process::exit(FAILED)
}

/// Gives a child variables, and the descriptors that are listed at [`Start::environment`].
fn surround(environment: &[(String, String)], fds: Vec<OwnedFd>) -> Result<(), String> {
    let [input, output, errors, directory] = <[OwnedFd; 4]>::try_from(fds)
        .map_err(|fds| format!("{} descriptors came, and not four", fds.len()))?;
    set_environment(environment)?;
    let done = rustix::stdio::dup2_stdin(input)
        .and_then(|()| rustix::stdio::dup2_stdout(output))
        .and_then(|()| rustix::stdio::dup2_stderr(errors));
    done.map_err(|errno| format!("dup2: {errno}"))?;
    fchdir(directory).map_err(|errno| format!("fchdir: {errno}"))
}

/// How a child has ended. It is gone then.
fn reap(pid: u32) -> Ended {
    let status = retry(|| waitpid(Pid::from_raw(pid as i32), WaitOptions::empty()));
    match status.ok().flatten().map(|(_, status)| status) {
        Some(status) if status.signaled() => {
            Ended::Signal(status.terminating_signal().unwrap_or_default() as u8)
        }
        Some(status) => Ended::Code(status.exit_status().unwrap_or_default() as u8),
        None => Ended::Unknown,
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
