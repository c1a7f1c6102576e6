//! The machine that the figures are of.

use serde::Serialize;

/// What a reader must know of it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// How many processors this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's clock source: what times are read from.
    pub clock: String,
    /// Processes that ran or waited for a processor in the last minute, before the run: all but
    /// none disturb it.
    pub load: f64,
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl Machine {
    /// This one, now.
    pub fn look() -> Machine {
        let unknown = || "unknown".to_owned();
        let info = read("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let load = read("/proc/loadavg").unwrap_or_default();
        Machine {
            cpu: model.map_or_else(unknown, |(_, name)| name.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            clock: clock.map_or_else(unknown, |clock| clock.trim().to_owned()),
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN),
        }
    }
}
