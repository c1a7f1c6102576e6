//! The methods of services whose calls are under way, by their AIDL.

use super::services::Services;
use crate::aidl;
use crate::aidl::interface::{Declared, Sources};
use crate::failure::Failure;
use baton_abi::control::{CallReport, End, ProcessReport, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

/// Interfaces by owner and node.
#[derive(Default)]
pub struct Methods(BTreeMap<(u64, u64), Rc<Declared>>);

impl Methods {
    /// Finds the interfaces of all services that are called, in AIDL files at these paths.
    pub fn of(report: &Report, services: &Services, paths: &[PathBuf]) -> Result<Methods, Failure> {
        let tried = "name the methods";
        let wrong = |error| aidl::failure(tried, &error);
        let sources = Sources::at(paths).map_err(wrong)?;
        let processes = report.contexts.iter().flat_map(|context| &context.processes);
        let called = |process: &ProcessReport| {
            process
                .calls
                .iter()
                .flatten()
                .filter_map(|call| node(process, call))
                .collect::<Vec<_>>()
        };
        let nodes: BTreeSet<_> = processes.flat_map(called).collect();
        let mut methods = Methods::default();
        for (owner, node) in nodes {
            let Some(interface) = services.interface(owner, node) else { continue };
            if let Some(declared) = sources.find(&interface).map_err(wrong)? {
                methods.0.insert((owner, node), declared);
            }
        }
        Ok(methods)
    }

    /// The name of a node's method.
    pub fn name(&self, owner: u64, node: u64, code: u32) -> Option<&str> {
        let methods = self.0.get(&(owner, node))?.methods().ok()?;
        let method = methods.into_iter().find(|(number, _)| *number == code)?.1;
        Some(method.name.as_str())
    }
}

/// The node that a call is to, by its report at either end.
fn node(process: &ProcessReport, call: &CallReport) -> Option<(u64, u64)> {
    let owner = match call.end {
        End::Client => call.peer,
        End::Server => process.process,
    };
    Some((owner, call.request.as_ref()?.node))
}
