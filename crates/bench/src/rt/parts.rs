//! What a process of `baton bench rt` does: see [`Role`].

use crate::child::{RoleArgs, await_begin, forever, order, say, tell};
use crate::rt::caller::{self, Call, CallerSchedule};
use crate::rt::inversion;
use crate::rt::misuse;
use crate::rt::one_way;
use crate::rt::role::{Part, Role};
use crate::service::Ask;
use crate::systems;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Does the part until it is killed.
pub(crate) fn run(args: &RoleArgs) -> ExitCode {
    args.run(|part: Part| act(&part, &|n| systems::clients(part.site(), n)))
}

/// Does the part with callers that may be another program's.
pub fn run_with(args: &RoleArgs, connect: fn(&Path) -> io::Result<Call>) -> ExitCode {
    args.run(|part: Part| act(&part, &|n| (0..n).map(|_| connect(&part.directory)).collect()))
}

fn act(part: &Part, callers: &dyn Fn(usize) -> io::Result<Vec<Call>>) -> io::Result<()> {
    let real_time = || {
        caller::stay_in_memory();
        Ok::<_, io::Error>(callers(1)?.pop().expect("as many as were asked for"))
    };
    match part.role {
        Role::Others(n_callers) => {
            let call = |call: &mut Call| caller::ask(call, Ask::Time).map(drop);
            caller::for_ever(callers(n_callers)?, call)
        }
        Role::Urgent { n_callers, schedule, n_calls, period_us } => {
            caller::stay_in_memory();
            let callers = callers(n_callers)?;
            let periodic = (n_calls, period_us);
            tell(&caller::call_periodically(callers, schedule, periodic, await_begin)?)?;
            forever()
        }
        Role::Steady(schedule) => call_steadily(real_time()?, schedule),
        Role::Receiver { level, n_messages } => one_way::receive(part, level, n_messages),
        Role::Senders(n_senders) => {
            one_way::send_for_ever(systems::one_way::senders(part.site(), n_senders)?)
        }
        Role::Sender { schedule, n_messages, period_us } => {
            caller::stay_in_memory();
            let mut senders = systems::one_way::senders(part.site(), 1)?;
            let sender = senders.pop().expect("as many as were asked for");
            one_way::send_periodically(sender, schedule.level, (n_messages, period_us))
        }
        Role::Misuser(misuse) => misuse::commit(misuse, &part.broker),
        Role::Hog(schedule, ref barrier) => inversion::compute(schedule, barrier),
        Role::Late(schedule, ref barrier) => inversion::call_late(real_time()?, schedule, barrier),
    }
}

fn call_steadily(mut call: Call, schedule: CallerSchedule) -> io::Result<()> {
    caller::prepare(&mut call, schedule)?;
    loop {
        say("ready")?;
        let n_calls: u32 = order()?.parse().map_err(io::Error::other)?;
        for _ in 0..n_calls {
            caller::call_once(&mut call)?;
        }
    }
}
