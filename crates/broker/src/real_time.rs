//! Real-time callers: priorities that the kernel reports for them, and priorities that the broker
//! sets for their loopers.

use crate::poll::ConnectionId;
use crate::rank;
use crate::run::Broker;
use crate::state::{Effect, LaneId, Thread};
use baton_abi::control::{ProcessId, Rank, Reply};
use rustix::io::Errno;
use std::time::Instant;

impl Broker {
    /// Grants thread `tid` of the asker a looper at the thread's own priority on one lane.
    pub fn grant_real_time_lane(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        lane: LaneId,
        tid: u32,
    ) -> Result<Reply, Errno> {
        self.state.server_of_lane(process, lane)?;
        let rank = self.rank_of_caller(id, tid)?;
        let mut effects = Vec::new();
        self.state.grant_lane(process, lane, rank, &mut effects)?;
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        Ok(Reply::Done)
    }

    /// The rank at which thread `tid` is served: its own, up to the limit of its user. `EPERM` if
    /// the limit is 0, `EAGAIN` if its engine asks too often.
    fn rank_of_caller(&mut self, id: ConnectionId, tid: u32) -> Result<Rank, Errno> {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let (pid, uid) = (connection.credentials.pid, connection.credentials.uid);
        let engine = connection.engine().expect("only engines ask");
        engine.lane_requests.admit(Instant::now()).ok_or(Errno::AGAIN)?;
        let rank = rank::of(rank::find(pid, tid)?)?;
        let limit = self.real_time_limits.get(&uid).copied();
        let limit =
            limit.or_else(|| self.policy.real_time_limit(&self.connections[&id].credentials));
        match rank.priority.min(limit.unwrap_or_else(|| rank::limit(pid, uid))) {
            0 => Err(Errno::PERM),
            priority => Ok(Rank { priority, ..rank }),
        }
    }

    /// Gives thread `tid` of the asker, which serves a real-time caller's lane, the rank of that
    /// lane.
    pub fn promote_looper(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        lane: LaneId,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let rank = self.state.rank_of_lane(process, lane)?;
        let thread = rank::find(self.connections[&id].credentials.pid, tid)?;
        let mut effects = Vec::new();
        let promoted = self.promote(lane, thread, rank, &mut effects);
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        promoted.map(|()| Reply::Done)
    }

    /// Makes a thread the looper of a lane and sets its rank. If the kernel refuses, the thread is
    /// the looper without the rank.
    pub fn promote(
        &mut self,
        lane: LaneId,
        thread: Thread,
        rank: Rank,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let promoted = rank::set(thread, Some(rank));
        self.state.set_looper(lane, thread, promoted.is_ok(), out);
        if let Err(errno) = promoted {
            self.warn_of_rank(errno);
        }
        promoted
    }

    /// Makes thread `tid` of the asker its standby looper.
    pub fn set_standby_looper(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let thread = rank::find(self.connections[&id].credentials.pid, tid)?;
        self.state.set_standby_looper(process, thread, tid);
        Ok(Reply::Done)
    }

    fn warn_of_rank(&mut self, errno: Errno) {
        if !std::mem::replace(&mut self.warned_of_rank, true) {
            tracing::warn!(%errno, "real-time callers are served by loopers of their own, but not \
                at their \
                priority: the broker needs CAP_SYS_NICE or RLIMIT_RTPRIO for that");
        }
    }

    /// Sets a looper's rank after its caller's has changed, or removes it.
    pub fn set_rank(thread: Thread, rank: Option<Rank>) {
        if let Err(errno) = rank::set(thread, rank)
            && errno != Errno::SRCH
        {
            tracing::warn!(%errno, tid = thread.tid, "cannot change a looper's priority");
        }
    }
}
