//! What a part of a run needs around it: a directory, and a broker for the systems of ours.

use crate::form::BenchError;
use crate::machine::Machine;
use crate::pair::Place;
use crate::processors::{Placement, Processors};
use crate::report::{Ratio, Report, Row};
use crate::service::Service;
use crate::system::System;
use baton_broker::{Config, Running};
use std::collections::BTreeMap;
use tempfile::TempDir;

/// A directory and a broker: the manager of a context here meets nobody who was one elsewhere.
pub struct Testbed {
    broker: Running,
    directory: TempDir,
}

impl Testbed {
    /// Starts the broker, in this process.
    pub fn start() -> Result<Testbed, BenchError> {
        Testbed::with_limits(BTreeMap::new())
    }

    /// One whose broker lets no caller of this user be served at a real-time priority.
    pub fn without_real_time() -> Result<Testbed, BenchError> {
        Testbed::with_limits(BTreeMap::from([(rustix::process::geteuid().as_raw(), 0)]))
    }

    fn with_limits(real_time_limits: BTreeMap<u32, u32>) -> Result<Testbed, BenchError> {
        // The broker makes its socket's directory for one user; memory is found by a link in it.
        let directory = tempfile::tempdir().map_err(BenchError::Directory)?;
        let apart = [
            System::BatonHosted,
            System::BatonHostedLeaving,
            System::BatonUapiLibc,
            System::BatonUapiTrap,
            System::BatonMounted,
            System::BatonMountedStored,
            System::BatonLoan,
            System::Memcpy,
        ];
        let contexts = apart.map(|system| system.name().to_owned()).into();
        let socket = directory.path().join("broker.sock");
        let config = Config { contexts, real_time_limits, ..Config::at(socket) };
        let broker = Running::start(config)?;
        Ok(Testbed { broker, directory })
    }

    /// What is to be started here.
    pub fn place(&self, service: Service) -> Place<'_> {
        let (broker, directory) = (self.broker.socket(), self.directory.path());
        Place { broker, directory, service, environment: &[], priority: None }
    }
}

/// The machine of a run, as its report names it.
pub struct Setting {
    pub machine: Machine,
    pub processors: Processors,
}

impl Setting {
    pub fn look() -> Result<Setting, BenchError> {
        let processors = Processors::choose().map_err(BenchError::Processors)?;
        Ok(Setting { machine: Machine::look(), processors })
    }

    /// How the two sides can lie to each other here.
    pub fn placements(&self) -> Vec<Placement> {
        let exists = |placement: &Placement| self.processors.server(*placement).is_some();
        Placement::BOTH.into_iter().filter(exists).collect()
    }

    pub fn report(
        self,
        bench: &'static str,
        rounds: u32,
        rows: Vec<Row>,
        ratios: Vec<Ratio>,
    ) -> Report {
        Report {
            bench,
            version: env!("CARGO_PKG_VERSION"),
            machine: self.machine,
            pinning: self.processors,
            rounds: rounds as usize,
            rows,
            ratios,
        }
    }
}
