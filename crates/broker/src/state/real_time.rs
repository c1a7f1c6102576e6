//! Lanes of real-time callers, each of which its server has a looper for.
//!
//! What a caller may have and which thread is whose, the system says: the runner asks it and tells
//! here.
//!
//! **Invariant**: a thread that has been promoted is some lane's looper, or is demoted.

use super::{Effect, State};
use baton_abi::control::{ChannelId, Event, LaneReport, LooperReport, ProcessId};
use baton_abi::lane::LANES;
use baton_abi::sched_priority::SchedPriority;
use rustix::io::Errno;

/// A channel and the number of a lane.
pub type Place = (ChannelId, u32);

/// A thread, as no other is ever called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process, in the broker's pid namespace.
    pub pid: u32,
    /// Itself, in the same.
    pub tid: u32,
    /// When it started, in the kernel's ticks since the machine did.
    pub started: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Lane {
    client: ProcessId,
    server: ProcessId,
    priority: SchedPriority,
    looper: Option<Looper>,
}

#[derive(Clone, Copy, Debug)]
struct Looper {
    thread: Thread,
    promoted: bool,
}

/// A thread that waits to be the looper of some lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    thread: Thread,
    /// As its engine calls it.
    tid: u32,
}

impl Lane {
    fn demote(&mut self, out: &mut Vec<Effect>) {
        if let Some(Looper { thread, promoted: true }) = self.looper.take() {
            out.push(Effect::SetPriority { thread, priority: None });
        }
    }
}

impl State {
    /// The caller that a process has on a lane of its own may have a looper of this priority.
    pub fn grant_lane(
        &mut self,
        from: ProcessId,
        place: Place,
        priority: SchedPriority,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let (channel, lane) = place;
        let server = self.server_of_lane(from, place)?;
        let is_known = self.real_time.contains_key(&place);
        if !is_known {
            self.room_for_lane(from, server)?;
        }
        let new = Lane { client: from, server, priority, looper: None };
        let lane_now = self.real_time.entry(place).or_insert(new);
        let is_new_priority = std::mem::replace(&mut lane_now.priority, priority) != priority;
        let mut looper = 0;
        match lane_now.looper {
            Some(Looper { thread, promoted: true }) if is_new_priority => {
                out.push(Effect::SetPriority { thread, priority: Some(priority) });
            }
            Some(_) => {}
            None => {
                if let Some(Spare { thread, tid }) = self.spares.remove(&server) {
                    lane_now.looper = Some(Looper { thread, promoted: false });
                    out.push(Effect::Promote { place, thread, priority });
                    looper = tid;
                }
            }
        }
        let event = Event::RealTimeLane { channel, lane, priority, looper };
        out.push(Effect::Event { to: server, event });
        Ok(())
    }

    /// A thread of a process waits to be the looper of some lane; whoever has waited does so no
    /// longer.
    pub fn set_spare(&mut self, process: ProcessId, thread: Thread, tid: u32) {
        self.spares.insert(process, Spare { thread, tid });
    }

    /// Who serves a lane that is to be a real-time caller's. `ENOENT` if the channel is not, or
    /// not yet, the asker's, `EINVAL` if it has no such lane.
    pub fn server_of_lane(&self, from: ProcessId, place: Place) -> Result<ProcessId, Errno> {
        let (channel, lane) = place;
        if lane as usize >= LANES {
            return Err(Errno::INVAL);
        }
        let process = self.processes.get(&from).ok_or(Errno::NOENT)?;
        process.channels.server_of(channel).ok_or(Errno::NOENT)
    }

    fn room_for_lane(&self, from: ProcessId, server: ProcessId) -> Result<(), Errno> {
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

    /// What the looper of a lane may have. `ESRCH` if the lane is no real-time caller's, or is not
    /// served by the asker.
    pub fn priority_of_lane(
        &self,
        server: ProcessId,
        place: Place,
    ) -> Result<SchedPriority, Errno> {
        let lane = self.real_time.get(&place).filter(|lane| lane.server == server);
        lane.map(|lane| lane.priority).ok_or(Errno::SRCH)
    }

    /// A thread is the looper of a lane from now on, with the priority or without; whoever was is
    /// not.
    pub fn set_looper(
        &mut self,
        place: Place,
        thread: Thread,
        promoted: bool,
        out: &mut Vec<Effect>,
    ) {
        if !self.real_time.contains_key(&place) {
            return;
        }
        // Its engine has given it another lane than the broker meant.
        self.spares.retain(|_, spare| spare.thread != thread);
        let elsewhere = self.real_time.iter_mut().filter(|(other, _)| **other != place);
        let left =
            elsewhere.filter_map(|(_, lane)| lane.looper.take_if(|looper| looper.thread == thread));
        let was_promoted = left.fold(false, |any, looper| any | looper.promoted);
        let lane = self.real_time.get_mut(&place).expect("just seen");
        let same = lane.looper.filter(|looper| looper.thread == thread);
        if same.is_none() {
            lane.demote(out);
        }
        // One that could not be given more keeps what it has.
        let promoted = promoted || was_promoted || same.is_some_and(|looper| looper.promoted);
        lane.looper = Some(Looper { thread, promoted });
    }

    /// Nobody is the looper of a lane, if it is the asker's to serve.
    pub(super) fn leave_lane(&mut self, server: ProcessId, place: Place, out: &mut Vec<Effect>) {
        let lane = self.real_time.get_mut(&place).filter(|lane| lane.server == server);
        lane.into_iter().for_each(|lane| lane.demote(out));
    }

    /// A lane is as others are, if it was the asker's.
    pub(super) fn end_lane(&mut self, from: ProcessId, place: Place, out: &mut Vec<Effect>) {
        let (channel, lane) = place;
        if self.real_time.get(&place).is_none_or(|lane| lane.client != from) {
            return;
        }
        let mut ended = self.real_time.remove(&place).expect("just seen");
        ended.demote(out);
        let event = Event::OrdinaryLane { channel, lane };
        out.push(Effect::Event { to: ended.server, event });
    }

    /// Channels end with their ends: nobody is told.
    pub(super) fn end_lanes_of(&mut self, process: ProcessId, out: &mut Vec<Effect>) {
        self.spares.remove(&process);
        self.real_time.retain(|_, lane| {
            let stays = lane.client != process && lane.server != process;
            if !stays {
                lane.demote(out);
            }
            stays
        });
    }

    /// A channel is no more: nobody is told, for the channel's end is.
    pub(super) fn end_lanes_on(&mut self, channel: ChannelId, out: &mut Vec<Effect>) {
        let lanes: Vec<Place> =
            self.real_time.range((channel, 0)..=(channel, u32::MAX)).map(|(at, _)| *at).collect();
        for place in lanes {
            let mut ended = self.real_time.remove(&place).expect("just listed");
            ended.demote(out);
        }
    }

    pub(super) fn report_lanes(&self, server: ProcessId) -> Vec<LaneReport> {
        let lanes = self.real_time.iter().filter(|(_, lane)| lane.server == server);
        let report = |(&(channel, number), lane): (&Place, &Lane)| LaneReport {
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
