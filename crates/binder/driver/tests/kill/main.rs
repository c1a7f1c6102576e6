//! Real processes under SIGKILL at random moments.
//!
//! A manager, a server and a client call each other without end: bytes, objects, descriptors, calls
//! back. In each round one of them is killed at some instant. The others' calls come back, they
//! hear of the death, and nothing of the dead is left: no process, handle or channel at the broker,
//! no descriptor and no thread in the survivors. Then it is started anew.
//!
//! `KILL_ROUNDS=n` for other than 200 rounds, `KILL_SEED=n` to choose the same victims and delays.

mod actor;
mod crew;
#[path = "../support/rng.rs"]
mod rng;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/vitals.rs"]
mod vitals;

use actor::ROLES;
use crew::{Member, Observer};
use rng::Rng;
use rustix::event::Timespec;
use std::path::Path;

const ROUNDS: u64 = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, hidden, role, socket, seed] = &arguments[..]
        && hidden == "role"
    {
        return actor::run(role, Path::new(socket), seed.parse().expect("a seed"));
    }
    let setting = |name| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let seed = setting("KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds = setting("KILL_ROUNDS").unwrap_or(ROUNDS);
    println!("{rounds} rounds, KILL_SEED={seed}");
    let broker = support::Broker::start();
    let mut stage = Stage {
        rng: Rng::new(seed),
        observer: Observer::connect(&broker.socket),
        broker,
        crew: [None, None, None],
    };
    for round in 1..=rounds {
        stage.play(round);
    }
    stage.crew = [None, None, None];
    let left = || stage.observer.context().processes;
    while !left().is_empty() {}
    println!("{rounds} rounds passed");
}

struct Stage {
    rng: Rng,
    observer: Observer,
    broker: support::Broker,
    crew: [Option<Member>; 3],
}

impl Stage {
    fn play(&mut self, round: u64) {
        for role in 0..ROLES.len() {
            if self.crew[role].is_none() {
                let seed = self.rng.next();
                self.crew[role] = Some(Member::start(role, &self.broker.socket, seed));
                self.member(role).expect("ready");
            }
            self.prepare(role);
        }
        // Everybody knows everybody now: the channels that were still missing are opened.
        (0..ROLES.len()).for_each(|role| self.prepare(role));
        for role in 0..ROLES.len() {
            self.member(role).tell("go");
            self.member(role).expect("going");
        }
        let victim = self.rng.below(ROLES.len());
        self.some_instant();
        let member = self.crew[victim].take().expect("everybody is there");
        let name = self.observer.name_of(member.pid());
        member.kill();
        for role in (0..ROLES.len()).filter(|role| *role != victim) {
            self.member(role).tell("stop");
            self.hear_of_death(role, victim, round);
        }
        self.observer.check_gone(name);
        for role in (0..ROLES.len()).filter(|role| *role != victim) {
            self.member(role).check_counts(victim);
        }
    }

    fn prepare(&mut self, role: usize) {
        self.member(role).tell("prepare");
        self.member(role).expect("prepared");
    }

    fn member(&mut self, role: usize) -> &mut Member {
        self.crew[role].as_mut().expect("started")
    }

    /// Up to 4 ms: no wait for anything, but the choice of a moment.
    fn some_instant(&mut self) {
        let delay = Timespec { tv_sec: 0, tv_nsec: self.rng.below(4_000_000) as i64 };
        let _ = rustix::event::poll(&mut [], Some(&delay));
    }

    /// The survivor's calls have come back, and it has been told. Only what involved the victim may
    /// have failed.
    fn hear_of_death(&mut self, role: usize, victim: usize, round: u64) {
        let (mut stopped, mut told) = (false, false);
        while !stopped || !told {
            let line = self.member(role).hear();
            match line.split_once(' ') {
                None if line == "stopped" => stopped = true,
                Some(("dead", name)) => {
                    assert_eq!(name, ROLES[victim], "round {round}");
                    told = true;
                }
                Some(("failed", rest)) => {
                    let fine = rest
                        .split(' ')
                        .next()
                        .is_some_and(|names| names.split(',').any(|name| name == ROLES[victim]));
                    assert!(fine, "round {round}: {} says {line}", ROLES[role]);
                }
                _ => panic!("round {round}: {} says {line}", ROLES[role]),
            }
        }
    }
}
