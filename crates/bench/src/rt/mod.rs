//! `baton bench rt`: how late a real-time caller is served among ordinary ones.
//!
//! RTAndroid's experiments (Kalkov 2018, chapter 6.3), over Baton's typed API and peers: one
//! real-time caller, or several, that call once a period; beside them ordinary threads of another
//! process, which call the same method as fast as they can. What is told of each call is T_CALL,
//! T_RET and both together. Beside these, priority inversion on one processor; and cyclictest, so
//! that a longest time can be judged.
//!
//! - [`args`]: what is asked for; [`case`]: what can be measured; [`plan`]: what is, and in which
//!   order; `rounds`: how.
//! - [`role`]: a measurement's processes; [`processes`]: as the run sees them; [`parts`]: as they
//!   see themselves; [`caller`]: the real-time ones; [`inversion`]: a scenario of three;
//!   [`misuse`]: those that want to hurt them; [`one_way`]: those that send and do not wait;
//!   [`steady`]: what the kernel counts of both sides.
//! - [`results`]: what came of it, beside the thesis's figures; [`ratios`]: what it must hold.

mod args;
pub(crate) mod caller;
mod case;
mod inversion;
mod misuse;
pub(crate) mod one_way;
pub mod parts;
mod plan;
pub(crate) mod processes;
mod ratios;
mod results;
mod role;
mod rounds;
mod steady;
mod stranger;

use crate::form::{BenchError, Finding};
use crate::pair;
use crate::testbed::Setting;
pub use args::RtArgs;
use plan::Plan;

pub(crate) fn run(args: &RtArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let plan = Plan::new(args);
    let mut found = rounds::measure(&plan, &setting.processors);
    found.has_kernel_binder = pair::has_kernel_binder().is_ok();
    found.quote();
    let report = setting.report("rt", plan.rounds, found.rows(), ratios::of(&found));
    let lead = "How long a real-time call takes to its handler (T_CALL), back (T_RET), and both \
                together, among ordinary callers: how many are not longer, all rounds together. \
                Time is on a logarithmic axis, as are the nines of the share. Broken lines: the \
                longest time of RTAndroid's thesis, with Android's own Binder and with the \
                thesis's.";
    Ok(Finding::new(report, found.charts(), lead))
}
