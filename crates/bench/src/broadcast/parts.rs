//! What a process of `baton bench broadcast` does: see [`Role`].

pub use crate::broadcast::broadcaster::{Broadcaster, Means, Receive, Sender};
use crate::broadcast::client::{self, Intents};
use crate::broadcast::designs::LEVEL;
pub use crate::broadcast::role::Part;
use crate::broadcast::role::Role;
use crate::broadcast::{fan_out, local, order, service};
use crate::child::{RoleArgs, forever, say};
use crate::rt::caller;
use crate::rt::one_way;
use std::io;
use std::process::ExitCode;

/// Does the part until it is killed.
pub(crate) fn run(args: &RoleArgs) -> ExitCode {
    run_with(args, Means { serve: service::start, join: Intents::join })
}

/// Does the part by means that may be another program's.
pub fn run_with(args: &RoleArgs, means: Means) -> ExitCode {
    args.run(|part: Part| act(&part, means))
}

fn act(part: &Part, Means { serve, join }: Means) -> io::Result<()> {
    match part.role {
        Role::Service => {
            caller::stay_in_memory();
            let _service = serve(part)?;
            say("ready")?;
            forever()
        }
        Role::Receiver(n_intents) => {
            caller::stay_in_memory();
            client::receive(&*join(part)?, n_intents)
        }
        Role::Senders(n_senders) => {
            let broadcaster = join(part)?;
            let senders = (0..n_senders).map(|_| broadcaster.sender());
            one_way::send_for_ever(senders.collect::<io::Result<_>>()?)
        }
        Role::Sender { n_intents, period_us } => {
            caller::stay_in_memory();
            let sender = join(part)?.sender()?;
            one_way::send_periodically(sender, LEVEL, (n_intents, period_us))
        }
        Role::Racers { n_intents, seed } => order::race(&part.broker, n_intents, seed),
        Role::FanOut(n_intents) => fan_out::run(&*join(part)?, n_intents),
        Role::Local { local, n_intents } => local::run(local, n_intents),
    }
}
