//! Frequency policies: groups of processors with a common frequency, as files in sysfs.
//!
//! ```text
//!   SYSFS/devices/system/cpu/cpufreq/policyN/scaling_governor, scaling_min_freq, scaling_max_freq
//! ```
//!
//! A policy is held at a frequency by making it both bounds: every driver accepts that, and every
//! governor stays within them. Meanwhile the governor is `performance` where available, because it
//! does not sample. The governor `userspace` is missing where the processor chooses its frequency
//! itself.

use crate::error::Error;
use crate::paths::Paths;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const STEADY: &str = "performance";

/// A frequency policy of this machine.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Name of the policy's directory.
    pub name: String,
    directory: PathBuf,
    /// Lowest and highest frequency of its processors, in kHz.
    pub able_khz: [u32; 2],
    /// All possible frequencies, where the driver lists them.
    pub steps_khz: Vec<u32>,
    governors: Vec<String>,
}

/// The settings of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the governor, which chooses the frequency.
    pub governor: String,
    /// Lower bound.
    pub min_khz: u32,
    /// Upper bound.
    pub max_khz: u32,
}

/// All policies that have processors, by number. Fails if the kernel sets no frequencies.
pub fn policies(paths: &Paths) -> Result<Vec<Policy>, Error> {
    let root = paths.sysfs.join("devices/system/cpu/cpufreq");
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let number = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("policy")?.parse().ok()
    };
    let mut found: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((number(&path)?, path)))
        .filter(|(_, path)| has_processors(path))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(Error::NoCpufreq(root));
    }
    found.into_iter().map(|(_, path)| Policy::at(path)).collect()
}

/// Whether a policy has processors that are online. Others refuse settings.
fn has_processors(policy: &Path) -> bool {
    let affected = std::fs::read_to_string(policy.join("affected_cpus"));
    affected.is_ok_and(|list| !list.trim().is_empty())
}

impl Policy {
    fn at(directory: PathBuf) -> Result<Policy, Error> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut policy = Policy {
            name,
            directory,
            able_khz: [0; 2],
            steps_khz: Vec::new(),
            governors: Vec::new(),
        };
        policy.able_khz = [policy.number("cpuinfo_min_freq")?, policy.number("cpuinfo_max_freq")?];
        policy.governors = policy.words("scaling_available_governors");
        let lists = ["scaling_available_frequencies", "scaling_boost_frequencies"];
        let steps = lists.into_iter().flat_map(|list| policy.words(list));
        policy.steps_khz = steps.filter_map(|step| step.parse().ok()).collect();
        Ok(policy)
    }

    fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.directory.join(file);
        let text = std::fs::read_to_string(&path);
        text.map(|text| text.trim().to_owned())
            .map_err(|error| Error::system(format!("read {}", path.display()), error))
    }

    fn number(&self, file: &str) -> Result<u32, Error> {
        let text = self.read(file)?;
        let path = self.directory.join(file);
        text.parse().map_err(|_| {
            Error::system(format!("read {}", path.display()), io::ErrorKind::InvalidData)
        })
    }

    /// Reads a list of words; empty where the driver has no such file.
    fn words(&self, file: &str) -> Vec<String> {
        let text = self.read(file).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Current frequency in kHz, where the driver reports it.
    pub fn current_khz(&self) -> Option<u32> {
        self.number("scaling_cur_freq").ok()
    }

    /// Current settings.
    pub fn setting(&self) -> Result<Setting, Error> {
        Ok(Setting {
            governor: self.read("scaling_governor")?,
            min_khz: self.number("scaling_min_freq")?,
            max_khz: self.number("scaling_max_freq")?,
        })
    }

    /// Checks whether the policy can run at a frequency.
    pub fn check(&self, khz: u32) -> Result<(), Error> {
        let [least, greatest] = self.able_khz;
        let listed = self.steps_khz.is_empty() || self.steps_khz.contains(&khz);
        if (least..=greatest).contains(&khz) && listed {
            return Ok(());
        }
        let able = match self.steps_khz.as_slice() {
            [] => format!("{least} to {greatest}"),
            steps => steps.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        };
        Err(Error::Unable { policy: self.name.clone(), khz, able })
    }

    /// Holds the policy at a frequency, and checks that the driver accepted it.
    pub fn hold(&self, khz: u32) -> Result<(), Error> {
        let governor = match self.governors.iter().any(|governor| governor == STEADY) {
            true => STEADY.to_owned(),
            false => self.setting()?.governor,
        };
        let wanted = Setting { governor, min_khz: khz, max_khz: khz };
        self.set(&wanted)?;
        let got = self.setting()?;
        if got == wanted {
            return Ok(());
        }
        let text = |of: Setting| format!("{} {}-{} kHz", of.governor, of.min_khz, of.max_khz);
        Err(Error::NotTaken { policy: self.name.clone(), wanted: text(wanted), got: text(got) })
    }

    /// Applies settings that differ from the current ones. The lower bound cannot exceed the upper
    /// one, so the upper is written before and after the lower: one of the two writes comes at the
    /// right time.
    pub fn set(&self, setting: &Setting) -> Result<(), Error> {
        let (min_khz, max_khz) = (setting.min_khz.to_string(), setting.max_khz.to_string());
        self.write("scaling_governor", &setting.governor)?;
        let _ = self.write("scaling_max_freq", &max_khz);
        self.write("scaling_min_freq", &min_khz)?;
        self.write("scaling_max_freq", &max_khz)
    }

    fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        if self.read(file).is_ok_and(|now| now == value) {
            return Ok(());
        }
        let path = self.directory.join(file);
        std::fs::write(&path, value).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied {
                what: "setting the frequency".to_owned(),
                needs: format!("the right to write {}", path.display()),
                advice: "run it as root, or let a udev rule give these files to a group",
            },
            _ => Error::system(format!("write {value} to {}", path.display()), error),
        })
    }
}
