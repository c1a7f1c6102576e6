//! A call's two delays: until its handler's first instruction, and from its last one until the
//! client has the answer.

use crate::latency::timer::Period;
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::processors::{Placement, Processors};
use crate::service::{STAMPED_BYTES, Service};
use crate::stage::Stage;
use crate::system::System;
use baton_rt::SchedPriority;

/// As rows name the delays.
pub const LEGS: [&str; 2] = ["call", "return"];
const N_WARM_UP: u32 = 100;

/// A client and a server process.
pub struct Caller(Pair);

/// Delays of each call, in nanoseconds, as [`LEGS`] names them.
pub type Delays = [Vec<u64>; 2];

impl Caller {
    /// Starts both, at the same priority, at which even the first call is served so.
    pub fn start(stage: &Stage, priority: Option<SchedPriority>) -> Result<Caller, PairError> {
        let place = Place { priority, ..stage.place(Service::Stamp) };
        Pair::start(System::BatonTyped, place).map(Caller)
    }

    /// Measures a round.
    pub fn measure(
        &mut self,
        period: &Period,
        placement: Option<Placement>,
        at: &Processors,
    ) -> Result<Delays, PairError> {
        let chunk = Chunk {
            placement,
            payload_bytes: STAMPED_BYTES,
            n_warm_up: N_WARM_UP.min(period.n_loops),
            n_calls: period.n_loops,
            delay_us: u64::from(period.interval_us),
        };
        let points = self.0.find(&chunk, at)?;
        let Ok([received, replied, ended]) = <[Vec<u64>; 3]>::try_from(points) else {
            unreachable!("a stamped message has three points")
        };
        let back = ended.iter().zip(&replied).map(|(end, reply)| end.saturating_sub(*reply));
        Ok([received, back.collect()])
    }
}
