//! `baton dump`: what a service tells about itself, as Android's `dumpsys` shows it.
//!
//! The service writes into a pipe, so that no service gets hold of the command's own output.

use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, call};
use crate::stdout::show;
use crate::threads;
use crate::timeout::{parse_seconds, timed_out};
use baton::Parcel;
use baton::android::Write as _;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The code by which an object writes its state to a descriptor.
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");

/// Options of `baton dump`.
#[derive(Args)]
#[command(override_usage = "baton dump [OPTIONS] <NAME> [ARGUMENT]...\n       baton dump -l")]
pub struct DumpArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// List the services instead
    #[arg(short)]
    list: bool,
    /// How long the service may take
    #[arg(
        short, long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds
    )]
    timeout: Duration,
    /// The service's name, and arguments that the service understands: options too
    #[arg(
        trailing_var_arg = true, required_unless_present = "list", conflicts_with = "list",
        value_names = ["NAME", "ARGUMENT"], num_args = 1..
    )]
    words: Vec<String>,
}

/// Prints what the service writes.
pub fn dump(args: &DumpArgs, socket: &Path) -> Result<(), Failure> {
    let Some((name, arguments)) = args.words.split_first() else {
        return list(&args.place.context, socket);
    };
    dump_service(&args.place.context, name, arguments, args.timeout, socket)
}

/// Prints what a service writes for these arguments.
pub fn dump_service(
    context: &str,
    name: &str,
    arguments: &[String],
    longest: Duration,
    socket: &Path,
) -> Result<(), Failure> {
    let tried = format!("dump the service {name:?}");
    let manager = Manager::find(context, socket, &tried)?;
    let service = manager.service(&tried, name)?;
    // A time that is too far ahead for the clock does not come.
    let deadline = Instant::now().checked_add(longest);
    let (output, input) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Failure::new(&tried, errno))?;
    let request = request(input, arguments);
    // A service that has filled the pipe does not answer until somebody reads.
    std::thread::scope(|scope| {
        let asked = std::thread::Builder::new().spawn_scoped(scope, || {
            // The pipe's end is closed with the request.
            let request = request;
            call(&tried, &service, DUMP, &request, Some(longest)).map(drop)
        });
        let asked = asked.map_err(|error| threads::denied(&tried, &error))?;
        let ended = copy(output, deadline, &tried);
        asked.join().expect("the call does not panic")?;
        if ended? { Ok(()) } else { Err(timed_out(&tried)) }
    })
}

/// Prints the names, as `dumpsys -l` does.
fn list(context: &str, socket: &Path) -> Result<(), Failure> {
    let tried = "list the services";
    let mut names = Manager::find(context, socket, tried)?.names(tried)?;
    names.sort_unstable();
    let lines = names.iter().map(|name| format!("  {name}\n"));
    show(
        &std::iter::once("Currently running services:\n".to_owned())
            .chain(lines)
            .collect::<String>(),
    )
}

/// A request without an interface: every object knows it.
fn request(input: OwnedFd, arguments: &[String]) -> Parcel {
    let mut request = Parcel::new();
    request.write_owned_fd(input);
    request.write_i32(arguments.len() as i32);
    arguments.iter().for_each(|argument| request.write_string(argument));
    request
}

/// Copies to standard output until the last writer has closed the pipe. False if none has until the
/// deadline.
fn copy(output: OwnedFd, deadline: Option<Instant>, tried: &str) -> Result<bool, Failure> {
    let mut to = std::io::stdout().lock();
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        // What is too long for the kernel has no end.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(false),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(Failure::new(tried, errno)),
            Ok(_) => {}
        }
        let read =
            rustix::io::read(&output, &mut bytes).map_err(|errno| Failure::new(tried, errno))?;
        if read == 0 {
            return Ok(true);
        }
        match to.write_all(&bytes[..read]).and_then(|()| to.flush()) {
            // Nobody wants the rest.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(true),
            Err(error) => return Err(Failure::new("write to standard output", error)),
            Ok(()) => {}
        }
    }
}
