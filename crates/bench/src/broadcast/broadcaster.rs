//! A process's way to broadcast: our service, or a message bus of D-Bus.

use crate::broadcast::role::Part;
pub use crate::system::Sender;
use std::any::Any;
use std::io;
use std::sync::Arc;

/// The handler of a receiver's messages.
pub type Receive = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// A process's end.
pub trait Broadcaster {
    /// An end that broadcasts, for a thread of its own. A message is sent once it is accepted.
    fn sender(&self) -> io::Result<Box<dyn Sender + Send>>;

    /// Adds so many receivers, each of which gets every message.
    fn receive(&self, n_receivers: u32, receive: Receive) -> io::Result<()>;
}

/// How a system's processes come to their ends.
#[derive(Clone, Copy)]
pub struct Means {
    /// Starts the process that delivers; whoever keeps the value keeps it at work.
    pub serve: fn(&Part) -> io::Result<Box<dyn Any>>,
    /// Finds it.
    pub join: fn(&Part) -> io::Result<Box<dyn Broadcaster>>,
}
