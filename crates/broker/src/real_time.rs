//! Real-time callers: what the system says of them and of their loopers.

use crate::client_thread;
use crate::poll::ConnectionId;
use crate::run::Broker;
use crate::state::{Effect, Thread};
use baton_abi::control::{ChannelId, ProcessId, Reply};
use baton_abi::sched_priority::SchedPriority;
use rustix::io::Errno;
use std::time::Instant;

/// A channel and the number of a lane.
type Place = (ChannelId, u32);

impl Broker {
    /// A thread of the asker's is to have a looper at its own priority.
    pub fn real_time(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        place: Place,
        tid: u32,
    ) -> Result<Reply, Errno> {
        self.state.server_of_lane(process, place)?;
        let priority = self.priority_of_caller(id, tid)?;
        let mut effects = Vec::new();
        self.state.grant_lane(process, place, priority, &mut effects)?;
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        Ok(Reply::Done)
    }

    fn priority_of_caller(&mut self, id: ConnectionId, tid: u32) -> Result<SchedPriority, Errno> {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let (pid, uid) = (connection.credentials.pid, connection.credentials.uid);
        let engine = connection.engine().expect("only engines ask");
        engine.priorities_asked.admit(Instant::now()).ok_or(Errno::AGAIN)?;
        let priority = client_thread::priority(client_thread::find(pid, tid)?)?;
        let limit = self.real_time_limits.get(&uid).copied();
        let limit =
            limit.or_else(|| self.policy.real_time_limit(&self.connections[&id].credentials));
        match limit.unwrap_or_else(|| client_thread::priority_limit(pid, uid)) {
            0 => Err(Errno::PERM),
            limit => Ok(priority.at_most(u8::try_from(limit).unwrap_or(u8::MAX))),
        }
    }

    /// A thread of the asker's waits on a real-time caller's lane: it gets the priority that this
    /// may have.
    pub fn promote_looper(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        place: Place,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let priority = self.state.priority_of_lane(process, place)?;
        let thread = client_thread::find(self.connections[&id].credentials.pid, tid)?;
        let mut effects = Vec::new();
        let promoted = self.promote(place, thread, priority, &mut effects);
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        promoted.map(|()| Reply::Done)
    }

    /// Gives the looper of a lane its priority.
    pub fn promote(
        &mut self,
        place: Place,
        thread: Thread,
        priority: SchedPriority,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let promoted = client_thread::set_priority(thread, Some(priority));
        self.state.set_looper(place, thread, promoted.is_ok(), out);
        if let Err(errno) = promoted {
            self.warn_of_priority(errno);
        }
        promoted
    }

    /// A thread of the asker's waits for a lane.
    pub fn set_spare(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let thread = client_thread::find(self.connections[&id].credentials.pid, tid)?;
        self.state.set_spare(process, thread, tid);
        Ok(Reply::Done)
    }

    fn warn_of_priority(&mut self, errno: Errno) {
        if !std::mem::replace(&mut self.warned_of_priority, true) {
            tracing::warn!(%errno, "real-time callers are served by loopers of their own, but not \
                at their \
                priority: the broker needs CAP_SYS_NICE or RLIMIT_RTPRIO for that");
        }
    }

    /// The caller of a looper has another priority, or none any more.
    pub fn set_priority(thread: Thread, priority: Option<SchedPriority>) {
        if let Err(errno) = client_thread::set_priority(thread, priority)
            && errno != Errno::SRCH
        {
            tracing::warn!(%errno, tid = thread.tid, "cannot change a looper's priority");
        }
    }
}
