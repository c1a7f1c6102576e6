//! Manifests of applications.

use super::filter::IntentFilter;
use super::intent::ComponentName;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What an application consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The package.
    pub package: String,
    /// The user that the application asks for.
    pub uid: Option<u32>,
    /// The components, in the order of the file.
    pub components: Vec<Component>,
}

/// A component of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// Package and class.
    pub name: ComponentName,
    /// The kind.
    pub kind: ComponentKind,
    /// The name of the process that it runs in.
    pub process: String,
    /// Whether other applications may use it.
    pub exported: bool,
    /// The permission that its callers need.
    pub permission: Option<String>,
    /// The filters of implicit intents.
    pub filters: Vec<IntentFilter>,
    /// Values by their names.
    pub meta_data: BTreeMap<String, String>,
    /// The program that the component's process runs, with its arguments.
    pub program: Option<Program>,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program's file.
    pub path: PathBuf,
    /// The arguments behind its name.
    pub arguments: Vec<String>,
}

/// The kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComponentKind {
    /// An activity: a screen of an application.
    Activity,
    /// A service: work without a screen.
    Service,
    /// A content provider: data that several applications use.
    Provider,
    /// A broadcast receiver.
    Receiver,
}

/// What is wrong with a manifest, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {wrong}")]
pub struct ManifestError {
    /// The line, from 1 on.
    pub line: u32,
    /// The column, from 1 on.
    pub column: u32,
    /// What is wrong.
    pub wrong: String,
}

impl Manifest {
    /// Reads the text of a manifest.
    ///
    /// # Errors
    /// The author's fault, with its place.
    pub fn parse(_text: &str) -> Result<Manifest, ManifestError> {
        todo!()
    }
}
