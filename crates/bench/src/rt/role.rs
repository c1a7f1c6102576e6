//! A process of `baton bench rt`, beside the server, as the run starts it: it says "ready" when it
//! is at it, tells lines of JSON if it has found something, and ends when it is killed, or with who
//! started it.
//!
//! ```text
//!   others  ready, once each of its ordinary threads has called; they call as fast as they can
//!   urgent  ready, once all its real-time threads are warm; told to, calls periodically;
//!           { times of each thread }
//!   steady  ready; { told how often, calls; ready }
//!   receiver, senders, sender: see [`one_way`](crate::rt::one_way)
//!   misuser ready; misuses what it has
//!   hog     ready; { at each opening of the barrier: computes } { from when to when }
//!   late    ready; { at each opening of the barrier: waits, calls } { when, and how long it took }
//! ```

use crate::rt::caller::CallerSchedule;
use crate::rt::misuse::Misuse;
use crate::system::System;
use crate::systems::Site;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use strum::IntoStaticStr;

/// What a process is.
#[derive(Clone, Debug, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// So many ordinary callers.
    Others(usize),
    /// Real-time callers, with calls of each, and the time from one to the next in microseconds.
    Urgent { n_callers: usize, schedule: CallerSchedule, n_calls: u32, period_us: u64 },
    /// A real-time caller that makes calls one after the other.
    Steady(CallerSchedule),
    /// Receives so many messages, where the system has one thread for everybody at this priority.
    Receiver { level: u8, n_messages: u32 },
    /// So many ordinary senders.
    Senders(usize),
    /// A real-time sender, with so many messages and the time from one to the next in microseconds.
    Sender { schedule: CallerSchedule, n_messages: u32, period_us: u64 },
    /// Wants to hurt others.
    Misuser(Misuse),
    /// Keeps a processor from all that is less urgent, at each opening of a barrier.
    Hog(CallerSchedule, PathBuf),
    /// A real-time caller that calls meanwhile.
    Late(CallerSchedule, PathBuf),
}

/// What a process is, and how calls are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub role: Role,
    pub system: System,
    pub directory: PathBuf,
    pub broker: PathBuf,
}

impl Part {
    /// Where its calls are made.
    pub fn site(&self) -> Site<'_> {
        Site { system: self.system, directory: &self.directory, broker: &self.broker }
    }
}
