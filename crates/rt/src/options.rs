//! Everything that a process asks for, at once.

use crate::error::Error;
use crate::frequency::{self, Frequency};
use crate::guardian::{self, Guardian, Until, Watch};
use crate::holder::Holder;
use crate::idle::Bound;
use crate::memory::{Locked, prefault_stack};
use crate::oom::Protection;
use crate::paths::Paths;
use crate::schedule::{Pinned, Prioritized, Slack};
use baton_abi::sched_priority::SchedPriority;
use rustix::process::{PTracer, set_ptracer};
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// What is asked for. Nothing, at first.
///
/// ```no_run
/// let options = baton_rt::Options::new().priority("fifo:80".parse()?);
/// let guard = options.cpus(vec![1]).lock_memory(256 << 10).hold()?;
/// // ... what must be in time ...
/// drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    paths: Paths,
    guardian: Option<PathBuf>,
    frequency: Option<Frequency>,
    latency_us: Option<u32>,
    /// Bytes of stack, with all other memory.
    memory: Option<usize>,
    oom_protect: bool,
    slack_ns: Option<NonZeroU64>,
    cpus: Option<Vec<usize>>,
    priority: Option<SchedPriority>,
}

/// What was asked for, until it is dropped. It stays with its thread, to which some of it belongs.
#[derive(Debug)]
pub struct Guard {
    // In the order in which they are undone: the priority first, so that nothing else is done at
    // it.
    _priority: Option<Prioritized>,
    _cpus: Option<Pinned>,
    _slack: Option<Slack>,
    _oom: Option<Protection>,
    _memory: Option<Locked>,
    _bound: Option<Bound>,
    _frequency: Option<Held>,
    _on_its_thread: PhantomData<*const ()>,
}

/// The frequency lock, and who would give it back.
#[derive(Debug)]
struct Held {
    paths: Paths,
    holder: Holder,
    _guardian: Guardian,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The guardian, which ends next, tries once more.
        let _ = frequency::release(&self.paths, &self.holder);
    }
}

impl Options {
    /// Nothing.
    pub fn new() -> Options {
        Options::default()
    }

    /// Another machine's files, as a container may have them.
    pub fn paths(self, paths: Paths) -> Options {
        Options { paths, ..self }
    }

    /// The `baton` command, if it is neither beside this program nor in PATH: it undoes the
    /// frequency lock of a process that is killed.
    pub fn guardian(self, program: PathBuf) -> Options {
        Options { guardian: Some(program), ..self }
    }

    /// All processors at one frequency. Others may hold the same; while somebody holds another, it
    /// is refused.
    pub fn frequency(self, frequency: Frequency) -> Options {
        Options { frequency: Some(frequency), ..self }
    }

    /// Processors wake up in so many microseconds.
    pub fn latency_us(self, latency_us: u32) -> Options {
        Options { latency_us: Some(latency_us), ..self }
    }

    /// All memory of the process stays, and so many bytes of the calling thread's stack are there
    /// already.
    pub fn lock_memory(self, stack_bytes: usize) -> Options {
        Options { memory: Some(stack_bytes), ..self }
    }

    /// The process is not killed when memory runs out.
    pub fn oom_protect(self) -> Options {
        Options { oom_protect: true, ..self }
    }

    /// How late the calling thread's timers may come.
    pub fn timer_slack_ns(self, slack_ns: NonZeroU64) -> Options {
        Options { slack_ns: Some(slack_ns), ..self }
    }

    /// Where the calling thread, and those that it starts, may run.
    pub fn cpus(self, cpus: Vec<usize>) -> Options {
        Options { cpus: Some(cpus), ..self }
    }

    /// The calling thread's priority, and that of those that it starts.
    pub fn priority(self, priority: SchedPriority) -> Options {
        Options { priority: Some(priority), ..self }
    }

    /// All of it, or none: an error undoes what was done before it.
    pub fn hold(&self) -> Result<Guard, Error> {
        let watch = |paths: &Paths| {
            Ok(Watch {
                owner: own_holder(0)?,
                until: Until::Release,
                latency_us: None,
                lock_memory: false,
                paths: paths.clone(),
            })
        };
        let frequency =
            self.frequency.map(|frequency| self.lock(frequency, self.start(&watch(&self.paths)?)?));
        let frequency = frequency.transpose()?;
        let bound =
            self.latency_us.map(|latency_us| Bound::new(&self.paths, latency_us)).transpose()?;
        let memory = self.memory.map(|_| Locked::new()).transpose()?;
        prefault_stack(self.memory.unwrap_or(0));
        self.guard(frequency, bound, memory)
    }

    /// All of it, for the program that this process is going to execute, and until that ends. What
    /// `exec` would undo is done by a guardian: locking memory after it, and keeping the bound on
    /// wake-up times. If `exec` fails, the end of this process undoes it.
    ///
    /// The guardian traces the process from here on, if memory is to be locked: call this from its
    /// first thread, when it has no other, directly before `exec`.
    pub fn before_exec(&self) -> Result<(), Error> {
        // Whether it may be had: an error of the guardian's would say less.
        let bound =
            self.latency_us.map(|latency_us| Bound::new(&self.paths, latency_us)).transpose()?;
        let lock_memory = self.memory.is_some();
        let mut frequency = None;
        if self.frequency.is_some() || bound.is_some() || lock_memory {
            let watch = Watch {
                owner: own_holder(0)?,
                until: Until::Death,
                latency_us: self.latency_us,
                lock_memory,
                paths: self.paths.clone(),
            };
            if lock_memory {
                // An error means that the kernel knows no such restriction.
                let _ = set_ptracer(PTracer::Any);
            }
            let guardian = self.start(&watch)?;
            let _ = set_ptracer(PTracer::None);
            frequency = self.frequency.map(|wanted| self.lock(wanted, guardian)).transpose()?;
        }
        std::mem::forget(self.guard(frequency, bound, None)?);
        Ok(())
    }

    fn start(&self, watch: &Watch) -> Result<Guardian, Error> {
        let program = self.guardian.clone().map_or_else(guardian::find, Ok)?;
        Guardian::start(&program, watch)
    }

    fn lock(&self, wanted: Frequency, guardian: Guardian) -> Result<Held, Error> {
        let holder = own_holder(guardian.pid)?;
        frequency::acquire(&self.paths, wanted, &holder)?;
        Ok(Held { paths: self.paths.clone(), holder, _guardian: guardian })
    }

    /// What the calling thread inherits or passes on, after the rest: the priority last, so that
    /// nobody who was started before has it.
    fn guard(
        &self,
        frequency: Option<Held>,
        bound: Option<Bound>,
        memory: Option<Locked>,
    ) -> Result<Guard, Error> {
        let oom = self.oom_protect.then(Protection::new).transpose()?;
        let slack = self.slack_ns.map(Slack::new).transpose()?;
        let cpus = self.cpus.as_deref().map(Pinned::new).transpose()?;
        Ok(Guard {
            _priority: self.priority.map(Prioritized::new).transpose()?,
            _cpus: cpus,
            _slack: slack,
            _oom: oom,
            _memory: memory,
            _bound: bound,
            _frequency: frequency,
            _on_its_thread: PhantomData,
        })
    }
}

/// This process as a holder. It fails only without `/proc`.
fn own_holder(guardian: u32) -> Result<Holder, Error> {
    Holder::own(guardian).ok_or_else(|| Error::NoOwner(std::process::id()))
}
