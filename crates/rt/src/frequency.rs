//! The frequency lock: processes that need the same frequency hold it together, and a request for
//! another frequency is refused.
//!
//! ```text
//!   STATE/lock            flock: one process at a time looks or changes
//!   STATE/frequency.json  what was asked for, what was set before, who holds it
//! ```
//!
//! The lock has the form of RTAndroid's (Kalkov 2018, 4.3), with named holders in place of a
//! counter: a process that has ended holds nothing. The record exists before the first setting is
//! changed and until the last one is restored. So a process that finds a record without a living
//! holder can finish the work.

use crate::cpufreq::{self, Policy, Setting};
use crate::error::Error;
use crate::holder::Holder;
use crate::paths::Paths;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// A requested frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Frequency {
    /// The highest frequency of every policy.
    Max,
    /// One frequency for all policies, in kHz.
    Khz(u32),
}

impl FromStr for Frequency {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Frequency, &'static str> {
        match text {
            "max" => Ok(Frequency::Max),
            _ => text.parse().map(Frequency::Khz).map_err(|_| "neither `max` nor a number of kHz"),
        }
    }
}

impl Display for Frequency {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Frequency::Max => write!(out, "max"),
            Frequency::Khz(khz) => write!(out, "{khz}"),
        }
    }
}

/// The record of the lock while it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The frequency as the first holder requested it.
    pub frequency: Frequency,
    /// The resulting frequency of each policy, in kHz.
    pub targets_khz: BTreeMap<String, u32>,
    /// The settings of each policy before the lock.
    pub before: BTreeMap<String, Setting>,
    /// The holders; a process that holds the lock twice appears twice.
    pub holders: Vec<Holder>,
}

/// Exclusive access to the record.
struct State<'a> {
    paths: &'a Paths,
    _flock: File,
}

impl<'a> State<'a> {
    fn open(paths: &'a Paths) -> Result<State<'a>, Error> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied {
                what: "keeping the record of the frequency lock".to_owned(),
                needs: format!("the right to write {}", paths.state.display()),
                advice: "run it as root, or make that directory and give it to those who may set \
                    frequencies",
            },
            _ => Error::system(format!("open {}", paths.state.join("lock").display()), error),
        };
        std::fs::create_dir_all(&paths.state).map_err(failed)?;
        let file = File::create(paths.state.join("lock")).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        Ok(State { paths, _flock: file })
    }

    fn save(&self, record: &Record) -> Result<(), Error> {
        let (path, new) = (path(self.paths), self.paths.state.join("frequency.new"));
        let text = serde_json::to_string_pretty(record).expect("numbers and strings");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|error| Error::system(format!("write {}", path.display()), error))
    }

    fn remove(&self) -> Result<(), Error> {
        let path = path(self.paths);
        std::fs::remove_file(&path)
            .map_err(|error| Error::system(format!("remove {}", path.display()), error))
    }

    /// Saves the record, or ends the lock if it has no holder.
    fn save_or_end(&self, record: Record) -> Result<Option<Record>, Error> {
        if record.holders.is_empty() {
            restore(self.paths, &record.before)?;
            self.remove()?;
            return Ok(None);
        }
        self.save(&record)?;
        Ok(Some(record))
    }

    /// The record without holders that have ended.
    fn without_dead_holders(&self) -> Result<Option<Record>, Error> {
        let Some(mut record) = read_record(self.paths)? else { return Ok(None) };
        record.holders.retain(Holder::is_alive);
        self.save_or_end(record)
    }
}

fn path(paths: &Paths) -> PathBuf {
    paths.state.join("frequency.json")
}

/// Reads the record, which may name holders that have ended. `None` if no process has the lock.
pub fn read_record(paths: &Paths) -> Result<Option<Record>, Error> {
    let path = path(paths);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::system(format!("read {}", path.display()), error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| Error::Record(path, error))
}

/// Removes holders that have ended, and ends the lock if none is left. Returns the remaining
/// record.
pub fn repair(paths: &Paths) -> Result<Option<Record>, Error> {
    // A process that never had a lock may lack the right to write a record.
    match read_record(paths)? {
        Some(_) => State::open(paths)?.without_dead_holders(),
        None => Ok(None),
    }
}

/// Adds a process to the holders of the lock, even if it already is one.
pub fn acquire(paths: &Paths, frequency: Frequency, holder: &Holder) -> Result<(), Error> {
    let policies = cpufreq::policies(paths)?;
    let targets_khz = targets(&policies, frequency)?;
    let state = State::open(paths)?;
    if let Some(mut record) = state.without_dead_holders()? {
        if record.targets_khz != targets_khz {
            return Err(Error::Held { at: record.frequency.to_string(), holders: record.holders });
        }
        record.holders.push(holder.clone());
        return state.save(&record);
    }
    let setting = |policy: &Policy| Ok((policy.name.clone(), policy.setting()?));
    let before = policies.iter().map(setting).collect::<Result<_, Error>>()?;
    let mut record = Record { frequency, targets_khz, before, holders: vec![holder.clone()] };
    state.save(&record)?;
    let hold = |policy: &Policy| policy.hold(record.targets_khz[&policy.name]);
    let done = policies.iter().try_for_each(hold);
    if done.is_err() {
        record.holders.clear();
        // The first error says more than a failure to undo.
        let _ = state.save_or_end(record);
    }
    done
}

/// Removes a process from the holders once.
pub fn release(paths: &Paths, holder: &Holder) -> Result<(), Error> {
    let state = State::open(paths)?;
    let Some(mut record) = read_record(paths)? else { return Ok(()) };
    if let Some(at) = record.holders.iter().position(|other| other.is(holder)) {
        record.holders.remove(at);
    }
    record.holders.retain(Holder::is_alive);
    state.save_or_end(record).map(drop)
}

fn targets(policies: &[Policy], frequency: Frequency) -> Result<BTreeMap<String, u32>, Error> {
    let target = |policy: &Policy| {
        let khz = match frequency {
            Frequency::Max => policy.able_khz[1],
            Frequency::Khz(khz) => khz,
        };
        policy.check(khz).map(|()| (policy.name.clone(), khz))
    };
    policies.iter().map(target).collect()
}

/// Restores the settings of all policies, and returns the first error. A policy that has
/// disappeared needs no restoring.
fn restore(paths: &Paths, before: &BTreeMap<String, Setting>) -> Result<(), Error> {
    let policies = cpufreq::policies(paths)?;
    let known = policies.iter().filter_map(|policy| Some((policy, before.get(&policy.name)?)));
    let restored: Vec<Result<(), Error>> =
        known.map(|(policy, setting)| policy.set(setting)).collect();
    restored.into_iter().collect()
}
