//! What the machine has of all this, and who holds what.

use crate::cpufreq::{self, Setting};
use crate::error::Error;
use crate::frequency;
use crate::holder::Holder;
use crate::idle;
use crate::paths::Paths;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// A look at the machine, and at what this process may do.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The kernel's release.
    pub kernel: String,
    /// How far it can be preempted: `rt` for PREEMPT_RT; else as its version has it.
    pub preemption: &'static str,
    /// Frequency policies. Empty where the kernel sets no frequency.
    pub policies: Vec<PolicyStatus>,
    /// The frequency lock, if there is one.
    pub lock: Option<LockStatus>,
    /// The least bound on wake-up times that anybody asks for, in microseconds; `None` where this
    /// process may not look.
    pub latency_us: Option<i32>,
    /// Who chooses idle states.
    pub idle_governor: Option<String>,
    /// Greatest real-time priority without CAP_SYS_NICE. `None`: any.
    pub priority_limit: Option<u64>,
    /// Most bytes that may be locked without CAP_IPC_LOCK. `None`: any.
    pub memory_limit_bytes: Option<u64>,
    /// How much of a period real-time threads may have, both in microseconds; -1 is all.
    pub realtime_us: Option<[i64; 2]>,
}

/// A frequency policy.
#[derive(Debug, Serialize)]
pub struct PolicyStatus {
    /// Its name.
    pub name: String,
    /// How it is set.
    #[serde(flatten)]
    pub setting: Setting,
    /// The least and the greatest that it could be set to.
    pub able_khz: [u32; 2],
    /// All that it could be set to, where they are few.
    pub steps_khz: Vec<u32>,
    /// What it is.
    pub current_khz: Option<u32>,
}

/// The frequency lock.
#[derive(Debug, Serialize)]
pub struct LockStatus {
    /// What was asked for.
    pub frequency: String,
    /// By whom.
    pub holders: Vec<HolderStatus>,
}

/// Who holds the lock.
#[derive(Debug, Serialize)]
pub struct HolderStatus {
    /// The process.
    #[serde(flatten)]
    pub holder: Holder,
    /// Whether it runs.
    pub alive: bool,
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

impl Status {
    /// This machine, now. Changes nothing.
    pub fn look(paths: &Paths) -> Result<Status, Error> {
        let lock = frequency::look(paths)?.map(|record| LockStatus {
            frequency: record.frequency.to_string(),
            holders: record
                .holders
                .into_iter()
                .map(|holder| HolderStatus { alive: holder.is_alive(), holder })
                .collect(),
        });
        let governor = paths.sysfs.join("devices/system/cpu/cpuidle/current_governor");
        let number = |name: &str| read(&format!("/proc/sys/kernel/{name}"))?.parse().ok();
        let parts = || Some([number("sched_rt_runtime_us")?, number("sched_rt_period_us")?]);
        Ok(Status {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            preemption: preemption(paths),
            policies: policies(paths)?,
            lock,
            latency_us: idle::bound_us(paths),
            idle_governor: read(&governor.to_string_lossy()),
            priority_limit: getrlimit(Resource::Rtprio).current,
            memory_limit_bytes: getrlimit(Resource::Memlock).current,
            realtime_us: parts(),
        })
    }
}

fn preemption(paths: &Paths) -> &'static str {
    if std::fs::read_to_string(paths.sysfs.join("kernel/realtime"))
        .is_ok_and(|text| text.trim() == "1")
    {
        return "rt";
    }
    let version = read("/proc/sys/kernel/version").unwrap_or_default();
    let kinds = [("PREEMPT_RT", "rt"), ("PREEMPT_DYNAMIC", "dynamic"), ("PREEMPT", "full")];
    kinds
        .into_iter()
        .find(|(word, _)| version.contains(word))
        .map_or("none or voluntary", |(_, kind)| kind)
}

fn policies(paths: &Paths) -> Result<Vec<PolicyStatus>, Error> {
    let policies = match cpufreq::policies(paths) {
        Err(Error::NoCpufreq(_)) => return Ok(Vec::new()),
        found => found?,
    };
    let status = |policy: cpufreq::Policy| {
        Ok(PolicyStatus {
            setting: policy.setting()?,
            current_khz: policy.current_khz(),
            name: policy.name,
            able_khz: policy.able_khz,
            steps_khz: policy.steps_khz,
        })
    };
    policies.into_iter().map(status).collect()
}
