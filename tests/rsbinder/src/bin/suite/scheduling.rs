//! A caller at a real-time priority is served at that priority, by a looper of the service's usual
//! pool.

use std::process::Command;

use crate::check::{Outcome, PATIENCE, equal, step};
use crate::child::{self, Loopers};
use crate::peer::{self, IPeer};

/// The scheduling policy by its number.
const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;
const PRIORITY: i32 = 30;

/// Policy and real-time priority of the calling thread.
pub fn of_this_thread() -> std::io::Result<[i32; 2]> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat")?;
    // Behind the name, which may have anything in it, come the fields from the third on.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse().ok());
    let [Some(priority), Some(policy)] = [field(40), field(41)] else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    Ok([policy, priority])
}

/// False where the machine does not let us.
fn become_real_time() -> Outcome<bool> {
    let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut command = Command::new("chrt");
    Ok(command.args(["--fifo", "--pid", &PRIORITY.to_string(), &tid]).status()?.success())
}

/// `None` without a real-time priority; else whether some call was served at it, and many in a row
/// then.
fn call(service: &dyn IPeer) -> Outcome<Option<bool>> {
    if !become_real_time()? {
        return Ok(None);
    }
    let start = std::time::Instant::now();
    let mut in_a_row = 0;
    while start.elapsed() < PATIENCE && in_a_row < 100 {
        let served = service.scheduling()?;
        in_a_row = if served == [SCHED_FIFO, PRIORITY] { in_a_row + 1 } else { 0 };
    }
    Ok(Some(in_a_row == 100))
}

pub fn scenario() -> Outcome {
    if std::env::var("BINDER").is_ok_and(|driver| driver == "kernel") {
        println!("skipped: Linux's own driver passes on no real-time priority");
        return Ok(());
    }
    child::open(Loopers::None)?;
    let (child, service) = peer::start("suite.real-time")?;

    step("a real-time caller");
    for _ in 0..3 {
        let service = service.clone();
        let called = std::thread::spawn(move || call(&*service)).join();
        match called.expect("the thread did not panic")? {
            None => {
                println!("skipped: this machine lets us have no real-time priority");
                return child.end();
            }
            Some(served) => equal("served at its priority", served, true)?,
        }
    }

    step("an ordinary one after it");
    equal("scheduling", service.scheduling()?, vec![SCHED_OTHER, 0])?;
    child.end()
}
