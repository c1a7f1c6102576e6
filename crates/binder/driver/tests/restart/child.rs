//! Children of the test, by lines to and fro.

use crate::rng::Rng;
use rustix::event::Timespec;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as a hang: the only use of time here.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Child {
    child: std::process::Child,
    role: &'static str,
    lines: Receiver<String>,
}

impl Child {
    /// Started, and ready for what it is there for.
    pub fn start(role: &'static str, socket: &Path) -> Child {
        let mut child = Child::spawn(role, socket, &[]);
        child.expect("ready");
        child
    }

    /// Started, with further arguments.
    pub fn spawn(role: &'static str, socket: &Path, more: &[String]) -> Child {
        let program = std::env::current_exe().expect("our own program");
        let mut child = Command::new(program)
            .args(["role", role])
            .arg(socket)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a child");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        Child { child, role, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.child.stdin.as_ref().expect("piped"), "{command}").expect("it listens");
    }

    fn hear(&mut self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|_| panic!("the {} (pid {}) hangs", self.role, self.pid()))
    }

    pub fn expect(&mut self, wanted: &str) {
        assert_eq!(self.hear(), wanted, "{}", self.role);
    }

    /// Expects two lines, in any order.
    pub fn expect_both(&mut self, wanted: [&str; 2]) {
        let (first, second) = (self.hear(), self.hear());
        let both = [first.as_str(), second.as_str()];
        assert!(wanted.iter().all(|line| both.contains(line)), "{both:?} of the {}", self.role);
    }

    pub fn question(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    pub fn ask(&mut self, command: &str, wanted: &str) {
        assert_eq!(self.question(command), wanted, "{} to {command}", self.role);
    }

    /// Asks until it is so.
    pub fn ask_until(&mut self, command: &str, wanted: &str) {
        let late = Instant::now() + PATIENCE;
        while self.question(command) != wanted {
            assert!(Instant::now() < late, "{} never {wanted} to {command}", self.role);
        }
    }

    /// The lines that are there already.
    pub fn heard(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// SIGKILL. Returns the lines that it has left.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it lives");
        self.child.wait().expect("a child");
        self.lines.iter().collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No wait for anything, but the choice of a moment.
pub fn some_instant(rng: &mut Rng, most_ns: usize) {
    let delay = Timespec { tv_sec: 0, tv_nsec: rng.below(most_ns) as i64 };
    let _ = rustix::event::poll(&mut [], Some(&delay));
}
