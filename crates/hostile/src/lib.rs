//! What strangers may do to a broker and its honest parties, and what it must not cost these.
//!
//! The program `hostile` plays attacks, each with a broker, an honest server and an honest client
//! of its own, and says whether these survive. This library is the part that tests of other crates
//! use, too.
//!
//! - [`engine`]: an engine that is nothing but the control protocol.

pub mod engine;
