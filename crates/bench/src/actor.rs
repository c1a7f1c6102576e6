//! A process that a run has started, and that is spoken to in lines.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What is measured at once takes some seconds at most: who is silent for longer has got stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The process. Dropped, it is killed.
pub struct Actor {
    process: Child,
    /// `None` once it is to end.
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// It has ended; it has said why.
    #[error("has ended")]
    Ended,
    /// Patience is over.
    #[error("has got stuck")]
    Stuck,
    /// It could not be listened to.
    #[error("cannot be heard: {0}")]
    System(io::Error),
}

impl Actor {
    /// Starts it, its input and output to and from here.
    pub fn start(command: &mut Command) -> io::Result<Actor> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = Some(process.stdin.take().expect("it is piped"));
        let words = BufReader::new(process.stdout.take().expect("it is piped"));
        Ok(Actor { process, orders, words })
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let orders = self.orders.as_mut().expect("it is not to end");
        writeln!(orders, "{line}")
    }

    /// The next line. What comes in one piece is written in one piece, or nearly: patience is for
    /// its beginning.
    pub fn hear(&mut self, patience: Duration) -> Result<String, Silence> {
        let mut line = String::new();
        if self.words.buffer().is_empty() {
            let mut fds = [PollFd::new(self.words.get_ref(), PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(patience))) {
                Ok(0) => return Err(Silence::Stuck),
                Ok(_) => {}
                Err(errno) => return Err(Silence::System(errno.into())),
            }
        }
        match self.words.read_line(&mut line) {
            Ok(1..) => Ok(line),
            _ => Err(Silence::Ended),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Ends its input, and waits for its end.
    pub fn dismiss(&mut self, farewell: Duration) {
        drop(self.orders.take());
        let output = PollFd::new(self.words.get_ref(), PollFlags::empty());
        let _ = poll(&mut [output], Some(&timespec(farewell)));
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // One that has ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
