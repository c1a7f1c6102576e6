//! `hostile list` and `hostile run`.

use crate::attack::{ALL, attacks_by_name};
use crate::measure::is_measured;
use crate::scale::{Run, Scale};
use crate::verdict::{Outcome, Verdict};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

/// Options of `hostile run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Attacks; all of them unless given
    names: Vec<String>,
    /// As large as the machine's limits allow
    #[arg(long)]
    long: bool,
    /// How long an answer may take before it counts as a hang
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    patience: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn list() -> ExitCode {
    for attack in ALL {
        let measured = if is_measured(attack) { "" } else { " (not measured)" };
        println!("{:<22} {}{measured}", attack.name, attack.what);
    }
    ExitCode::SUCCESS
}

/// Runs attacks. Returns 0 if every result is green or skipped, 1 if one is red, 2 for an unknown
/// name.
pub fn run(args: &RunArgs) -> ExitCode {
    let attacks = match attacks_by_name(&args.names) {
        Ok(attacks) => attacks,
        Err(name) => {
            eprintln!("hostile run: no attack is called {name}; see `hostile list`");
            return ExitCode::from(2);
        }
    };
    let scale = if args.long { Scale::Long } else { Scale::Short };
    let run = Run { scale, patience: Duration::from_secs(args.patience) };
    let mut verdicts = Vec::new();
    for attack in attacks {
        let verdict = attack.verdict(&run, ALL);
        if !args.json {
            show(&verdict);
        }
        verdicts.push(verdict);
    }
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let [green, red, skipped] = [Outcome::Green, Outcome::Red, Outcome::Skipped].map(count);
    if args.json {
        let rows = serde_json::json!({
            "suite": "hostile",
            "version": env!("CARGO_PKG_VERSION"),
            "machine": baton_bench::machine::Machine::look(),
            "scale": scale.name(),
            "rows": verdicts,
        });
        println!("{}", serde_json::to_string_pretty(&rows).expect("strings and numbers"));
    } else {
        println!("{green} green, {red} red, {skipped} skipped");
    }
    ExitCode::from(u8::from(red > 0))
}

fn show(verdict: &Verdict) {
    if verdict.outcome == Outcome::Skipped {
        return println!("skipped: {} ({})", verdict.name, verdict.findings.join(", "));
    }
    let outcome = if verdict.outcome == Outcome::Green { "green" } else { "RED" };
    println!("{:<22} {outcome:<6} {:>5.1} s", verdict.name, verdict.seconds);
    for finding in &verdict.findings {
        println!("    {finding}");
    }
    for note in &verdict.notes {
        println!("    ({note})");
    }
}
