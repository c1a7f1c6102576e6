//! What the service tells of itself, as JSON and as text.

use super::stats::{LevelStats, Skipped};
use crate::intent::IntentFilter;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The service's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The receivers: registered ones, then those of manifests.
    pub receivers: Vec<ReceiverReport>,
    /// The sticky broadcasts.
    pub stickies: Vec<StickyReport>,
    /// Counts of the priorities in use.
    pub priorities: Vec<LevelStats>,
    /// The receivers that were skipped last, the oldest first.
    pub skipped: Vec<Skipped>,
    /// Why delivery threads run at an ordinary priority, if they do.
    pub without_priority: Option<String>,
}

/// A receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Its name.
    pub name: String,
    /// Its process; `None` for a component that does not run.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// The actions of its filters.
    pub actions: Vec<String>,
    /// The schemes of its filters.
    pub schemes: Vec<String>,
    /// The best priority of its filters.
    pub filter_priority: i32,
    /// The permission that senders need.
    pub permission: Option<String>,
}

/// A sticky broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StickyReport {
    /// Its action.
    pub action: Option<String>,
    /// Its sender's user.
    pub uid: u32,
    /// Its priority.
    pub priority: usize,
}

/// The words of filters, each once.
pub fn words<'a>(
    filters: &'a [IntentFilter],
    of: impl Fn(&'a IntentFilter) -> &'a std::collections::BTreeSet<String>,
) -> Vec<String> {
    let words: std::collections::BTreeSet<_> = filters.iter().flat_map(of).cloned().collect();
    words.into_iter().collect()
}

/// A priority as it is shown.
pub fn priority(level: usize) -> String {
    if level == 0 { "ordinary".to_owned() } else { level.to_string() }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.write_receivers(out)?;
        self.write_counts(out)
    }
}

impl Report {
    /// Writes the receivers and the sticky broadcasts.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_receivers(&self, out: &mut impl fmt::Write) -> fmt::Result {
        writeln!(out, "Receivers: {}", self.receivers.len())?;
        for receiver in &self.receivers {
            let ReceiverReport { name, pid, uid, actions, filter_priority, .. } = receiver;
            write!(out, "  {name}, user {uid}: {}", actions.join(" "))?;
            if *filter_priority != 0 {
                write!(out, ", filter priority {filter_priority}")?;
            }
            if let Some(permission) = &receiver.permission {
                write!(out, ", senders need {permission}")?;
            }
            writeln!(out, "{}", if pid.is_none() { ", not running" } else { "" })?;
        }
        if !self.stickies.is_empty() {
            writeln!(out, "Sticky broadcasts: {}", self.stickies.len())?;
        }
        for sticky in &self.stickies {
            let action = sticky.action.as_deref().unwrap_or("(no action)");
            writeln!(out, "  {action}, user {}, {}", sticky.uid, priority(sticky.priority))?;
        }
        Ok(())
    }

    /// Writes what has been delivered by priority, and the receivers that were skipped.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_counts(&self, out: &mut impl fmt::Write) -> fmt::Result {
        writeln!(out, "PRIORITY  PENDING  ENDED  DELIVERED  SKIPPED")?;
        for LevelStats { priority: level, pending, ended, delivered, skipped } in &self.priorities {
            let level = priority(*level);
            writeln!(out, "{level:>8}  {pending:>7}  {ended:>5}  {delivered:>9}  {skipped:>7}")?;
        }
        for Skipped { receiver, action, priority: level, why } in &self.skipped {
            let action = action.as_deref().unwrap_or("(no action)");
            let why = match why {
                super::level::Skip::Slow => "did not finish in time",
                super::level::Skip::NotStarted => "was not started",
                super::level::Skip::Gone => "died",
                super::level::Skip::Full => "takes no more: its receive buffer is full",
            };
            writeln!(out, "skipped: {receiver} {why}, {action}, {}", priority(*level))?;
        }
        match &self.without_priority {
            Some(why) => writeln!(out, "delivery threads run at an ordinary priority: {why}"),
            None => Ok(()),
        }
    }
}
