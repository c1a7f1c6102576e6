//! `cyclictest` of rt-tests, with the same threads at the same places.

use crate::latency::timer::Period;
use baton_rt::SchedPriority;
use std::io;
use std::process::Command;

pub const NAME: &str = "cyclictest";

/// Wake-ups that are asked for beside those that count: it ends without telling of the last ones.
const SPARE_LOOPS: u32 = 250;

/// Every single delay, in nanoseconds: its own histogram would end at a bound.
///
/// # Errors
/// The program is not there, fails, or tells of too few wake-ups.
pub fn measure(period: &Period, places: &[Option<usize>]) -> io::Result<Vec<Vec<u64>>> {
    let mut command = Command::new("cyclictest");
    command.args(["--verbose", "--nsecs", "--mlockall", "--distance=0"]);
    command.arg(format!("--interval={}", period.interval_us));
    command.arg(format!("--loops={}", period.n_loops + SPARE_LOOPS));
    command.arg(format!("--threads={}", places.len()));
    match period.priority.and_then(SchedPriority::real_time) {
        Some(level) => command.arg(format!("--priority={level}")),
        None => command.arg("--policy=other"),
    };
    let cpus: Vec<String> = places.iter().flatten().map(usize::to_string).collect();
    if !cpus.is_empty() {
        command.arg(format!("--affinity={}", cpus.join(",")));
    }
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("cyclictest is not there: `apt-get install rt-tests`")
        }
        _ => io::Error::other(format!("start cyclictest: {error}")),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!("cyclictest: {said}")));
    }
    let mut wakings = parse(&String::from_utf8_lossy(&output.stdout), places.len());
    let wanted = period.n_loops as usize;
    wakings.iter_mut().for_each(|delays_ns| delays_ns.truncate(wanted));
    match wakings.iter().map(Vec::len).find(|&len| len != wanted) {
        Some(len) => {
            let short = format!("cyclictest tells of {len} wake-ups in place of {wanted}");
            Err(io::Error::other(short))
        }
        None => Ok(wakings),
    }
}

/// Lines of thread, number and delay, with colons between.
fn parse(text: &str, n_threads: usize) -> Vec<Vec<u64>> {
    let mut wakings = vec![Vec::new(); n_threads];
    for line in text.lines() {
        let mut numbers = line.split(':').map(|word| word.trim().parse::<u64>());
        let (Some(Ok(thread)), Some(Ok(_)), Some(Ok(delay_ns)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            continue;
        };
        if let Some(delays_ns) = wakings.get_mut(thread as usize) {
            delays_ns.push(delay_ns);
        }
    }
    wakings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_found_among_what_else_is_said() {
        let text = "# /dev/cpu_dma_latency set to 0us\nThread 0 using cpu 1.\nThread 0 Interval: \
            1500\n\
                    \x20      0:       0:   30201\n       1:       0:   25711\n       0:       1:  \
                      9\n\
                    T: 0 (26312) P:80 I:1000 C: 2000 Min: 9502\n       7:       1:    9\n";
        assert_eq!(parse(text, 2), [vec![30201, 9], vec![25711]]);
    }
}
