//! `baton ps`: the broker's state, and the figures that engines publish about themselves.

use crate::failure::Failure;
use crate::observer;
use crate::stdout::show;
use baton_abi::control::{Account, ContextReport, LaneReport, ProcessReport, Share};
use clap::Args;
use std::fmt::Write;
use std::path::Path;

/// Options of `baton ps`.
#[derive(Args)]
#[command(after_help = "\
Columns: NODES are objects of the process that others hold, HANDLES its references to others' \
objects, CHANNELS its shared memories with other processes as server + client, LANES its threads' \
slots in them, LOOPERS the threads that serve, BUFFER the used part of the receive buffer and the \
transactions in it, CALLS those received so far and those not yet answered. STATE: manager (the \
context manager), frozen. Shown are the processes of your own user, and all to root and the \
broker's user. The columns from LANES on are what the process says of itself.")]
pub struct PsArgs {
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
    /// Every node and handle, too
    #[arg(short, long)]
    verbose: bool,
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
            true => json(serde_json::to_string_pretty(&accounts), tried),
            false => show(&shares(&accounts)),
        };
    }
    let report = observer.report().map_err(refused)?;
    if args.json {
        return json(serde_json::to_string_pretty(&report), tried);
    }
    let mut rows = vec![HEADER.map(str::to_owned)];
    for context in &report.contexts {
        rows.extend(context.processes.iter().map(|process| row(context, process)));
    }
    let mut text = table(&rows, &WORDS);
    for process in report.contexts.iter().flat_map(|context| &context.processes) {
        for lane in &process.real_time {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", real_time(process.pid, lane));
        }
    }
    if args.verbose {
        for context in &report.contexts {
            describe(&mut text, context);
        }
    }
    show(&text)
}

fn json(text: serde_json::Result<String>, tried: &str) -> Result<(), Failure> {
    show(&(text.map_err(|error| Failure::new(tried, error))? + "\n"))
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

const HEADER: [&str; 13] = [
    "CONTEXT", "PID", "UID", "PROGRAM", "STATE", "NODES", "HANDLES", "CHANNELS", "LANES",
    "THREADS", "LOOPERS", "BUFFER", "CALLS",
];
/// Columns of words; the others contain numbers, which end in line.
const WORDS: [usize; 3] = [0, 3, 4];

fn row(context: &ContextReport, process: &ProcessReport) -> [String; 13] {
    let engine = &process.engine;
    let manager = context.manager == Some(process.process);
    let state = match (manager, process.frozen) {
        (true, true) => "manager,frozen",
        (true, false) => "manager",
        (false, true) => "frozen",
        (false, false) => "-",
    };
    let served = process.channels.iter().filter(|(.., server)| *server).count();
    let called = process.channels.len() - served;
    let (used, all) = (engine.buffer_used_bytes, engine.buffer_bytes);
    [
        context.name.clone(),
        process.pid.to_string(),
        process.uid.to_string(),
        program(process.pid),
        state.to_owned(),
        process.nodes.len().to_string(),
        process.handles.len().to_string(),
        format!("{served}+{called}"),
        engine.lanes.to_string(),
        engine.threads.to_string(),
        engine.loopers.to_string(),
        format!("{}/{} ({})", size(used), size(all), engine.buffers),
        format!("{} ({})", engine.transactions, engine.outstanding),
    ]
}

fn size(bytes: u32) -> String {
    match bytes {
        0..4096 => format!("{bytes}"),
        _ => format!("{}K", bytes.div_ceil(1024)),
    }
}

/// The name of a running program, which the broker does not know.
fn program(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_end() {
        "" => "?".to_owned(),
        name => name.replace(|letter: char| letter.is_control(), "?"),
    }
}

fn table<const N: usize>(rows: &[[String; N]], words: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, entry) in row.iter().enumerate() {
            let width = widths[column];
            let padded = match words.contains(&column) {
                true => format!("{entry:<width$}  "),
                false => format!("{entry:>width$}  "),
            };
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn describe(text: &mut String, context: &ContextReport) {
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
        for (node, strong, held) in &process.nodes {
            let weak = held - strong.min(held);
            let _ = writeln!(text, "  node {node}: held strongly by {strong}, weakly by {weak}");
        }
        for (handle, owner, node, strong) in &process.handles {
            let strength = if *strong { "strong" } else { "weak" };
            let owner = pid(*owner);
            let _ = writeln!(text, "  handle {handle}: node {node} of pid {owner}, {strength}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::EngineReport;

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
        let context = ContextReport { name: "c".into(), manager: Some(1), ..Default::default() };
        let rows = [HEADER.map(str::to_owned), row(&context, &process)];
        assert_eq!(
            table(&rows, &WORDS),
            "CONTEXT         PID  UID  PROGRAM  STATE           NODES  HANDLES  CHANNELS  LANES  \
             THREADS  LOOPERS       BUFFER  CALLS\n\
             c        4294967295    0  ?        manager,frozen      0        0       2+1      0  \
             \x20     0        0  0/1016K (0)  0 (0)\n"
        );
    }
}
