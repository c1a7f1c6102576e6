//! `baton ps --calls`: who calls whom, since when, and what the target does about it.
//!
//! Each process describes the calls that its threads wait for, and those that they serve. Both ends
//! of a call name its channel and lane.

use super::methods::Methods;
use super::services::Services;
use super::table::table;
use crate::failure::Failure;
use crate::program::name_of;
use crate::stdout::{show, show_json};
use baton::SchedPriority;
use baton_abi::control::{CallReport, End, ProcessReport, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for all processes to describe their calls. One that is stopped does not.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// Prints the calls, the oldest first.
pub fn show_calls(
    report: &Report,
    services: &Services,
    methods: &Methods,
    as_json: bool,
) -> Result<(), Failure> {
    let shown = Shown::of(report, services, methods);
    if as_json {
        return show_json(&shown);
    }
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(shown.calls.iter().map(Call::row));
    let mut text = table(&rows, &[1, 2, 3, 4, 5, 7]);
    if shown.calls.is_empty() {
        text = "No call is under way.\n".to_owned();
    }
    for pid in &shown.silent {
        text.push_str(&format!(
            "pid {pid} ({}) has not described its calls: it is stopped, or very busy\n",
            name_of(*pid)
        ));
    }
    show(&text)
}

const HEADER: [&str; 8] =
    ["AGE", "CALLER", "PRIORITY", "SERVICE", "TARGET", "METHOD", "BYTES", "STATE"];

#[derive(Serialize)]
struct Shown<'a> {
    calls: Vec<Call<'a>>,
    /// Processes that have not described their calls.
    silent: Vec<u32>,
}

/// One call. What is not known is null.
#[derive(Serialize)]
struct Call<'a> {
    context: &'a str,
    age_us: Option<u64>,
    caller: Option<Thread>,
    /// The caller's, where the system tells.
    priority: Option<String>,
    service: Option<&'a str>,
    node: Option<u64>,
    target: Option<Process>,
    code: Option<u32>,
    /// The method's name, if its AIDL is known.
    method: Option<&'a str>,
    data_bytes: Option<u32>,
    state: State,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    program: String,
}

/// A thread, by its number in its process's PID namespace.
#[derive(Serialize)]
struct Thread {
    #[serde(flatten)]
    process: Process,
    tid: u32,
}

/// What the target does with the call.
#[derive(Serialize, PartialEq, Eq, Debug)]
#[serde(tag = "is", rename_all = "snake_case")]
enum State {
    /// A thread of it serves the call.
    Served { tid: u32 },
    /// No thread of it has taken the call.
    Waits { serving: usize, loopers: u32 },
    /// It has not told.
    Unknown,
}

/// A call at one end, with that end's process.
type AtEnd<'a> = (&'a ProcessReport, &'a CallReport);

impl<'a> Shown<'a> {
    fn of(report: &'a Report, services: &'a Services, methods: &'a Methods) -> Shown<'a> {
        let names = (services, methods);
        let mut shown = Shown { calls: Vec::new(), silent: Vec::new() };
        for context in &report.contexts {
            let processes: BTreeMap<u64, &ProcessReport> =
                context.processes.iter().map(|process| (process.process, process)).collect();
            let at = |end| {
                let ends = context.processes.iter().flat_map(|process| {
                    process.calls.iter().flatten().map(move |call| (process, call))
                });
                ends.filter(move |(_, call)| call.end == end)
            };
            let mut served: Vec<AtEnd<'_>> = at(End::Server).collect();
            for (caller, call) in at(End::Client) {
                let is_it = |(target, service): &AtEnd<'_>| {
                    target.process == call.peer
                        && service.peer == caller.process
                        && (service.channel, service.lane) == (call.channel, call.lane)
                };
                let service = served.iter().position(is_it).map(|at| served.remove(at).1);
                let target = processes.get(&call.peer).copied();
                let call = Call::of(names, (target, Some(caller)), (service, Some(call)));
                shown.calls.push(Call { context: &context.name, ..call });
            }
            // Their callers are other users', or have not told.
            for (target, service) in served {
                let caller = processes.get(&service.peer).copied();
                let call = Call::of(names, (Some(target), caller), (Some(service), None));
                shown.calls.push(Call { context: &context.name, ..call });
            }
            let silent = context.processes.iter().filter(|process| process.calls.is_none());
            shown.silent.extend(silent.map(|process| process.pid));
        }
        shown.calls.sort_by_key(|call| std::cmp::Reverse(call.age_us));
        shown
    }
}

impl<'a> Call<'a> {
    /// The call by its reports at both ends, of which there is one at least.
    fn of(
        (services, methods): (&'a Services, &'a Methods),
        (target, caller): (Option<&ProcessReport>, Option<&ProcessReport>),
        (service, call): (Option<&CallReport>, Option<&CallReport>),
    ) -> Call<'a> {
        let request = [call, service].into_iter().flatten().find_map(|end| end.request.as_ref());
        let process = |of: &ProcessReport| Process { pid: of.pid, program: name_of(of.pid) };
        let owner = call.map(|call| call.peer).or(target.map(|target| target.process));
        let state = match (service, target.and_then(|target| target.calls.as_ref())) {
            (Some(service), _) => State::Served { tid: service.tid },
            (None, None) => State::Unknown,
            (None, Some(all)) => State::Waits {
                serving: all.iter().filter(|call| call.end == End::Server).count(),
                loopers: target.map_or(0, |target| target.engine.loopers),
            },
        };
        let thread = caller.zip(call);
        Call {
            context: "",
            age_us: request.map(|request| request.age_us),
            priority: thread.and_then(|(caller, call)| priority(caller.pid, call.tid)),
            caller: caller.map(|caller| Thread {
                process: process(caller),
                tid: call.map_or(0, |it| it.tid),
            }),
            service: owner.zip(request).and_then(|(owner, it)| services.name(owner, it.node)),
            node: request.map(|request| request.node),
            target: target.map(process),
            code: request.map(|request| request.code),
            method: owner
                .zip(request)
                .and_then(|(owner, it)| methods.name(owner, it.node, it.code)),
            data_bytes: request.map(|request| request.data_bytes),
            state,
        }
    }

    fn row(&self) -> [String; 8] {
        let unknown = || "?".to_owned();
        let name = |process: &Process| format!("{} {}", process.pid, process.program);
        let node = self.node.map_or_else(unknown, |node| format!("node {node}"));
        [
            self.age_us.map_or_else(unknown, age),
            self.caller
                .as_ref()
                .map_or_else(unknown, |it| format!("{} thread {}", name(&it.process), it.tid)),
            self.priority.clone().unwrap_or_else(unknown),
            self.service.map_or(node, str::to_owned),
            self.target.as_ref().map_or_else(unknown, name),
            match self.method {
                Some(name) => name.to_owned(),
                None => self.code.map_or_else(unknown, code),
            },
            self.data_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
            match &self.state {
                State::Served { tid } => format!("thread {tid} serves it"),
                State::Waits { serving, loopers } => {
                    format!("waits: {serving} of {loopers} loopers serve")
                }
                State::Unknown => unknown(),
            },
        ]
    }
}

/// A duration with three digits that tell something.
fn age(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// A method's number. Codes that are letters are shown as such.
fn code(code: u32) -> String {
    let letters = code.to_be_bytes();
    match letters[0] {
        b'_' if letters.iter().all(u8::is_ascii_graphic) => {
            letters.map(char::from).iter().collect()
        }
        _ => code.to_string(),
    }
}

/// The scheduling priority of a thread. Source: proc_pid_stat(5), counted behind the name.
fn priority(pid: u32, tid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i32>().ok();
    let (nice, rt_priority, policy) = (field(19)?, field(40)?, field(41)?);
    let real_time = SchedPriority::of_real_time(policy, rt_priority);
    Some(real_time.unwrap_or_else(|| SchedPriority::nice(nice)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{ContextReport, EngineReport, RequestReport};

    fn call(end: End, tid: u32, peer: u64, lane: u32, code: u32) -> CallReport {
        let request = Some(RequestReport {
            node: 5,
            code,
            flags: 0,
            data_bytes: 12,
            offsets_bytes: 0,
            nice: 0,
            age_us: 1_500_000,
        });
        CallReport { end, tid, peer, channel: 9, lane, request }
    }

    fn process(process: u64, calls: Option<Vec<CallReport>>) -> ProcessReport {
        let engine = EngineReport { loopers: 1, ..EngineReport::default() };
        let pid = u32::MAX - process as u32;
        ProcessReport { process, pid, calls, engine, ..ProcessReport::default() }
    }

    #[test]
    fn both_ends_of_a_call_are_one_row() {
        let hung = call(End::Client, 20, 1, 3, 7);
        let waits = CallReport { request: None, ..call(End::Client, 21, 1, 4, 8) };
        let served = call(End::Server, 10, 2, 3, 7);
        let of_a_stranger = call(End::Server, 11, 99, 0, u32::from_be_bytes(*b"_PNG"));
        let to_a_silent = call(End::Client, 22, 3, 0, 1);
        let processes = vec![
            process(1, Some(vec![served, of_a_stranger])),
            process(2, Some(vec![hung, waits, to_a_silent])),
            process(3, None),
        ];
        let context = ContextReport { name: "c".to_owned(), manager: None, processes };
        let services = Services::named(&[(1, 5, "echo")]);
        let report = Report { contexts: vec![context] };
        let methods = Methods::default();
        let shown = Shown::of(&report, &services, &methods);
        let rows: Vec<_> = shown.calls.iter().map(Call::row).collect();
        let columns = |of: &[usize]| -> Vec<String> {
            let line = |row: &[String; 8]| {
                let columns: Vec<_> = of.iter().map(|at| row[*at].clone()).collect();
                columns.join("|")
            };
            rows.iter().map(line).collect()
        };
        assert_eq!(
            columns(&[0, 3, 5, 7]),
            [
                "1.5 s|echo|7|thread 10 serves it",
                "1.5 s|node 5|1|?",
                "1.5 s|echo|_PNG|thread 11 serves it",
                "?|?|?|waits: 2 of 1 loopers serve",
            ]
        );
        assert_eq!(columns(&[1])[2], "?", "the caller is another user's");
        assert_eq!(shown.silent, [u32::MAX - 3]);
    }

    #[test]
    fn ages_and_codes() {
        for (us, text) in [(0, "0 us"), (999, "999 us"), (1_500, "1.5 ms"), (8_040_000, "8.0 s")] {
            assert_eq!(age(us), text);
        }
        assert_eq!(code(7), "7");
        assert_eq!(code(u32::from_be_bytes(*b"_NTF")), "_NTF");
        assert_eq!(code(0x5f00_0001), "1593835521");
    }
}
