//! All settings of a process, requested at once.

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

/// The requested settings; at first none.
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
    /// Bytes of stack to load, if memory is to be locked.
    memory: Option<usize>,
    oom_protect: bool,
    slack_ns: Option<NonZeroU64>,
    cpus: Option<Vec<usize>>,
    priority: Option<SchedPriority>,
}

/// The settings while they are in effect: dropping this value undoes them. It must stay with its
/// thread, because some settings are the thread's.
#[derive(Debug)]
pub struct Guard {
    // Fields are dropped in this order: the priority first, so that the rest is undone without it.
    _priority: Option<Prioritized>,
    _cpus: Option<Pinned>,
    _slack: Option<Slack>,
    _oom: Option<Protection>,
    _memory: Option<Locked>,
    _bound: Option<Bound>,
    _frequency: Option<Held>,
    _on_its_thread: PhantomData<*const ()>,
}

/// The frequency lock and its guardian.
#[derive(Debug)]
struct Held {
    paths: Paths,
    holder: Holder,
    _guardian: Guardian,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The guardian, which ends next, repeats this.
        let _ = frequency::release(&self.paths, &self.holder);
    }
}

impl Options {
    /// Options without any setting.
    pub fn new() -> Options {
        Options::default()
    }

    /// Uses other paths for the machine's files, as a container may need.
    pub fn paths(self, paths: Paths) -> Options {
        Options { paths, ..self }
    }

    /// Sets the path of the `baton` command, if it is neither beside this program nor in PATH. As
    /// guardian it undoes the frequency lock of a killed process.
    pub fn guardian(self, program: PathBuf) -> Options {
        Options { guardian: Some(program), ..self }
    }

    /// Runs all processors at one frequency. Other processes may request it too; while one holds
    /// another frequency, the request is refused.
    pub fn frequency(self, frequency: Frequency) -> Options {
        Options { frequency: Some(frequency), ..self }
    }

    /// Bounds the processors' wake-up time, in microseconds.
    pub fn latency_us(self, latency_us: u32) -> Options {
        Options { latency_us: Some(latency_us), ..self }
    }

    /// Locks all memory of the process, and loads `stack_bytes` bytes of the calling thread's
    /// stack.
    pub fn lock_memory(self, stack_bytes: usize) -> Options {
        Options { memory: Some(stack_bytes), ..self }
    }

    /// Protects the process from the out-of-memory killer.
    pub fn oom_protect(self) -> Options {
        Options { oom_protect: true, ..self }
    }

    /// Sets the calling thread's timer slack, in nanoseconds.
    pub fn timer_slack_ns(self, slack_ns: NonZeroU64) -> Options {
        Options { slack_ns: Some(slack_ns), ..self }
    }

    /// Restricts the calling thread, and those that it starts, to these processors.
    pub fn cpus(self, cpus: Vec<usize>) -> Options {
        Options { cpus: Some(cpus), ..self }
    }

    /// The calling thread's priority, and that of those that it starts.
    pub fn priority(self, priority: SchedPriority) -> Options {
        Options { priority: Some(priority), ..self }
    }

    /// Applies all settings or none: an error undoes the earlier ones.
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

    /// Applies all settings for the program that this process is about to execute, until that ends.
    /// A guardian does what `exec` would undo: it locks memory afterwards and keeps the bound on
    /// wake-up times. If `exec` fails, the settings end with this process.
    ///
    /// If memory is to be locked, the guardian traces the process from here on. So call this from
    /// the process's only thread, directly before `exec`.
    pub fn before_exec(&self) -> Result<(), Error> {
        // Checks the right first, since an error of the guardian would say less.
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
                // An error means that the kernel does not restrict tracing.
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

    /// Applies the settings that the calling thread passes on, after all others. The priority comes
    /// last, so that no thread that was started before has it.
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
