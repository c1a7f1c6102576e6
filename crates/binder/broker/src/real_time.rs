//! Real-time callers: priorities that the kernel reports for them, and priorities that the broker
//! sets for their loopers.

use crate::client_thread;
use crate::clock::now;
use crate::poll::ConnectionId;
use crate::run::Broker;
use crate::state::{Effect, LaneId, PidNamespace, Thread};
use baton_abi::control::{ProcessId, Reply};
use baton_abi::sched_priority::SchedPriority;
use rustix::io::Errno;

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
        let priority = self.priority_of_caller(id, tid)?;
        let mut effects = Vec::new();
        self.state.grant_lane(process, lane, priority, &mut effects)?;
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        Ok(Reply::Done)
    }

    /// The priority at which thread `tid` is served: its own, up to the limit of its user. `EPERM`
    /// if the limit is 0, `EAGAIN` if its engine asks too often.
    fn priority_of_caller(&mut self, id: ConnectionId, tid: u32) -> Result<SchedPriority, Errno> {
        let priority = client_thread::priority(self.find_thread(id, tid)?)?;
        let caller = &self.connections[&id].credentials;
        let limit = self.real_time_limits.get(&caller.uid).copied();
        let limit = limit.or_else(|| self.policy.real_time_limit(caller));
        match limit.unwrap_or_else(|| client_thread::priority_limit(caller)) {
            0 => Err(Errno::PERM),
            limit => Ok(priority.at_most(u8::try_from(limit).unwrap_or(u8::MAX))),
        }
    }

    /// Thread `tid` of the asker. `ESRCH` if there is none, `EAGAIN` if the asker looks for threads
    /// too often.
    fn find_thread(&mut self, id: ConnectionId, tid: u32) -> Result<Thread, Errno> {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let engine = connection.engine().expect("only engines ask");
        engine.thread_requests.admit(now()).ok_or(Errno::AGAIN)?;
        // A server that serves another process has its own threads, in the broker's namespace.
        let (pid, credentials) = (connection.server_pid, &connection.credentials);
        let is_own = pid == credentials.pid;
        let namespace = if is_own { credentials.pid_namespace } else { PidNamespace::Brokers };
        let (found, n_read) = client_thread::find(pid, tid, namespace);
        self.cost += n_read as u64;
        found
    }

    /// Gives thread `tid` of the asker, which serves a real-time caller's lane, the priority of
    /// that lane.
    pub fn promote_looper(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        lane: LaneId,
        tid: u32,
    ) -> Result<Reply, Errno> {
        let priority = self.state.priority_of_lane(process, lane)?;
        let thread = self.find_thread(id, tid)?;
        let mut effects = Vec::new();
        let promoted = self.promote(lane, thread, priority, &mut effects);
        self.carry_out(self.connections[&id].credentials.uid, effects, None);
        promoted.map(|()| Reply::Done)
    }

    /// Makes a thread the looper of a lane and sets its priority. If the kernel refuses, the thread
    /// is the looper without the priority.
    pub fn promote(
        &mut self,
        lane: LaneId,
        thread: Thread,
        priority: SchedPriority,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let promoted = client_thread::set_priority(thread, Some(priority));
        self.state.set_looper(lane, thread, promoted.is_ok(), out);
        if let Err(errno) = promoted {
            self.warn_of_priority(errno);
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
        let thread = self.find_thread(id, tid)?;
        self.state.set_standby_looper(process, thread, tid);
        Ok(Reply::Done)
    }

    fn warn_of_priority(&mut self, errno: Errno) {
        if !std::mem::replace(&mut self.warned_of_priority, true) {
            tracing::warn!(%errno, "real-time callers are served by loopers of their own, but not \
                at their \
                priority: the broker needs CAP_SYS_NICE or RLIMIT_RTPRIO for that");
        }
    }

    /// Sets a looper's priority after its caller's has changed, or removes it.
    pub fn set_priority(thread: Thread, priority: Option<SchedPriority>) {
        if let Err(errno) = client_thread::set_priority(thread, priority)
            && errno != Errno::SRCH
        {
            tracing::warn!(%errno, tid = thread.tid, "cannot change a looper's priority");
        }
    }
}
