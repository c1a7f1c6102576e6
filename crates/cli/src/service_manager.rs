//! `baton manager`: runs Android's service manager.

use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::stdout::show;
use crate::threads;
use crate::{background, stop};
use baton::{Errno, Process};
use baton_manager::{Manager, Policy, Release};
use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::path::Path;

/// Time between two looks at whether lazy services have clients, as in Android.
const ROUND: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Threads that serve: a client that is slow to read a reply holds up one of them at most.
const N_LOOPERS: usize = 2;

/// Options of `baton manager`.
#[derive(Args)]
#[command(after_help = "\
Programs of Android 10 and older, and libgbinder unless told otherwise, are served whatever \
--android says: their requests can be told apart. Root and the manager's own user may register \
services; --allow lets others. A name belongs to the user who has registered it, until the \
service dies.

If no broker listens, this starts one that ends with its last client. Runs until SIGTERM or \
SIGINT, and tells systemd when it is ready (Type=notify).")]
pub struct ManagerArgs {
    /// The context to manage
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    context: String,
    /// The release of Android whose protocol is spoken
    #[arg(long, value_enum, default_value = "16", value_name = "RELEASE")]
    android: Android,
    /// A user who may register services, or `all`; may be given again
    #[arg(long = "allow", value_name = "UID", value_parser = parse_user)]
    allowed: Vec<User>,
}

/// A release of Android.
#[derive(Clone, Copy, ValueEnum)]
enum Android {
    #[value(name = "11")]
    Eleven,
    #[value(name = "12")]
    Twelve,
    #[value(name = "13")]
    Thirteen,
    #[value(name = "14")]
    Fourteen,
    #[value(name = "15")]
    Fifteen,
    #[value(name = "16")]
    Sixteen,
}

/// A word of --allow.
#[derive(Clone, Copy)]
enum User {
    All,
    One(u32),
}

fn parse_user(text: &str) -> Result<User, String> {
    match text {
        "all" => Ok(User::All),
        number => number.parse().map(User::One).map_err(|_| "a user's number, or `all`".to_owned()),
    }
}

impl ManagerArgs {
    fn release(&self) -> Release {
        match self.android {
            Android::Eleven => Release::Eleven,
            Android::Twelve => Release::Twelve,
            Android::Thirteen => Release::Thirteen,
            Android::Fourteen => Release::Fourteen,
            Android::Fifteen => Release::Fifteen,
            Android::Sixteen => Release::Sixteen,
        }
    }

    fn policy(&self) -> Policy {
        let mut users = BTreeSet::from([rustix::process::geteuid().as_raw()]);
        for user in &self.allowed {
            match user {
                User::All => return Policy::Everyone,
                User::One(uid) => _ = users.insert(*uid),
            }
        }
        Policy::Users(users)
    }
}

/// Manages a context until a signal ends it.
pub fn manager(args: &ManagerArgs, socket: &Path) -> Result<(), Failure> {
    let context = &args.context;
    let tried = format!("manage the context {context:?}");
    // Each client's channel takes descriptors. The broker below raises its own limit.
    baton_shm::fd_limit::raise();
    let _broker = background::connect_or_start(socket, &tried)?;
    // Done before threads are started, which inherit the signal mask.
    let signals = stop::signals().map_err(|error| Failure::new(&tried, error))?;
    let process =
        Process::open(context, socket).map_err(|error| Failure::open(&tried, socket, &error))?;
    let manager = Manager::start(&process, args.release(), args.policy())
        .map_err(|errno| refused(&tried, errno))?;
    let loopers = threads::serve(&tried, &process, N_LOOPERS)?;
    show(&format!("Managing {context:?} at {}\n", socket.display()))?;
    let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
    poll_until(&signals, || manager.poll());
    process.close();
    loopers.into_iter().for_each(|looper| _ = looper.join());
    Ok(())
}

/// Calls `round` every few seconds, until a signal comes.
fn poll_until(signals: &OwnedFd, round: impl Fn()) {
    loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&ROUND)) {
            Ok(0) => round(),
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

fn refused(tried: &str, errno: Errno) -> Failure {
    match errno {
        Errno::BUSY => Failure::new(tried, "it has a manager already")
            .advice("see `baton ps`; another context is given by --context"),
        Errno::PERM => Failure::new(tried, "another user may manage it, and you may not")
            .advice("the broker's configuration names a context's manager: docs/limits.md"),
        errno => Failure::new(tried, errno).kind(Kind::Failed),
    }
}
