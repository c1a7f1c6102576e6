//! `baton generate`: the files of a package that follow from the command line itself, and so are
//! never older than it.

use crate::failure::Failure;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use std::io;
use std::path::{Path, PathBuf};

/// Options of `baton generate`.
#[derive(Args)]
pub struct GenerateArgs {
    what: What,
    /// A directory that is there
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// A page for each command
    Man,
    /// For bash, zsh and fish
    Completions,
}

/// Writes the files for this command line.
pub fn generate(args: &GenerateArgs, command: Command) -> Result<(), Failure> {
    let written = match args.what {
        What::Man => clap_mangen::generate_to(command, &args.output),
        What::Completions => complete(command, &args.output),
    };
    written.map_err(|error| Failure::new(format!("write to {}", args.output.display()), error))
}

fn complete(mut command: Command, output: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "baton", output)?;
    }
    Ok(())
}
