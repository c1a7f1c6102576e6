//! Packages: what the process manager knows of an application before any of it runs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The kind of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A screen, or work that the user waits for. One at a time is resumed.
    Activity,
    /// Work in the background.
    Service,
    /// Data for others.
    Provider,
    /// A receiver of broadcasts.
    Receiver,
}

/// A component as its package declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The kind.
    pub kind: Kind,
    /// The process that it runs in.
    pub process: String,
    /// Whether other users may start it.
    pub is_exported: bool,
}

/// The program of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A program with its arguments, started plainly.
    Execute(Vec<String>),
    /// A shared object, which a warm parent has loaded, and the arguments of its `baton_main`.
    Warm(PathBuf, Vec<String>),
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The name.
    pub name: String,
    /// The user as which it runs. `None` for the manager's own.
    pub uid: Option<u32>,
    /// Whether its processes are always there.
    pub is_persistent: bool,
    /// Whether it has the home screen.
    pub is_home: bool,
    /// Whether its processes may ask for a real-time class.
    pub may_be_real_time: bool,
    /// Components by their names.
    pub components: BTreeMap<String, Declared>,
    /// Programs by the names of processes. Each component's process is in here.
    pub programs: BTreeMap<String, Program>,
}

/// A component of a package: `PACKAGE/NAME`, as in Android's `am`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The package.
    pub package: String,
    /// The component. One with a dot at its beginning is meant below the package.
    pub component: String,
}

/// A text that names no component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no component: it is written PACKAGE/NAME")]
pub struct NotATarget(pub String);

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Target, NotATarget> {
        match text.split_once('/') {
            Some((package, name)) if !package.is_empty() && !name.is_empty() => {
                let prefix = if name.starts_with('.') { package } else { "" };
                Ok(Target { package: package.to_owned(), component: format!("{prefix}{name}") })
            }
            _ => Err(NotATarget(text.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.package, self.component)
    }
}
