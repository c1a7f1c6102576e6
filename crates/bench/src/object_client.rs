//! The end that makes calls which carry objects and descriptors, and what it does for an order.
//!
//! Before and after the calls of an order both ends are counted: what came, and what is left.

use crate::case::{Case, Ends, Left};
use crate::order::{self, Measured, Order};
use crate::payload::{self, SMALL_BYTES};
use crate::service::now_ns;
use crate::system::Consume;
use rustix::fd::OwnedFd;
use std::io;
use std::time::{Duration, Instant};

/// Bytes of a request beside what else it carries, and of its answer.
pub const SENT_BYTES: usize = SMALL_BYTES;
/// How long what is left may take to be given back.
const PATIENCE: Duration = Duration::from_secs(2);

/// The end that calls. The server answers with the bytes of the request.
pub trait ObjectClient {
    /// Does what the case's calls need before.
    fn begin(&mut self, _case: Case) -> io::Result<()> {
        Ok(())
    }

    /// One call, or what takes its place. `consume` is shown the answer.
    fn call(&mut self, case: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()>;

    /// Closes what the call has opened. That takes none of its time.
    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Gives up all that the case's calls needed or kept, at both ends.
    fn end(&mut self, _case: Case) -> io::Result<()> {
        Ok(())
    }

    /// What both ends have counted since they began. `None` if the server counts by itself.
    fn counts(&mut self) -> io::Result<Option<Ends>> {
        Ok(None)
    }
}

/// An error of an end to which something else comes than should.
pub(crate) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A descriptor to send, and nothing but that.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> io::Result<u64> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// Makes calls as it is told. A call that fails is told, and does not end this process.
pub fn calls(mut client: Box<dyn ObjectClient>) -> io::Result<()> {
    order::obey(|order| {
        let found = measure(client.as_mut(), order).inspect_err(|_| {
            // The next case begins with nothing kept. If that fails, its calls will tell.
            let _ = client.end(order.case);
        });
        let wrong =
            |error: io::Error| Measured { wrong: Some(error.to_string()), ..<_>::default() };
        Ok(found.unwrap_or_else(wrong))
    })
}

fn call(client: &mut dyn ObjectClient, case: Case, number: u32) -> io::Result<u64> {
    let mut request = [0; SENT_BYTES];
    payload::fill(&mut request, number);
    let mut answer = None;
    let start_ns = now_ns();
    client.call(case, &request, &mut |reply| answer = payload::check(reply))?;
    let time_ns = now_ns() - start_ns;
    client.clear()?;
    match answer {
        Some(answer) if answer == number => Ok(time_ns),
        _ => Err(wrong("the answer is of another call")),
    }
}

fn measure(client: &mut dyn ObjectClient, order: &Order) -> io::Result<Measured> {
    let &Order { case, n_warm_up, n_calls, .. } = order;
    let before = client.counts()?;
    client.begin(case)?;
    let measured = order.measure(1, |number| Ok([0, 0, call(client, case, number)?]))?;
    client.end(case)?;
    // Clients that call together share a server, which counts the calls of all of them.
    if let Some(before) = before.filter(|_| order.barrier.is_none()) {
        let left = check(client, case, &before, u64::from(n_warm_up + n_calls))?;
        left.map_err(io::Error::other)?;
    }
    Ok(measured)
}

/// Whether nothing is left of `n_calls` calls, once both ends have had the time to give it back.
fn check(
    client: &mut dyn ObjectClient,
    case: Case,
    before: &Ends,
    n_calls: u64,
) -> io::Result<Result<(), Left>> {
    let start = Instant::now();
    loop {
        let now = client.counts()?.unwrap_or(*before);
        match now.left(case, before, n_calls) {
            Err(Left::Unreleased { .. }) if start.elapsed() < PATIENCE => {
                std::thread::yield_now();
            }
            checked => return Ok(checked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Counts;

    /// A client whose server loses an object or keeps one, as it is told.
    #[derive(Default)]
    struct Fake {
        server: Counts,
        loses: bool,
        keeps: u64,
        answers: u32,
    }

    impl ObjectClient for Fake {
        fn call(&mut self, _: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
            self.server.received += u64::from(!self.loses);
            let number = payload::check(request).unwrap();
            consume(&(number + self.answers).to_ne_bytes());
            Ok(())
        }

        fn end(&mut self, _: Case) -> io::Result<()> {
            self.server.kept = self.keeps;
            Ok(())
        }

        fn counts(&mut self) -> io::Result<Option<Ends>> {
            // A server gives back a little each time that it is asked.
            self.server.kept = self.server.kept.saturating_sub(1);
            Ok(Some(Ends { client: Counts::default(), server: self.server }))
        }
    }

    fn order() -> Order {
        Order { case: Case::ObjectKnown, n_warm_up: 2, n_calls: 5, ..Order::default() }
    }

    #[test]
    fn calls_are_timed_and_counted() {
        let mut fake = Fake { keeps: 9, ..Fake::default() };
        let found = measure(&mut fake, &order()).unwrap();
        assert_eq!(found.points[0].len(), 5);
        assert!(found.span_ns[0] <= found.span_ns[1]);
        assert_eq!(fake.server, Counts { received: 7, ..Counts::default() });
    }

    #[test]
    fn what_does_not_add_up_is_an_error() {
        for (fake, error) in [
            (Fake { loses: true, ..Fake::default() }, "0 objects came of 7"),
            (Fake { answers: 1, ..Fake::default() }, "the answer is of another call"),
        ] {
            let mut fake = fake;
            let found = measure(&mut fake, &order()).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
