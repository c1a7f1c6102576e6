//! `baton host`: many small services in one process.

use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::manager::REGISTRARS;
use crate::stdout::show;
use crate::threads;
use crate::timeout::parse_seconds;
use crate::wait::wait_for_manager;
use crate::{background, stop};
use baton::CallError;
use baton_host::manager::AddError;
use baton_host::plugin::Plugin;
use baton_host::{Closer, Host, HostError, Running, Service, builtin};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;

/// How long handlers may take to return after the signal that ends the host.
const LAST_CALLS: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// Options of `baton host`.
#[derive(Args)]
#[command(after_help = "\
A SERVICE is one that comes with it, or the path of a shared object (with a slash in it) that \
defines \
baton_service, as <baton_service.h> says. NAME= before it registers it under another name.

  echo         baton.IEcho: String echo(String)
  clock        baton.IClock: long realtimeNanos(), long monotonicNanos()
  properties   baton.IProperties: String get(String), void set(String, String), String[] list()

Each service is a thread of one nucleus: calls between them do not leave the process, and one that \
panics or overflows its stack dies alone. Runs until SIGTERM or SIGINT, or until the last service \
has died (exit code 1). After the signal, calls have 3 seconds to end, or until a second signal: \
exit code 1 and the names of the services if they do not.

Example: baton host echo settings=properties ./libweather.so")]
pub struct HostArgs {
    /// The context in which the services are registered
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    context: String,
    /// Stack of each service, in KiB
    #[arg(
        long, default_value = "256", value_name = "KIB",
        value_parser = clap::value_parser!(u32).range(16..=65536)
    )]
    stack: u32,
    /// Wait so many seconds for a service manager
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Duration,
    /// Services to host
    #[arg(required = true, value_name = "[NAME=]SERVICE")]
    services: Vec<String>,
}

/// Hosts services until a signal ends it.
pub fn host(args: &HostArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "host the services";
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).without_time();
    lines.with_target(false).with_ansi(false).with_max_level(LevelFilter::WARN).init();
    let mut host = Host::new().stack_bytes(args.stack as usize * 1024);
    let mut names = Vec::new();
    for word in &args.services {
        let (name, service) = find(word)?;
        host.add_boxed(&name, service).map_err(|error| explain(tried, socket, &error))?;
        names.push(name);
    }
    let _broker = background::connect_or_start(socket, tried)?;
    wait_for_manager(&args.context, socket, Some(args.timeout))
        .map_err(|failure| failure.during(tried))?;
    // Done before threads are started, which inherit the signal mask.
    let signals = stop::signals().map_err(|error| Failure::new(tried, error))?;
    let mut running =
        host.start(&args.context, socket).map_err(|error| explain(tried, socket, &error))?;
    running.publish().map_err(|(name, error)| refused(&name, &args.context, &error))?;
    show(&format!("Hosting {}\n", names.join(", ")))?;
    let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
    if wait(tried, &mut running, signals)? {
        return Ok(());
    }
    Err(Failure::new(tried, "all of them have died").advice("what they said is above"))
}

/// Waits until a signal comes (true) or no service is left (false). Ends the process if a handler
/// does not return for some seconds after the signal, or until a second one.
fn wait(tried: &str, running: &mut Running, signals: OwnedFd) -> Result<bool, Failure> {
    let told = Arc::new(AtomicBool::new(false));
    let (tell, closer) = (Arc::clone(&told), running.closer());
    threads::start(tried, move || {
        await_signal(&signals, None);
        tell.store(true, Ordering::Release);
        closer.close();
        await_signal(&signals, Some(&LAST_CALLS));
        give_up(&closer);
    })?;
    running.wait();
    Ok(told.load(Ordering::Acquire))
}

/// Takes the next signal. Returns without one after `longest`.
fn await_signal(signals: &OwnedFd, longest: Option<&Timespec>) {
    let n_ready = loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], longest) {
            Err(Errno::INTR) => {}
            polled => break polled,
        }
    };
    if n_ready == Ok(1) {
        let _ = rustix::io::read(signals, &mut [0]);
    }
}

/// Ends the process although calls have not ended.
fn give_up(closer: &Closer) -> ! {
    let handling = closer.handling();
    let wrong = match handling.is_empty() {
        true => "a service does not end".to_owned(),
        false => format!("calls of {} have not ended", handling.join(", ")),
    };
    Failure::new("end the services in order", wrong).report();
    std::process::exit(Kind::Failed as i32)
}

/// A service and its name.
fn find(word: &str) -> Result<(String, Box<dyn Service>), Failure> {
    let (name, what) = match word.split_once('=') {
        Some((name, what)) => (Some(name), what),
        None => (None, word),
    };
    let tried = format!("host {what:?}");
    if name == Some("") {
        let advice = "write NAME=SERVICE";
        return Err(Failure::new(tried, "its name is empty").kind(Kind::Usage).advice(advice));
    }
    if what.contains('/') {
        let plugin = Plugin::load(Path::new(what)).map_err(|error| Failure::new(tried, error))?;
        let name = name.unwrap_or(plugin.name()).to_owned();
        return Ok((name, Box::new(plugin)));
    }
    let service = builtin::service(what).ok_or_else(|| {
        let advice = format!(
            "there are {}; a shared object is given by a path, such as ./{what}",
            builtin::NAMES.join(", ")
        );
        Failure::new(tried, "no service of this name comes with baton")
            .kind(Kind::Usage)
            .advice(advice)
    })?;
    Ok((name.unwrap_or(what).to_owned(), service))
}

fn explain(tried: &str, socket: &Path, error: &HostError) -> Failure {
    match error {
        HostError::Twice(_) => Failure::new(tried, error)
            .kind(Kind::Usage)
            .advice("give one of them another name: NAME=SERVICE"),
        HostError::TooMany => Failure::new(tried, error).kind(Kind::Usage),
        HostError::Open(error) => Failure::open(tried, socket, error),
        HostError::System(_) => Failure::new(tried, error),
    }
}

fn refused(name: &str, context: &str, error: &AddError) -> Failure {
    let tried = format!("register the service {name:?}");
    match error {
        AddError::Call(CallError::NoManager | CallError::DeadObject) => {
            Failure::no_manager(tried, context)
        }
        AddError::Refused { .. } => Failure::new(tried, error).advice(REGISTRARS),
        _ => Failure::new(tried, error),
    }
}
