//! A broker, an honest server and an honest client in a directory of their own, and probes of them
//! during an attack.

use crate::child::{Child, ChildOptions, NoAnswer};
use crate::honest::Amount;
use crate::scale::Run;
use crate::verdict::Findings;
use crate::vitals::{Vitals, Watched};
use crate::{broker, budget};
use baton_driver::observer::Observer;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Numbers of the honest client's plain calls and calls with objects in one probe.
const PLAIN_CALLS: Amount = Amount::of(200);
const OBJECT_CALLS: Amount = Amount::of(10);

/// Options for starting the honest processes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The broker's RLIMIT_NOFILE.
    pub broker_descriptors: u64,
    /// The server's RLIMIT_NOFILE.
    pub server_descriptors: u64,
    /// Whether the broker has only the capabilities of the packaged unit.
    pub packaged: bool,
    /// Limit of the growth of the server's memory.
    pub server_growth_bytes: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            broker_descriptors: 16_384,
            server_descriptors: 8_192,
            packaged: true,
            server_growth_bytes: budget::SERVER_GROWTH_BYTES,
        }
    }
}

/// Equal processes of an attack.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Name of the attack.
    pub attack: &'static str,
    /// User of the processes; `None` for this process's own.
    pub user: Option<u32>,
    /// Number of processes.
    pub processes: usize,
}

/// The reason for which a new client did not call.
#[derive(Debug)]
pub enum Refusal {
    /// The client sends nothing.
    Hangs,
    /// The client reports an error.
    Says(String),
}

/// Samples of the processes at the beginning.
struct Start {
    broker: Vitals,
    server: Vitals,
    /// The broker's id of the server.
    server_id: Option<u64>,
}

pub struct Stage {
    pub directory: TempDir,
    pub setting: Setting,
    pub broker: Child,
    pub server: Child,
    pub client: Child,
    pub findings: Findings,
    pub patience: Duration,
    run: Run,
    start: Start,
    attackers: Vec<Child>,
    /// Number of attackers that were waited for.
    awaited: usize,
    /// A client that hangs is not asked again.
    client_hangs: bool,
    newcomers_hang: bool,
    watched: Option<[Watched; 2]>,
    broker_since: Instant,
}

/// Pause between two checks.
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

impl Stage {
    /// Starts broker, server and client. Errors are the system's, or say that the three do not
    /// reach each other.
    pub fn start_processes(run: &Run, setting: Setting) -> io::Result<Stage> {
        let directory = tempfile::Builder::new().prefix("baton-hostile-").tempdir()?;
        // Attackers of other users have to reach the socket, and must not write to the directory.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
        let patience = run.patience;
        let start = |role: &str, descriptors: u64, more: &[&str]| -> io::Result<Child> {
            let socket = directory.path().join("broker.sock");
            let mut words = vec!["--socket".to_owned(), socket.display().to_string()];
            words.extend(["--descriptors".to_owned(), descriptors.to_string()]);
            words.push(role.to_owned());
            words.extend(more.iter().map(|&word| word.to_owned()));
            let log = directory.path().join(format!("{role}.log"));
            let mut child = Child::start(&ChildOptions { words, user: None, log })?;
            let failed = |no_answer: NoAnswer| io::Error::other(format!("the {role} {no_answer}"));
            child.await_line("ready", patience).map_err(failed)?;
            Ok(child)
        };
        let packaged: &[&str] = if setting.packaged { &["--packaged"] } else { &[] };
        let broker = start("broker", setting.broker_descriptors, packaged)?;
        let server = start("server", setting.server_descriptors, &[])?;
        let client = start("client", 1024, &[])?;
        let (broker_now, server_now) = Default::default();
        let mut stage = Stage {
            setting,
            broker,
            server,
            client,
            findings: Findings::default(),
            patience,
            run: *run,
            start: Start { broker: broker_now, server: server_now, server_id: None },
            attackers: Vec::new(),
            awaited: 0,
            client_hangs: false,
            newcomers_hang: false,
            watched: None,
            broker_since: Instant::now(),
            directory,
        };
        // Warms up, so that one-time allocations precede the first sample.
        for _ in 0..2 {
            stage.probe("before the attack");
        }
        if let Some(harm) = stage.findings.harms.first() {
            return Err(io::Error::other(harm.clone()));
        }
        stage.begin();
        Ok(stage)
    }

    /// Takes the samples with which later ones are compared.
    pub fn begin(&mut self) {
        self.await_release();
        self.start = Start {
            broker: Vitals::of(self.broker.pid()),
            server: Vitals::of(self.server.pid()),
            server_id: self.server_id(),
        };
        self.watched = Some([&self.broker, &self.server].map(|child| Watched::start(child.pid())));
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("broker.sock")
    }

    fn log(&self, name: &str) -> String {
        let path = self.directory.path().join(format!("{name}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn options(&self, words: &[&str], user: Option<u32>, log: &str) -> ChildOptions {
        let socket = self.socket().display().to_string();
        let mut all = vec!["--socket".to_owned(), socket];
        all.extend(words.iter().map(|&word| word.to_owned()));
        ChildOptions { words: all, user, log: self.directory.path().join(format!("{log}.log")) }
    }

    /// Ends the broker by SIGKILL and starts the next one at its socket.
    pub fn restart_broker(&mut self) -> io::Result<()> {
        self.broker.kill();
        let descriptors = self.setting.broker_descriptors.to_string();
        let mut words = vec!["--descriptors", &descriptors, "broker"];
        if self.setting.packaged {
            words.push("--packaged");
        }
        self.broker = Child::start(&self.options(&words, None, "broker"))?;
        let failed = |no_answer: NoAnswer| io::Error::other(format!("the next broker {no_answer}"));
        self.broker.await_line("ready", self.patience).map_err(failed)?;
        self.broker_since = Instant::now();
        // The new process is compared with its own beginning.
        self.begin();
        Ok(())
    }

    /// Waits until a restarted broker no longer lets engines rejoin.
    pub fn wait_for_end_of_rejoining(&mut self) {
        while Instant::now() < self.broker_since + broker::GRACE && self.broker.lives() {
            self.ask_client("plain", Amount::of(10), "in the time for coming back");
            pause();
        }
    }

    /// Starts attackers and waits until they are prepared.
    pub fn prepare(&mut self, groups: &[Group]) -> io::Result<()> {
        let first = self.attackers.len();
        for group in groups {
            for number in 0..group.processes {
                let number = number.to_string();
                let scale = self.run.scale.name();
                let words = ["attacker", group.attack, "--scale", scale, "--number", &number];
                let options = self.options(&words, group.user, "attackers");
                self.attackers.push(Child::start(&options)?);
            }
        }
        for child in &mut self.attackers[first..] {
            if let Err(no_answer) = child.await_line("ready", self.patience) {
                let why = child.has_said("failed").unwrap_or_default();
                return Err(io::Error::other(format!("an attacker {no_answer}: {why}")));
            }
        }
        Ok(())
    }

    /// Lets the attackers begin.
    pub fn go(&mut self) {
        self.attackers.iter_mut().for_each(|child| child.send_line("go"));
    }

    /// Lets the attackers begin, and sends them a number.
    pub fn go_with(&mut self, number: usize) {
        self.attackers.iter_mut().for_each(|child| child.send_line(&format!("go {number}")));
    }

    /// Probes the honest processes until the attackers have all that they want, at least for
    /// `at_least`.
    pub fn probe_during(&mut self, at_least: Duration) {
        self.probe_for(at_least, self.patience.max(at_least));
    }

    /// Probes the honest processes for at least and at most these times.
    pub fn probe_for(&mut self, at_least: Duration, at_most: Duration) {
        let begin = Instant::now();
        let late = begin + at_most;
        let mut waiting: Vec<usize> = (self.awaited..self.attackers.len()).collect();
        loop {
            let mut held = Vec::new();
            waiting.retain(|&at| {
                let child = &mut self.attackers[at];
                let what = child.has_said("holding").or_else(|| child.has_said("failed"));
                let is_over = what.is_some() || !child.lives();
                held.extend(what);
                !is_over
            });
            self.record_reports(&held);
            self.probe("during the attack");
            let now = Instant::now();
            if waiting.is_empty() && now >= begin + at_least {
                return;
            }
            if now >= late {
                return self.findings.note("some attackers did not get what they wanted in time");
            }
        }
    }

    /// Waits without probes until the attackers have all that they want. Returns their reports.
    pub fn await_attackers(&mut self) -> Vec<String> {
        let patience = self.patience;
        let mut held = Vec::new();
        for child in &mut self.attackers[self.awaited..] {
            let what = child.await_line("holding", patience);
            let failed = |no_answer: NoAnswer| {
                child.has_said("failed").unwrap_or_else(|| format!("it {no_answer}"))
            };
            held.push(what.unwrap_or_else(failed));
        }
        self.awaited = self.attackers.len();
        self.record_reports(&held);
        held
    }

    fn record_reports(&mut self, held: &[String]) {
        for what in held.iter().filter(|what| !what.is_empty()) {
            if self.findings.notes.len() < 4 {
                self.findings.note(format!("an attacker: {what}"));
            }
        }
    }

    /// Number of the attackers' requests that were served so far.
    pub fn served(&mut self) -> u64 {
        self.attackers.iter_mut().for_each(|child| child.send_line("count"));
        let patience = self.patience;
        let of = |child: &mut Child| child.await_line("count", patience).ok()?.parse::<u64>().ok();
        self.attackers.iter_mut().filter_map(of).sum()
    }

    /// Ends the attackers.
    pub fn dismiss(&mut self) {
        self.attackers.iter_mut().for_each(|child| child.send_line("leave"));
        self.awaited = 0;
        for mut child in self.attackers.drain(..) {
            let end = child.leave();
            while let Some(what) = child.has_said("harm") {
                self.findings.harm(what);
            }
            if end != "with status 0" && self.findings.notes.len() < 8 {
                self.findings.note(format!("an attacker ended {end}"));
            }
        }
    }

    /// The attackers, in the order in which they were prepared.
    pub fn attackers(&mut self) -> &mut [Child] {
        &mut self.attackers
    }

    /// Probes once: by the honest client and by a new one.
    pub fn probe(&mut self, when: &str) {
        self.ask_client("plain", PLAIN_CALLS, when);
        self.ask_client("object", OBJECT_CALLS, when);
        self.ask_client("lent", OBJECT_CALLS, when);
        self.ask_newcomer(when);
    }

    /// Lets the client make calls. Returns their times in nanoseconds.
    pub fn ask_client(&mut self, kind: &str, amount: Amount, when: &str) -> Vec<u64> {
        if self.client_hangs {
            return Vec::new();
        }
        self.client.send_line(&format!("{kind} {amount}"));
        match self.client.await_line("called", self.patience) {
            Ok(times) => times.split(' ').filter_map(|time| time.parse().ok()).collect(),
            Err(no_answer) => {
                self.client_hangs = true;
                let why = self.client.has_said("refused");
                self.client_hangs = why.is_none();
                let why = why.unwrap_or_else(|| format!("the process {no_answer}"));
                self.findings.harm(format!("{when}, the client in {kind} calls: {why}"));
                Vec::new()
            }
        }
    }

    /// Lets a new client open the device, look up handle 0 and call. Returns the time from open to
    /// the first reply, in nanoseconds.
    pub fn ask_newcomer(&mut self, when: &str) -> Option<u64> {
        if self.newcomers_hang {
            return None;
        }
        let called = self.try_newcomer();
        let why = match called {
            Ok(time_ns) => return Some(time_ns),
            Err(Refusal::Hangs) => "the process hangs".to_owned(),
            Err(Refusal::Says(why)) => why,
        };
        self.findings.harm(format!("{when}, a new client: {why}"));
        None
    }

    /// Lets a new client open the device and call. A refusal is not recorded as a harm.
    pub fn try_newcomer(&mut self) -> Result<u64, Refusal> {
        let options = self.options(&["newcomer"], None, "newcomer");
        let says = |why: &dyn std::fmt::Display| Refusal::Says(why.to_string());
        let mut child = Child::start(&options).map_err(|error| says(&error))?;
        match child.await_line("called", self.patience) {
            Ok(time) => time.parse().map_err(|error| says(&error)),
            Err(no_answer) => match (child.has_said("refused"), no_answer) {
                (Some(why), _) => Err(Refusal::Says(why)),
                (None, NoAnswer::Hangs) => {
                    self.newcomers_hang = true;
                    Err(Refusal::Hangs)
                }
                (None, ended) => Err(Refusal::Says(format!("the process {ended}"))),
            },
        }
    }

    /// The broker's id of the server, if its report contains it.
    fn server_id(&self) -> Option<u64> {
        let report = Observer::connect(&self.socket()).ok()?.report().ok()?;
        let mut all = report.contexts.iter().flat_map(|context| &context.processes);
        all.find(|process| process.pid == self.server.pid()).map(|process| process.process)
    }

    /// Waits until the broker and the server have released the resources of processes that are
    /// gone, or until patience ends.
    pub fn await_release(&mut self) {
        let late = Instant::now() + self.patience;
        let look = |stage: &Stage| {
            [stage.broker.pid(), stage.server.pid()].map(|pid| Vitals::of(pid).descriptors)
        };
        let start = [self.start.broker.descriptors, self.start.server.descriptors];
        let mut before = [0; 2];
        loop {
            let now = look(self);
            let is_back = if start == [0; 2] { now == before } else { now == start };
            let is_back = is_back
                && self.remainders().iter().all(|(_, bytes)| *bytes <= budget::REMAINDER_BYTES);
            if is_back || Instant::now() >= late {
                return;
            }
            before = now;
            self.ask_client("plain", Amount::of(1), "at rest");
            pause();
        }
    }

    /// Ends the attack: probes again, and compares resources with the limits and with the
    /// beginning.
    pub fn finish(mut self) -> Findings {
        self.dismiss();
        self.client_hangs &= !self.client.lives() || self.client.has_said("called").is_none();
        self.newcomers_hang = false;
        self.await_release();
        self.probe("after the attack");
        let peaks = self.watched.take().map(|watched| watched.map(Watched::stop));
        self.await_release();
        if let Some([broker, server]) = peaks {
            self.judge_peaks(broker, server);
        }
        self.judge_rest();
        self.judge_survival();
        self.findings
    }

    fn judge_peaks(&mut self, broker: Vitals, server: Vitals) {
        let setting = self.setting;
        let grown =
            |most: Vitals, start: Vitals| most.resident_bytes.saturating_sub(start.resident_bytes);
        let (of_broker, of_server) =
            (grown(broker, self.start.broker), grown(server, self.start.server));
        self.findings.note(format!(
            "broker: {} MiB more, {} descriptors of {}; server: {} MiB more, {} descriptors",
            of_broker >> 20,
            broker.descriptors,
            setting.broker_descriptors,
            of_server >> 20,
            server.descriptors,
        ));
        for (whose, bytes, most) in [
            ("broker", of_broker, budget::BROKER_GROWTH_BYTES),
            ("server", of_server, setting.server_growth_bytes),
        ] {
            let (bytes, most) = (bytes >> 20, most >> 20);
            let harm = format!("the {whose} has grown by {bytes} MiB, and may by {most}");
            self.findings.expect(bytes <= most, harm);
        }
        let most = setting.broker_descriptors - budget::RESERVED_DESCRIPTORS;
        let harm =
            format!("the broker has had {} descriptors, and may have {most}", broker.descriptors);
        self.findings.expect(broker.descriptors <= most, harm);
    }

    /// Growth of the broker's and the server's memory since the beginning.
    fn remainders(&self) -> [(&'static str, u64); 2] {
        let start = &self.start;
        let more =
            |pid, start: Vitals| Vitals::of(pid).private_bytes.saturating_sub(start.private_bytes);
        let (broker, server) = (self.broker.pid(), self.server.pid());
        [("broker", more(broker, start.broker)), ("server", more(server, start.server))]
    }

    fn judge_rest(&mut self) {
        for (whose, pid, start) in [
            ("broker", self.broker.pid(), self.start.broker),
            ("server", self.server.pid(), self.start.server),
        ] {
            let now = Vitals::of(pid);
            let (before, after) = (start.descriptors, now.descriptors);
            let harm = format!("the {whose} had {before} descriptors before and has {after} after");
            self.findings.expect(before == after, harm);
        }
        for (whose, bytes) in self.remainders() {
            let (remain, may) = (bytes >> 20, budget::REMAINDER_BYTES >> 20);
            let harm = format!("of the {whose}'s memory {remain} MiB remain, and {may} may");
            self.findings.expect(bytes <= budget::REMAINDER_BYTES, harm);
        }
    }

    fn judge_survival(&mut self) {
        for (who, child) in [
            ("broker", &mut self.broker),
            ("server", &mut self.server),
            ("client", &mut self.client),
        ] {
            self.findings.expect(child.lives(), format!("the {who}'s process has ended"));
        }
        let is_told = self.client.has_said("server-died").is_some();
        self.findings.expect(!is_told, "the client was told that the server is dead");
        if let (Some(before), now) = (self.start.server_id, self.server_id()) {
            let harm = "the broker no longer knows the server as the process that it was";
            self.findings.expect(now == Some(before), harm);
        }
        let log = self.log("broker");
        let honest = [self.server.pid(), self.client.pid()].map(|pid| format!("pid={pid} "));
        for line in log.lines() {
            let of_honest = honest.iter().any(|pid| line.contains(pid));
            if line.contains("panicked") || (of_honest && line.contains("closed a connection")) {
                self.findings.harm(format!("the broker's log: {line}"));
            }
        }
        // The logs may contain the reason.
        for line in log.lines().filter(|line| line.contains("WARN")).take(3) {
            self.findings.note(format!("the broker's log: {}", line.trim_start()));
        }
        for who in ["server", "client", "newcomer"] {
            if let Some(line) = self.log(who).lines().find(|line| line.contains("panicked")) {
                self.findings.harm(format!("the {who}'s standard error: {line}"));
            }
        }
    }
}
