//! How a process is opened.

use crate::driver::{Callbacks, Driver};
use crate::process::Process;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_driver::device::OpenError;
use baton_driver::typed::Engine;
use baton_driver::typed::Settings;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Size of the receive buffer, as libbinder has it.
pub const RECEIVE_BYTES: usize = (1 << 20) - 8192;

/// How a process is to be opened: its receive buffer, and how its threads wait.
///
/// The waits are at first as the environment has them: BATON_SPIN_US, BATON_FOLLOW and
/// BATON_SPIN_REAL_TIME. On a machine with one processor nobody spins or follows.
///
/// ```no_run
/// # use baton::Options;
/// # use std::time::Duration;
/// let socket = std::path::Path::new("/run/baton/broker.sock");
/// let process = Options::new().longest_spin(Duration::ZERO).open("binder", socket)?;
/// # Ok::<(), baton::OpenError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    receive_bytes: usize,
    settings: Settings,
}

impl Options {
    /// What [`Process::open`] takes.
    pub fn new() -> Options {
        Options { receive_bytes: RECEIVE_BYTES, settings: Settings::of_environment() }
    }

    /// Size of the receive buffer: [`RECEIVE_BYTES`] unless set, and 4 MiB at most.
    pub fn receive_bytes(mut self, bytes: usize) -> Options {
        self.receive_bytes = bytes.min(MAX_PAYLOAD_BYTES);
        self
    }

    /// How long a thread looks, at most, for a peer on another processor before it sleeps: 50 us
    /// unless set, zero for never, a second at most. It looks only as long as answers have come
    /// that soon lately.
    pub fn longest_spin(mut self, longest: Duration) -> Options {
        self.settings.set_longest_spin(longest);
        self
    }

    /// Whether threads at a real-time priority look as well: no unless set. A spinning one keeps
    /// every thread of a lower priority from its processor, and may so wait for one that cannot
    /// run.
    pub fn spin_real_time(mut self, spin: bool) -> Options {
        self.settings.set_spin_real_time(spin);
        self
    }

    /// Whether a looper that sleeps for one caller only moves to that caller's processor: yes
    /// unless set. It moves among those processors only to which it is bound.
    pub fn follow(mut self, follow: bool) -> Options {
        self.settings.set_follow(follow);
        self
    }

    /// Opens a context at the broker that listens at `socket`.
    pub fn open(&self, context: &str, socket: &Path) -> Result<Process, OpenError> {
        let engine = Engine::open_with(context, socket, self.settings)?;
        let mut state = engine.lock();
        state.buffers.map(self.receive_bytes);
        // Most of the program's objects live as long as its process: it hears nothing of them.
        state.nodes.be_typed();
        engine.unlock(state);
        let callbacks = Arc::new(Callbacks::default());
        let driver = Driver { engine, callbacks: Arc::downgrade(&callbacks) };
        Ok(Process { driver: Arc::new(driver), callbacks })
    }
}

impl Process {
    /// Opens a context at the broker that listens at `socket`, with the default [`Options`].
    pub fn open(context: &str, socket: &Path) -> Result<Process, OpenError> {
        Options::new().open(context, socket)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}
