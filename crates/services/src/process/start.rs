//! The manager's side of its helpers: starts processes, and hears how they have ended.
//!
//! A helper that has died is replaced at the next start. Its processes have died with it. One that
//! is not ready in time is killed.
//!
//! **Locks**: the lock of all helpers is held for no I/O. That of one kind is held while its helper
//! starts, and that of a helper while it is asked: starts of other kinds wait for neither.

use super::helper::{Answer, Ended, Request, Start, receive, send};
use crate::intent::{Program, ProgramForm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time in which a helper has to load its shared object, or its class library.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The helper cannot be run.
    #[error("the helper {0:?} cannot be run: {1}")]
    Helper(OsString, #[source] std::io::Error),
    /// The helper has ended, or says nothing that makes sense.
    #[error("the helper has failed: {0}")]
    Lost(Errno),
    /// The shared object cannot be loaded.
    #[error("{0} cannot be loaded: {1}")]
    Load(PathBuf, String),
    /// The virtual machine for Java programs does not start.
    #[error("the virtual machine cannot be started: {0}")]
    Machine(String),
    /// The child could not become the program.
    #[error("{0}")]
    Child(String),
}

/// A process that was started.
#[derive(Debug)]
pub struct Running {
    /// Its pid, which no other process gets before [`Running::reap`].
    pub pid: u32,
    /// Its pidfd: readable once it has ended.
    pub pidfd: OwnedFd,
    helper: Arc<Mutex<Helper>>,
}

/// A helper process.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
    child: Child,
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The commands of helpers: each is a program and its arguments, and calls
/// [`helper::run`](super::helper::run).
#[derive(Clone, Debug)]
pub struct Commands {
    /// The helper of programs; a shared object's path follows `--load`.
    pub helper: Vec<OsString>,
    /// The helper of Java programs, which has a virtual machine. Its children get the arguments
    /// `dalvikvm -cp CLASSPATH CLASS ARGUMENTS`.
    pub zygote: Vec<OsString>,
}

/// Starts processes.
#[derive(Debug)]
pub struct Starter {
    commands: Commands,
    environment: Vec<(OsString, OsString)>,
    helpers: Mutex<BTreeMap<Kind, Arc<Mutex<Place>>>>,
}

/// The helper of one kind, if there is one.
type Place = Option<Arc<Mutex<Helper>>>;

/// What a helper's children share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Nothing: they execute programs.
    Programs,
    /// A shared object.
    Object(PathBuf),
    /// A virtual machine.
    Machine,
}

impl Kind {
    fn of(program: &Program) -> Kind {
        match program.form {
            ProgramForm::Executed => Kind::Programs,
            ProgramForm::Loaded => Kind::Object(program.path.clone()),
            ProgramForm::Java => Kind::Machine,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Starter {
    /// A starter whose helpers are started by these commands. They and all programs get these
    /// variables, too.
    pub fn new(commands: Commands, environment: Vec<(OsString, OsString)>) -> Starter {
        Starter { commands, environment, helpers: Mutex::default() }
    }

    /// Starts the helper of a program, which loads the program's shared object or the class
    /// library, so that no start has to wait for that. Returns the helper's pid if there was none
    /// before.
    pub fn prepare(&self, program: &Program) -> Result<Option<u32>, StartError> {
        let (helper, is_new) = self.helper(program)?;
        Ok(is_new.then(|| lock(&helper).child.id()))
    }

    /// Starts a program, as this user if one is given. Returns once it is executed, or once
    /// `baton_main` or the virtual machine is called.
    pub fn start(&self, program: &Program, uid: Option<u32>) -> Result<Running, StartError> {
        let words: &[&str] = match program.form {
            ProgramForm::Executed | ProgramForm::Loaded => &[],
            ProgramForm::Java => &["dalvikvm", "-cp"],
        };
        let path = program.path.to_string_lossy().into_owned();
        let words = words.iter().map(|word| (*word).to_owned()).chain([path]);
        let arguments = words.chain(program.arguments.iter().cloned()).collect();
        let (helper, _) = self.helper(program)?;
        let wanted = Start { arguments, uid, environment: None };
        let started = Running::start(Arc::clone(&helper), wanted, &[]);
        if let Err(StartError::Lost(_)) = started {
            let place = self.place(Kind::of(program));
            // Another thread may have replaced it.
            lock(&place).take_if(|its| Arc::ptr_eq(its, &helper));
        }
        started
    }

    /// Ends the helpers, and with them all processes. None is left when this returns, whoever holds
    /// a [`Running`].
    pub fn close(&self) {
        let helpers = std::mem::take(&mut *lock(&self.helpers));
        for place in helpers.into_values() {
            if let Some(helper) = lock(&place).take() {
                lock(&helper).end();
            }
        }
    }

    /// The helper of a program, and whether it was started for this.
    fn helper(&self, program: &Program) -> Result<(Arc<Mutex<Helper>>, bool), StartError> {
        let kind = Kind::of(program);
        let place = self.place(kind.clone());
        let mut place = lock(&place);
        if let Some(helper) = &*place
            && lock(helper).is_alive()
        {
            return Ok((Arc::clone(helper), false));
        }
        *place = None;
        let helper = Arc::new(Mutex::new(self.start_helper(&kind)?));
        *place = Some(Arc::clone(&helper));
        Ok((helper, true))
    }

    fn place(&self, kind: Kind) -> Arc<Mutex<Place>> {
        Arc::clone(lock(&self.helpers).entry(kind).or_default())
    }

    fn start_helper(&self, kind: &Kind) -> Result<Helper, StartError> {
        let words = match kind {
            Kind::Programs | Kind::Object(_) => &self.commands.helper,
            Kind::Machine => &self.commands.zygote,
        };
        let program = words.first().cloned().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words.iter().skip(1));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Kind::Object(object) = kind {
            command.arg("--load").arg(object);
        }
        Helper::start(command).map_err(|error| match (error, kind) {
            (StartError::Child(error), Kind::Object(at)) => StartError::Load(at.clone(), error),
            (StartError::Child(error), Kind::Machine) => StartError::Machine(error),
            (error, _) => error,
        })
    }
}

impl Helper {
    /// Starts a helper by a command that calls [`helper::run`](super::helper::run), and waits until
    /// it is ready.
    ///
    /// # Errors
    /// `Child` with the helper's words, if it could not load what its children run, or if it has
    /// not done so within half a minute. It is killed then.
    pub fn start(mut command: Command) -> Result<Helper, StartError> {
        let program = command.get_program().to_owned();
        let cannot_run = |error| StartError::Helper(program.clone(), error);
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| cannot_run(errno.into()))?;
        let child = command.stdin(Stdio::from(theirs)).spawn().map_err(cannot_run)?;
        // The other end of the socket, whose closing would tell of the helper's end.
        drop(command);
        let mut helper = Helper { socket, child };
        if !helper.is_ready_within(READY_LIMIT) {
            let _ = helper.child.kill();
            return Err(StartError::Child(format!("it is not ready within {READY_LIMIT:?}")));
        }
        match receive::<Answer>(&helper.socket) {
            Ok(Some((Answer::Ready, _))) => Ok(helper),
            Ok(Some((Answer::Failed(error), _))) => Err(StartError::Child(error)),
            Ok(_) => Err(StartError::Lost(Errno::PIPE)),
            Err(errno) => Err(StartError::Lost(errno)),
        }
    }

    /// Whether it has answered, or has ended, within this time.
    fn is_ready_within(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            match is_readable_within(&self.socket, left) {
                Err(Errno::INTR) => {}
                readable => return readable.unwrap_or(true),
            }
        }
    }

    fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), Errno> {
        send(&self.socket, request, fds)?;
        receive(&self.socket)?.ok_or(Errno::PIPE)
    }

    /// Ends it, and waits for that. It ends its children when it finds the socket closed.
    fn end(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let _ = self.child.wait();
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Running {
    /// Has a helper start a process, which gets these descriptors (see [`Start::environment`]).
    ///
    /// # Errors
    /// `Lost` if the helper is of no use any more.
    pub fn start(
        helper: Arc<Mutex<Helper>>,
        wanted: Start,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Running, StartError> {
        let answered = lock(&helper).ask(&Request::Start(wanted), fds);
        match answered {
            Ok((Answer::Started(pid), mut fds)) if fds.len() == 1 => {
                let pidfd = fds.remove(0);
                Ok(Running { pid, pidfd, helper })
            }
            Ok((Answer::Failed(error), _)) => Err(StartError::Child(error)),
            Ok(_) => Err(StartError::Lost(Errno::BADMSG)),
            Err(Errno::MSGSIZE) => Err(StartError::Child(
                "arguments and variables take more than \
                                                          128 KiB"
                    .to_owned(),
            )),
            Err(errno) => Err(StartError::Lost(errno)),
        }
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        is_readable_within(&self.pidfd, Duration::ZERO) != Ok(true)
    }

    /// Ends it at once. Nothing happens if it has ended.
    pub fn kill(&self) -> Result<(), Errno> {
        self.signal(Signal::KILL)
    }

    /// Sends it a signal. Nothing happens if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Err(Errno::SRCH) => Ok(()),
            done => done,
        }
    }

    /// Waits for its end, and says how it has ended: unknown if it has died with its helper. From
    /// then on the pid may be another process's.
    pub fn reap(&self) -> Ended {
        while poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], None) == Err(Errno::INTR) {}
        match lock(&self.helper).ask(&Request::Reap(self.pid), &[]) {
            Ok((Answer::Ended(how), _)) => how,
            _ => Ended::Unknown,
        }
    }
}

fn is_readable_within(fd: impl AsFd, time: Duration) -> Result<bool, Errno> {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).map(|n_ready| n_ready > 0)
}
