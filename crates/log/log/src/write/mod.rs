//! Writing. [`logger`]: a process's access to a log. [`writer`]: a thread's. [`thread`]: the
//! process's own log. `shared`: what the writers of a process share.

pub(crate) mod logger;
pub(crate) mod shared;
pub(crate) mod thread;
pub(crate) mod writer;
