//! `baton wait` and `baton run --wait-for`: waits until services are there.
//!
//! A look a few times a second works with service managers of every release, and also while there
//! is no broker or no service manager yet.

use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::manager::Manager;
use crate::timeout::parse_seconds;
use baton::service_manager::Found;
use clap::Args;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Options of `baton wait`.
#[derive(Args)]
#[command(after_help = "\
Waits for the broker and the service manager, too, if there is none yet. Exit codes: 0 as soon as \
all services are there; otherwise after --timeout: 1, 3 if there is no broker, 4 if there is no \
service manager.

Example: baton wait echo --timeout 10 && baton call echo echo hello")]
pub struct WaitArgs {
    /// The context to ask
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    context: String,
    /// Give up after so many seconds [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// The services' names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Waits until all services are there.
pub fn wait(args: &WaitArgs, socket: &Path) -> Result<(), Failure> {
    wait_for(&args.names, &args.context, socket, args.timeout)
}

/// Waits until all services of a context are there.
pub fn wait_for(
    names: &[String],
    context: &str,
    socket: &Path,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let deadline = Deadline::after(timeout);
    let mut manager = None;
    names.iter().try_for_each(|name| {
        let tried = format!("wait for the service {name:?}");
        deadline.wait_until(&tried, |left| match look(&mut manager, name, context, socket, left) {
            Ok(Found::Service(_) | Found::Own(_) | Found::Elsewhere) => Look::There,
            Ok(Found::Nothing) => {
                let wrong = "the service manager does not know it";
                Look::NotYet(Failure::new(&tried, wrong).advice("see `baton list`"))
            }
            Err(failure) => Look::of(failure),
        })
    })
}

/// Waits until a context has a service manager.
pub fn wait_for_manager(
    context: &str,
    socket: &Path,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let tried = "wait for a service manager";
    let look = |left| match Manager::find_within(context, socket, left, tried) {
        Ok(_) => Look::There,
        Err(failure) => Look::of(failure),
    };
    Deadline::after(timeout).wait_until(tried, look)
}

/// The result of one look.
enum Look {
    There,
    NotYet(Failure),
    Failed(Failure),
}

impl Look {
    /// A broker and a service manager may come.
    fn of(failure: Failure) -> Look {
        match failure.is(Kind::NoBroker) || failure.is(Kind::NoManager) {
            true => Look::NotYet(failure),
            false => Look::Failed(failure),
        }
    }
}

/// The end of a wait; `None` for never.
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(timeout: Option<Duration>) -> Deadline {
        // A time that is too far ahead for the clock does not come.
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Looks until something is there. A look gets the time that is left.
    fn wait_until(
        &self,
        tried: &str,
        mut look: impl FnMut(Option<Duration>) -> Look,
    ) -> Result<(), Failure> {
        loop {
            match look(self.left()) {
                Look::There => return Ok(()),
                Look::NotYet(_) if self.left().is_none_or(|left| !left.is_zero()) => {}
                Look::NotYet(failure) | Look::Failed(failure) => return Err(failure.during(tried)),
            }
            thread::sleep(PAUSE);
        }
    }
}

/// One look at a name, by the manager of the last look if it is still there.
fn look(
    manager: &mut Option<Manager>,
    name: &str,
    context: &str,
    socket: &Path,
    longest: Option<Duration>,
) -> Result<Found, Failure> {
    let tried = "look it up";
    let known = match manager.take() {
        Some(known) => known,
        None => Manager::find_within(context, socket, longest, tried)?,
    };
    manager.insert(known).check(tried, name)
}
