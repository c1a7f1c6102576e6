//! Processes that each call all others, and get notifications about those that are killed.

use std::sync::{Arc, Mutex, mpsc};

use baton_rsbinder_programs::suite::IPeer::IPeer;
use rsbinder::{DeathRecipient, Interface, StatusCode, Strong, WIBinder, hub};

use crate::check::{Outcome, equal, next, step};
use crate::child::{self, Child, Loopers};
use crate::listener::listen;
use crate::peer;

const ROUNDS: usize = 10;

/// A name that no mesh of another size has: a service manager may hear late that those are gone.
fn name(number: usize, n_processes: usize) -> String {
    format!("suite.mesh.{number}.of.{n_processes}")
}

/// Counts death notifications.
struct Mourner(Mutex<mpsc::Sender<()>>);

impl DeathRecipient for Mourner {
    fn binder_died(&self, _who: &WIBinder) {
        // The counter is gone once this process ends.
        let _ = self.0.lock().unwrap().send(());
    }
}

/// Calls one of the others in every way.
fn call(other: &dyn IPeer, number: usize) -> Outcome {
    let (listener, heard) = listen();
    step("the first call");
    equal("caller", other.callerPid()?, std::process::id() as i32)?;
    for round in 0..ROUNDS {
        step("echo");
        let data = vec![(number + round) as u8; 1 + number * 100 + round];
        equal("echo", other.echo(&data)?, data)?;
        step("call back");
        equal("answer", other.callBack(&listener, round as i32)?, round as i32 + 1)?;
        equal("thread", next("the call back", &heard)?.thread, std::thread::current().id())?;
        step("one-way call");
        other.post(number as i32, round as i32)?;
    }
    Ok(())
}

/// Checks that every process's messages came, each one's in order.
fn check_posts(own: &dyn IPeer, number: usize, n_processes: usize) -> Outcome {
    let mut received = Vec::new();
    let expected = (n_processes - 1) * ROUNDS;
    while received.len() < expected {
        let more = own.received(1)?;
        equal("nothing more came", more.is_empty(), false)?;
        received.extend(more);
    }
    equal("messages", received.len(), expected)?;
    // A stable sort by sender: each one's messages stay as they came.
    received.sort_by_key(|message| message >> 32);
    let wanted: Vec<i64> = (0..n_processes)
        .filter(|other| *other != number)
        .flat_map(|other| (0..ROUNDS).map(move |round| ((other as i64) << 32) | round as i64))
        .collect();
    equal("messages", received, wanted)
}

/// Role `mesh NUMBER PROCESSES KILLED`: prints `called` when it has called all others and was
/// called by them, and `told` after `KILLED` death notifications.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let [number, n_processes, n_killed] = [0, 1, 2].map(|at| arguments[at].parse::<usize>());
    let (number, n_processes, n_killed) = (number?, n_processes?, n_killed?);
    step("registering");
    let own = peer::local();
    hub::add_service(&name(number, n_processes), own.as_binder())?;
    let (sender, deaths) = mpsc::channel();
    let mourner: Arc<dyn DeathRecipient> = Arc::new(Mourner(Mutex::new(sender)));
    let mut others: Vec<Strong<dyn IPeer>> = Vec::new();
    // Each process begins with a different peer.
    for other in (1..n_processes).map(|distance| (number + distance) % n_processes) {
        step("finding another one");
        let other: Strong<dyn IPeer> = hub::wait_for_interface(&name(other, n_processes))?;
        other.as_binder().link_to_death(Arc::downgrade(&mourner))?;
        call(&*other, number)?;
        others.push(other);
    }
    step("what the others sent");
    check_posts(&*own, number, n_processes)?;
    child::say("called")?;
    step("deaths");
    for _ in 0..n_killed {
        next("news of a death", &deaths)?;
    }
    let alive = others.iter().filter(|other| other.pid().is_ok()).count();
    equal("others alive", alive, n_processes - 1 - n_killed)?;
    let dead = others
        .iter()
        .filter(|other| other.pid().map_err(StatusCode::from) == Err(StatusCode::DeadObject));
    equal("others dead", dead.count(), n_killed)?;
    child::say("told")?;
    child::until_end()
}

/// Two processes, which find and call each other at the same time.
pub fn two() -> Outcome {
    mesh(2, 1)
}

/// Twenty processes.
pub fn twenty() -> Outcome {
    mesh(20, 5)
}

fn mesh(n_processes: usize, n_killed: usize) -> Outcome {
    child::open(Loopers::Pool)?;
    step("everybody calls everybody");
    let mut children = (0..n_processes)
        .map(|number| [number, n_processes, n_killed].map(|number| number.to_string()))
        .map(|[number, processes, killed]| Child::spawn("mesh", &[&number, &processes, &killed]))
        .collect::<Outcome<Vec<_>>>()?;
    for child in &mut children {
        equal("a process", child.line()?.as_str(), "called")?;
    }

    step("the others are told of the dead");
    for child in children.drain(..n_killed).collect::<Vec<_>>().iter_mut() {
        child.kill()?;
    }
    for child in &mut children {
        equal("a process", child.line()?.as_str(), "told")?;
    }
    children.into_iter().try_for_each(Child::end)
}
