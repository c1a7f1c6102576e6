//! The contexts of a mount's devices, at the broker.

use baton_driver::device::OpenError;
use baton_driver::observer::Observer;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The connection by which contexts are added and removed, and the contexts that are this mount's
/// own. They go with it; all others are the broker's, and stay.
#[derive(Debug)]
pub struct Contexts {
    /// The broker's.
    socket: PathBuf,
    /// A broker that runs until it is idle runs for as long as this connection is open.
    broker: Observer,
    /// What the names of this mount's own contexts end with.
    apart: Option<String>,
    own: BTreeSet<String>,
}

impl Contexts {
    /// Connects to the broker.
    pub fn connect(socket: PathBuf, apart: Option<String>) -> Result<Contexts, OpenError> {
        let broker = Observer::connect(&socket)?;
        Ok(Contexts { socket, broker, apart, own: BTreeSet::new() })
    }

    /// The broker's name for the context of a device.
    pub fn of(&self, device: &str) -> String {
        match &self.apart {
            Some(ending) => format!("{device}.{ending}"),
            None => device.to_owned(),
        }
    }

    /// Adds the context of a device at the broker, unless it has it. The error is the broker's.
    pub fn add(&mut self, device: &str) -> Result<(), Errno> {
        let context = self.of(device);
        match self.ask(|broker| broker.add_context(&context)) {
            Ok(()) | Err(Errno::EXIST) => {}
            // This user may use the contexts that there are.
            Err(Errno::PERM) if self.ask(Observer::contexts)?.contains(&context) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        if self.apart.is_some() {
            self.own.insert(context);
        }
        Ok(())
    }

    /// Removes the context of a device that is unlinked, if it is this mount's own. Programs that
    /// have the device open keep the context.
    pub fn remove(&mut self, device: &str) {
        let context = self.of(device);
        if self.own.remove(&context) {
            // Without a broker there is no context.
            let _ = self.ask(|broker| broker.remove_context(&context));
        }
    }

    /// Asks the broker, or the one that has taken its place.
    fn ask<T>(&mut self, question: impl Fn(&Observer) -> Result<T, Errno>) -> Result<T, Errno> {
        match question(&self.broker) {
            Err(Errno::PIPE | Errno::CONNRESET) => {
                let connected = Observer::connect(&self.socket);
                self.broker = connected.map_err(|error| error.errno())?;
                question(&self.broker)
            }
            answered => answered,
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        for context in std::mem::take(&mut self.own) {
            let _ = self.ask(|broker| broker.remove_context(&context));
        }
    }
}
