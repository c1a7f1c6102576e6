//! The two-way transactions that are under way, for `baton ps --calls` and for logs.
//!
//! A request stays in its area of the lane until its answer, or until an answer in the opposite
//! direction: a lane that has turned round for a nested call. So the innermost call or service of
//! each direction shows its request.

use crate::engine::Engine;
use baton_abi::control::{CallReport, End, MAX_CALLS, Request, RequestReport};
use baton_abi::lane::{Kind, Message};
use baton_state::State;
use baton_state::description::Description;
use baton_state::thread::Frame;
use baton_state::transaction::LaneId;
use std::collections::BTreeSet;

impl Engine {
    /// Tells the broker of the calls and services of all threads. Those of the fast path become the
    /// state's.
    pub(crate) fn describe_calls(&self) {
        let mut state = self.lock();
        self.revoke(&mut state);
        let calls = self.calls(&state);
        self.unlock(state);
        self.broker.tell(&Request::Calls { calls });
    }

    /// What the process has, and its calls.
    pub(crate) fn describe(&self) -> (Description, Vec<CallReport>) {
        let mut state = self.lock();
        self.revoke(&mut state);
        let described = (state.describe(), self.calls(&state));
        self.unlock(state);
        described
    }

    fn calls(&self, state: &State) -> Vec<CallReport> {
        let mut calls = Vec::new();
        for (tid, thread) in state.threads.iter() {
            let first = calls.len();
            let mut seen = BTreeSet::new();
            for frame in thread.stack.iter().rev() {
                let (end, via, peer) = match frame {
                    Frame::Calling(calling) => (End::Client, calling.via, calling.peer),
                    Frame::Serving(serving) => (End::Server, serving.via, serving.peer),
                };
                let is_innermost = seen.insert((end == End::Client, via.channel, via.lane));
                let request = if is_innermost { self.request(end, via) } else { None };
                let (channel, lane) = (via.channel.0, via.lane);
                calls.push(CallReport { end, tid, peer: peer.0, channel, lane, request });
            }
            calls[first..].reverse();
        }
        calls.truncate(MAX_CALLS);
        calls
    }

    /// The request of a call that a thread waits for (`Client`) or serves (`Server`), if it still
    /// lies on the lane. The other end may have changed it.
    fn request(&self, end: End, via: LaneId) -> Option<RequestReport> {
        let channel = self.channel(via.channel)?;
        let lane = channel.lane(via.lane as usize).ok()?;
        let message: Message = match end {
            End::Client => lane.sent(),
            End::Server => lane.header(),
        };
        (message.kind == Kind::Request as u32).then(|| RequestReport {
            node: message.node,
            code: message.code,
            flags: message.flags,
            data_bytes: message.data_bytes,
            offsets_bytes: message.offsets_bytes,
            nice: message.param,
            age_us: self.stamp_clock.age_us(message.stamp),
        })
    }
}
