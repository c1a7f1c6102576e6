//! The services' names by their nodes, as the service managers know them.

use crate::manager::Manager;
use baton::service_manager::Found;
use baton_abi::control::Report;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for one service manager to answer: the processes are shown without names otherwise.
const PATIENCE: Duration = Duration::from_millis(500);

/// Names by owner and node.
#[derive(Default)]
pub struct Services(BTreeMap<(u64, u64), String>);

impl Services {
    /// Asks the service manager of each context.
    pub fn of(report: &Report, socket: &Path) -> Services {
        let mut services = Services::default();
        for context in report.contexts.iter().filter(|context| context.manager.is_some()) {
            services.add_context(&context.name, socket);
        }
        services
    }

    /// Adds what a manager tells in time. `None` if it has not told everything.
    fn add_context(&mut self, context: &str, socket: &Path) -> Option<()> {
        let deadline = Instant::now() + PATIENCE;
        let tried = "name the services";
        let manager = Manager::find_within(context, socket, Some(PATIENCE), tried).ok()?;
        for name in manager.names(tried).ok()? {
            if let Found::Service(handle) = manager.check(tried, &name).ok()?
                && let Some(identity) = handle.identity()
            {
                self.0.insert(identity, name);
            }
            if Instant::now() > deadline {
                return None;
            }
        }
        Some(())
    }

    /// The name of a node.
    pub fn name(&self, owner: u64, node: u64) -> Option<&str> {
        self.0.get(&(owner, node)).map(String::as_str)
    }

    /// The names of a process's nodes.
    pub fn of_process(&self, owner: u64) -> impl Iterator<Item = &str> {
        self.0.range((owner, 0)..=(owner, u64::MAX)).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
impl Services {
    /// These names.
    pub fn named(all: &[(u64, u64, &str)]) -> Services {
        Services(all.iter().map(|&(owner, node, name)| ((owner, node), name.to_owned())).collect())
    }
}
