//! Lanes of real-time callers, each of which has a looper of its own at the server.
//!
//! The runner asks the kernel which priority a caller may have and which thread is whose, and
//! passes the answers to this module.
//!
//! **Invariant**: a promoted thread is the looper of some lane, or an effect demotes it.

use super::effect::Effect;
use super::lane::{Lane, LaneId, Looper, StandbyLooper, Thread};
use super::tables::State;
use baton_abi::claim::era_of;
use baton_abi::control::{ChannelId, Event, LaneReport, LooperReport, ProcessId};
use baton_abi::lane::LANES;
use baton_abi::sched_priority::SchedPriority;
use rustix::io::Errno;

impl Lane {
    /// Removes the looper, and its priority if it was promoted.
    fn demote(&mut self, out: &mut Vec<Effect>) {
        if let Some(Looper { thread, promoted: true }) = self.looper.take() {
            out.push(Effect::SetPriority { thread, priority: None });
        }
    }
}

impl State {
    /// Grants a client's caller on one of its lanes a looper of this priority. The server's standby
    /// looper takes the lane, if there is one. `EDQUOT` and `EMFILE` for too many lanes.
    pub fn grant_lane(
        &mut self,
        from: ProcessId,
        id: LaneId,
        priority: SchedPriority,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let (channel, lane) = id;
        let server = self.server_of_lane(from, id)?;
        let is_known = self.real_time.contains_key(&id);
        if !is_known {
            self.check_room_for_lane(from, server)?;
        }
        let new = Lane { client: from, server, priority, looper: None };
        let lane_now = self.real_time.entry(id).or_insert(new);
        let is_new_priority = std::mem::replace(&mut lane_now.priority, priority) != priority;
        let mut looper = 0;
        match lane_now.looper {
            Some(Looper { thread, promoted: true }) if is_new_priority => {
                out.push(Effect::SetPriority { thread, priority: Some(priority) });
            }
            Some(_) => {}
            None => {
                if let Some(StandbyLooper { thread, tid }) = self.standby_loopers.remove(&server) {
                    lane_now.looper = Some(Looper { thread, promoted: false });
                    out.push(Effect::Promote { lane: id, thread, priority });
                    looper = tid;
                }
            }
        }
        let event = Event::RealTimeLane { channel, lane, priority, looper };
        out.push(Effect::Event { to: server, event });
        Ok(())
    }

    /// Makes a thread the standby looper of a process, in place of any other.
    pub fn set_standby_looper(&mut self, process: ProcessId, thread: Thread, tid: u32) {
        self.standby_loopers.insert(process, StandbyLooper { thread, tid });
    }

    /// The server of a lane of the asker. `ENOENT` if the asker is not, or not yet, the client of
    /// the channel, `EINVAL` if the channel has no such lane.
    pub fn server_of_lane(&self, from: ProcessId, id: LaneId) -> Result<ProcessId, Errno> {
        let (channel, lane) = id;
        if lane as usize >= LANES {
            return Err(Errno::INVAL);
        }
        let process = self.processes.get(&from).ok_or(Errno::NOENT)?;
        process.channels.server_of(channel).ok_or(Errno::NOENT)
    }

    fn check_room_for_lane(&self, from: ProcessId, server: ProcessId) -> Result<(), Errno> {
        let uid = |process| self.identity(process).map(|identity| identity.uid);
        let here = self.real_time.values().filter(|lane| lane.server == server);
        let of_user = here.clone().filter(|lane| uid(lane.client) == uid(from));
        if of_user.count() >= self.limits.real_time_lanes_per_user {
            Err(Errno::DQUOT)
        } else if here.count() >= self.limits.real_time_lanes_per_server {
            Err(Errno::MFILE)
        } else {
            Ok(())
        }
    }

    /// The priority of a lane's looper. `ESRCH` if the lane is no real-time caller's, or not the
    /// asker's to serve.
    pub fn priority_of_lane(&self, server: ProcessId, id: LaneId) -> Result<SchedPriority, Errno> {
        let lane = self.real_time.get(&id).filter(|lane| lane.server == server);
        lane.map(|lane| lane.priority).ok_or(Errno::SRCH)
    }

    /// Makes a thread the looper of a lane, promoted or not, in place of any other.
    pub fn set_looper(
        &mut self,
        id: LaneId,
        thread: Thread,
        promoted: bool,
        out: &mut Vec<Effect>,
    ) {
        if !self.real_time.contains_key(&id) {
            return;
        }
        // The engine gave its standby looper another lane than the broker chose.
        self.standby_loopers.retain(|_, standby| standby.thread != thread);
        let elsewhere = self.real_time.iter_mut().filter(|(other, _)| **other != id);
        let left =
            elsewhere.filter_map(|(_, lane)| lane.looper.take_if(|looper| looper.thread == thread));
        let was_promoted = left.fold(false, |any, looper| any | looper.promoted);
        let lane = self.real_time.get_mut(&id).expect("just seen");
        let same = lane.looper.filter(|looper| looper.thread == thread);
        if same.is_none() {
            lane.demote(out);
        }
        // A thread that could not be promoted again keeps its earlier priority.
        let promoted = promoted || was_promoted || same.is_some_and(|looper| looper.promoted);
        lane.looper = Some(Looper { thread, promoted });
    }

    /// Removes the looper of a lane, if the asker serves the lane.
    pub(super) fn leave_lane(&mut self, server: ProcessId, id: LaneId, out: &mut Vec<Effect>) {
        let lane = self.real_time.get_mut(&id).filter(|lane| lane.server == server);
        lane.into_iter().for_each(|lane| lane.demote(out));
    }

    /// Makes a lane of the asker ordinary again and tells the server.
    pub(super) fn end_lane(&mut self, from: ProcessId, id: LaneId, out: &mut Vec<Effect>) {
        let (channel, lane) = id;
        let server = match self.real_time.get(&id) {
            Some(lane) if lane.client != from => return,
            Some(lane) => lane.server,
            None => match self.server_of_old_lane(from, id) {
                Some(server) => server,
                None => return,
            },
        };
        self.real_time.remove(&id).into_iter().for_each(|mut ended| ended.demote(out));
        let event = Event::OrdinaryLane { channel, lane };
        out.push(Effect::Event { to: server, event });
    }

    /// The server of a lane of a channel that a previous broker has made, which may have granted
    /// the lane a looper. `None` if the server has not rejoined: it is told when it does.
    fn server_of_old_lane(&mut self, from: ProcessId, id: LaneId) -> Option<ProcessId> {
        let (channel, lane) = id;
        if era_of(channel.0) >= self.era() || lane as usize >= LANES {
            return None;
        }
        let server = self.server_of_lane(from, id).ok();
        if server.is_none() {
            self.note_ended_lane(from, id);
        }
        server
    }

    /// Removes the lanes of a process that is gone. Peers learn of its death by another event.
    pub(super) fn end_lanes_of(&mut self, process: ProcessId, out: &mut Vec<Effect>) {
        self.standby_loopers.remove(&process);
        self.real_time.retain(|_, lane| {
            let stays = lane.client != process && lane.server != process;
            if !stays {
                lane.demote(out);
            }
            stays
        });
    }

    /// Removes the lanes of a closed channel. The server learns of the end of the channel from its
    /// socket.
    pub(super) fn end_lanes_on(&mut self, channel: ChannelId, out: &mut Vec<Effect>) {
        let lanes: Vec<LaneId> =
            self.real_time.range((channel, 0)..=(channel, u32::MAX)).map(|(at, _)| *at).collect();
        for id in lanes {
            let mut ended = self.real_time.remove(&id).expect("just listed");
            ended.demote(out);
        }
    }

    pub(super) fn report_lanes(&self, server: ProcessId) -> Vec<LaneReport> {
        let lanes = self.real_time.iter().filter(|(_, lane)| lane.server == server);
        let report = |(&(channel, number), lane): (&LaneId, &Lane)| LaneReport {
            channel: channel.0,
            lane: number,
            client: lane.client.0,
            priority: lane.priority,
            looper: lane
                .looper
                .map(|looper| LooperReport { tid: looper.thread.tid, promoted: looper.promoted }),
        };
        lanes.map(report).collect()
    }
}
