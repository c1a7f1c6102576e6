//! Requests of observers, which engines may send too. They change nothing but the list of contexts.
//!
//! **Invariant**: each answer costs the broker a bounded time. A report comes in pages, and each
//! page begins where the previous one ended.

use super::node::NodeKey;
use super::process::Process;
use super::tables::State;
use crate::limits::{Resource, Rights};
use baton_abi::control::{
    Account, ChannelId, ContextReport, Cursor, End, EngineReport, NodeId, PAGE_ENTRIES, Part,
    ProcessId, ProcessReport, Reply, Report, Request, Share,
};

/// Number of entries that a process itself counts for, as it takes more bytes than a node or a
/// handle.
const PROCESS_ENTRIES: usize = 2;

/// The remaining entries of a page that is being written, and the cursor of the next page.
struct Page {
    left: usize,
    next: Option<Cursor>,
}

impl Page {
    /// Appends entries to a list. Returns false if the page is full before the last entry.
    fn fill<T>(
        &mut self,
        list: &mut Vec<T>,
        of: (ProcessId, Part),
        entries: impl Iterator<Item = (u64, T)>,
    ) -> bool {
        let (process, part) = (of.0.0, of.1);
        for (name, entry) in entries {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.next = Some(Cursor { process, part, after: name + 1 });
            list.push(entry);
        }
        true
    }
}

impl State {
    /// Answers an observer's request. `None` for a request that observers may not send.
    pub fn observe(&mut self, uid: u32, request: &Request) -> Option<Reply> {
        Some(match request {
            Request::Report { from } => {
                let (page, next) = self.report(uid, *from);
                Reply::Report { page, next }
            }
            Request::Accounts { from } => {
                let (accounts, next) = self.report_accounts(uid, *from);
                Reply::Accounts { accounts, next }
            }
            Request::Contexts => Reply::Contexts { names: self.contexts.keys().cloned().collect() },
            Request::AddContext { name } => match self.add_context(uid, name) {
                Ok(()) => Reply::Done,
                Err(errno) => Reply::Refused { errno: errno.raw_os_error() },
            },
            _ => return None,
        })
    }

    /// Whether a user may see the processes of all users.
    fn sees_all(&self, uid: u32) -> bool {
        self.rights(uid, Rights::default()).reserve
    }

    /// One page of the processes that a user may see, and the cursor of the next page. `engine`
    /// stays at its default: the runner reads it from the status pages.
    pub fn report(&self, uid: u32, from: Cursor) -> (Report, Option<Cursor>) {
        let mut report = Report::default();
        if from == Cursor::default() {
            let contexts = self.contexts.iter().map(|(name, context)| ContextReport {
                name: name.clone(),
                manager: context.manager.map(|key| key.owner.0),
                processes: Vec::new(),
            });
            report.contexts = contexts.collect();
        }
        let mut page = Page { left: PAGE_ENTRIES, next: None };
        let all = self.sees_all(uid);
        for (seen, (id, process)) in self.processes.range(ProcessId(from.process)..).enumerate() {
            // Processes of other users are not shown but still cost time, so they count towards a
            // page.
            if seen == PAGE_ENTRIES || page.left == 0 {
                return (
                    report,
                    page.next.max(Some(Cursor { process: id.0, ..Cursor::default() })),
                );
            }
            if !all && process.identity.uid != uid {
                continue;
            }
            let from = if id.0 == from.process { from } else { Cursor::default() };
            let mut shown = ProcessReport { process: id.0, ..ProcessReport::default() };
            let complete = self.report_process(*id, process, from, &mut shown, &mut page);
            let context = report.contexts.iter_mut().find(|known| known.name == process.context);
            match context {
                Some(context) => context.processes.push(shown),
                None => report.contexts.push(ContextReport {
                    name: process.context.clone(),
                    manager: None,
                    processes: vec![shown],
                }),
            }
            if !complete {
                return (report, page.next);
            }
        }
        (report, None)
    }

    /// Adds a process's entries behind the cursor. Returns false if the page is full before the
    /// last entry.
    fn report_process(
        &self,
        id: ProcessId,
        process: &Process,
        from: Cursor,
        shown: &mut ProcessReport,
        page: &mut Page,
    ) -> bool {
        shown.pid = process.identity.pid;
        shown.uid = process.identity.uid;
        shown.frozen = process.freezer.is_frozen();
        shown.engine = EngineReport::default();
        if from.part == Part::Process {
            shown.real_time = self.report_lanes(id);
        }
        page.left = page.left.saturating_sub(PROCESS_ENTRIES + shown.real_time.len());
        // The cursor if no further entry fits.
        page.next = Some(from.max(Cursor { process: id.0, part: Part::Nodes, after: 0 }));
        let after = |part: Part| match from.part.cmp(&part) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => Some(from.after),
            std::cmp::Ordering::Greater => None,
        };
        if let Some(first) = after(Part::Nodes) {
            let first = NodeKey { owner: id, node: NodeId(first) };
            let last = NodeKey { owner: id, node: NodeId(u64::MAX) };
            let nodes = self.nodes.range(first..=last).filter(|(_, node)| node.summary().held);
            let entries = nodes.map(|(key, node)| {
                let (strong, holders) = node.counts();
                (key.node.0, (key.node.0, strong, holders))
            });
            if !page.fill(&mut shown.nodes, (id, Part::Nodes), entries) {
                return false;
            }
        }
        if let Some(first) = after(Part::Handles) {
            let entries = process.handles.from(first).map(|(number, handle)| {
                let (owner, node) = (handle.key.owner.0, handle.key.node.0);
                (u64::from(number), (number, owner, node, handle.strong_grants > 0))
            });
            if !page.fill(&mut shown.handles, (id, Part::Handles), entries) {
                return false;
            }
        }
        let Some(first) = after(Part::Channels) else { return true };
        let channels = process.channels.from(ChannelId(first));
        let entries = channels
            .map(|(id, channel)| (id.0, (id.0, channel.peer.0, channel.end == End::Server)));
        page.fill(&mut shown.channels, (id, Part::Channels), entries)
    }

    /// Users' accounts with the state's amounts. The runner adds its own.
    fn report_accounts(&self, uid: u32, from: u32) -> (Vec<Account>, Option<u32>) {
        let all = self.sees_all(uid);
        let mut users = self.accounts.users();
        users.insert(uid);
        let mut users = users.range(from..).copied().filter(|user| all || *user == uid);
        let account = |uid| {
            let rights = self.rights(uid, self.accounts.rights(uid));
            let share = |resource: Resource| {
                let quota = self.accounts.of(resource);
                let left = quota.left_for(uid, self.quota_class(&rights, resource));
                let name = resource.name().to_owned();
                Share { name, taken: quota.of(uid), left, limit: quota.limit() }
            };
            let shares = Resource::ALL.map(share).into();
            Account { uid, reserve: rights.reserve, shares }
        };
        let accounts = users.by_ref().take(PAGE_ENTRIES / 4).map(account).collect();
        (accounts, users.next())
    }
}
