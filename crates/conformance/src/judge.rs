//! The comparison: the same scenarios on both sides, a table by family, and what differs.

use crate::compare::{Run, first_difference};
use crate::shrink::shrink;
use crate::sides::{Parts, Play, Side};
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

/// What to compare.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    #[command(flatten)]
    parts: Parts,
    /// Families; all if none is named
    #[arg(long = "family")]
    families: Vec<String>,
    /// The first seed of each family
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many seeds of each
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Steps of a random scenario
    #[arg(long, default_value_t = 100)]
    steps: u32,
    /// The kernels to compare with; both if none is named
    #[arg(long = "kernel", value_parser = ["generic", "rt"])]
    kernels: Vec<String>,
    /// How many differences to shrink and show
    #[arg(long, default_value_t = 3)]
    show: usize,
}

/// Compares, and says how it went.
pub fn compare(arguments: &CompareArgs) -> ExitCode {
    match judge(arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn judge(arguments: &CompareArgs) -> io::Result<usize> {
    let all = ["generic", "rt"];
    let wanted = |name: &&&str| {
        arguments.kernels.is_empty() || arguments.kernels.iter().any(|k| k == **name)
    };
    let kernels: Vec<_> = all.iter().filter(wanted).map(|name| Side::Kernel(name)).collect();
    let mut play = vec!["--digest".to_owned()];
    for (option, value) in [
        ("--first", arguments.first.to_string()),
        ("--seeds", arguments.seeds.to_string()),
        ("--steps", arguments.steps.to_string()),
    ] {
        play.extend([option.to_owned(), value]);
    }
    for family in &arguments.families {
        play.extend(["--family".to_owned(), family.clone()]);
    }
    let play = Play::Arguments(play);
    let parts = &arguments.parts;
    let (baton, guests) = std::thread::scope(|scope| {
        let baton = scope.spawn(|| Side::Baton.run(parts, &play));
        let run = |kernel: &Side| (*kernel, kernel.run(parts, &play));
        let guests: Vec<_> = kernels.iter().map(run).collect();
        (baton.join().expect("no panic"), guests)
    });
    let baton = baton?;
    let mut n_different = 0;
    for (kernel, run) in guests {
        let run = run?;
        let different = table(kernel, &run, &baton);
        n_different += different.len();
        for name in different.iter().take(arguments.show) {
            show(arguments, kernel, name)?;
        }
    }
    Ok(n_different)
}

#[derive(Default)]
struct Row {
    scenarios: usize,
    steps: u64,
    equal: usize,
    /// Equal but for places in receive buffers.
    by_rule: usize,
    different: usize,
}

/// Prints the table; the names of what differs.
fn table(kernel: Side, run: &Run, baton: &Run) -> Vec<String> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut different = Vec::new();
    for (name, digest) in &run.digests {
        let family = name.split(' ').next().unwrap_or(name);
        let row = rows.entry(family).or_default();
        row.scenarios += 1;
        row.steps += digest.steps;
        match baton.digests.get(name) {
            Some(ours) if ours == digest => row.equal += 1,
            Some(ours) if ours.rest == digest.rest => row.by_rule += 1,
            _ => {
                row.different += 1;
                different.push(name.clone());
            }
        }
    }
    println!("\n{} and baton", kernel.name());
    println!(
        "{:<12}{:>11}{:>10}{:>8}{:>9}{:>11}",
        "family", "scenarios", "steps", "equal", "by rule", "different"
    );
    let mut sum = Row::default();
    for (family, row) in &rows {
        print_row(family, row);
        sum.scenarios += row.scenarios;
        sum.steps += row.steps;
        sum.equal += row.equal;
        sum.by_rule += row.by_rule;
        sum.different += row.different;
    }
    print_row("all", &sum);
    different
}

fn print_row(family: &str, row: &Row) {
    let Row { scenarios, steps, equal, by_rule, different } = row;
    println!("{family:<12}{scenarios:>11}{steps:>10}{equal:>8}{by_rule:>9}{different:>11}");
}

/// Plays a scenario again on both sides, whole, and prints the shortest one that still differs.
fn show(arguments: &CompareArgs, kernel: Side, name: &str) -> io::Result<()> {
    let (family, seed) = name.split_once(' ').unwrap_or((name, "0"));
    let options = [
        ("--family", family.to_owned()),
        ("--first", seed.to_owned()),
        ("--seeds", "1".to_owned()),
        ("--steps", arguments.steps.to_string()),
    ];
    let play = options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    let play = Play::Arguments(play.collect());
    let parts = &arguments.parts;
    let (mut guest, mut host) = (kernel.run(parts, &play)?, Side::Baton.run(parts, &play)?);
    let found = guest.played.remove(name).unwrap_or_default();
    let other = host.played.remove(name).unwrap_or_default();
    println!("\n==== {family}, seed {seed}, {} and baton", kernel.name());
    if first_difference(&found, &other).is_none() {
        println!(
            "no difference when it is played again: the answers depend on more than the steps"
        );
        return Ok(());
    }
    println!("{}", shrink(parts, kernel, &found, &other)?);
    Ok(())
}
