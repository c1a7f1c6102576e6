//! `baton rt` with real processes, which are killed. A directory stands for sysfs; all other files
//! are this machine's own.

use baton_rt::{Error, Frequency, Options, Paths};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const BATON: &str = env!("CARGO_BIN_EXE_baton");
/// A program that reports that it runs, and runs until its input ends.
const PROGRAM: [&str; 3] = ["sh", "-c", "echo runs; read line"];

/// A machine with two frequency policies, and its own record of the lock.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let directory = tempfile::tempdir().unwrap();
        for (name, steps, min, max) in [
            ("policy0", "400000 1100000 1800000", "400000", "1800000"),
            ("policy4", "", "400000", "2400000"),
        ] {
            let policy = directory.path().join("sys/devices/system/cpu/cpufreq").join(name);
            std::fs::create_dir_all(&policy).unwrap();
            for (file, text) in [
                ("affected_cpus", "0 1"),
                ("cpuinfo_min_freq", min),
                ("cpuinfo_max_freq", max),
                ("scaling_available_governors", "schedutil performance"),
                ("scaling_available_frequencies", steps),
                ("scaling_governor", "schedutil"),
                ("scaling_min_freq", "500000"),
                ("scaling_max_freq", "1100000"),
            ] {
                std::fs::write(policy.join(file), format!("{text}\n")).unwrap();
            }
        }
        // The processors of this policy are offline, so it cannot be set.
        let offline = directory.path().join("sys/devices/system/cpu/cpufreq/policy8");
        std::fs::create_dir(&offline).unwrap();
        std::fs::write(offline.join("affected_cpus"), "\n").unwrap();
        Machine { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn baton(&self, command: &str) -> Command {
        let mut baton = Command::new(BATON);
        baton.args(["rt", command]).arg("--sysfs").arg(self.path("sys"));
        baton.arg("--state").arg(self.path("state"));
        baton
    }

    fn run(&self, words: &[&str]) -> Output {
        self.baton("run").args(words).output().unwrap()
    }

    /// Governor and limits of both policies.
    fn settings(&self) -> [String; 2] {
        ["policy0", "policy4"].map(|name| {
            let policy = self.path("sys/devices/system/cpu/cpufreq").join(name);
            let read = |file| std::fs::read_to_string(policy.join(file)).unwrap().trim().to_owned();
            ["scaling_governor", "scaling_min_freq", "scaling_max_freq"].map(read).join(" ")
        })
    }

    fn status(&self) -> Value {
        let output = self.baton("status").arg("--json").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Guardians of the lock's holders.
    fn guardians(&self) -> Vec<i32> {
        let status = self.status();
        let holders = status["lock"]["holders"].as_array().unwrap();
        holders.iter().map(|holder| holder["guardian"].as_i64().unwrap() as i32).collect()
    }

    fn start(&self, words: &[&str]) -> Running {
        Running::of(self.baton("run").args(words).args(["--"]).args(PROGRAM))
    }
}

const FREE: [&str; 2] = ["schedutil 500000 1100000"; 2];
const AT_MAX: [&str; 2] = ["performance 1800000 1800000", "performance 2400000 2400000"];

/// A program in real time, past its first instruction.
struct Running(Child);

impl Running {
    fn of(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        Running(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn end_of(pid: i32, signal: Option<Signal>) {
    let pid = Pid::from_raw(pid).unwrap();
    // The process may already have ended.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if let Some(signal) = signal {
        kill_process(pid, signal).unwrap();
    }
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_frequency_is_restored_after_the_program_is_killed() {
    let machine = Machine::new();
    let program = machine.start(&["--frequency", "max"]);
    assert_eq!(machine.settings(), AT_MAX);
    let [guardian] = machine.guardians()[..] else { panic!() };
    program.kill();
    end_of(guardian, None);
    assert_eq!(machine.settings(), FREE);
    assert_eq!(machine.status()["lock"], Value::Null);
}

#[test]
fn a_guardian_ended_by_a_signal_restores_first() {
    let machine = Machine::new();
    let program = machine.start(&["--frequency", "max"]);
    let [guardian] = machine.guardians()[..] else { panic!() };
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::TERM).unwrap();
    program.kill();
    end_of(guardian, None);
    assert_eq!(machine.settings(), FREE);
}

#[test]
fn holders_share_a_frequency_and_others_are_refused() {
    let machine = Machine::new();
    let first = machine.start(&["--frequency", "1100000"]);
    let second = machine.start(&["--frequency", "1100000"]);
    let refused = machine.run(&["--frequency", "max", "--", "true"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    for word in [
        "locked at 1100000",
        &format!("process {}", first.0.id()),
        &format!("process {}", second.0.id()),
    ] {
        assert!(error(&refused).contains(word), "{}", error(&refused));
    }
    let guardians = machine.guardians();
    first.kill();
    end_of(guardians[0], None);
    assert_eq!(machine.settings(), ["performance 1100000 1100000"; 2]);
    second.kill();
    end_of(guardians[1], None);
    assert_eq!(machine.settings(), FREE);
}

#[test]
fn the_lock_of_a_killed_guardian_is_repaired() {
    type Repair = fn(&Machine);
    let by_command: Repair = |machine| {
        let output = machine.baton("repair").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "the frequency is not locked\n");
    };
    let by_the_next: Repair = |machine| {
        let output = machine.run(&["--frequency", "400000", "--", "cat", "/dev/null"]);
        assert!(output.status.success(), "{output:?}");
        machine.baton("repair").output().unwrap();
    };
    for repair in [by_command, by_the_next] {
        let machine = Machine::new();
        let program = machine.start(&["--frequency", "max"]);
        let [guardian] = machine.guardians()[..] else { panic!() };
        end_of(guardian, Some(Signal::KILL));
        program.kill();
        assert_eq!(machine.settings(), AT_MAX, "nobody is there to undo it");
        assert_eq!(machine.status()["lock"]["holders"][0]["alive"], false);
        repair(&machine);
        assert_eq!(machine.settings(), FREE);
    }
}

#[test]
fn killing_at_any_time_loses_no_setting() {
    let machine = Machine::new();
    for round in 0..40_u32 {
        let mut command = machine.baton("run");
        command.args(["--frequency", "max", "--lock-memory", "--"]).args(PROGRAM);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Processes start and end meanwhile: each round gives it slightly more time.
        for _ in 0..round / 2 {
            Command::new("true").status().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let output = machine.baton("repair").output().unwrap();
        assert!(output.status.success(), "round {round}: {output:?}");
        assert_eq!(machine.settings(), FREE, "round {round}");
    }
}

#[test]
fn impossible_frequencies_change_nothing() {
    let machine = Machine::new();
    for (frequency, word) in [
        ("900000", "policy0 cannot run at 900000 kHz, only at 400000, 1100000, 1800000"),
        ("2400000", "policy0 cannot run at 2400000 kHz"),
    ] {
        let output = machine.run(&["--frequency", frequency, "--", "true"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(error(&output).contains(word), "{}", error(&output));
    }
    let output = machine.run(&["--frequency", "fast", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let output = machine.run(&["--frequency", "max", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    machine.baton("repair").output().unwrap();
    assert_eq!(machine.settings(), FREE);
    std::fs::remove_dir_all(machine.path("sys")).unwrap();
    let output = machine.run(&["--frequency", "max", "--", "true"]);
    assert!(error(&output).contains("has no frequency policy"), "{}", error(&output));
}

#[test]
fn a_policy_that_cannot_be_set_restores_the_others() {
    let machine = Machine::new();
    let path = machine.path("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq");
    std::fs::remove_file(&path).unwrap();
    // A value that no user may change, not even root.
    std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", &path).unwrap();
    let output = machine.run(&["--frequency", "max", "--", "true"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(error(&output).contains("the right to write"), "{output:?}");
    assert_eq!(machine.settings()[0], FREE[0]);
    assert_eq!(machine.status()["lock"], Value::Null);
}

#[test]
fn a_damaged_record_is_reported_and_kept() {
    let machine = Machine::new();
    std::fs::create_dir(machine.path("state")).unwrap();
    let record = machine.path("state/frequency.json");
    std::fs::write(&record, "{").unwrap();
    let output = machine.run(&["--frequency", "max", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error(&output).contains("is damaged"), "{}", error(&output));
    assert_eq!(std::fs::read_to_string(&record).unwrap(), "{");
    assert_eq!(machine.settings(), FREE);
}

/// Output of a program under these settings.
fn says(words: &[&str], program: &[&str]) -> Option<String> {
    let output = Command::new(BATON)
        .args(["rt", "run"])
        .args(words)
        .arg("--")
        .args(program)
        .output()
        .unwrap();
    if error(&output).contains("is not permitted: it needs") {
        println!("{words:?} not tested: {}", error(&output));
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_program_gets_the_requested_settings() {
    let memory = says(&["--lock-memory"], &["grep", "VmLck", "/proc/self/status"]);
    if let Some(text) = memory {
        let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib > 500, "{text}");
    }
    let priority = says(&["--priority", "fifo:7"], &["cat", "/proc/self/stat"]);
    if let Some(text) = priority {
        let (_, fields) = text.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        assert_eq!((fields[37], fields[38]), ("7", "1"), "{text}");
    }
    let slack = says(&["--timer-slack", "1234"], &["cat", "/proc/self/timerslack_ns"]);
    assert_eq!(slack.unwrap(), "1234\n");
    let cpu = rustix::thread::sched_getcpu().to_string();
    let cpus = says(&["--cpus", &cpu], &["grep", "Cpus_allowed_list", "/proc/self/status"]);
    assert_eq!(cpus.unwrap(), format!("Cpus_allowed_list:\t{cpu}\n"));
    if let Some(text) = says(&["--oom-protect"], &["cat", "/proc/self/oom_score_adj"]) {
        assert_eq!(text, "-1000\n");
    }
}

#[test]
fn what_is_not_there_is_named() {
    for (words, code, sentence) in [
        (&["no-such-program"][..], 127, "it is not in any directory of PATH"),
        (&["/no/such/program"], 127, "No such file or directory"),
        (&["--cpus", "1023", "true"], 1, "this process may run on none of the processors [1023]"),
    ] {
        let output = Command::new(BATON).args(["rt", "run"]).args(words).output().unwrap();
        assert!(error(&output).contains(sentence), "{}", error(&output));
        assert_eq!(output.status.code(), Some(code), "{words:?}");
    }
}

#[test]
fn a_program_whose_memory_cannot_be_locked_does_not_run() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    let limited = format!("ulimit -l 16; exec {BATON} rt run --lock-memory -- echo runs");
    // The build directory may be accessible to its owner only.
    let Ok(output) = command.args(["sh", "-c", &limited]).output() else { return };
    assert!(output.stdout.is_empty() && !output.status.success(), "{output:?}");
}

fn bound_us() -> i32 {
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/cpu_dma_latency").unwrap().read_exact(&mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

#[test]
fn the_bound_on_wake_up_times_ends_with_the_program() {
    let Ok(device) = std::fs::File::options().write(true).open("/dev/cpu_dma_latency") else {
        println!("not tested: /dev/cpu_dma_latency is not for this user");
        return;
    };
    // The machine has one bound, so no other part of this test reads it meanwhile.
    device.lock().unwrap();
    let machine = Machine::new();
    let before = bound_us();
    let program = machine.start(&["--latency", "17", "--frequency", "max"]);
    let [guardian] = machine.guardians()[..] else { panic!() };
    assert_eq!(bound_us(), before.min(17));
    program.kill();
    end_of(guardian, None);
    assert_eq!(bound_us(), before);
}

#[test]
fn a_guardian_is_no_child_of_its_program() {
    let machine = Machine::new();
    let program = machine.start(&["--frequency", "max"]);
    let path = format!("/proc/{0}/task/{0}/children", program.0.id());
    assert_eq!(std::fs::read_to_string(Path::new(&path)).unwrap_or_default(), "");
    let [guardian] = machine.guardians()[..] else { panic!() };
    program.kill();
    end_of(guardian, None);
}

#[test]
fn a_dropped_guard_restores_every_setting() {
    let machine = Machine::new();
    let paths =
        Paths { sysfs: machine.path("sys"), state: machine.path("state"), ..Paths::default() };
    let cpu = rustix::thread::sched_getcpu();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let asked = Options::new().paths(paths).guardian(BATON.into()).cpus(vec![cpu]);
    let guard = asked.clone().frequency(Frequency::Max).hold().unwrap();
    let again = asked.clone().frequency(Frequency::Max).hold().unwrap();
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), 1);
    let other = asked.clone().frequency(Frequency::Khz(400_000)).hold();
    assert!(matches!(other, Err(Error::Held { holders, .. }) if holders.len() == 2));
    let guardians = machine.guardians();
    drop(again);
    end_of(guardians[1], None);
    assert_eq!(machine.settings(), AT_MAX);
    drop(guard);
    assert_eq!(machine.settings(), FREE);
    end_of(guardians[0], None);
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), all);
}
