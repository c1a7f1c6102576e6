//! What the caller asks for: what a request has in it, what the server makes of it, and how the
//! caller sees that it was done.

use crate::arrivals::{self, UNNOTED};
use crate::payload;
use baton_rt::SchedPriority;
use baton_rt::schedule::current_priority;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a stamped message, as `binder_tester`'s buffer has them.
pub const STAMPED_BYTES: usize = 272;
/// Bytes of two ints.
pub const INTS_BYTES: usize = 8;
/// Bytes of what a clock is asked, and of its answer.
pub const CLOCK_BYTES: usize = 8;

/// A service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// Answers with what it was sent.
    #[default]
    Echo,
    /// Answers with what it was sent, and the time at which it came and went:
    ///
    /// ```text
    ///   0          8        16       24        32                    272
    ///   |  number  | C_SEND | S_RECV | S_REPLY | counts from number... |
    /// ```
    Stamp,
    /// Answers with the sum of two ints.
    AddInts,
    /// Answers with the number that it has read in what it was sent.
    Number,
    /// Answers with what it was sent, and deals with what else comes: see [`Case`](crate::case).
    Objects,
    /// Answers with the time, or with the real-time priority that it is served at: see [`Ask`].
    Clock,
    /// Notes when a one-way message has come: see [`crate::arrivals`].
    Arrivals,
}

/// What [`Service::Clock`] is asked for; it answers with as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Which time is it? The handler does nothing else: it begins and ends with this.
    Time,
    /// At which real-time priority is this served? 0 for none.
    Level,
}

impl Ask {
    /// As it travels.
    pub fn bytes(self) -> [u8; CLOCK_BYTES] {
        (self as u64).to_ne_bytes()
    }
}

/// When the server was at it, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When it had the request.
    pub received_ns: u64,
    /// When it sent the reply.
    pub replied_ns: u64,
}

const C_SEND: usize = 8;
const S_RECV: usize = 16;
const S_REPLY: usize = 24;
const FILLING: usize = 32;

/// CLOCK_MONOTONIC in nanoseconds, which all processes share.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until a time of CLOCK_MONOTONIC, in nanoseconds.
pub fn sleep_until(due_ns: u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let (tv_sec, tv_nsec) = ((due_ns / SECOND_NS) as i64, (due_ns % SECOND_NS) as i64);
    let due = rustix::time::Timespec { tv_sec, tv_nsec };
    let clock = rustix::thread::ClockId::Monotonic;
    while rustix::thread::clock_nanosleep_absolute(clock, &due).is_err() {}
}

/// Tries again, for so long, while its errors are such that pass.
pub fn patiently<T, E>(
    patience: Duration,
    passes: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if passes(&error) && start.elapsed() < patience => thread::yield_now(),
            done => return done,
        }
    }
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

fn get(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
    u64::from_ne_bytes(bytes)
}

fn ints(number: u32) -> (i32, i32) {
    (number as i32, number.wrapping_mul(3) as i32)
}

/// The calling thread's real-time priority, 0 for none.
fn level() -> u64 {
    let priority = current_priority().ok().and_then(SchedPriority::real_time);
    priority.unwrap_or(0).into()
}

impl Service {
    /// Makes the request of a call.
    pub fn ask(self, request: &mut [u8], number: u32) {
        match self {
            Service::Echo | Service::Number | Service::Objects => payload::fill(request, number),
            Service::Clock => put(request, 0, Ask::Time as u64),
            Service::Arrivals => request.copy_from_slice(&arrivals::message(now_ns(), UNNOTED)),
            Service::Stamp => {
                put(request, 0, u64::from(number));
                payload::fill(&mut request[FILLING..], number);
            }
            Service::AddInts => {
                let (first, second) = ints(number);
                request[..4].copy_from_slice(&first.to_ne_bytes());
                request[4..].copy_from_slice(&second.to_ne_bytes());
            }
        }
    }

    /// Says in a request when it is sent.
    pub fn stamp(self, request: &mut [u8], now_ns: u64) {
        if self == Service::Stamp {
            put(request, C_SEND, now_ns);
        }
    }

    /// Tells what the server answers; `None` if that was no request.
    pub fn answer<R>(self, request: &[u8], tell: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self {
            Service::Echo | Service::Objects => payload::check(request).map(|_| tell(request)),
            Service::Number => payload::check(request).map(|number| tell(&number.to_ne_bytes())),
            Service::Stamp => {
                let received_ns = now_ns();
                let filling = request.get(FILLING..)?;
                payload::check(filling)?;
                let mut reply = request.to_vec();
                put(&mut reply, S_RECV, received_ns);
                put(&mut reply, S_REPLY, now_ns());
                Some(tell(&reply))
            }
            Service::AddInts => {
                let (first, second) = request.split_first_chunk::<4>()?;
                let second: [u8; 4] = second.try_into().ok()?;
                let sum = i32::from_ne_bytes(*first).wrapping_add(i32::from_ne_bytes(second));
                Some(tell(&sum.to_ne_bytes()))
            }
            Service::Clock => {
                let now_ns = now_ns();
                let answer = match u64::from_ne_bytes(request.try_into().ok()?) {
                    0 => now_ns,
                    1 => level(),
                    _ => return None,
                };
                Some(tell(&answer.to_ne_bytes()))
            }
            Service::Arrivals => arrivals::note(request, now_ns()).map(|()| tell(&[])),
        }
    }

    /// Reads all of the answer to a request. `None` if it is of another one.
    pub fn read(self, number: u32, request: &[u8], reply: &[u8]) -> Option<Stamps> {
        let unstamped = Stamps::default();
        match self {
            Service::Echo | Service::Objects => {
                let whole = reply.len() == request.len();
                (whole && payload::check(reply) == Some(number)).then_some(unstamped)
            }
            Service::Stamp => {
                let whole = reply.len() == request.len() && reply[..S_RECV] == request[..S_RECV];
                let filled = whole && payload::check(&reply[FILLING..]) == Some(number);
                filled.then(|| Stamps {
                    received_ns: get(reply, S_RECV),
                    replied_ns: get(reply, S_REPLY),
                })
            }
            Service::Number => (reply == number.to_ne_bytes()).then_some(unstamped),
            Service::AddInts => {
                let (first, second) = ints(number);
                (reply == first.wrapping_add(second).to_ne_bytes()).then_some(unstamped)
            }
            Service::Clock => (reply.len() == CLOCK_BYTES).then_some(unstamped),
            Service::Arrivals => reply.is_empty().then_some(unstamped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(Service, usize); 4] = [
        (Service::Echo, 124),
        (Service::Stamp, STAMPED_BYTES),
        (Service::AddInts, INTS_BYTES),
        (Service::Number, 124),
    ];

    #[test]
    fn the_answer_to_a_request_is_known_from_others() {
        for (service, bytes) in ALL {
            let mut request = vec![0; bytes];
            service.ask(&mut request, u32::MAX - 2);
            service.stamp(&mut request, 77);
            let reply = service.answer(&request, <[u8]>::to_vec).unwrap();
            assert!(service.read(u32::MAX - 2, &request, &reply).is_some(), "{service:?}");
            assert_eq!(service.read(5, &request, &reply), None, "{service:?}");
            assert_eq!(service.read(u32::MAX - 2, &request, &reply[1..]), None, "{service:?}");
        }
    }

    #[test]
    fn what_is_no_request_has_no_answer() {
        for (service, bytes) in ALL {
            assert_eq!(service.answer(&vec![7; bytes - 3], |_| ()), None, "{service:?}");
            assert_eq!(service.answer(&[], |_| ()), None, "{service:?}");
        }
    }

    #[test]
    fn a_server_says_when_it_was_at_it() {
        let mut request = vec![0; STAMPED_BYTES];
        Service::Stamp.ask(&mut request, 1);
        let before = now_ns();
        Service::Stamp.stamp(&mut request, before);
        let reply = Service::Stamp.answer(&request, <[u8]>::to_vec).unwrap();
        let Stamps { received_ns, replied_ns } = Service::Stamp.read(1, &request, &reply).unwrap();
        assert!(before <= received_ns && received_ns <= replied_ns && replied_ns <= now_ns());
    }

    #[test]
    fn a_clock_tells_the_time_or_its_priority() {
        let ask = |ask: Ask| {
            let answer = Service::Clock.answer(&ask.bytes(), |answer| get(answer, 0));
            answer.unwrap()
        };
        let before_ns = now_ns();
        let time_ns = ask(Ask::Time);
        assert!(before_ns <= time_ns && time_ns <= now_ns());
        assert_eq!(ask(Ask::Level), level());
        for wrong in [&[][..], &[0; 7], &[2; 8], &[0; 9]] {
            assert_eq!(Service::Clock.answer(wrong, |_| ()), None, "{wrong:?}");
        }
    }
}
