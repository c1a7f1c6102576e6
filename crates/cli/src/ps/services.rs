//! The services' names by their nodes, as the service managers know them.

use crate::manager::{Manager, interface_within};
use baton::Handle;
use baton::service_manager::Found;
use baton_abi::control::Report;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for one service manager to answer: the processes are shown without names otherwise.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time for a service to tell its interface: one that hangs does not.
const SERVICE_PATIENCE: Duration = Duration::from_millis(100);

/// Services by owner and node.
#[derive(Default)]
pub struct Services(BTreeMap<(u64, u64), Service>);

struct Service {
    name: String,
    /// By which the service is called. `None` in tests.
    handle: Option<Handle>,
}

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
                self.0.insert(identity, Service { name, handle: Some(handle) });
            }
            if Instant::now() > deadline {
                return None;
            }
        }
        Some(())
    }

    /// The name of a node.
    pub fn name(&self, owner: u64, node: u64) -> Option<&str> {
        self.0.get(&(owner, node)).map(|service| service.name.as_str())
    }

    /// The interface of a node, by the service's word. If that comes too late, by its name: Android
    /// names a service `INTERFACE/INSTANCE`.
    pub fn interface(&self, owner: u64, node: u64) -> Option<String> {
        let Service { name, handle } = self.0.get(&(owner, node))?;
        let told = handle.as_ref().and_then(|it| interface_within(it, SERVICE_PATIENCE));
        told.or_else(|| Some(name.split_once('/')?.0.to_owned()))
    }

    /// The services of this name, of all contexts.
    pub fn of_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Handle> {
        let services = self.0.values().filter(move |service| service.name == name);
        services.filter_map(|service| service.handle.as_ref())
    }

    /// The names of a process's nodes.
    pub fn of_process(&self, owner: u64) -> impl Iterator<Item = &str> {
        self.0.range((owner, 0)..=(owner, u64::MAX)).map(|(_, service)| service.name.as_str())
    }
}

#[cfg(test)]
impl Services {
    /// These names.
    pub fn named(all: &[(u64, u64, &str)]) -> Services {
        let service = |name: &str| Service { name: name.to_owned(), handle: None };
        Services(all.iter().map(|&(owner, node, name)| ((owner, node), service(name))).collect())
    }
}
