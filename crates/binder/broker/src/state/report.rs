//! Requests of observers, which engines may send too. They change nothing but the list of contexts,
//! and have processes describe their calls.
//!
//! **Invariant**: each answer costs the broker a bounded time. A report comes in pages, and each
//! page begins where the previous one ended.

use super::effect::Effect;
use super::holder_lists::{HolderList, HolderLists};
use super::node::NodeKey;
use super::pid_namespace::PidNamespace;
use super::process::{CallsTold, Process};
use super::tables::State;
use crate::limits::{Resource, Rights};
use baton_abi::control::{
    Account, CallReport, ChannelId, ContextReport, Cursor, End, EngineReport, Event, MAX_CALLS,
    NodeId, PAGE_ENTRIES, Part, ProcessId, ProcessReport, Reply, Report, Request, Share, Strength,
};
use rustix::io::Errno;

/// Number of entries that a process itself counts for, as it takes more bytes than a holding.
const PROCESS_ENTRIES: usize = 2;
/// Number of entries of an owner's list that take as long to read as one entry of a page.
const LIST_ENTRIES_FOR_ONE: usize = 256;

/// One holder of a node as a report shows it: node, holder, strongly held.
type Holding = (u64, u64, bool);

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
        entries: impl Iterator<Item = ((u64, u64), T)>,
    ) -> bool {
        let (process, part) = (of.0.0, of.1);
        for (name, entry) in entries {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.next = Some(Cursor { process, part, after: name });
            list.push(entry);
        }
        true
    }
}

fn done(outcome: Result<(), Errno>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done,
        Err(errno) => Reply::Refused { errno: errno.raw_os_error() },
    }
}

impl State {
    /// Answers a request of an observer, which has this user and pid namespace. `None` for a
    /// request that observers may not send.
    pub fn observe(
        &mut self,
        uid: u32,
        pid_namespace: PidNamespace,
        request: &Request,
        lists: &dyn HolderLists,
        out: &mut Vec<Effect>,
    ) -> Option<Reply> {
        Some(match request {
            Request::Report { from } => {
                let (page, next) = self.report(uid, pid_namespace, *from, lists);
                Reply::Report { page, next }
            }
            Request::Accounts { from } => {
                let (accounts, next) = self.report_accounts(uid, *from);
                Reply::Accounts { accounts, next }
            }
            Request::DescribeCalls => {
                self.ask_for_calls(uid, out);
                Reply::Done
            }
            Request::Contexts => {
                let names = self.contexts.keys().filter(|name| self.has_context(name));
                Reply::Contexts { names: names.cloned().collect() }
            }
            Request::AddContext { name } => done(self.add_context(uid, name)),
            Request::RemoveContext { name } => done(self.remove_context(uid, name)),
            _ => return None,
        })
    }

    /// Whether a user may see the processes of all users.
    fn sees_all(&self, uid: u32) -> bool {
        self.rights(uid, Rights::default()).reserve
    }

    /// Asks the processes that a user may see for their calls. One that does not read its events
    /// is asked once.
    fn ask_for_calls(&mut self, uid: u32, out: &mut Vec<Effect>) {
        let all = self.sees_all(uid);
        for (id, process) in &mut self.processes {
            let is_seen = all || process.identity.uid == uid;
            if is_seen && process.calls != CallsTold::Owed {
                process.calls = CallsTold::Owed;
                out.push(Effect::Event { to: *id, event: Event::DescribeCalls });
            }
        }
    }

    /// A process's answer. One that nobody has asked for has no effect.
    pub(super) fn note_calls(&mut self, from: ProcessId, mut calls: Vec<CallReport>) {
        calls.truncate(MAX_CALLS);
        if let Some(process) = self.processes.get_mut(&from)
            && process.calls == CallsTold::Owed
        {
            process.calls = CallsTold::Told(calls);
        }
    }

    /// One page of the processes that a user may see, and the cursor of the next page. `engine`
    /// stays at its default: the runner reads it from the status pages.
    pub fn report(
        &self,
        uid: u32,
        pid_namespace: PidNamespace,
        from: Cursor,
        lists: &dyn HolderLists,
    ) -> (Report, Option<Cursor>) {
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
            let pid = process.pid_in(pid_namespace);
            let mut shown = ProcessReport { process: id.0, pid, ..ProcessReport::default() };
            let complete = self.report_process(*id, process, from, lists, &mut shown, &mut page);
            let known = report.contexts.binary_search_by(|known| known.name.cmp(&process.context));
            let at = known.unwrap_or_else(|at| {
                let name = process.context.clone();
                report.contexts.insert(at, ContextReport { name, ..ContextReport::default() });
                at
            });
            report.contexts[at].processes.push(shown);
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
        lists: &dyn HolderLists,
        shown: &mut ProcessReport,
        page: &mut Page,
    ) -> bool {
        shown.uid = process.identity.uid;
        shown.frozen = process.freezer.is_frozen();
        shown.engine = EngineReport::default();
        if from.part == Part::Process {
            shown.real_time = self.report_lanes(id);
            if let CallsTold::Told(calls) = &process.calls {
                shown.calls = Some(calls.clone());
            }
        }
        let n_calls = shown.calls.as_ref().map_or(0, Vec::len);
        let n_entries = PROCESS_ENTRIES + shown.real_time.len() + n_calls;
        page.left = page.left.saturating_sub(n_entries);
        // The cursor if no further entry fits.
        let first = Cursor { process: id.0, part: Part::Holdings, after: (0, 0) };
        page.next = Some(from.max(first));
        if from.part <= Part::Holdings {
            let after = if from.part == Part::Holdings { from.after } else { (0, 0) };
            let list = self.list_of(lists, id);
            let n_read = list.n_read;
            let holdings = self.holdings_after(id, after, list);
            let entries = holdings.map(|holding| ((holding.0, holding.1), holding));
            let complete = page.fill(&mut shown.holdings, (id, Part::Holdings), entries);
            if !complete {
                return false;
            }
            // Afterwards, so that each page leads on.
            page.left = page.left.saturating_sub(n_read / LIST_ENTRIES_FOR_ONE);
            page.next = Some(Cursor { process: id.0, part: Part::Channels, after: (0, 0) });
        }
        let after = if from.part == Part::Channels { from.after.0 } else { 0 };
        let channels = process.channels.from(ChannelId(after.saturating_add(1)));
        let entries = channels
            .map(|(id, channel)| ((id.0, 0), (id.0, channel.peer.0, channel.end == End::Server)));
        page.fill(&mut shown.channels, (id, Part::Channels), entries)
    }

    /// The holders of an owner's nodes behind a pair of node and holder, in order: by the broker's
    /// book and by the owner's list, each pair once.
    fn holdings_after(
        &self,
        owner: ProcessId,
        after: (u64, u64),
        list: HolderList,
    ) -> impl Iterator<Item = Holding> {
        let listed =
            list.holdings.iter().map(|it| (it.node.0, it.holder.0, is_strong(it.strength)));
        let mut listed: Vec<Holding> = listed.filter(|it| (it.0, it.1) > after).collect();
        listed.sort_unstable();
        let first = NodeKey { owner, node: NodeId(after.0) };
        let nodes = self.nodes.range(first..=*NodeKey::all_of(owner).end());
        let booked = nodes.flat_map(move |(key, node)| {
            let node_id = key.node.0;
            // A page begins amid the holders of one node.
            let from = if node_id == after.0 { after.1 } else { 0 };
            let holdings = node.holdings_from(ProcessId(from));
            holdings.map(move |(holder, strength)| (node_id, holder.0, is_strong(strength)))
        });
        let booked = booked.filter(move |it| (it.0, it.1) > after);
        merge(booked, listed.into_iter())
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

fn is_strong(strength: Strength) -> bool {
    strength == Strength::Strong
}

/// Merges two sorted lists. Of entries for one pair of node and holder, one stays: the strong one.
fn merge(
    one: impl Iterator<Item = Holding>,
    other: impl Iterator<Item = Holding>,
) -> impl Iterator<Item = Holding> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let mut next = move || match (one.peek(), other.peek()) {
        (Some(its), Some(theirs)) if theirs < its => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    };
    let mut last = next();
    std::iter::from_fn(move || {
        let mut holding = last?;
        loop {
            last = next();
            match last {
                Some(same) if (same.0, same.1) == (holding.0, holding.1) => holding.2 |= same.2,
                _ => return Some(holding),
            }
        }
    })
}
