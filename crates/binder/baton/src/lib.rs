//! Binder without a kernel module: processes call each other's objects, with bytes, objects and
//! descriptors, and nothing of AIDL.
//!
//! - [`Process`]: one opened device; it serves [`Object`]s. [`Options`]: how it is opened.
//! - [`CountedObject`]: an object that ends before its process: a session, a callback, a token.
//! - [`Handle`]: a reference to an object of another process, which is called by it;
//!   [`DeathLink`]: a wait for that object's death.
//! - [`Parcel`]: what is sent; [`Loan`]: bytes that are written where their receiver reads them;
//!   [`Received`]: what came back; [`Request`]: what a handler is asked.
//! - [`ServiceManager`]: services by their names. [`android`]: the form of Android's parcels.
//! - [`CallError`], [`OpenError`], [`NameError`]: what went wrong. [`SchedPriority`]: how urgent a
//!   caller or an object is.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let socket = directory.path().join("broker.sock");
//! # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
//! use baton::{Parcel, Process};
//!
//! const HELLO: u32 = 1;
//!
//! // One process serves an object, here as the manager of the context "binder".
//! let server = Process::open("binder", &socket)?;
//! let hello = server.object(|request| match request.code() {
//!     HELLO => Ok(Parcel::from(&b"hello"[..])),
//!     _ => Err(baton::Errno::NOSYS),
//! });
//! server.become_context_manager(hello.add())?;
//! let looper = std::thread::spawn({
//!     let server = server.clone();
//!     move || server.serve()
//! });
//!
//! // Another one calls it.
//! let client = Process::open("binder", &socket)?;
//! let manager = client.context_manager()?;
//! assert_eq!(manager.call(HELLO, &Parcel::new())?.data(), b"hello");
//! # server.close();
//! # looper.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Its lower layer is the crate `baton-driver`, nothing of which is in sight here.

pub mod android;
mod call;
mod counted_object;
mod driver;
mod error;
mod handle;
mod handler;
mod lane_looper;
mod loan;
mod looper;
mod object;
mod object_builder;
mod options;
mod parcel;
mod process;
mod received;
pub mod service_manager;

pub use baton_abi::place::socket_path;
pub use baton_abi::sched_priority::{NotAPriority, SchedPolicy, SchedPriority};
pub use baton_driver::device::OpenError;
pub use counted_object::CountedObject;
pub use error::CallError;
pub use handle::{DeathLink, Handle};
pub use loan::Loan;
pub use object::Object;
pub use object_builder::ObjectBuilder;
pub use options::{Options, RECEIVE_BYTES};
pub use parcel::Parcel;
pub use process::{Process, own_priority, priority_changed};
pub use received::{Received, Request};
pub use rustix::io::Errno;
pub use service_manager::{NameError, ServiceManager};
