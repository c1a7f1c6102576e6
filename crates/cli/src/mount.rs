//! `baton mount`.

use crate::background;
use crate::broker::begin_log;
use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::inherited;
use crate::mount_keeper;
use crate::stop;
use baton_binderfs::{Config, MountError, Options, PageSource};
use clap::Args;
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Options of a mount.
#[derive(Args)]
#[command(after_help = "\
Serves until SIGTERM or SIGINT, until the terminal hangs up, or until DIR is unmounted. A program \
opens DIR/binder as it would open /dev/binder, and talks to all programs of the broker. To give \
DIR to a container, bind the directory, not a file in it.

Needs Linux 6.1, /dev/fuse and a running broker. As root, on Linux 6.9, programs map the server's \
buffers. Elsewhere the server stores each message in the kernel's pages, which takes a little \
longer. An ordinary user mounts in namespaces of his own, for programs in them:

  export BATON_SOCKET=$XDG_RUNTIME_DIR/baton/broker.sock
  unshare --user --map-root-user --mount \\
    sh -c 'baton mount --background --ends-with-namespace DIR && exec sh'")]
pub struct MountArgs {
    /// The directory, which exists
    #[arg(value_name = "DIR", default_value = "/dev/binderfs")]
    directory: PathBuf,
    /// The contexts that have a device at first; binder-control makes others
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = parse_name,
        default_value = "binder,hwbinder,vndbinder"
    )]
    contexts: Vec<String>,
    /// Contexts of this mount's own: the broker knows DIR/binder as the context binder.NAME
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    apart: Option<String>,
    /// Options as of a mount of the kernel's binderfs: max=N, the number of devices that there can
    /// be, and stats=global, for DIR/binder_logs. And pages=passthrough or pages=stored, in place
    /// of the best that there is
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<MountOption>,
    /// Return once programs can use it, and leave it running
    #[arg(long)]
    background: bool,
    /// End with the mount namespace that this is started in, once no other process is in it. If the
    /// server ends before, by a signal, the mount stays, and is of no use
    #[arg(long)]
    ends_with_namespace: bool,
    /// Keep the mount if the server is killed: start another one, which serves it. Programs open
    /// their devices anew, in containers, too. SIGHUP starts the server anew, from the program file
    /// that there is by then; that of a terminal which hangs up ends it. Before Linux 6.9 the mount
    /// ends with its server all the same
    #[arg(long, conflicts_with_all = ["ends_with_namespace", "kept_open"])]
    restart: bool,
    /// This is the server of `--restart`: the descriptors that outlive it, and a pipe's end
    #[arg(long, hide = true, value_name = "FDS", value_delimiter = ',', num_args = 1)]
    kept: Vec<RawFd>,
    /// This is the process that --background started
    #[arg(long, hide = true)]
    serving: bool,
    /// A pipe's end of `baton run`: see [`Config::kept_open`]
    #[arg(long, hide = true, value_name = "FD")]
    kept_open: Option<RawFd>,
}

/// An option of `-o`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MountOption {
    /// `max=`
    Max(usize),
    /// `stats=global`
    Stats,
    /// `pages=`
    Pages(PageSource),
}

impl FromStr for MountOption {
    type Err = String;

    fn from_str(option: &str) -> Result<MountOption, String> {
        let most = Options::default().most_devices;
        match option.split_once('=') {
            Some(("max", number)) => match number.parse() {
                Ok(number) if number <= most => Ok(MountOption::Max(number)),
                _ => Err(format!("max= takes a number up to {most}")),
            },
            Some(("stats", "global")) => Ok(MountOption::Stats),
            Some(("stats", _)) => Err("stats= takes the word global".to_owned()),
            Some(("pages", "passthrough")) => Ok(MountOption::Pages(PageSource::Passthrough)),
            Some(("pages", "stored")) => Ok(MountOption::Pages(PageSource::Stored)),
            Some(("pages", _)) => Err("pages= takes passthrough or stored".to_owned()),
            _ => Err("the options are max=N, stats=global, pages=passthrough and pages=stored"
                .to_owned()),
        }
    }
}

impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountOption::Max(number) => write!(f, "max={number}"),
            MountOption::Stats => f.write_str("stats=global"),
            MountOption::Pages(source) => write!(f, "pages={source}"),
        }
    }
}

fn options(given: &[MountOption]) -> (Options, Option<PageSource>) {
    let (mut options, mut pages) = (Options::default(), None);
    for option in given {
        match option {
            MountOption::Max(number) => options.most_devices = *number,
            MountOption::Stats => options.has_logs = true,
            MountOption::Pages(source) => pages = Some(*source),
        }
    }
    (options, pages)
}

/// Mounts a binderfs, and serves it.
pub fn mount(args: MountArgs, socket: &Path) -> Result<(), Failure> {
    if args.background && !args.serving {
        let restart = args.restart.then(|| "--restart".into());
        return background::start(&[&arguments(&args, socket)[..], restart.as_slice()].concat());
    }
    if args.serving && args.kept.is_empty() {
        background::begin();
    }
    let tried = format!("mount a binderfs at {}", args.directory.display());
    begin_log("baton-mount");
    let serving = args.serving;
    let tell_ready = || {
        // Without a NOTIFY_SOCKET this has no effect.
        let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
        if serving {
            background::ready();
        }
    };
    if args.restart {
        let mut arguments = arguments(&args, socket);
        arguments.extend(serving.then(|| "--serving".into()));
        return mount_keeper::keep(&tried, &arguments, tell_ready);
    }
    let stop = stop::signals().map_err(|error| Failure::new(&tried, error))?;
    let kept = mount_keeper::kept(&args.kept);
    let kept = kept.map_err(|errno| Failure::new(&tried, errno).kind(Kind::Usage))?;
    let kept_open = args.kept_open.map(inherited::take).transpose();
    let kept_open = kept_open.map_err(|errno| Failure::new(&tried, errno).kind(Kind::Usage))?;
    let (options, pages) = options(&args.options);
    let MountArgs { directory, contexts, apart, ends_with_namespace, .. } = args;
    let config = Config {
        directory,
        socket: socket.to_owned(),
        contexts,
        apart,
        options,
        pages,
        stop,
        kept_open,
        ends_with_namespace,
        kept: None,
    };
    let served = match kept {
        Some((kept, keeper)) => {
            let ready = || {
                mount_keeper::tell_ready(keeper);
                if serving {
                    background::leave_terminal();
                }
            };
            baton_binderfs::serve(Config { kept: Some(kept), ..config }, ready)
        }
        None => baton_binderfs::serve(config, tell_ready),
    };
    served.map_err(|error| explain(&tried, socket, &error))
}

fn arguments(args: &MountArgs, socket: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["mount".into(), "--socket".into(), socket.into()];
    all.extend(["--contexts".into(), args.contexts.join(",").into()]);
    if let Some(apart) = &args.apart {
        all.extend(["--apart".into(), apart.into()]);
    }
    for option in &args.options {
        all.extend(["--options".into(), option.to_string().into()]);
    }
    if args.ends_with_namespace {
        all.push("--ends-with-namespace".into());
    }
    if let Some(fd) = args.kept_open {
        all.extend(["--kept-open".into(), fd.to_string().into()]);
    }
    // The other process has the same working directory.
    all.push(args.directory.clone().into());
    all
}

fn explain(tried: &str, socket: &Path, error: &MountError) -> Failure {
    let failure = Failure::new(tried, error);
    match error {
        MountError::NotADirectory(_) => failure.advice("give a directory, or make one"),
        MountError::Abandoned(directory) => {
            failure.advice(format_args!("first: umount {}", directory.display()))
        }
        MountError::Directory { directory, errno: Errno::NOENT } => {
            failure.advice(format_args!("make it: mkdir {}", directory.display()))
        }
        MountError::NoFuse(Errno::NOENT) => {
            failure.advice("load the module (modprobe fuse), or give the container /dev/fuse")
        }
        MountError::NoFuse(Errno::ACCESS) => {
            failure.advice("run it as root, or let this user open it: chmod a+rw /dev/fuse")
        }
        MountError::NoFuse(_) | MountError::NotPermitted => failure.advice(
            "run it as root, with CAP_SYS_ADMIN if in a container, or in namespaces of your \
                 own: unshare --user --map-root-user --mount",
        ),
        MountError::NoPassthrough => {
            failure.advice("pages=passthrough needs Linux 6.9: leave the option out")
        }
        MountError::MayNotPassThrough(_) => failure.advice(
            "pages=passthrough needs root outside of user namespaces: leave the option out",
        ),
        MountError::BadContext(_) => failure
            .kind(Kind::Usage)
            .advice("name it once; with stats=global, binder_logs is the name of a directory"),
        MountError::TooManyDevices(_) => {
            failure.kind(Kind::Usage).advice("name fewer contexts, or give a larger max=")
        }
        MountError::OtherProc => {
            failure.advice("mount that of this pid namespace: mount -t proc proc /proc")
        }
        MountError::NotSeen(_) => failure.advice(
            "run the server and the broker in one pid namespace, each with its /proc: both in a \
             container, or both outside, from where the container gets the directory",
        ),
        MountError::System { errno: Errno::PERM | Errno::NOSYS, .. } => failure.advice(
            "a seccomp profile may forbid this system call: allow it, or mount outside of the \
             container, which then gets the directory",
        ),
        MountError::Broker(error) => Failure::open(tried, socket, error),
        MountError::Refused { errno, .. } => Failure::refused(tried, *errno),
        MountError::Directory { .. } | MountError::OtherFuse(_) | MountError::System { .. } => {
            failure
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_kernels_binderfs() {
        for option in ["max=0", "max=1048576", "stats=global", "pages=stored", "pages=passthrough"]
        {
            assert_eq!(option.parse::<MountOption>().unwrap().to_string(), option);
        }
        for option in
            ["max=1048577", "max=-1", "max=", "max", "stats=none", "stats", "pages=", "", "ro"]
        {
            assert!(option.parse::<MountOption>().is_err(), "{option}");
        }
        let given = ["max=3", "stats=global", "pages=stored"].map(|option| option.parse().unwrap());
        let both = Options { most_devices: 3, has_logs: true };
        assert_eq!(options(&given), (both, Some(PageSource::Stored)));
        assert_eq!(options(&[]), (Options::default(), None));
    }
}
