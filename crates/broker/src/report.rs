//! What `baton ps` asks for.

use crate::client::Engine;
use crate::state::State;
use baton_abi::control::*;
use baton_abi::lane::front;
use baton_shm::sync::Ordering;

impl State {
    /// Everything, with what `engine` finds on the front pages.
    pub fn report<'a>(&self, engine: impl Fn(ProcessId) -> Option<&'a Engine>) -> Report {
        let contexts = self.contexts.iter().map(|(name, context)| ContextReport {
            name: name.clone(),
            manager: context.manager.map(|(process, _)| process.0),
            processes: self
                .processes
                .iter()
                .filter(|(_, process)| process.context == *name)
                .map(|(&id, _)| self.report_process(id, engine(id)))
                .collect(),
        });
        Report { contexts: contexts.collect() }
    }

    fn report_process(&self, id: ProcessId, engine: Option<&Engine>) -> ProcessReport {
        let process = &self.processes[&id];
        let own = (id, NodeId(0))..=(id, NodeId(u64::MAX));
        let nodes = self.nodes.range(own).map(|(&key, _)| {
            let (strong, all) = self.counts(key);
            (key.1.0, strong, all)
        });
        let handles = process
            .handles
            .iter()
            .map(|(&handle, held)| (handle, held.node.0.0, held.node.1.0, held.strong_grants > 0));
        let channels = process
            .channels
            .iter()
            .map(|(&channel, &(other, end))| (channel.0, other.0, end == End::Server));
        ProcessReport {
            process: id.0,
            pid: process.identity.pid,
            uid: process.identity.uid,
            frozen: process.frozen,
            nodes: nodes.collect(),
            handles: handles.collect(),
            channels: channels.collect(),
            engine: engine.map(report_engine).unwrap_or_default(),
        }
    }
}

fn report_engine(engine: &Engine) -> EngineReport {
    EngineReport {
        threads: engine.word(front::THREADS),
        loopers: engine.word(front::LOOPERS),
        lanes: engine.word(front::LANES),
        buffer_bytes: engine.word(front::BUFFER_BYTES),
        buffer_used_bytes: engine.word(front::BUFFER_USED),
        buffers: engine.word(front::BUFFERS),
        outstanding: engine.word(front::OUTSTANDING),
        transactions: engine.front.double_word(front::TRANSACTIONS).load(Ordering::Relaxed),
    }
}
