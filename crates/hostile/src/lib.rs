//! Attacks by other users' processes on a broker and its honest clients and servers.
//!
//! The program `hostile` runs attacks, each against a broker, an honest server and an honest client
//! of its own, and reports whether these survive. This library contains the part that tests of
//! other crates use too.
//!
//! - [`engine`]: an engine that speaks the control protocol and nothing else.
//! - [`channel`]: its channels.
//! - [`packet`]: packets with descriptors.

pub mod channel;
pub mod engine;
pub mod packet;
