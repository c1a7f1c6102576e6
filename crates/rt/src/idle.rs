//! A bound on the processors' wake-up times: idle states that take longer are not entered.

use crate::error::Error;
use crate::paths::Paths;
use std::fs::File;
use std::io::{self, Read, Write};

/// A bound on the wake-up time of all processors. The kernel ends it when the file is closed, at
/// the latest with the process.
#[derive(Debug)]
pub struct Bound {
    _device: File,
}

impl Bound {
    /// Requests a bound in microseconds. 0 keeps processors from every idle state except polling.
    pub fn new(paths: &Paths, latency_us: u32) -> Result<Bound, Error> {
        let path = &paths.dma_latency;
        let opened = File::options().write(true).open(path);
        let written = opened.and_then(|mut device| {
            device.write_all(&i32::try_from(latency_us).unwrap_or(i32::MAX).to_ne_bytes())?;
            Ok(Bound { _device: device })
        });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied {
                what: "bounding the wake-up time".to_owned(),
                needs: format!("the right to write {}", path.display()),
                advice: "run it as root, or let a udev rule give the device to a group",
            },
            _ => Error::system(format!("write {}", path.display()), error),
        })
    }
}

/// The smallest bound that any process requests, in microseconds. `None` where it cannot be read.
pub fn bound_us(paths: &Paths) -> Option<i32> {
    let mut bytes = [0; 4];
    File::open(&paths.dma_latency).ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}
