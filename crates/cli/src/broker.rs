//! `baton broker`.

use crate::background;
use crate::contexts::parse_name;
use crate::failure::{Failure, Kind, MORE_DESCRIPTORS, SHORTER_PATH};
use crate::inherited;
use crate::policy;
use crate::stop;
use baton_broker::limits::Limits;
use baton_broker::{Config, RunError};
use baton_log::{Buffer, Options, Settings};
use clap::Args;
use rustix::fd::OwnedFd;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Options of the broker.
#[derive(Args)]
#[command(after_help = "\
Listens at --socket, or at the socket that systemd passes (see dist/baton-broker.socket), until \
SIGTERM or SIGINT. Programs that are talking to each other go on without it, and new ones cannot \
start \
until there is one again: it takes up where the last one at the same socket ended.")]
pub struct BrokerArgs {
    /// End when the last client has gone, after there was one
    #[arg(long)]
    until_idle: bool,
    /// Return once the broker listens, and leave it running
    #[arg(long)]
    background: bool,
    /// A context beside binder, hwbinder and vndbinder; may be given again
    #[arg(long = "context", value_name = "NAME", value_parser = parse_name)]
    contexts: Vec<String>,
    /// Serve real-time callers of this user at this priority at most, whatever RLIMIT_RTPRIO they
    /// have; 0 for none; may be given again
    #[arg(long = "real-time-limit", value_name = "UID:PRIORITY", value_parser = real_time_limit)]
    real_time_limits: Vec<(u32, u32)>,
    /// Limits of users and managers of contexts: a file, or a directory of *.toml. Default for
    /// root's broker: /etc/baton
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// This is the process that --background started
    #[arg(long, hide = true)]
    serving: bool,
}

/// Runs the broker, here or in the background.
pub fn broker(args: BrokerArgs, socket: &Path) -> Result<(), Failure> {
    if args.background && !args.serving {
        return background::start(&arguments(&args, socket));
    }
    if args.serving {
        background::begin();
    }
    let tried = "run the broker";
    begin_log("baton-broker");
    let policy = policy::read(args.config.as_deref()).map_err(|why| why.during(tried))?;
    let config = Config {
        socket: socket.to_owned(),
        listener: passed_listener(),
        until_idle: args.until_idle,
        contexts: args.contexts,
        stop: Some(stop::signals().map_err(|error| Failure::new(tried, error))?),
        limits: Limits::default(),
        grace: baton_broker::GRACE,
        real_time_limits: args.real_time_limits.iter().copied().collect(),
        policy,
    };
    let ready = || {
        // Without a NOTIFY_SOCKET this has no effect.
        let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
        if args.serving {
            background::ready();
        }
    };
    baton_broker::run(config, ready).map_err(|error| explain(tried, &error))
}

/// Sends log messages to standard error, and to Baton's log under a tag if there is one. Their ring
/// has the default size: a large one, which is for programs, takes seconds to make.
pub fn begin_log(tag: &'static str) {
    let rings = Settings::default().ring_bytes;
    // This cannot fail: nothing was logged before.
    let _ = baton_log::set_options(Options::new().ring_bytes(rings));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).without_time();
    let lines = lines.with_target(false).with_ansi(false);
    let log = baton_log::adapter::tracing::Layer::new(Buffer::System).tag(tag);
    tracing_subscriber::registry().with(lines).with(log).with(LevelFilter::INFO).init();
}

fn arguments(args: &BrokerArgs, socket: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["broker".into(), "--socket".into(), socket.into()];
    if args.until_idle {
        all.push("--until-idle".into());
    }
    for context in &args.contexts {
        all.extend(["--context".into(), context.into()]);
    }
    if let Some(config) = &args.config {
        // The other process has the same working directory.
        all.extend(["--config".into(), config.into()]);
    }
    for (uid, priority) in &args.real_time_limits {
        all.extend(["--real-time-limit".into(), format!("{uid}:{priority}").into()]);
    }
    all
}

fn real_time_limit(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once(':').and_then(|(uid, priority)| {
        Some((uid.parse().ok()?, priority.parse().ok().filter(|priority| *priority <= 99)?))
    });
    parsed.ok_or_else(|| "a user's number, a colon, and a priority from 0 to 99".to_owned())
}

fn explain(tried: &str, error: &RunError) -> Failure {
    let failure = Failure::new(tried, error);
    match error {
        RunError::AlreadyRunning(_) => {
            let advice = "use that one, or give another path with --socket";
            failure.kind(Kind::Held).advice(advice)
        }
        RunError::BadContext(_) => failure.kind(Kind::Usage).advice(
            "every broker has binder, hwbinder and vndbinder, and /etc/baton or --config may name \
             others",
        ),
        RunError::NotASocket(_) => {
            failure.advice("remove that file, or give another path with --socket or BATON_SOCKET")
        }
        RunError::Replaceable(_) => {
            failure.advice("give a path in a directory of your own with --socket or BATON_SOCKET")
        }
        RunError::FewDescriptors { .. } => failure.advice(MORE_DESCRIPTORS),
        RunError::TooLong { .. } => failure.advice(SHORTER_PATH),
        RunError::System { .. } => {
            failure.advice("give a path that you may write to with --socket or BATON_SOCKET")
        }
    }
}

/// The listening socket that systemd passed to this process.
fn passed_listener() -> Option<OwnedFd> {
    // LISTEN_PID and LISTEN_FDS say that it was passed to this process.
    let listener = inherited::take(sd_notify::listen_fds().ok()?.next()?).ok()?;
    // systemd passes the socket in blocking mode, and the broker never blocks.
    rustix::io::ioctl_fionbio(&listener, true).ok()?;
    Some(listener)
}
