//! The systems, one each.

pub mod futex;
pub mod hosted;
pub mod loan;
pub mod pipe;
pub mod stream;
pub mod typed;
pub mod uapi;
pub mod unix;
