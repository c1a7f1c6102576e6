//! The children, from their parent's side: lines to and fro, /proc, and the broker's report.

use crate::actor::ROLES;
use crate::vitals;
use baton_abi::control::{ContextReport, ProcessReport};
use baton_driver::observer;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as a hang: the only use of time here.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Member {
    child: Child,
    pidfd: OwnedFd,
    lines: Receiver<String>,
    pub role: usize,
    /// Counts at rest, by whose death came before: descriptors and threads.
    at_rest: BTreeMap<usize, (usize, usize)>,
}

impl Member {
    pub fn start(role: usize, socket: &Path, seed: u64) -> Member {
        let program = std::env::current_exe().expect("our own program");
        let mut child = Command::new(program)
            .args(["role", ROLES[role]])
            .arg(socket)
            .arg(seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a child");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        let pid = Pid::from_raw(child.id() as i32).expect("a pid");
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd");
        Member { child, pidfd, lines, role, at_rest: BTreeMap::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.child.stdin.as_ref().expect("piped"), "{command}").expect("it listens");
    }

    /// The next line.
    pub fn hear(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| self.hangs())
    }

    pub fn expect(&mut self, wanted: &str) {
        let line = self.hear();
        assert_eq!(line, wanted, "{}", ROLES[self.role]);
    }

    fn hangs(&self) -> String {
        vitals::print_waits(self.pid());
        panic!("the {} (pid {}) hangs", ROLES[self.role], self.pid());
    }

    pub fn kill(mut self) {
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).expect("it lives");
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let ended = rustix::event::poll(&mut fds, Some(&patience)).expect("poll");
        assert_eq!(ended, 1, "SIGKILL does not end it");
        self.child.wait().expect("a child");
    }

    fn counts(&self) -> (usize, usize) {
        vitals::counts(self.pid())
    }

    /// Whenever it is at rest after a death of the same role, it has no more descriptors and
    /// threads than ever before. The first time it may not have been at rest yet.
    pub fn check_counts(&mut self, victim: usize) {
        let Some(&before) = self.at_rest.get(&victim) else {
            let counts = self.settled_counts();
            self.at_rest.insert(victim, counts);
            return;
        };
        let late = Instant::now() + PATIENCE;
        // What the last one-way transaction brought may still be on its way to be closed.
        while !fewer(self.counts(), before) {
            assert!(
                Instant::now() < late,
                "the {}: {:?} after a {}'s death, once {before:?}: {:?}",
                ROLES[self.role],
                self.counts(),
                ROLES[victim],
                vitals::open_files(self.pid()),
            );
            std::thread::yield_now();
        }
        if self.counts() != before {
            let counts = self.settled_counts();
            self.at_rest.insert(victim, counts);
        }
    }

    /// Counts that do not move while it is looked at many times.
    fn settled_counts(&self) -> (usize, usize) {
        let mut last = self.counts();
        let mut same = 0;
        while same < 50 {
            std::thread::yield_now();
            let now = self.counts();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// What the broker says of itself.
pub struct Observer(observer::Observer);

impl Observer {
    pub fn connect(path: &Path) -> Observer {
        Observer(observer::Observer::connect(path).expect("a broker"))
    }

    pub fn context(&self) -> ContextReport {
        let contexts = self.0.report().expect("a report").contexts;
        contexts.into_iter().find(|context| context.name == "binder").expect("there from birth")
    }

    /// The broker's name for a pid.
    pub fn name_of(&self, pid: u32) -> u64 {
        let found = self.context().processes.into_iter().find(|process| process.pid == pid);
        found.expect("admitted").process
    }

    /// Nothing is left of a dead process, once those who live have let it go.
    pub fn check_gone(&self, dead: u64) {
        let late = Instant::now() + PATIENCE;
        let touches = |process: &ProcessReport| {
            process.process == dead
                || process.holdings.iter().any(|&(_, holder, _)| holder == dead)
                || process.channels.iter().any(|&(_, other, _)| other == dead)
        };
        loop {
            let context = self.context();
            let left: Vec<_> = context.processes.iter().filter(|p| touches(p)).collect();
            if left.is_empty() && context.manager != Some(dead) {
                return;
            }
            assert!(Instant::now() < late, "{dead} is left in {left:?}");
        }
    }
}

fn fewer(now: (usize, usize), before: (usize, usize)) -> bool {
    now.0 <= before.0 && now.1 <= before.1
}
