//! Kills clients at arbitrary points: nothing of theirs may stay in the service.

use std::time::Instant;

use rsbinder::{ParcelFileDescriptor, Strong, hub};

use crate::check::{Outcome, PATIENCE, equal, holds, step};
use crate::child::{self, Child, Loopers};
use crate::listener::listen;
use crate::peer::{self, IPeer};

const CLIENTS: usize = 4;
const KILLED: usize = 60;
/// Most lines of a client's output before it is killed.
const LINES: usize = 40;

/// Calls that leave state in the service while they are in progress, with a line for each.
fn work(service: &dyn IPeer, round: usize) -> Outcome {
    let (listener, _heard) = listen();
    let data = vec![round as u8; round * 7919 % 50_000];
    equal("echo", service.echo(&data)?, data)?;
    child::say("echo")?;
    equal("answer", service.callBack(&listener, 1)?, 2)?;
    child::say("call back")?;
    let made = service.make()?;
    equal("answer", made.call(1)?, 2)?;
    child::say("make")?;
    service.hold(Some(&listener))?;
    child::say("hold")?;
    let (reader, writer) = ParcelFileDescriptor::pipe()?;
    drop(writer);
    let (_answer, to) = ParcelFileDescriptor::pipe()?;
    equal("bytes copied", service.copy(&reader, &to)?, 0)?;
    child::say("copy")?;
    service.post(0, round as i32)?;
    child::say("post")
}

/// Role `worker SERVICE`: works until it is killed.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let service: Strong<dyn IPeer> = hub::check_interface(&arguments[0])?;
    std::thread::spawn(|| {
        let ended = child::until_end();
        std::process::exit(i32::from(ended.is_err()));
    });
    child::say("ready")?;
    (0..).try_for_each(|round| work(&*service, round))
}

pub fn scenario() -> Outcome {
    const NAME: &str = "suite.churn.service";
    child::open(Loopers::Pool)?;
    let (child, service) = peer::start(NAME)?;
    let files = service.openFiles()?;

    step("clients come, work and are killed");
    let mut clients = Vec::new();
    for round in 0..KILLED + CLIENTS {
        clients.push(Child::start("worker", &[NAME])?);
        if clients.len() > CLIENTS {
            let mut client = clients.remove(round % CLIENTS);
            // The client is killed anywhere in its work, which goes on while its lines are read.
            (0..round * 7919 % LINES).try_for_each(|_| client.line().map(drop))?;
            client.kill()?;
        }
        equal("the service", service.pid()?, child.pid())?;
    }
    clients.iter_mut().try_for_each(Child::kill)?;

    step("nothing of theirs is left");
    service.hold(None)?;
    service.received(0)?;
    let left = || -> Outcome<(i32, i32)> { Ok((service.alive()?, service.openFiles()? - files)) };
    let start = Instant::now();
    while matches!(left()?, (alive, open) if alive > 0 || open > 0) && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let (alive, open) = left()?;
    equal("objects alive", alive, 0)?;
    holds(&format!("{open} more files are open than before"), open <= 0)?;
    for size in [0, 4096, 900_000] {
        equal("echo", service.echo(&vec![1; size])?.len(), size)?;
    }
    child.end()
}
