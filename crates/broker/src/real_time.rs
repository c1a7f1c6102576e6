//! Real-time callers: what the system says of them and of their loopers.

use crate::poll::ConnectionId;
use crate::rank;
use crate::run::Broker;
use crate::state::{Effect, Thread};
use baton_abi::control::{ChannelId, ProcessId, Rank, Reply};
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
        let rank = self.rank_of_caller(id, tid)?;
        let mut effects = Vec::new();
        self.state.grant_lane(process, place, rank, &mut effects)?;
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        Ok(Reply::Done)
    }

    fn rank_of_caller(&mut self, id: ConnectionId, tid: u32) -> Result<Rank, Errno> {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let (pid, uid) = (connection.credentials.pid, connection.credentials.uid);
        let engine = connection.engine().expect("only engines ask");
        engine.ranks_asked.admit(Instant::now()).ok_or(Errno::AGAIN)?;
        let rank = rank::of(rank::find(pid, tid)?)?;
        let limit = self.real_time_limits.get(&uid).copied();
        let limit =
            limit.or_else(|| self.policy.real_time_limit(&self.connections[&id].credentials));
        match rank.priority.min(limit.unwrap_or_else(|| rank::limit(pid, uid))) {
            0 => Err(Errno::PERM),
            priority => Ok(Rank { priority, ..rank }),
        }
    }

    /// A thread of the asker's waits on a real-time caller's lane: it gets the rank that this may
    /// have.
    pub fn promote_looper(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        place: Place,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let rank = self.state.rank_of_lane(process, place)?;
        let thread = rank::find(self.connections[&id].credentials.pid, tid)?;
        let mut effects = Vec::new();
        let promoted = self.promote(place, thread, rank, &mut effects);
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        promoted.map(|()| Reply::Done)
    }

    /// Gives the looper of a lane its rank.
    pub fn promote(
        &mut self,
        place: Place,
        thread: Thread,
        rank: Rank,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let promoted = rank::set(thread, Some(rank));
        self.state.set_looper(place, thread, promoted.is_ok(), out);
        if let Err(errno) = promoted {
            self.warn_of_rank(errno);
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
        let thread = rank::find(self.connections[&id].credentials.pid, tid)?;
        self.state.set_spare(process, thread, tid);
        Ok(Reply::Done)
    }

    fn warn_of_rank(&mut self, errno: Errno) {
        if !std::mem::replace(&mut self.warned_of_rank, true) {
            tracing::warn!(%errno, "real-time callers are served by loopers of their own, but not \
                at their \
                priority: the broker needs CAP_SYS_NICE or RLIMIT_RTPRIO for that");
        }
    }

    /// The caller of a looper has another rank, or none any more.
    pub fn set_rank(thread: Thread, rank: Option<Rank>) {
        if let Err(errno) = rank::set(thread, rank)
            && errno != Errno::SRCH
        {
            tracing::warn!(%errno, tid = thread.tid, "cannot change a looper's priority");
        }
    }
}
