//! The broker's process.

use crate::role::say;
use baton_broker::Config;
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set};
use std::io;
use std::path::Path;

/// How long engines of a broker before have to come back. An attack of those is over before.
pub const GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Serves until it is killed. What it has to say goes to standard error.
pub fn serve(socket: &Path, packaged: bool) -> io::Result<()> {
    tracing_subscriber::fmt().with_writer(io::stderr).without_time().with_ansi(false).init();
    if packaged {
        give_up_capabilities()?;
    }
    let config = Config { grace: GRACE, ..Config::at(socket) };
    baton_broker::run(config, || say("ready")).map_err(io::Error::other)
}

/// As `dist/baton-broker.service` has it: CapabilityBoundingSet=CAP_SYS_NICE, NoNewPrivileges=yes.
fn give_up_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        if capability != CapabilitySet::SYS_NICE {
            // EINVAL: a capability that this kernel does not know, or a process without SETPCAP,
            // which has less than the unit would leave it.
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
