//! `baton ps`: the broker's state, and the figures that engines publish about themselves.
//!
//! - [`calls`]: the calls under way. [`methods`]: their methods. [`services`]: the names of nodes.
//! - [`table`]: what is printed.

mod calls;
mod methods;
mod services;
pub mod table;

use crate::am::process::adjustments;
use crate::failure::Failure;
use crate::observer;
use crate::program::name_of;
use crate::stdout::{show, show_json};
use baton_abi::control::{Account, EngineReport, LaneReport, ProcessReport, Report, Share};
use baton_services::process::class::Adjustment;
use baton_services::process::protocol;
use clap::Args;
use methods::Methods;
use serde::Serialize;
use services::Services;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use table::table;

/// Options of `baton ps`.
#[derive(Args)]
#[command(after_help = "\
Columns: NODES are objects of the process that others hold, HANDLES its references to objects of \
the other processes shown, CHANNELS its shared memories with other processes as server + client, \
LANES its threads' slots in them, LOOPERS the threads that serve, BUFFER the used part of the \
receive buffer and the transactions in it, CALLS those received so far and those not yet answered, \
SERVICES the names by which the service manager knows its nodes. \
STATE: manager (the context manager), frozen, and the class of a process that `baton am serve` has \
started. Shown are the processes of your own user, and all to \
root and the broker's user. The columns from LANES on are what the process says of itself; so are \
NODES and HANDLES of objects that their owner has handed out itself.

--calls shows the two-way calls under way, the oldest first: the thread that waits and its \
scheduling priority, the service, its process, the method (by name, if its AIDL is known), and \
what the process does: a \
thread serves the call, or it waits for one. AGE is the time since the request was sent. A nested \
call hides the age of the one around it (?).

--json: names are as in the columns, nodes and handles by service, owner and number.")]
pub struct PsArgs {
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
    /// Every node and handle, too
    #[arg(short, long)]
    verbose: bool,
    /// Show the calls under way: who calls whom, since when
    #[arg(long, conflicts_with_all = ["verbose", "accounts"])]
    calls: bool,
    /// With --calls: AIDL files, or directories with AIDL files, for the names of methods; may be
    /// given again
    #[arg(long, value_name = "PATH", requires = "calls")]
    aidl: Vec<PathBuf>,
    /// Show each user's part of the shared amounts, and what it may still take; docs/limits.md
    #[arg(long, conflicts_with = "verbose")]
    accounts: bool,
}

/// Prints the report.
pub fn ps(args: &PsArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "show the processes";
    let observer = observer::connect(socket, tried)?;
    let refused = |errno| Failure::refused(tried, errno);
    if args.accounts {
        let accounts = observer.accounts().map_err(refused)?;
        return match args.json {
            true => show_json(&accounts),
            false => show(&shares(&accounts)),
        };
    }
    if args.calls {
        let report = observer.described_report(calls::PATIENCE).map_err(refused)?;
        let services = Services::of(&report, socket);
        let methods = Methods::of(&report, &services, &args.aidl)?;
        return calls::show_calls(&report, &services, &methods, args.json);
    }
    let report = observer.report().map_err(refused)?;
    let services = Services::of(&report, socket);
    let classes = services.of_name(protocol::NAME).flat_map(adjustments).collect();
    let shown = Shown::of(&report, &services, &classes);
    if args.json {
        return show_json(&shown);
    }
    let mut rows = vec![HEADER.map(str::to_owned)];
    for context in &shown.contexts {
        rows.extend(context.processes.iter().map(|process| row(context, process)));
    }
    let mut text = table(&rows, &WORDS);
    for process in shown.contexts.iter().flat_map(|context| &context.processes) {
        for lane in process.real_time {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", real_time(process.pid, lane));
        }
    }
    if args.verbose {
        for context in &shown.contexts {
            describe(&mut text, context);
        }
    }
    show(&text)
}

/// A report as it is shown: a holding stands with the owner and with the holder.
#[derive(Serialize)]
struct Shown<'a> {
    contexts: Vec<ShownContext<'a>>,
}

#[derive(Serialize)]
struct ShownContext<'a> {
    name: &'a str,
    manager: Option<u64>,
    processes: Vec<ShownProcess<'a>>,
}

#[derive(Serialize)]
struct ShownProcess<'a> {
    process: u64,
    pid: u32,
    uid: u32,
    frozen: bool,
    /// Its importance to the process manager, if that has started it.
    adjustment: Option<Adjustment>,
    /// Names of services of the process.
    services: Vec<&'a str>,
    nodes: Vec<ShownNode<'a>>,
    handles: Vec<ShownHandle<'a>>,
    channels: Vec<ShownChannel>,
    real_time: &'a [LaneReport],
    engine: &'a EngineReport,
}

/// A node that others hold.
#[derive(Serialize)]
struct ShownNode<'a> {
    node: u64,
    service: Option<&'a str>,
    /// Processes that hold it strongly.
    strong: u32,
    /// Processes that hold it weakly only.
    weak: u32,
}

/// A node of another process that the process holds.
#[derive(Serialize)]
struct ShownHandle<'a> {
    owner: u64,
    node: u64,
    service: Option<&'a str>,
    strong: bool,
}

/// A channel with another process.
#[derive(Serialize)]
struct ShownChannel {
    channel: u64,
    peer: u64,
    is_server: bool,
}

impl<'a> Shown<'a> {
    fn of(
        report: &'a Report,
        services: &'a Services,
        classes: &BTreeMap<u32, Adjustment>,
    ) -> Shown<'a> {
        let mut held: BTreeMap<u64, Vec<(u64, u64, bool)>> = BTreeMap::new();
        for owner in report.contexts.iter().flat_map(|context| &context.processes) {
            for &(node, holder, strong) in &owner.holdings {
                held.entry(holder).or_default().push((owner.process, node, strong));
            }
        }
        let mut process = |shown: &'a ProcessReport| {
            let adjustment = classes.get(&shown.pid).copied();
            ShownProcess { adjustment, ..ShownProcess::of(shown, services, &mut held) }
        };
        let contexts = report.contexts.iter().map(|context| ShownContext {
            name: &context.name,
            manager: context.manager,
            processes: context.processes.iter().map(&mut process).collect(),
        });
        Shown { contexts: contexts.collect() }
    }
}

impl<'a> ShownProcess<'a> {
    /// Takes what the process holds out of `held`, which has that of all processes.
    fn of(
        report: &'a ProcessReport,
        services: &'a Services,
        held: &mut BTreeMap<u64, Vec<(u64, u64, bool)>>,
    ) -> ShownProcess<'a> {
        let owner = report.process;
        let mut nodes: Vec<ShownNode<'_>> = Vec::new();
        for &(node, _, is_strong) in &report.holdings {
            if nodes.last().is_none_or(|last| last.node != node) {
                let service = services.name(owner, node);
                nodes.push(ShownNode { node, service, strong: 0, weak: 0 });
            }
            let last = nodes.last_mut().expect("just added");
            *(if is_strong { &mut last.strong } else { &mut last.weak }) += 1;
        }
        let handles = held.remove(&owner).unwrap_or_default().into_iter();
        let handle = |(owner, node, strong)| {
            let service = services.name(owner, node);
            ShownHandle { owner, node, service, strong }
        };
        let channel = |&(channel, peer, is_server)| ShownChannel { channel, peer, is_server };
        ShownProcess {
            process: report.process,
            pid: report.pid,
            uid: report.uid,
            frozen: report.frozen,
            adjustment: None,
            services: services.of_process(owner).collect(),
            nodes,
            handles: handles.map(handle).collect(),
            channels: report.channels.iter().map(channel).collect(),
            real_time: &report.real_time,
            engine: &report.engine,
        }
    }
}

/// The table of shares: a row for each user and amount.
fn shares(accounts: &[Account]) -> String {
    let header = ["UID", "AMOUNT", "TAKEN", "LEFT", "OF", "RESERVE"].map(str::to_owned);
    let row = |account: &Account, share: &Share| {
        [
            account.uid.to_string(),
            share.name.clone(),
            share.taken.to_string(),
            share.left.to_string(),
            share.limit.to_string(),
            if account.reserve { "yes" } else { "-" }.to_owned(),
        ]
    };
    let rows = accounts.iter().flat_map(|it| it.shares.iter().map(|share| row(it, share)));
    table(&std::iter::once(header).chain(rows).collect::<Vec<_>>(), &[1, 5])
}

/// Describes the looper of a real-time caller's lane.
fn real_time(pid: u32, lane: &LaneReport) -> String {
    let looper = match &lane.looper {
        Some(looper) if looper.promoted => format!("served by thread {} at that", looper.tid),
        Some(looper) => format!(
            "served by thread {}, NOT at that: the broker may not set priorities, and a caller by \
             the typed API lends \
             it while it waits",
            looper.tid
        ),
        None => "served by the pool".to_owned(),
    };
    let (priority, channel, number) = (lane.priority, lane.channel, lane.lane);
    format!("pid {pid}: real-time caller ({priority}) on lane {channel}.{number}, {looper}")
}

const HEADER: [&str; 14] = [
    "CONTEXT", "PID", "UID", "PROGRAM", "STATE", "NODES", "HANDLES", "CHANNELS", "LANES",
    "THREADS", "LOOPERS", "BUFFER", "CALLS", "SERVICES",
];
/// Columns of words; the others contain numbers, which end in line.
const WORDS: [usize; 4] = [0, 3, 4, 13];
/// Names of services in a row; the others are counted.
const MOST_NAMES: usize = 3;

fn row(context: &ShownContext<'_>, process: &ShownProcess<'_>) -> [String; 14] {
    let engine = process.engine;
    let manager = context.manager == Some(process.process);
    let class = process.adjustment.map(|adjustment| adjustment.class().name());
    let states = [manager.then_some("manager"), process.frozen.then_some("frozen"), class];
    let state = match states.into_iter().flatten().collect::<Vec<_>>() {
        states if states.is_empty() => "-".to_owned(),
        states => states.join(","),
    };
    let served = process.channels.iter().filter(|channel| channel.is_server).count();
    let called = process.channels.len() - served;
    let (used, all) = (engine.buffer_used_bytes, engine.buffer_bytes);
    [
        context.name.to_owned(),
        process.pid.to_string(),
        process.uid.to_string(),
        name_of(process.pid),
        state,
        process.nodes.len().to_string(),
        process.handles.len().to_string(),
        format!("{served}+{called}"),
        engine.lanes.to_string(),
        engine.threads.to_string(),
        engine.loopers.to_string(),
        format!("{}/{} ({})", size(used), size(all), engine.buffers),
        format!("{} ({})", engine.transactions, engine.outstanding),
        names(&process.services),
    ]
}

fn names(services: &[&str]) -> String {
    match services.split_at_checked(MOST_NAMES) {
        Some((first, rest)) if !rest.is_empty() => format!("{} +{}", first.join(","), rest.len()),
        _ if services.is_empty() => "-".to_owned(),
        _ => services.join(","),
    }
}

fn size(bytes: u32) -> String {
    match bytes {
        0..4096 => format!("{bytes}"),
        _ => format!("{}K", bytes.div_ceil(1024)),
    }
}

fn describe(text: &mut String, context: &ShownContext<'_>) {
    let pid = |id: u64| {
        let owner = context.processes.iter().find(|process| process.process == id);
        owner.map_or_else(|| "?".to_owned(), |process| process.pid.to_string())
    };
    for process in &context.processes {
        if process.nodes.is_empty() && process.handles.is_empty() {
            continue;
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{} pid {}:", context.name, process.pid);
        let named = |service: Option<&str>| service.map_or(String::new(), |it| format!(" ({it})"));
        for ShownNode { node, service, strong, weak } in &process.nodes {
            let name = named(*service);
            let _ =
                writeln!(text, "  node {node}{name}: held strongly by {strong}, weakly by {weak}");
        }
        for ShownHandle { owner, node, service, strong } in &process.handles {
            let strength = if *strong { "strong" } else { "weak" };
            let (owner, name) = (pid(*owner), named(*service));
            let _ = writeln!(text, "  handle: node {node}{name} of pid {owner}, {strength}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::ContextReport;

    #[test]
    fn numbers_end_in_line_and_words_begin_in_line() {
        let process = ProcessReport {
            process: 1,
            pid: u32::MAX,
            frozen: true,
            channels: vec![(1, 2, true), (2, 2, true), (3, 2, false)],
            engine: EngineReport { buffer_bytes: 1_040_384, ..EngineReport::default() },
            ..ProcessReport::default()
        };
        let (name, processes) = ("c".to_owned(), vec![process]);
        let report = Report { contexts: vec![ContextReport { name, manager: Some(1), processes }] };
        let services = Services::named(&[(1, 4, "echo")]);
        let [context] = &Shown::of(&report, &services, &BTreeMap::new()).contexts[..] else {
            panic!("one context")
        };
        let rows = [HEADER.map(str::to_owned), row(context, &context.processes[0])];
        assert_eq!(
            table(&rows, &WORDS),
            "CONTEXT         PID  UID  PROGRAM  STATE           NODES  HANDLES  CHANNELS  LANES  \
             THREADS  LOOPERS       BUFFER  CALLS  SERVICES\n\
             c        4294967295    0  ?        manager,frozen      0        0       2+1      0  \
             \x20     0        0  0/1016K (0)  0 (0)  echo\n"
        );
    }

    #[test]
    fn few_services_are_named_and_the_others_counted() {
        for (services, expected) in [
            (&[][..], "-"),
            (&["a"], "a"),
            (&["a", "b", "c"], "a,b,c"),
            (&["a", "b", "c", "d", "e"], "a,b,c +2"),
        ] {
            assert_eq!(names(services), expected);
        }
    }

    #[test]
    fn holders_stand_with_their_owners_and_owners_with_their_holders() {
        let process = |process, pid, holdings: &[(u64, u64, bool)]| ProcessReport {
            process,
            pid,
            holdings: holdings.to_vec(),
            ..ProcessReport::default()
        };
        let one = process(1, 10, &[(4, 2, true), (4, 3, false), (5, 3, false)]);
        let two = process(2, 20, &[(4, 1, true), (4, 99, true)]);
        let processes = vec![one, two, process(3, 30, &[])];
        let name = "c".to_owned();
        let report = Report { contexts: vec![ContextReport { name, manager: None, processes }] };
        let services = Services::named(&[(1, 4, "echo")]);
        let [context] = &Shown::of(&report, &services, &BTreeMap::new()).contexts[..] else {
            panic!("one context")
        };
        let mut text = String::new();
        describe(&mut text, context);
        assert_eq!(
            text,
            "\nc pid 10:\n  \
               node 4 (echo): held strongly by 1, weakly by 1\n  \
               node 5: held strongly by 0, weakly by 1\n  \
               handle: node 4 of pid 20, strong\n\
             \nc pid 20:\n  \
               node 4: held strongly by 2, weakly by 0\n  \
               handle: node 4 (echo) of pid 10, strong\n\
             \nc pid 30:\n  \
               handle: node 4 (echo) of pid 10, weak\n  \
               handle: node 5 of pid 10, weak\n"
        );
        let shown = context.processes.iter().map(|it| (it.nodes.len(), it.handles.len()));
        assert!(shown.eq([(2, 1), (1, 1), (0, 2)]));
    }
}
