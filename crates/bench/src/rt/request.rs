//! What a caller of the benchmark asks, and what every server answers: eight bytes each.

use crate::service::now_ns;
use baton_rt::SchedPriority;
use baton_rt::schedule::current_priority;

/// Bytes of a request, and of an answer.
pub const BYTES: usize = 8;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which time is it? The handler does nothing else: it begins and ends with this.
    Time,
    /// At which real-time priority is this served? 0 for none.
    Level,
}

impl Request {
    /// As it travels.
    pub fn bytes(self) -> [u8; BYTES] {
        (self as u64).to_ne_bytes()
    }
}

/// What a server answers; `None` if that was no request.
pub fn answer(request: &[u8]) -> Option<[u8; BYTES]> {
    let now_ns = now_ns();
    let answer = match u64::from_ne_bytes(request.try_into().ok()?) {
        0 => now_ns,
        1 => level(),
        _ => return None,
    };
    Some(answer.to_ne_bytes())
}

fn level() -> u64 {
    let priority = current_priority().ok().and_then(SchedPriority::real_time);
    priority.unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_from_what_is_none() {
        let before_ns = now_ns();
        let time = answer(&Request::Time.bytes()).map(u64::from_ne_bytes).unwrap();
        assert!(before_ns <= time && time <= now_ns());
        assert_eq!(answer(&Request::Level.bytes()), Some(level().to_ne_bytes()));
        for wrong in [&[][..], &[0; 7], &[2; 8], &[0; 9]] {
            assert_eq!(answer(wrong), None, "{wrong:?}");
        }
    }
}
