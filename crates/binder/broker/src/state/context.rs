//! Contexts, each of which corresponds to one of the kernel's device nodes, and their managers.

use super::node::NodeKey;
use baton_abi::control::{NodeId, ProcessId};
use serde::{Deserialize, Serialize};

/// Contexts that every broker has.
pub const CONTEXTS: [&str; 3] = ["binder", "hwbinder", "vndbinder"];

#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub manager: Option<NodeKey>,
    /// The first manager's user, which outlives the manager, as in the kernel.
    pub manager_uid: Option<u32>,
    /// The context goes with the last process in it.
    pub is_removed: bool,
}

/// A context's manager, as the next broker has to know it. Engines cannot be trusted to say who
/// manages a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The managing process and its node.
    pub manager: Option<(ProcessId, NodeId)>,
    /// The first manager's user.
    pub manager_uid: Option<u32>,
    /// The context goes with the last process in it.
    pub is_removed: bool,
}
