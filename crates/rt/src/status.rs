//! The machine's capabilities and the current settings.

use crate::cpufreq::{self, Setting};
use crate::error::Error;
use crate::frequency;
use crate::holder::Holder;
use crate::idle;
use crate::paths::Paths;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The state of the machine, and the rights of this process.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The kernel's release.
    pub kernel: String,
    /// Preemption model: `rt` for PREEMPT_RT, else from the kernel's version.
    pub preemption: &'static str,
    /// Frequency policies. Empty where the kernel sets no frequency.
    pub policies: Vec<PolicyStatus>,
    /// The frequency lock, if there is one.
    pub lock: Option<LockStatus>,
    /// The smallest bound on wake-up times that any process requests, in microseconds. `None` where
    /// this process may not read it.
    pub latency_us: Option<i32>,
    /// Name of the governor that chooses idle states.
    pub idle_governor: Option<String>,
    /// Highest real-time priority without CAP_SYS_NICE. `None`: any.
    pub priority_limit: Option<u64>,
    /// Most bytes that may be locked without CAP_IPC_LOCK. `None`: any.
    pub memory_limit_bytes: Option<u64>,
    /// Part of a period that real-time threads may use, and the period, in microseconds; -1 is all.
    pub realtime_us: Option<[i64; 2]>,
}

/// A frequency policy.
#[derive(Debug, Serialize)]
pub struct PolicyStatus {
    /// Name of the policy.
    pub name: String,
    /// Current settings.
    #[serde(flatten)]
    pub setting: Setting,
    /// Lowest and highest possible frequency.
    pub able_khz: [u32; 2],
    /// All possible frequencies, where the driver lists them.
    pub steps_khz: Vec<u32>,
    /// Current frequency.
    pub current_khz: Option<u32>,
}

/// The frequency lock.
#[derive(Debug, Serialize)]
pub struct LockStatus {
    /// Requested frequency.
    pub frequency: String,
    /// The processes that hold the lock.
    pub holders: Vec<HolderStatus>,
}

/// A process that holds the lock.
#[derive(Debug, Serialize)]
pub struct HolderStatus {
    /// The process.
    #[serde(flatten)]
    pub holder: Holder,
    /// Whether the process is alive.
    pub alive: bool,
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

impl Status {
    /// Reads the state of this machine without changing it.
    pub fn look(paths: &Paths) -> Result<Status, Error> {
        let lock = frequency::read_record(paths)?.map(|record| LockStatus {
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
