//! `baton am`: Android's activity manager, from the command line.
#![cfg_attr(not(test), expect(dead_code, reason = "the commands come with the services"))]

pub mod intent_args;
