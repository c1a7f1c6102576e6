//! What observers may ask, and engines too: it changes nothing but the list of contexts.

use super::State;
use baton_abi::control::{
    ContextReport, EngineReport, ProcessId, ProcessReport, Reply, Report, Request,
};

impl State {
    /// Answers a connection that only looks. `None` for a request that is not an observer's.
    pub fn observe(&mut self, uid: u32, request: &Request) -> Option<Reply> {
        Some(match request {
            Request::Report => Reply::Report(self.report()),
            Request::Contexts => Reply::Contexts { names: self.contexts.keys().cloned().collect() },
            Request::AddContext { name } => match self.add_context(uid, name) {
                Ok(()) => Reply::Done,
                Err(errno) => Reply::Refused { errno: errno.raw_os_error() },
            },
            _ => return None,
        })
    }

    /// `engine` is left at its default: only the front pages know, and the runner reads them.
    pub fn report(&self) -> Report {
        let contexts = self.contexts.iter().map(|(name, context)| ContextReport {
            name: name.clone(),
            manager: context.manager.map(|key| key.owner.0),
            processes: self
                .processes
                .iter()
                .filter(|(_, process)| process.context == *name)
                .map(|(id, _)| self.report_process(*id))
                .collect(),
        });
        Report { contexts: contexts.collect() }
    }

    fn report_process(&self, id: ProcessId) -> ProcessReport {
        let process = &self.processes[&id];
        let nodes = self.nodes_of(id).map(|key| (key, self.nodes[&key].counts()));
        let handles = process.handles.iter().map(|(number, handle)| {
            (number, handle.key.owner.0, handle.key.node.0, handle.strong_grants > 0)
        });
        let channels = process.channels.iter().map(|(id, peer, server)| (id.0, peer.0, server));
        ProcessReport {
            process: id.0,
            pid: process.identity.pid,
            uid: process.identity.uid,
            frozen: process.freezer.is_frozen(),
            nodes: nodes
                .filter(|(_, (_, holders))| *holders > 0)
                .map(|(key, (strong, holders))| (key.node.0, strong, holders))
                .collect(),
            handles: handles.collect(),
            channels: channels.collect(),
            real_time: self.report_lanes(id),
            engine: EngineReport::default(),
        }
    }
}
