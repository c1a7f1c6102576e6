//! Compares both drivers on the same scenarios: a table by family, and the differences.

use crate::compare::{Played, Run, compare as compare_played};
use crate::profile::PROFILES;
use crate::progress::Progress;
use crate::seeds::Seeds;
use crate::shrink::{Found, shrink};
use crate::sides::{Parts, Play, Side};
use crate::tally::Tally;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

/// Options of the comparison.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0: no difference without a reason; 1: there is one; 2: the \
                        command line is wrong; 3: a side could not be run.")]
pub struct CompareArgs {
    #[command(flatten)]
    parts: Parts,
    /// Families; all if none is named
    #[arg(long = "family", value_parser = family_names())]
    families: Vec<String>,
    /// Seeds of each family: how many, or FIRST..END
    #[arg(long, default_value = "10")]
    seeds: Seeds,
    /// Steps of a random scenario
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// The kernels to compare with; both if none is named
    #[arg(long = "kernel", value_parser = ["generic", "rt"])]
    kernels: Vec<String>,
    /// Number of differences with each kernel to shrink and show
    #[arg(long, default_value_t = 3)]
    show: usize,
    /// Seconds that the shrinking of one difference may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shrink: u64,
    /// Compare a mounted binderfs, too, if this process can mount one
    #[arg(long)]
    mount: bool,
    /// Print the table for machines
    #[arg(long)]
    json: bool,
}

fn family_names() -> Vec<&'static str> {
    PROFILES.iter().map(|profile| profile.name).collect()
}

/// Compares and prints the result.
pub fn compare(arguments: &CompareArgs) -> ExitCode {
    match judge(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(3)
        }
    }
}

/// The comparison of one kernel with Baton, interposed or mounted.
struct Judgment {
    kernel: Side,
    ours: Side,
    tally: Tally,
    /// The differences to show.
    found: Vec<Found>,
}

/// Compares with each kernel. Returns whether every difference has a reason.
fn judge(arguments: &CompareArgs) -> io::Result<bool> {
    let kernels: Vec<_> = ["generic", "rt"]
        .into_iter()
        .filter(|name| arguments.kernels.is_empty() || arguments.kernels.iter().any(|k| k == name))
        .map(Side::Kernel)
        .collect();
    for kernel in &kernels {
        kernel.prepare(&arguments.parts)?;
    }
    let mut sides = kernels.clone();
    sides.push(Side::Baton);
    if arguments.mount {
        match Side::Mount.prepare(&arguments.parts) {
            Ok(()) => sides.push(Side::Mount),
            Err(error) => eprintln!("skipped: {} ({error})", Side::Mount.name()),
        }
    }
    let mut judgments = Vec::new();
    for &ours in &sides[kernels.len()..] {
        judgments.extend(kernels.iter().map(|&kernel| {
            let tally = Tally::new(kernel, ours);
            Judgment { kernel, ours, tally, found: Vec::new() }
        }));
    }
    for seeds in arguments.seeds.portions(arguments.steps_of_a_seed()) {
        let runs = arguments.play(&seeds, &sides)?;
        let of = |side| &runs.iter().find(|(played, _)| *played == side).expect("played").1;
        for judgment in &mut judgments {
            let (kernel, ours) = (of(judgment.kernel), of(judgment.ours));
            judgment.compare_runs(kernel, ours, arguments.show)?;
        }
        arguments.tell(&seeds, &judgments);
    }
    print(arguments, &judgments)?;
    Ok(judgments.iter().all(|judgment| judgment.tally.differences.is_empty()))
}

impl CompareArgs {
    fn families(&self) -> impl Iterator<Item = &'static str> {
        let wanted =
            |name: &&str| self.families.is_empty() || self.families.iter().any(|f| f == name);
        PROFILES.iter().map(|profile| profile.name).filter(wanted)
    }

    fn steps_of_a_seed(&self) -> u64 {
        self.families().count() as u64 * u64::from(self.steps)
    }

    /// Plays these seeds on all sides at once.
    fn play(&self, seeds: &Range<u64>, sides: &[Side]) -> io::Result<Vec<(Side, Run)>> {
        let n_seeds = seeds.end - seeds.start;
        let mut play = Vec::new();
        for (option, value) in
            [("--first", seeds.start), ("--seeds", n_seeds), ("--steps", self.steps.into())]
        {
            play.extend([option.to_owned(), value.to_string()]);
        }
        for family in self.families() {
            play.extend(["--family".to_owned(), family.to_owned()]);
        }
        let play = Play::Arguments(play);
        let n_scenarios = n_seeds * self.families().count() as u64;
        let what = format!("seeds {}..{}", seeds.start, seeds.end);
        let progress = Progress::new(what, n_scenarios);
        let run = |side: Side| {
            let run = side.run(&self.parts, &play, &|| progress.played(&side.name()))?;
            Ok((side, run))
        };
        std::thread::scope(|scope| {
            let runs: Vec<_> = sides.iter().map(|side| scope.spawn(|| run(*side))).collect();
            // All sides are waited for, even if one fails.
            let runs: Vec<_> = runs.into_iter().map(|run| run.join().expect("no panic")).collect();
            runs.into_iter().collect()
        })
    }

    /// Reports on a portion of a long run, which can continue from there.
    fn tell(&self, seeds: &Range<u64>, judgments: &[Judgment]) {
        if seeds.start == self.seeds.first && seeds.end == self.seeds.end {
            return;
        }
        for Judgment { tally, .. } in judgments {
            let sum = tally.all;
            eprintln!(
                "conformance: seeds {}..{} done, {} and {}: {} steps, {} different",
                self.seeds.first, seeds.end, tally.kernel, tally.ours, sum.steps, sum.different
            );
        }
    }
}

impl Judgment {
    /// Compares the output of both sides.
    fn compare_runs(&mut self, run: &Run, baton: &Run, show: usize) -> io::Result<()> {
        self.tally.met(&run.driver);
        let absent =
            |name: &String| io::Error::other(format!("{name} was not played on both sides"));
        if let Some(name) = baton.played.keys().find(|name| !run.played.contains_key(*name)) {
            return Err(absent(name));
        }
        for (name, kernel) in &run.played {
            let baton: &Played = baton.played.get(name).ok_or_else(|| absent(name))?;
            let verdict = compare_played(kernel, baton, &run.driver, self.ours.rules());
            self.tally.add(name, &verdict);
            if verdict.different.is_none() {
                continue;
            }
            let (theirs, ours) = (self.kernel.name(), self.ours.name());
            eprintln!("conformance: {theirs} differs from {ours} in {name}");
            if self.found.len() < show {
                let (kernel, baton) = (kernel.clone(), baton.clone());
                self.found.push(Found { name: name.clone(), kernel, baton });
            }
        }
        Ok(())
    }
}

/// Prints the tables, and then the differences as short as possible.
fn print(arguments: &CompareArgs, judgments: &[Judgment]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let tallies: Vec<_> = judgments.iter().map(|judgment| &judgment.tally).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&tallies)?)?;
    } else {
        for judgment in judgments {
            writeln!(out, "{}", judgment.tally)?;
        }
    }
    for Judgment { kernel, ours, tally, found } in judgments {
        for found in found {
            let (family, seed) = found.name.split_once(' ').unwrap_or((&found.name, "?"));
            let within = Duration::from_secs(arguments.shrink);
            let shown = shrink(&arguments.parts, (*kernel, *ours), &tally.driver, found, within)?;
            let (theirs, ours) = (kernel.name(), ours.name());
            let text = format!("==== {family}, seed {seed}, {theirs} and {ours}\n{shown}");
            if arguments.json {
                eprintln!("{text}");
            } else {
                writeln!(out, "{text}")?;
            }
        }
    }
    Ok(())
}
