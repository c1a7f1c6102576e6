//! A connection to the broker that looks and manages, and takes part in nothing.

use crate::engine::broker::dial;
use crate::engine::open_error::OpenError;
use crate::sys::packet::{receive_patiently, send};
use baton_abi::control::{Account, Cursor, Reply, Report, Request, VERSION, decode, encode};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks at a report.
const PAUSE: Duration = Duration::from_millis(2);

/// The connection. A broker that runs until it is idle runs for as long as one is open.
#[derive(Debug)]
pub struct Observer {
    socket: OwnedFd,
}

impl Observer {
    /// Connects to the broker that listens at `socket`.
    pub fn connect(socket: &Path) -> Result<Observer, OpenError> {
        let observer = Observer { socket: dial(socket)?.0 };
        let greeting = observer.ask(&Request::Observe { version: VERSION });
        greeting.map_err(|errno| OpenError::NotObserved { errno })?;
        Ok(observer)
    }

    /// A question and its answer; a refusal is its errno.
    fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        send(&self.socket, &encode(request), &[], SendFlags::empty())?;
        let (packet, _) = receive_patiently(&self.socket)?;
        match decode(&packet).ok_or(Errno::PROTO)? {
            Reply::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
            reply => Ok(reply),
        }
    }

    /// The contexts' names, sorted.
    pub fn contexts(&self) -> Result<Vec<String>, Errno> {
        match self.ask(&Request::Contexts)? {
            Reply::Contexts { names } => Ok(names),
            _ => Err(Errno::PROTO),
        }
    }

    /// Adds a context. `EEXIST` if there is one of this name, `EINVAL` if there cannot be.
    pub fn add_context(&self, name: &str) -> Result<(), Errno> {
        match self.ask(&Request::AddContext { name: name.to_owned() })? {
            Reply::Done => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    /// Removes a context. It goes with the last process in it. `ENOENT` if there is none of this
    /// name, `EINVAL` if every broker has it.
    pub fn remove_context(&self, name: &str) -> Result<(), Errno> {
        match self.ask(&Request::RemoveContext { name: name.to_owned() })? {
            Reply::Done => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    /// Everything that this user may see: its own processes, and all if it is root or the broker's
    /// own. It comes in pages: what changes meanwhile may be in some of them only.
    pub fn report(&self) -> Result<Report, Errno> {
        let (mut report, mut from) = (Report::default(), Some(Cursor::default()));
        while let Some(begin) = from {
            let Reply::Report { page, next } = self.ask(&Request::Report { from: begin })? else {
                return Err(Errno::PROTO);
            };
            report.add_page(page);
            from = next.filter(|next| *next > begin);
        }
        Ok(report)
    }

    /// Has the processes that this user may see describe their calls. A later [`Observer::report`]
    /// has the answer of each that has given it by then.
    pub fn describe_calls(&self) -> Result<(), Errno> {
        match self.ask(&Request::DescribeCalls)? {
            Reply::Done => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    /// A report in which the processes have described their calls, as far as they do within
    /// `patience`: one that is stopped does not.
    pub fn described_report(&self, patience: Duration) -> Result<Report, Errno> {
        self.describe_calls()?;
        let deadline = Instant::now() + patience;
        loop {
            let report = self.report()?;
            let mut all = report.contexts.iter().flat_map(|context| &context.processes);
            if all.all(|process| process.calls.is_some()) || Instant::now() > deadline {
                return Ok(report);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The accounts of the users that this user may see.
    pub fn accounts(&self) -> Result<Vec<Account>, Errno> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let Reply::Accounts { accounts, next } =
                self.ask(&Request::Accounts { from: first })?
            else {
                return Err(Errno::PROTO);
            };
            all.extend(accounts);
            from = next.filter(|next| *next > first);
        }
        Ok(all)
    }
}

impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
