//! A bus of D-Bus' own, for one pair. It ends with the process that has started it.

use rustix::process::{Pid, Signal};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use zbus::blocking::{Connection, connection};
use zbus::zvariant::{Fd, ObjectPath, Value};

/// Whose bus.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `dbus-daemon`, the reference implementation's.
    Daemon,
    /// `dbus-broker`.
    Broker,
}

fn place(directory: &Path) -> PathBuf {
    directory.join("bus")
}

/// Where a pair finds its bus.
pub fn address(directory: &Path) -> String {
    format!("unix:path={}", place(directory).display())
}

pub struct Bus {
    process: Child,
    _controller: Option<Connection>,
}

impl Bus {
    /// Starts it: it listens.
    pub fn start(directory: &Path, kind: Kind) -> io::Result<Bus> {
        match kind {
            Kind::Daemon => daemon(directory),
            Kind::Broker => broker(directory),
        }
    }

    /// Puts it on the processor of the calling thread.
    pub fn follow(&self) -> io::Result<()> {
        let set = rustix::thread::sched_getaffinity(None)?;
        Ok(rustix::thread::sched_setaffinity(Some(Pid::from_child(&self.process)), &set)?)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ending_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe {
        command
            .pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?))
    }
}

fn daemon(directory: &Path) -> io::Result<Bus> {
    let mut command = Command::new("dbus-daemon");
    command.args(["--session", "--nofork", "--nopidfile", "--print-address"]);
    command.arg(format!("--address={}", address(directory))).stdout(Stdio::piped());
    // As root without the right to raise limits it complains, and goes on.
    command.stderr(Stdio::null());
    let mut process = ending_with_us(&mut command).spawn()?;
    // It says its address once it listens.
    let words = process.stdout.take().expect("it is piped");
    BufReader::new(words).read_line(&mut String::new())?;
    Ok(Bus { process, _controller: None })
}

/// dbus-broker has its sockets and its policy from a controller; that which comes with it needs
/// systemd, so this is one.
fn broker(directory: &Path) -> io::Result<Bus> {
    let listener = UnixListener::bind(place(directory))?;
    listener.set_nonblocking(true)?;
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let mut command = Command::new("dbus-broker");
    command.arg("--controller").arg(theirs.as_raw_fd().to_string());
    command.args(["--machine-id", &"0".repeat(32), "--max-bytes", "536870912"]);
    // A user may have as many connections as it may have descriptors.
    command.args(["--max-fds", "16384"]);
    let process = ending_with_us(&mut command).spawn()?;
    drop(theirs);
    let controller = control(ours, &listener).map_err(io::Error::other)?;
    Ok(Bus { process, _controller: Some(controller) })
}

fn control(socket: UnixStream, listener: &UnixListener) -> zbus::Result<Connection> {
    let controller = connection::Builder::async_io_unix_stream(socket).p2p().build()?;
    let name = ObjectPath::try_from("/org/bus1/DBus/Listener/0")?;
    let words = (name, Fd::from(listener), open_policy());
    let (object, interface) = ("/org/bus1/DBus/Broker", "org.bus1.DBus.Broker");
    controller.call_method(None::<&str>, object, Some(interface), "AddListener", &words)?;
    Ok(controller)
}

type Own<'a> = (bool, u64, bool, &'a str);
type Pass<'a> = (bool, u64, &'a str, &'a str, &'a str, &'a str, u32, u32, u64, u64);
type Rules<'a> = (bool, u64, Vec<Own<'a>>, Vec<Pass<'a>>, Vec<Pass<'a>>);

/// For every user: may connect, own every name, send to all and receive from all. A rule has a
/// verdict and a priority, then what it matches: nothing is said, so all.
fn open_policy() -> Value<'static> {
    let pass: Pass = (true, 1, "", "", "", "", 0, 0, 0, u64::MAX);
    let rules: Rules = (true, 1, vec![(true, 1, true, "")], vec![pass], vec![pass]);
    let users = vec![(u32::MAX, rules)];
    let groups: Vec<(bool, u32, u32, Rules)> = Vec::new();
    let selinux: Vec<(&str, &str)> = Vec::new();
    Value::new((users, groups, selinux, false, "session"))
}
