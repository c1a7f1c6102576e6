//! How the threads of a process wait, where the program has a choice.

use crate::sys::thread::{is_real_time, processors};
use std::sync::OnceLock;
use std::time::Duration;

/// Longest spin in microseconds, for all waits of the process; 0 for none.
const SPIN_VARIABLE: &str = "BATON_SPIN_US";
/// Whether loopers follow their callers: 0 or 1.
const FOLLOW_VARIABLE: &str = "BATON_FOLLOW";
/// Whether threads at a real-time priority spin as well: 0 or 1.
const REAL_TIME_VARIABLE: &str = "BATON_SPIN_REAL_TIME";

/// The longest spin by default: a few times what a wake takes.
const SPIN_NS: u64 = 50_000;
/// Longest spin that can be asked for.
const MOST_SPIN_NS: u64 = 1_000_000_000;

/// The program's choice of how its threads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest spin before a sleep; 0 for none.
    pub(crate) longest_spin_ns: u64,
    /// Loopers move to the processor of the one caller that they have.
    pub(crate) follow: bool,
    /// Threads at a real-time priority spin as well.
    pub(crate) spin_real_time: bool,
}

impl Settings {
    const DEFAULT: Settings =
        Settings { longest_spin_ns: SPIN_NS, follow: true, spin_real_time: false };

    /// The environment's settings, read at the first call. An invalid value is logged then, and the
    /// default holds.
    pub fn of_environment() -> Settings {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        *SETTINGS.get_or_init(|| {
            let find = |name| std::env::var_os(name)?.into_string().ok();
            let tell = |what: &str| tracing::warn!(target: "binder", "{what}: the default holds");
            Settings::parse(find, tell)
        })
    }

    fn parse(find: impl Fn(&'static str) -> Option<String>, tell: impl Fn(&str)) -> Settings {
        let mut settings = Settings::DEFAULT;
        let wrong = |name, value: &str, wanted| tell(&format!("{name}={value} is not {wanted}"));
        if let Some(value) = find(SPIN_VARIABLE) {
            match value.parse() {
                Ok(us) => settings.set_longest_spin(Duration::from_micros(us)),
                Err(_) => wrong(SPIN_VARIABLE, &value, "a number of microseconds"),
            }
        }
        let switches = [
            (FOLLOW_VARIABLE, &mut settings.follow),
            (REAL_TIME_VARIABLE, &mut settings.spin_real_time),
        ];
        for (name, switch) in switches {
            match find(name).as_deref() {
                Some("0") => *switch = false,
                Some("1") => *switch = true,
                Some(value) => wrong(name, value, "0 or 1"),
                None => {}
            }
        }
        settings
    }

    /// Sets the longest spin before a sleep, at most a second.
    pub fn set_longest_spin(&mut self, longest: Duration) {
        self.longest_spin_ns = longest.as_nanos().min(MOST_SPIN_NS.into()) as u64;
    }

    /// Sets whether a looper moves to its only caller's processor.
    pub fn set_follow(&mut self, follow: bool) {
        self.follow = follow;
    }

    /// Sets whether real-time threads spin before they sleep.
    pub fn set_spin_real_time(&mut self, spin: bool) {
        self.spin_real_time = spin;
    }

    /// Whether the calling thread may spin for a peer that is on another processor. On one
    /// processor a spin keeps the peer from running.
    #[inline]
    pub(crate) fn may_spin(&self, apart: bool) -> bool {
        self.longest_spin_ns > 0
            && apart
            && has_several_processors()
            && (self.spin_real_time || !is_real_time())
    }

    /// Whether a looper may move to its only caller's processor.
    pub(crate) fn may_follow(&self) -> bool {
        self.follow && has_several_processors()
    }
}

/// The number of processors for this process and its peers.
static PROCESSORS: OnceLock<usize> = OnceLock::new();

/// Counts the processors, once for a process. It opens files for a moment: not on a thread of the
/// engine's own, because the program's next descriptor could get another number than it expects.
pub(crate) fn count_processors() {
    PROCESSORS.get_or_init(processors);
}

#[inline]
fn has_several_processors() -> bool {
    PROCESSORS.get().is_some_and(|&processors| processors > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The settings of an environment, and how many warnings it causes.
    fn parse(environment: &[(&str, &str)]) -> (Settings, usize) {
        let find = |name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string())
        };
        let n_warnings = Cell::new(0);
        let settings = Settings::parse(find, |_| n_warnings.set(n_warnings.get() + 1));
        (settings, n_warnings.get())
    }

    #[test]
    fn settings_are_the_environments_or_the_defaults() {
        let default = Settings::DEFAULT;
        for (environment, settings, n_warnings) in [
            (&[][..], default, 0),
            (&[("BATON_SPIN_US", "7")], Settings { longest_spin_ns: 7_000, ..default }, 0),
            (&[("BATON_SPIN_US", "0")], Settings { longest_spin_ns: 0, ..default }, 0),
            (
                &[("BATON_SPIN_US", "9999999999")],
                Settings { longest_spin_ns: MOST_SPIN_NS, ..default },
                0,
            ),
            (&[("BATON_SPIN_US", "often")], default, 1),
            (&[("BATON_FOLLOW", "0")], Settings { follow: false, ..default }, 0),
            (&[("BATON_FOLLOW", "1")], default, 0),
            (
                &[("BATON_SPIN_REAL_TIME", "1"), ("BATON_FOLLOW", "yes")],
                Settings { spin_real_time: true, ..default },
                1,
            ),
            (&[("BATON_SPIN_US", "-1"), ("BATON_SPIN_REAL_TIME", "")], default, 2),
        ] {
            assert_eq!(parse(environment), (settings, n_warnings), "{environment:?}");
        }
    }

    #[test]
    fn only_a_peer_on_another_processor_is_spun_for() {
        let mut settings = Settings::DEFAULT;
        settings.set_longest_spin(Duration::from_nanos(1));
        count_processors();
        let are_several = processors() > 1;
        assert_eq!((settings.may_spin(true), settings.may_follow()), (are_several, are_several));
        assert!(!settings.may_spin(false));
        settings.set_longest_spin(Duration::ZERO);
        assert!(!settings.may_spin(true), "switched off");
    }
}
