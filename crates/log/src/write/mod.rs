//! Writing: [`logger`], a process's way to a log; [`writer`], a thread's; [`thread`], the same
//! without asking for one.

pub(crate) mod logger;
pub(crate) mod shared;
pub(crate) mod thread;
pub(crate) mod writer;
