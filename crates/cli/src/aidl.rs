//! Calls by AIDL: what a file declares, and the values that its methods take and give.
//!
//! - [`syntax`]: a file's text. [`constant`]: the values of its constants.
//! - [`interface`]: the declarations that an interface needs, in the user's files.
//! - [`value`]: values as the user writes and reads them. [`parcel`]: values as bytes.
//! - [`error`]: what goes wrong with all of it.

mod constant;
pub mod error;
pub mod interface;
pub mod parcel;
pub mod syntax;
pub mod value;

use crate::failure::{Failure, Kind};
use clap::Args;
use error::AidlError;
use interface::{Declared, Sources};
use std::path::PathBuf;
use std::rc::Rc;

/// Names that are less like a name than this are not what the user meant.
const LEAST_LIKENESS: f64 = 0.7;

/// What is known of interfaces, and the form of what is printed.
#[derive(Args)]
pub struct FormArgs {
    /// An AIDL file, or a directory with AIDL files; may be given again
    #[arg(long, value_name = "PATH")]
    pub aidl: Vec<PathBuf>,
    /// Print one JSON document; its members are below
    #[arg(long)]
    pub json: bool,
}

/// An error as it is reported.
pub fn failure(tried: &str, error: &AidlError) -> Failure {
    let failure = Failure::new(tried, error);
    match error {
        AidlError::Mismatch { .. } => failure.kind(Kind::Usage),
        AidlError::Undeclared { .. } => {
            failure.advice("give its file as well, or a directory with all of them: --aidl PATH")
        }
        AidlError::Garbled { .. } => {
            failure.advice("the service may be of another version than the file")
        }
        _ => failure,
    }
}

/// The declaration of a service's interface.
pub fn declared(tried: &str, sources: &Sources, interface: &str) -> Result<Rc<Declared>, Failure> {
    let found = sources.find(interface).map_err(|error| failure(tried, &error))?;
    found.ok_or_else(|| {
        let wrong = format!("its interface {interface} is in none of the AIDL files");
        let short = interface.rsplit('.').next().unwrap_or(interface);
        let advice = like(short, sources.names().iter().map(String::as_str))
            .unwrap_or_else(|| format!("give the file {short}.aidl or its directory: --aidl PATH"));
        Failure::new(tried, wrong).advice(advice)
    })
}

/// Advice that tells the names that are like this one. `None` if there are none.
pub fn like<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_lowercase();
    let likeness = |other: &str| strsim::jaro_winkler(&lower, &other.to_lowercase());
    let mut known: Vec<_> = names.map(|other| (likeness(other), other)).collect();
    known.retain(|(likeness, _)| *likeness >= LEAST_LIKENESS);
    known.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    known.dedup_by_key(|(_, name)| *name);
    let names: Vec<_> = known.into_iter().take(3).map(|(_, name)| name).collect();
    (!names.is_empty()).then(|| format!("similar names: {}", names.join(", ")))
}
