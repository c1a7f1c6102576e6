//! What a real-time call takes of the system once its looper is there, of both sides together.
//!
//! The kernel counts, in processes that are as in all other measurements: a caller that makes no
//! call in one stretch, and many in the next. What the second has more is the calls'.

use crate::perf::{Counter, Event};
use crate::rt::processes::Processes;
use crate::rt::role::Role;
use crate::rt::way::Way;
use crate::testbed::Testbed;
use std::io;

const CALLS: u32 = 2000;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Allocations,
    SystemCalls,
}

impl Resource {
    pub const ALL: [Resource; 2] = [Resource::Allocations, Resource::SystemCalls];

    fn events(self) -> io::Result<Vec<Event>> {
        match self {
            Resource::Allocations => Event::allocations(),
            Resource::SystemCalls => Event::system_call().map(|event| vec![event]),
        }
    }
}

/// How much of it one call takes, to the tenth: that a wait ends for nothing once in a hundred
/// calls is not the call's.
pub fn measure(testbed: &Testbed, level: u8, resource: Resource) -> io::Result<f64> {
    let mut processes = Processes::new(testbed, Way::BatonTyped);
    let server = processes.server(level, &[])?;
    let words = ["--level".to_owned(), level.to_string(), "--inherits".to_owned()];
    let caller = processes.start(Role::Steady, &words)?;
    let counted = [server, caller].map(|number| processes.get(number).id());
    let cannot = |error: io::Error| {
        io::Error::new(error.kind(), format!("the kernel does not count for us: {error}"))
    };
    let events = resource.events().map_err(cannot)?;
    let counter = Counter::new(&events, &counted).map_err(cannot)?;
    let mut taken = |n_calls: u32| -> io::Result<u64> {
        let before = counter.read()?;
        let caller = processes.get(caller);
        caller.tell(&n_calls.to_string())?;
        caller.is_ready()?;
        Ok(counter.read()? - before)
    };
    let (without, with) = (taken(0)?, taken(CALLS)?);
    let of_one = with.saturating_sub(without) as f64 / f64::from(CALLS);
    Ok((of_one * 10.0).round() / 10.0)
}
