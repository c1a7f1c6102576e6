//! `baton dump`: what a service tells about itself, as Android's `dumpsys` shows it.
//!
//! The service writes into a pipe, so that no service gets hold of the command's own output.

use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, call};
use crate::stdout::show;
use crate::timeout::timed_out;
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
    #[arg(short, long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u32,
    /// The service's name
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Arguments, which the service understands
    #[arg(allow_hyphen_values = true, trailing_var_arg = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Prints what the service writes.
pub fn dump(args: &DumpArgs, socket: &Path) -> Result<(), Failure> {
    let Some(name) = args.name.as_deref().filter(|_| !args.list) else {
        return list(&args.place.context, socket);
    };
    let longest = Duration::from_secs(args.timeout.into());
    dump_service(&args.place.context, name, &args.arguments, longest, socket)
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
    let deadline = Instant::now() + longest;
    let (output, input) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Failure::new(&tried, errno))?;
    let request = request(input, arguments);
    // A service that has filled the pipe does not answer until somebody reads.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            // The pipe's end is closed with the request.
            let request = request;
            call(&tried, &service, DUMP, &request, Some(longest)).map(drop)
        });
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
fn copy(output: OwnedFd, deadline: Instant, tried: &str) -> Result<bool, Failure> {
    let mut to = std::io::stdout().lock();
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|error| Failure::new(tried, error))?;
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left)) {
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
