//! The open devices, by the server's numbers of them.

use crate::account::ThreadPlace;
use crate::client_thread::ClientThread;
use crate::opened_device::OpenedDevice;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open device with the stand-ins for the threads that use it.
#[derive(Debug)]
pub struct Open {
    /// The device.
    pub device: Arc<OpenedDevice>,
    /// The stand-ins, by the ids of their clients' threads.
    pub threads: HashMap<u32, ClientThread>,
    /// The place for one of these threads that nobody else can take.
    pub place: ThreadPlace,
}

/// The open devices. Opens are answered by threads of their own.
#[derive(Debug, Default)]
pub struct Opens(Mutex<HashMap<u64, Open>>);

impl Opens {
    /// All of them.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
