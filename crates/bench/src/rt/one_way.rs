//! One-way messages of a real-time sender: how long each takes to its receiver, among ordinary
//! senders that send as fast as they can.
//!
//! ```text
//!   receiver  ready; { told to: the time of each message }
//!   senders   ready, once each ordinary thread has sent; they go on
//!   sender    ready, once it is warm; told to, sends periodically; ready
//! ```

use crate::arrivals::{self, UNNOTED};
use crate::child::{await_begin, forever, say};
use crate::report::RowKey;
use crate::rt::caller::{self, CallerSchedule};
use crate::rt::case::name;
use crate::rt::processes::{N_LOOPERS, Processes};
use crate::rt::role::{Part, Role};
use crate::service::{now_ns, patiently, sleep_until};
use crate::system::{Sender, System};
use crate::systems::one_way;
use crate::testbed::Testbed;
use baton_rt::schedule::set_priority;
use baton_rt::{SchedPriority, memory};
use serde::{Deserialize, Serialize};
use std::io;
use std::thread;
use std::time::Duration;

/// Systems that carry one-way messages, ours first.
pub const SYSTEMS: [System; 5] =
    [System::BatonTyped, System::BatonUapiLibc, System::KernelBinder, System::Unix, System::Mqueue];
/// Messages until everything is warm.
const N_WARM_UP: u64 = 200;
const WARM_UP_PERIOD: Duration = Duration::from_micros(500);
/// A message that finds no room is sent again for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// One real-time sender among so many ordinary ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneWay {
    pub system: System,
    pub level: u8,
    pub senders: usize,
}

impl OneWay {
    pub fn key(self) -> RowKey {
        let system = if self.system == System::Unix { "unix-datagram" } else { name(self.system) };
        let (level, senders) = (self.level, self.senders);
        RowKey::new(system, "one-way")
            .with("priority", SchedPriority::fifo(level).to_string())
            .with("senders", senders)
            .heading(format!(
                "a one-way message at fifo:{level} among {senders} ordinary senders, until the \
                 receiver runs"
            ))
            .label(system)
    }
}

/// A round: so many messages, and the time from one to the next.
pub fn measure(
    testbed: &Testbed,
    OneWay { system, level, senders }: OneWay,
    (n_messages, period_us): (u32, u64),
) -> io::Result<Vec<u64>> {
    let mut processes = Processes::new(testbed, system);
    let receiver = processes.start(Role::Receiver { level, n_messages })?;
    if senders > 0 {
        processes.start(Role::Senders(senders))?;
    }
    let schedule = CallerSchedule { level, inherits: false, cpu: None };
    let sender = processes.start(Role::Sender { schedule, n_messages, period_us })?;
    processes.get(sender).tell("send")?;
    processes.get(sender).is_ready()?;
    Ok(processes.get(receiver).ask("report", Duration::ZERO)?)
}

/// Receives until it is told to say what has come.
pub fn receive(part: &Part, level: u8, n_messages: u32) -> io::Result<()> {
    caller::stay_in_memory();
    if part.system == System::Mqueue {
        // Inherited by the thread that receives.
        set_priority(SchedPriority::fifo(level), None).map_err(io::Error::other)?;
    }
    arrivals::receive(n_messages as usize, || one_way::receive(part.site(), N_LOOPERS))
}

/// Ordinary threads, which know no pause.
pub fn send_for_ever(senders: Vec<Box<dyn Sender + Send>>) -> io::Result<()> {
    caller::for_ever(senders, |sender| {
        // That there is no room now and then is what others have to live with.
        let _ = sender.send(&arrivals::message(now_ns(), UNNOTED));
        Ok(())
    })
}

/// A real-time thread that sends once a period.
pub fn send_periodically(
    mut sender: Box<dyn Sender + Send>,
    level: u8,
    (n_messages, period_us): (u32, u64),
) -> io::Result<()> {
    memory::prefault_stack(caller::STACK_BYTES);
    set_priority(SchedPriority::fifo(level), None).map_err(io::Error::other)?;
    // The thread may have called while it was an ordinary one.
    baton::priority_changed();
    sender.prepare()?;
    for _ in 0..N_WARM_UP {
        thread::sleep(WARM_UP_PERIOD);
        send(&mut *sender, UNNOTED)?;
    }
    await_begin()?;
    let period_ns = period_us * 1000;
    let mut due_ns = now_ns() + period_ns;
    for number in 0..u64::from(n_messages) {
        sleep_until(due_ns);
        send(&mut *sender, number)?;
        due_ns += period_ns * (1 + now_ns().saturating_sub(due_ns) / period_ns.max(1));
    }
    say("ready")?;
    forever()
}

/// Until there is room; the time counts from before the first attempt.
fn send(sender: &mut dyn Sender, number: u64) -> io::Result<()> {
    let message = arrivals::message(now_ns(), number);
    patiently(PATIENCE, |_| true, || sender.send(&message))
}
