//! `--timeout`: how long a command waits for an answer.

use crate::failure::{Failure, Kind};
use clap::Args;
use std::time::Duration;

/// The option.
#[derive(Args)]
pub struct TimeoutArgs {
    /// Give up when an answer takes more than so many seconds [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
}

/// No answer has come in time.
pub fn timed_out(tried: &str) -> Failure {
    Failure::new(tried, "no answer came in time").kind(Kind::TimedOut).advice(
        "`baton ps --calls` shows where the call hangs; it may still be served. Give it longer \
         with --timeout",
    )
}

/// A number of seconds, with or without a fraction.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "a number of seconds, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        for bad in ["", "-1", "soon", "NaN", "1e400"] {
            assert!(parse_seconds(bad).is_err(), "{bad:?}");
        }
    }
}
