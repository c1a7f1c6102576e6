//! `baton bench broadcast`: how late real-time intents come to their receivers among ordinary ones.
//!
//! RTAndroid's experiments (Kalkov 2018, chapter 7), with this broadcast service and, over the same
//! calls, with the thesis's design and Android's; beside them, signals of D-Bus.
//!
//! - [`args`]: what is asked for; `rounds`: what is measured, and in which order; [`results`]: what
//!   came of it; [`ratios`]: what it must hold.
//! - [`role`]: a measurement's processes; [`processes`]: as the run sees them; [`parts`]: as they
//!   see themselves; [`broadcaster`]: how they send and receive, [`client`]: by our service;
//!   [`service`]: the one that delivers, in one of the [`designs`], two of which have a [`guard`].
//! - [`delay`]: a real-time sender among ordinary ones; [`order`]: several at random priorities;
//!   [`local`]: within a process; [`fan_out`]: many receivers.

mod args;
mod broadcaster;
mod client;
mod delay;
mod designs;
mod fan_out;
mod guard;
mod local;
mod order;
pub mod parts;
mod processes;
mod ratios;
mod results;
mod role;
mod rounds;
mod service;

use crate::form::{BenchError, Finding};
use crate::testbed::Setting;
pub use args::BroadcastArgs;

pub(crate) fn run(args: &BroadcastArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let plan = args.plan();
    let mut found = rounds::measure(&plan);
    results::quote(&mut found);
    let report =
        setting.report("broadcast", plan.rounds, results::rows(&found), ratios::of(&found, &plan));
    let lead = "How long a real-time intent takes to its receiver among ordinary senders, how late \
                threads of its priority wake up beside them, and how long intents take within a \
                process: how many are not longer, all rounds together. Last, the longest delay of \
                a round by the number of senders. Time is on a logarithmic axis, as are the nines \
                of the share. Broken lines: the longest time of RTAndroid's thesis, with \
                Android's own service and with the thesis's.";
    let mut charts = found.charts();
    charts.extend(results::by_senders_chart(&found, &plan));
    let notes = results::by_senders_table(&found, &plan);
    Ok(Finding { notes, ..Finding::new(report, charts, lead) })
}
