//! What owners themselves say about the holders of their nodes.
//!
//! An owner's list is the owner's allegation. **Invariant**: an entry speaks of nodes of its owner
//! alone, and only for holders in the owner's context.

use super::tables::State;
use baton_abi::control::ProcessId;
use baton_abi::holder_list::Holding;

/// The [`holder_list`](baton_abi::holder_list) of each engine. The runner reads them from the
/// engines' files.
pub trait HolderLists {
    /// What one entry of an owner's list says. `None` if it is free, being written, or out of
    /// bounds, or if there is no such list.
    fn entry(&self, owner: ProcessId, entry: u32) -> Option<Holding>;

    /// A whole list.
    fn all(&self, owner: ProcessId) -> HolderList;
}

/// A whole list.
#[derive(Clone, Debug, Default)]
pub struct HolderList {
    /// What its valid entries say, in any order.
    pub holdings: Vec<Holding>,
    /// Number of entries that were read, valid or not: a measure of the time that it took.
    pub n_read: usize,
}

impl State {
    /// What an owner's list says at the entry that `holder` names, if it speaks of this holder.
    pub(super) fn listed(
        &self,
        lists: &dyn HolderLists,
        holder: ProcessId,
        owner: ProcessId,
        entry: Option<u32>,
    ) -> Option<Holding> {
        let is_possible = self.share_context(holder, owner);
        let holding = entry.filter(|_| is_possible).and_then(|entry| lists.entry(owner, entry));
        holding.filter(|holding| holding.holder == holder)
    }

    /// An owner's whole list, without entries that cannot be: those of the owner itself, of dead
    /// processes and of other contexts.
    pub(super) fn list_of(&self, lists: &dyn HolderLists, owner: ProcessId) -> HolderList {
        let mut list = lists.all(owner);
        list.holdings.retain(|&Holding { holder, .. }| {
            holder != owner && (self.share_context(holder, owner) || self.may_rejoin(holder))
        });
        list
    }

    /// Whether two living processes opened one context.
    pub(super) fn share_context(&self, one: ProcessId, other: ProcessId) -> bool {
        let context = |process| self.processes.get(&process).map(|process| &process.context);
        context(one).is_some_and(|its| context(other) == Some(its))
    }
}
