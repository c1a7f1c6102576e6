//! The broker's tables, over which every request works.

use super::account::Accounts;
use super::claims::Rebuild;
use super::context::{CONTEXTS, Context};
use super::lane::{Lane, LaneId, StandbyLooper};
use super::node::{Node, NodeKey};
use super::process::Process;
use crate::limits::Limits;
use baton_abi::claim::first_of;
use baton_abi::control::ProcessId;
use std::collections::{BTreeMap, BTreeSet};

/// The broker's data. Maps are ordered so that equal runs give equal effects.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) limits: Limits,
    /// The broker's own user.
    pub(super) uid: u32,
    pub(super) contexts: BTreeMap<String, Context>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// The processes of each pid, which follows the number of its namespace. A program may open
    /// several devices.
    pub(super) with_pid: BTreeMap<(u64, u32), BTreeSet<ProcessId>>,
    pub(super) nodes: BTreeMap<NodeKey, Node>,
    pub(super) accounts: Accounts,
    pub(super) real_time: BTreeMap<LaneId, Lane>,
    pub(super) standby_loopers: BTreeMap<ProcessId, StandbyLooper>,
    pub(super) era: u32,
    pub(super) last_process: u64,
    pub(super) last_channel: u64,
    pub(super) last_ticket: u64,
    pub(super) last_dead_node: u64,
    /// Present while engines of a previous broker may rejoin.
    pub(super) rebuild: Option<Rebuild>,
    /// Whether contexts or managers have changed since the last [`State::changed_rules`].
    pub(super) rules_changed: bool,
}

impl State {
    /// A state without processes, with the contexts that every broker has. `uid` is the broker's
    /// own user.
    pub fn new(limits: Limits, uid: u32) -> State {
        let contexts = CONTEXTS.iter().map(|name| ((*name).to_owned(), Context::default()));
        State {
            limits,
            uid,
            contexts: contexts.collect(),
            processes: BTreeMap::new(),
            with_pid: BTreeMap::new(),
            nodes: BTreeMap::new(),
            accounts: Accounts::new(&limits),
            real_time: BTreeMap::new(),
            standby_loopers: BTreeMap::new(),
            era: 0,
            last_process: first_of(0),
            last_channel: first_of(0),
            last_ticket: first_of(0),
            last_dead_node: 0,
            rebuild: None,
            rules_changed: false,
        }
    }
}
