//! A broker under SIGKILL, and another one at its socket, with real processes around them.
//!
//! A service manages the context; two clients hold it and an object of its, and it holds an object
//! of each. While there is no broker, calls go on, and one client is killed. Then everything is as
//! it was, but for that one's death; and a liar, who says that it was somebody else and held what
//! it did not, gets nothing.

#[expect(dead_code, reason = "few children need no more")]
mod child;
#[path = "../support/rng.rs"]
#[expect(dead_code, reason = "a choice of moments needs no more")]
mod rng;
mod roles;

use baton_abi::control::Report;
use baton_driver::observer::Observer;
use child::{Child, PATIENCE};
use rng::Rng;
use std::path::Path;
use std::time::Instant;

const ROUNDS: u64 = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, role, socket] = &arguments[..]
        && hidden == "role"
    {
        return roles::run(role, Path::new(socket));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("broker.sock");
    a_second_broker_takes_over(&socket);
    many_brokers_under_load(&socket);
    println!("passed");
}

fn a_second_broker_takes_over(socket: &Path) {
    let first = Child::start("broker", socket);
    let mut service = Child::start("service", socket);
    let mut client = Child::start("client", socket);
    let doomed = Child::start("client", socket);
    let mut witness = Child::start("witness", socket);
    let mut liar = Child::start("liar", socket);
    service.expect("knows 2");
    let before = observe(socket);
    first.kill();

    client.ask("call", "called");
    // An owner grants its own object without a broker.
    client.ask("introduce", "called");
    doomed.kill();
    client.ask("call", "called");

    let second = Child::start("broker", socket);
    // The witness's credential, from the liar's process, in whichever order they come.
    let credential = witness.question("credential");
    liar.ask(&format!("pose {credential}"), "refused");
    witness.ask("resume", "welcome");
    let (victim, owner) = (process_of(&before, client.pid()), process_of(&before, service.pid()));
    let channel = before
        .contexts
        .iter()
        .flat_map(|context| &context.processes)
        .find(|process| process.process == victim)
        .and_then(|process| process.channels.first())
        .expect("they converse")
        .0;
    liar.ask(&format!("lie {owner} {channel}"), "nothing");

    // Whoever was there is found anew, and has what it had.
    client.ask_until("introduce", "called");
    let mut new = Child::start("client", socket);
    new.ask("call", "called");
    // The broker tells of the death as soon as all that live are back.
    service.expect_both(["knows 3", "client died"]);
    assert_eq!(holders(socket, service.pid()), 2, "the client and the new one hold the object");
    client.ask("drop", "dropped");
    new.ask("drop", "dropped");
    let late = Instant::now() + PATIENCE;
    while holders(socket, service.pid()) > 0 {
        assert!(Instant::now() < late, "a reference that was released is still held");
    }
    service.kill();
    client.expect("manager died");
    new.expect("manager died");
    drop(second);
}

/// Brokers die at any instant under calls, with and without objects; when it is quiet, nothing is
/// left over.
fn many_brokers_under_load(socket: &Path) {
    let seed = u64::from(std::process::id());
    println!("RESTART_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut broker = Child::start("broker", socket);
    let service = Child::start("service", socket);
    let mut clients = [Child::start("client", socket), Child::start("client", socket)];
    let at_rest = observe(socket);
    for _ in 0..ROUNDS {
        clients.iter_mut().for_each(|client| client.tell("load"));
        child::some_instant(&mut rng, 3_000_000);
        broker.kill();
        child::some_instant(&mut rng, 3_000_000);
        broker = Child::start("broker", socket);
        child::some_instant(&mut rng, 3_000_000);
        clients.iter_mut().for_each(|client| client.ask("quiet", "quiet"));
        clients.iter_mut().for_each(|client| client.ask_until("introduce", "called"));
        let late = Instant::now() + PATIENCE;
        while counts(&observe(socket)) != counts(&at_rest) {
            let (now, then) = (observe(socket), &at_rest);
            assert!(Instant::now() < late, "{now:?}\nand before\n{then:?}");
        }
    }
    drop(service);
}

fn observe(socket: &Path) -> Report {
    let observer = Observer::connect(socket).expect("a broker");
    observer.report().expect("an answer")
}

fn process_of(report: &Report, pid: u32) -> u64 {
    let mut all = report.contexts.iter().flat_map(|context| &context.processes);
    all.find(|process| process.pid == pid).expect("admitted").process
}

/// Processes that hold the service's object, which is not its first.
fn holders(socket: &Path, service: u32) -> u32 {
    let report = observe(socket);
    let mut all = report.contexts.iter().flat_map(|context| &context.processes);
    let service = all.find(|process| process.pid == service).expect("admitted");
    let first = service.holdings.iter().map(|&(node, ..)| node).min();
    let of_others = service.holdings.iter().filter(|&&(node, ..)| Some(node) != first);
    of_others.filter(|&&(_, _, strong)| strong).count() as u32
}

/// Of each process: who holds its nodes.
type Counts = Vec<(u64, Vec<(u64, u64, bool)>)>;

fn counts(report: &Report) -> Counts {
    let all = report.contexts.iter().flat_map(|context| &context.processes);
    all.map(|process| (process.process, process.holdings.clone())).collect()
}
