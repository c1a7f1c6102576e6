//! A method call of D-Bus, through a message bus that the demo starts for itself.

use super::processes::{PATIENCE, Processes, command};
use rustbus::connection::{Error, Timeout, ll_conn::force_finish_on_error};
use rustbus::message_builder::{MarshalledMessage, MessageBuilder};
use rustbus::{RpcConn, standard_messages};
use rustbus_nix::sys::socket::UnixAddr;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = "dbus-daemon";
const NAME: &str = "baton.demo.Echo";
const OBJECT: &str = "/baton/demo/Echo";
const METHOD: &str = "Echo";
/// An answer that takes longer does not come.
const SOON: Timeout = Timeout::Duration(PATIENCE);
/// Users are let in by their uids, and may do everything, as at a session's bus. The socket's path
/// is relative to the bus' directory.
const CONFIGURATION: &str = r#"<!DOCTYPE busconfig PUBLIC
 "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// The end that calls.
pub struct Caller(RpcConn);

/// Starts a bus and a service. The error says why there is none, and how to get one.
pub fn start(processes: &mut Processes) -> Result<Caller, String> {
    let socket = start_bus(processes).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("install {PROGRAM}, and run the demo again"),
        _ => format!("{PROGRAM} does not start: {error}"),
    })?;
    let mut service = processes.command(&["demo", "--serve", "bus", "--bus"]);
    let started = keep_ready(processes, METHOD, service.arg(&socket));
    started.map_err(|error| format!("its service does not start: {error}"))?;
    connect(&socket).map(Caller).map_err(|error| format!("the bus refuses: {error}"))
}

/// Starts a bus in the demo's directory. Returns its socket, at which it listens.
fn start_bus(processes: &mut Processes) -> io::Result<PathBuf> {
    let directory = processes.directory().to_owned();
    std::fs::write(directory.join("bus.conf"), CONFIGURATION)?;
    let mut command = command(PROGRAM);
    command.args(["--config-file=bus.conf", "--nofork", "--nopidfile", "--print-address"]);
    // A bus that may not raise its limits complains, and goes on.
    command.current_dir(&directory).stdin(Stdio::null()).stderr(Stdio::null());
    keep_ready(processes, PROGRAM, &mut command)?;
    Ok(directory.join("bus"))
}

/// Starts a process, and waits for the line by which it says that it is ready.
fn keep_ready(processes: &mut Processes, name: &str, command: &mut Command) -> io::Result<()> {
    let (_, output) = processes.keep(name, command.stdout(Stdio::piped()))?;
    let output = output.expect("it is a pipe");
    match BufReader::new(output).read_line(&mut String::new())? {
        0 => Err(io::Error::other("it has ended")),
        _ => Ok(()),
    }
}

fn connect(socket: &Path) -> Result<RpcConn, Error> {
    RpcConn::connect_to_path(UnixAddr::new(socket)?, SOON)
}

fn send(bus: &mut RpcConn, message: &mut MarshalledMessage) -> Result<u32, Error> {
    bus.send_message(message)?.write_all().map_err(force_finish_on_error)
}

/// Answers each call with its own bytes, until the bus ends.
pub fn serve(socket: &Path) -> Result<(), Error> {
    let mut bus = connect(socket)?;
    let serial = send(&mut bus, &mut standard_messages::request_name(NAME, 0))?;
    bus.wait_response(serial, SOON)?;
    // A demo that has ended needs no service.
    writeln!(io::stdout(), "ready").map_err(Error::IoError)?;
    loop {
        let call = match bus.wait_call(Timeout::Infinite) {
            Err(Error::ConnectionClosed) => return Ok(()),
            call => call?,
        };
        let mut answer = call.dynheader.make_response();
        answer.body.push_param(call.body.parser().get::<&[u8]>()?)?;
        send(&mut bus, &mut answer)?;
    }
}

impl Caller {
    /// One call. Whether the answer has the request's bytes.
    pub fn call(&mut self, request: &[u8]) -> Result<bool, Error> {
        let mut call =
            MessageBuilder::new().call(METHOD).with_interface(NAME).on(OBJECT).at(NAME).build();
        call.body.push_param(request)?;
        let serial = send(&mut self.0, &mut call)?;
        let answer = self.0.wait_response(serial, SOON)?;
        Ok(answer.body.parser().get::<&[u8]>()? == request)
    }
}
