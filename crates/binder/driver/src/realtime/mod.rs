//! Real time: the lanes that real-time callers keep, and loopers that wait on one lane alone, at
//! its caller's priority.

mod dedicated;
mod mlock;
mod program_loopers;
mod raise;
mod reserve;
mod standby;
