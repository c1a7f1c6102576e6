//! The engine's state: all that the driver knows of one process, without I/O.
//!
//! Front ends and the runner call it under one lock; work outside it is left as [`Effect`]s, which
//! the runner carries out before it lets the lock go. So one simulator can drive many engines
//! and a broker, and kill any of them between two steps.
//!
//! Modules, lower ones first; none imports a module of a row below its own:
//!
//! | modules | contents |
//! |---|---|
//! | `buffer`, `priority`, `account`, `peer`, `notice` | parts that know no other part |
//! | `message`, `work`, `thread`, `node`, `reference`, `reserved_slot` | the process's things |
//! | `ticket`, `pool`, `watchdog`, `parcel`, `effect` | rules of their own, over these things |
//! | `process` | [`State`], which owns one of each, and its queues |
//! | `counts`, `kept`, `offers`, `death`, `freeze` | commands of the program about references |
//! | `looper`, `dedicated`, `transaction` | its other commands |
//! | `read`, `event`, `rejoin` | returns to the program, and news of the broker |
//! | `description` | a copy for logs |

#![forbid(unsafe_code)]

pub mod account;
pub mod buffer;
mod counts;
mod death;
mod dedicated;
pub mod description;
mod effect;
mod event;
mod freeze;
mod grant;
mod kept;
pub mod known;
mod looper;
mod message;
pub mod node;
mod notice;
mod offers;
mod one_way_queue;
pub mod parcel;
pub mod peer;
mod pool;
mod postponed;
pub mod priority;
mod process;
mod read;
pub mod reference;
mod rejoin;
mod reserved_slot;
pub mod thread;
mod ticket;
pub mod transaction;
pub mod watchdog;
pub mod work;

pub use effect::{Effect, Return};
pub use event::Manager;
pub use process::State;
