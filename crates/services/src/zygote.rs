//! A warm parent behind a name: processes that are forked on request, over Binder.
//!
//! ```text
//!   client ---- start: arguments, variables, descriptors ----> server -- Start --> helper -- fork
//!          <--- a socket, the line: signals go there,          (Binder, <-- pidfd --  (one
//!               and how the child has ended comes back ------   threads)               thread)
//! ```
//!
//! The helper is what forks (see [`process::helper`](crate::process::helper)): a process with one
//! thread, which holds what its children share and knows no Binder. The server is a process of its
//! own, because a thread of Binder's would be missing in a child.
//!
//! - Only the server's user and root may ask.
//! - The end of the line is the client's end: its child gets SIGKILL, as nobody would get its exit
//!   code. A child dies with its helper, and the helper with the server.
//! - A helper that has died is replaced at the next start.

use crate::process::client::ClientError;
use crate::process::helper::{Ended, Start};
use crate::process::start::{Helper, Running, StartError};
use baton::android::{Reader, Write};
use baton::{Errno, Handle, Object, Parcel, Process, Received};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::Signal;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The interface's name.
pub const INTERFACE: &str = "baton.app.IZygote";
const PING: u32 = u32::from_be_bytes(*b"_PNG");
const DESCRIPTOR: u32 = u32::from_be_bytes(*b"_NTF");
/// Start a process: the user or -1, the arguments, the variables as names and values in turn; and
/// five descriptors: standard input, output and error, the current directory, the line. The answer
/// has the pid.
const START: u32 = 1;
/// Codes of AIDL's exceptions.
const SECURITY: i32 = -1;
const ILLEGAL_ARGUMENT: i32 = -3;
const ILLEGAL_STATE: i32 = -5;

/// An exception with which the server answers: its code and message.
type Refusal = (i32, String);

/// The service in its process.
pub struct Server {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    helper: Mutex<Arc<Mutex<Helper>>>,
    uid: u32,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("helper", &self.helper).finish_non_exhaustive()
    }
}

impl Server {
    /// Makes the service's object. `command` starts the helper, now and after its death; it calls
    /// [`helper::run`](crate::process::helper::run).
    ///
    /// # Errors
    /// The helper does not start.
    pub fn add(
        process: &Process,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Object, StartError> {
        let helper = Mutex::new(Arc::new(Mutex::new(Helper::start(command())?)));
        let uid = rustix::process::geteuid().as_raw();
        let server = Server { command: Box::new(command), helper, uid };
        let object = process.object(move |request| {
            server.serve(request.code(), &request.received, request.sender().1)
        });
        Ok(object.add())
    }

    fn serve(&self, code: u32, received: &Received<'_>, caller: u32) -> Result<Parcel, Errno> {
        let mut reply = Parcel::new();
        match code {
            PING => {}
            DESCRIPTOR => reply.write_string(INTERFACE),
            START => match self.start(received, caller) {
                Ok(pid) => {
                    reply.write_i32(0);
                    reply.write_i32(pid as i32);
                }
                Err((code, message)) => reply.write_exception(code, &message),
            },
            _ => return Err(Errno::NOSYS),
        }
        Ok(reply)
    }

    fn start(&self, received: &Received<'_>, caller: u32) -> Result<u32, Refusal> {
        if caller != self.uid && caller != 0 {
            let message = format!("only user {} and root may start processes here", self.uid);
            return Err((SECURITY, message));
        }
        let illegal = || (ILLEGAL_ARGUMENT, "it is no request to start a process".to_owned());
        let wanted = decode(received.data()).ok_or_else(illegal)?;
        let fds: Vec<OwnedFd> = (0..5).map_while(|index| received.take_fd(index)).collect();
        let [input, output, errors, directory, line] =
            <[OwnedFd; 5]>::try_from(fds).map_err(|_| illegal())?;
        let fds = [input.as_fd(), output.as_fd(), errors.as_fd(), directory.as_fd()];
        let helper = self.helper();
        let running = match Running::start(Arc::clone(&helper), wanted.clone(), &fds) {
            Err(StartError::Lost(_)) => {
                self.replace(&helper).and_then(|helper| Running::start(helper, wanted, &fds))
            }
            done => done,
        };
        let running = running.map_err(|error| (ILLEGAL_STATE, error.to_string()))?;
        let pid = running.pid;
        let watch = std::thread::Builder::new().name(format!("child {pid}"));
        // Without a thread the child is dropped with the closure: see Watched.
        let watched = Watched { running, line };
        watch
            .spawn(move || watched.watch())
            .map_err(|error| (ILLEGAL_STATE, format!("no thread for the child: {error}")))?;
        Ok(pid)
    }

    fn helper(&self) -> Arc<Mutex<Helper>> {
        Arc::clone(&self.helper.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The helper in place of one that is lost. Another thread may have started it. A process that
    /// is killed closes its sockets before it can be waited for, so that is not asked.
    fn replace(&self, lost: &Arc<Mutex<Helper>>) -> Result<Arc<Mutex<Helper>>, StartError> {
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&helper, lost) {
            *helper = Arc::new(Mutex::new(Helper::start((self.command)())?));
        }
        Ok(Arc::clone(&helper))
    }
}

/// A child, and the line to its client. Dropped, the child is killed and reaped.
struct Watched {
    running: Running,
    line: OwnedFd,
}

impl Watched {
    /// Passes signals on until the child or its client ends.
    fn watch(self) {
        while self.running.is_alive() {
            let either = &mut [
                PollFd::new(&self.running.pidfd, PollFlags::IN),
                PollFd::new(&self.line, PollFlags::IN),
            ];
            let polled = poll(either, None);
            if polled == Err(Errno::INTR) || either[1].revents().is_empty() {
                continue;
            }
            let mut signals = [0; 64];
            match recv(&self.line, &mut signals, RecvFlags::empty()) {
                Ok((1.., n_bytes)) => self.send(&signals[..n_bytes]),
                Err(Errno::INTR) => {}
                // The client is gone, or that is no socket.
                _ => return,
            }
        }
    }

    fn send(&self, signals: &[u8]) {
        for signal in signals.iter().filter_map(|it| Signal::from_named_raw(i32::from(*it))) {
            // A child of another user, which has changed its user: it gets none.
            let _ = self.running.signal(signal);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let ended = match self.running.reap() {
            Ended::Code(code) => [0, code],
            Ended::Signal(signal) => [1, signal],
            Ended::Unknown => return,
        };
        // Whoever has closed the line does not want to know.
        let _ = send(&self.line, &ended, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// A process that was started for this one, which dies when this is dropped.
#[derive(Debug)]
pub struct Child {
    /// Its pid
    pub pid: u32,
    line: OwnedFd,
}

/// Starts a process by the service with this handle. The child gets standard input, output and
/// error, and the current directory.
///
/// # Errors
/// The service's, or of the call.
pub fn start(
    service: &Handle,
    wanted: &Start,
    fds: [BorrowedFd<'_>; 4],
) -> Result<Child, ClientError> {
    let failed = |errno: Errno| ClientError::Line(errno);
    let (line, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(failed)?;
    let mut parcel = encode(wanted);
    for fd in fds {
        parcel.write_fd(fd);
    }
    parcel.write_fd(theirs.as_fd());
    let answer = service.call(START, &parcel)?;
    let mut reader = Reader::new(answer.data());
    match reader.status() {
        Some(Ok(())) => {}
        Some(Err(exception)) => return Err(ClientError::Refused(exception)),
        None => return Err(ClientError::Misunderstood),
    }
    let pid = reader.i32().ok_or(ClientError::Misunderstood)? as u32;
    Ok(Child { pid, line })
}

impl Child {
    /// Has a signal sent to it. Nothing happens if it has ended.
    pub fn signal(&self, signal: u8) {
        let _ = send(&self.line, &[signal], SendFlags::NOSIGNAL);
    }

    /// Waits for its end: unknown if the service or its helper has ended as well.
    pub fn wait(&self) -> Ended {
        let mut ended = [0; 2];
        let mut n_bytes = 0;
        while n_bytes < ended.len() {
            match recv(&self.line, &mut ended[n_bytes..], RecvFlags::empty()) {
                Ok((1.., more)) => n_bytes += more,
                Err(Errno::INTR) => {}
                _ => return Ended::Unknown,
            }
        }
        match ended {
            [0, code] => Ended::Code(code),
            [_, signal] => Ended::Signal(signal),
        }
    }
}

fn encode(wanted: &Start) -> Parcel {
    let mut parcel = Parcel::new();
    parcel.write_token(INTERFACE);
    parcel.write_i32(wanted.uid.map_or(-1, |uid| uid as i32));
    let variables = wanted.environment.iter().flatten().flat_map(|(name, value)| [name, value]);
    for strings in [wanted.arguments.iter().collect(), variables.collect::<Vec<_>>()] {
        parcel.write_i32(strings.len() as i32);
        strings.into_iter().for_each(|it| parcel.write_string(it));
    }
    parcel
}

fn decode(data: &[u8]) -> Option<Start> {
    let mut reader = Reader::new(data);
    (reader.token()? == INTERFACE).then_some(())?;
    let uid = u32::try_from(reader.i32()?).ok();
    let arguments = reader.strings()?;
    let variables = reader.strings()?;
    let mut environment = Vec::new();
    for variable in variables.chunks(2) {
        let [name, value] = variable else { return None };
        environment.push((name.clone(), value.clone()));
    }
    Some(Start { arguments, uid, environment: Some(environment) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written_and_no_others() {
        let strings = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for uid in [None, Some(1000)] {
            let environment = Some(vec![("A".to_owned(), String::new())]);
            let wanted = Start { arguments: strings(&["main", "ä"]), uid, environment };
            let parcel = encode(&wanted);
            assert_eq!(decode(parcel.data()), Some(wanted));
            for end in 0..parcel.data().len() {
                assert_eq!(decode(&parcel.data()[..end]), None, "{end}");
            }
        }
        let mut odd = Parcel::new();
        odd.write_token(INTERFACE);
        for value in [-1, 0, 1] {
            odd.write_i32(value);
        }
        odd.write_string("a name without a value");
        assert_eq!(decode(odd.data()), None);
    }
}
