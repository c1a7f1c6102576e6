//! The process of the broker.

use crate::starter::say;
use baton_broker::Config;
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set};
use std::io;
use std::path::Path;

/// Time that engines of the previous broker have to rejoin. Attacks in that time are over before.
pub const GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Serves until the process is killed. Log messages go to standard error.
pub fn serve(socket: &Path, packaged: bool) -> io::Result<()> {
    tracing_subscriber::fmt().with_writer(io::stderr).without_time().with_ansi(false).init();
    if packaged {
        give_up_capabilities()?;
    }
    let config = Config { grace: GRACE, ..Config::at(socket) };
    baton_broker::run(config, || say("ready")).map_err(io::Error::other)
}

/// Limits the capabilities like `dist/baton-broker.service`: CapabilityBoundingSet=CAP_SYS_NICE,
/// NoNewPrivileges=yes.
fn give_up_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        if capability != CapabilitySet::SYS_NICE {
            // EINVAL: this kernel does not know the capability, or the process lacks SETPCAP and so
            // has fewer capabilities than the unit.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    let now = rustix::thread::capabilities(None)?;
    let kept = now.permitted & CapabilitySet::SYS_NICE;
    let inheritable = CapabilitySet::empty();
    let kept = CapabilitySets { effective: kept, permitted: kept, inheritable };
    rustix::thread::set_capabilities(None, kept)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
