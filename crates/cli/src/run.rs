//! `baton run`: executes a program with the interposer loaded, or with a binderfs of its own where
//! nothing can be loaded into it.

use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::program::Way;
use crate::stderr::say;
use crate::timeout::parse_seconds;
use crate::{background, devices, interposer, private_mount, program, wait};
use clap::Args;
use rustix::fd::{IntoRawFd, RawFd};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Descriptor of the connection that keeps the broker running: the last number below the usual
/// limit, where programs do not expect their own.
const KEPT_FD: i32 = 1023;

/// Options of `baton run`.
#[derive(Args)]
#[command(after_help = "\
The program finds /dev/binder, /dev/hwbinder, /dev/vndbinder and /dev/binderfs, and so do the \
programs that it starts. Its environment gets LD_PRELOAD, BATON_SOCKET, BATON_DEV, and with \
--context BATON_CONTEXT, with --no-trap BATON_TRAP=0. A program that it starts with none of them \
(env -i) gets them again; LD_PRELOAD= PROGRAM runs one without Baton.

BATON_SPIN_US=N is how long a thread may look for a peer on another processor before it \
sleeps: 50 microseconds if it is not set, 0 for never. BATON_SPIN_REAL_TIME=1 lets threads at a \
real-time priority do so too. BATON_FOLLOW=0 keeps a thread that serves from moving to the \
processor of the one caller for which it sleeps.

BATON_LOG=LEVEL[,FILE] is what the driver says, and where: off; warn, the default: broken rules; \
debug: failed transactions too; on standard error, or at the end of FILE.

System calls that a program makes without the C library are seen in the code of an executable that \
names a \
device and is position-independent (-pie; for Go CGO_ENABLED=1 -buildmode=pie). One at a fixed \
address finds \
no device that way, nor does a statically linked program that a shell starts; either is told of in \
one line on \
standard error.

A program that nothing can be loaded into (statically linked, setuid, with musl, Go without cgo) \
gets a binderfs of its own, in a private mount namespace: see `baton mount`. That needs root.

Exit codes: the program's own; 126 if it cannot be executed, or can neither be interposed nor have \
a binderfs, 127 if it was not found, 3 if no broker could be started.")]
pub struct RunArgs {
    /// The context that the program finds as /dev/binder; added if there is none
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    context: Option<String>,
    /// Do not trap inline system calls: for programs that use the C library only
    #[arg(long)]
    no_trap: bool,
    /// Start the program once this service is there; may be given again
    #[arg(long, value_name = "NAME")]
    wait_for: Vec<String>,
    /// With --wait-for: give up after so many seconds [default: never]
    #[arg(long, value_name = "SECONDS", requires = "wait_for", value_parser = parse_seconds)]
    wait_timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Executes the program in place of this process.
pub fn run(args: &RunArgs, socket: &Path) -> Result<(), Failure> {
    let (path, way) = program::find(&args.command[0])?;
    let tried = format!("run {}", path.display());
    let library = match way {
        Way::Interposed(first) => Some((first, interposer::find(&tried)?)),
        Way::Mounted(why, refusal) => {
            if !rustix::process::geteuid().is_root() {
                return Err(refusal);
            }
            say(format_args!(
                "baton: {}: {why}. It finds its devices in a binderfs of its own, in a private \
                 mount namespace",
                path.display()
            ));
            None
        }
    };
    let socket = std::path::absolute(socket).map_err(|error| Failure::new(&tried, error))?;
    let broker = background::connect_or_start(&socket, &tried)?;
    let refused = |errno| Failure::refused(&tried, errno);
    let mut contexts = broker.contexts().map_err(refused)?;
    if let Some(context) = args.context.as_ref().filter(|name| !contexts.contains(name)) {
        match broker.add_context(context) {
            Ok(()) | Err(Errno::EXIST) => contexts.push(context.clone()),
            Err(errno) => return Err(refused(errno)),
        }
    }
    let context = args.context.as_deref().unwrap_or("binder");
    wait::wait_for(&args.wait_for, context, &socket, args.wait_timeout)?;
    let keeps = |errno| Failure::new(&tried, errno);
    keep_open(&broker, KEPT_FD).map_err(keeps)?;
    let mut command = Command::new(&path);
    command.arg0(&args.command[0]).args(&args.command[1..]);
    command.env("BATON_SOCKET", &socket);
    match library {
        Some((first, library)) => {
            let placeholders = devices::lay_out(&socket, &contexts)?;
            command.env("LD_PRELOAD", preload(first, library)).env("BATON_DEV", placeholders);
            // For a binderfs that the program mounts itself.
            if let Ok(program) = std::env::current_exe() {
                command.env("BATON_PROGRAM", program);
            }
            match &args.context {
                Some(context) => command.env("BATON_CONTEXT", context),
                None => command.env_remove("BATON_CONTEXT"),
            };
            if args.no_trap {
                command.env("BATON_TRAP", "0");
            }
        }
        None => {
            let kept = private_mount::enter(&contexts, context, &socket)?;
            keep_open(&kept, KEPT_FD - 1).map_err(keeps)?;
        }
    }
    let error = command.exec();
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => Kind::NotFound,
        _ => Kind::NotExecutable,
    };
    Err(Failure::new(tried, error).kind(kind))
}

/// Keeps a server running as long as the program or a child of it runs, whether or not a device is
/// open. `number` is that of the program's descriptor.
fn keep_open(server: impl rustix::fd::AsFd, number: RawFd) -> Result<(), Errno> {
    let kept = rustix::io::fcntl_dupfd_cloexec(&server, number)
        // The limit is lower or the number is taken: any number will do.
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&server, 0))?;
    rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::empty())?;
    let _ = kept.into_raw_fd();
    Ok(())
}

/// The value of LD_PRELOAD: runtimes of AddressSanitizer, then the interposer, then the other
/// libraries that are already there; each once.
fn preload(first: Option<OsString>, library: PathBuf) -> OsString {
    let given = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let separators = |byte: &u8| *byte == b':' || *byte == b' ';
    let given = given.as_bytes().split(separators).filter(|path| !path.is_empty());
    let (mut all, others): (Vec<&[u8]>, Vec<&[u8]>) =
        given.partition(|path| program::is_address_sanitizer(path));
    if let Some(first) = first.as_ref().filter(|_| all.is_empty()) {
        all.push(first.as_bytes());
    }
    let library = library.as_os_str().as_bytes();
    all.push(library);
    all.extend(others.into_iter().filter(|path| *path != library));
    OsString::from_vec(all.join(&b':'))
}
