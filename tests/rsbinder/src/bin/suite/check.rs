//! Checks of the scenarios, and the limit of their duration.

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Result of a scenario. An error is text for the reader of the test's output.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Longer than any scenario takes on a loaded machine: a scenario that exceeds it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Time to wait for an event that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

static STEP: Mutex<&str> = Mutex::new("");

/// Names the next check, for the message if it fails or never ends.
pub fn step(name: &'static str) {
    *STEP.lock().unwrap() = name;
}

/// The step in which a scenario stopped, as the beginning of a message.
pub fn last_step() -> String {
    match *STEP.lock().unwrap() {
        "" => String::new(),
        step => format!("{step}: "),
    }
}

/// Ends the process when it runs for longer than the limit.
pub fn watch() {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("suite: {}still waiting after {} s", last_step(), LIMIT.as_secs());
        std::process::exit(1);
    });
}

/// Fails unless `got` is `want`.
pub fn equal<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, want: U) -> Outcome {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}: got {got:?}, expected {want:?}").into())
}

/// Fails unless `condition` holds.
pub fn holds(what: &str, condition: bool) -> Outcome {
    if condition { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

/// Receives a message that another thread or process is about to send.
pub fn next<T>(what: &str, channel: &Receiver<T>) -> Outcome<T> {
    channel.recv_timeout(PATIENCE).map_err(|_| format!("{what} never came").into())
}
