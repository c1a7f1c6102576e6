//! What a process of `baton bench broadcast` does: see [`Role`].

use crate::broadcast::client::{self, IntentSender};
use crate::broadcast::role::{Part, Role};
use crate::broadcast::{delay, fan_out, local, order, service};
use crate::child::RoleArgs;
use crate::rt::caller;
use crate::rt::one_way;
use std::io;
use std::process::ExitCode;

/// Does the part until it is killed.
pub(crate) fn run(args: &RoleArgs) -> ExitCode {
    args.run(|part: Part| act(&part))
}

fn act(Part { role, broker }: &Part) -> io::Result<()> {
    match *role {
        Role::Service(design) => service::run(design, broker),
        Role::Receiver(n_intents) => client::receive(broker, n_intents),
        Role::Senders(n_senders) => {
            let manager = client::join(broker)?;
            let sender = |_| IntentSender::boxed(manager.clone());
            one_way::send_for_ever((0..n_senders).map(sender).collect())
        }
        Role::Sender { n_intents, period_us } => {
            caller::stay_in_memory();
            let sender = IntentSender::boxed(client::join(broker)?);
            one_way::send_periodically(sender, delay::LEVEL, (n_intents, period_us))
        }
        Role::Racers { n_intents, seed } => order::race(broker, n_intents, seed),
        Role::FanOut(n_intents) => fan_out::run(broker, n_intents),
        Role::Local { local, n_intents } => local::run(local, n_intents),
    }
}
