//! The contexts of a mount's devices, at the broker.

use baton_driver::device::OpenError;
use baton_driver::observer::Observer;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The contexts of the devices that there are. Those of a mount apart go with it; all others are
/// the broker's, and stay.
#[derive(Debug)]
pub struct Contexts {
    /// The end of the names of this mount's own contexts.
    apart: Option<String>,
    added: Mutex<Added>,
}

/// The contexts that were added, and the connection by which they were.
#[derive(Debug)]
struct Added {
    /// The broker's.
    socket: PathBuf,
    /// A broker that runs until it is idle runs for as long as this connection is open.
    broker: Observer,
    names: BTreeSet<String>,
}

impl Contexts {
    /// Connects to the broker.
    pub fn connect(socket: PathBuf, apart: Option<String>) -> Result<Contexts, OpenError> {
        let broker = Observer::connect(&socket)?;
        let added = Added { socket, broker, names: BTreeSet::new() };
        Ok(Contexts { apart, added: Mutex::new(added) })
    }

    /// The broker's name for the context of a device.
    pub fn of(&self, device: &str) -> String {
        match &self.apart {
            Some(ending) => format!("{device}.{ending}"),
            None => device.to_owned(),
        }
    }

    /// Adds the context of a device at the broker, unless it has it. The error is the broker's.
    pub fn add(&self, device: &str) -> Result<(), Errno> {
        let context = self.of(device);
        let mut added = self.added();
        added.add(&context)?;
        added.names.insert(context);
        Ok(())
    }

    /// Adds a device's context that the broker has no more: it is another broker that was told
    /// nothing, or another mount with this name has ended. False for a context whose device is
    /// unlinked, and if the broker refuses.
    pub fn restore(&self, context: &str) -> bool {
        let mut added = self.added();
        added.names.contains(context) && added.add(context).is_ok()
    }

    /// Removes the context of a device that is unlinked, if it is this mount's own. Programs that
    /// have the device open keep the context.
    pub fn remove(&self, device: &str) {
        let context = self.of(device);
        let mut added = self.added();
        if added.names.remove(&context) && self.apart.is_some() {
            added.remove(&context);
        }
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Added {
    fn add(&mut self, context: &str) -> Result<(), Errno> {
        match self.ask(|broker| broker.add_context(context)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            // This user may use the contexts that there are.
            Err(Errno::PERM) if self.ask(Observer::contexts)?.iter().any(|it| it == context) => {
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    fn remove(&mut self, context: &str) {
        // Without a broker there is no context.
        let _ = self.ask(|broker| broker.remove_context(context));
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
        if self.apart.is_some() {
            let mut added = self.added();
            for context in std::mem::take(&mut added.names) {
                added.remove(&context);
            }
        }
    }
}
