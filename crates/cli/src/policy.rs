//! Reads the configuration of a broker: TOML files in a directory, in the order of their names.

use crate::failure::Failure;
use baton_broker::Policy;
use std::path::{Path, PathBuf};

/// Default directory of root's broker.
const DIRECTORY: &str = "/etc/baton";

/// An error in the configuration, with its file.
pub struct Unusable {
    path: PathBuf,
    why: String,
}

impl Unusable {
    /// The failure of a command because of this error.
    pub fn during(self, tried: &str) -> Failure {
        Failure::new(tried, format_args!("{}: {}", self.path.display(), self.why))
            .advice("see docs/limits.md for what may stand there")
    }
}

/// Reads a file or every `*.toml` of a directory. Without a name, root's broker reads `/etc/baton`
/// if it exists.
pub fn read(named: Option<&Path>) -> Result<Policy, Unusable> {
    let path = match named {
        Some(path) => path,
        None if rustix::process::geteuid().is_root() && Path::new(DIRECTORY).is_dir() => {
            Path::new(DIRECTORY)
        }
        None => return Ok(Policy::default()),
    };
    let mut policy = Policy::default();
    for path in files(path)? {
        let text = std::fs::read_to_string(&path).map_err(because(&path))?;
        policy.extend(Policy::parse(&text).map_err(because(&path))?);
    }
    Ok(policy)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Unusable> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(because(path))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|it| it.path())).collect();
    let mut paths = paths.map_err(because(path))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort_unstable();
    Ok(paths)
}

fn because<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Unusable {
    let path = path.to_owned();
    move |error| Unusable { path: path.clone(), why: error.to_string() }
}
