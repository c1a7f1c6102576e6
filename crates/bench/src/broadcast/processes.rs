//! The processes of one measurement, as the run sees them. Dropped, they end, those that came last
//! first.

use crate::broadcast::role::{Part, Role};
use crate::child::ChildProcess;
use crate::service::Service;
use crate::testbed::Testbed;
use std::io;
use std::process::Command;

/// The processes, each known by its number, and their broker.
pub struct Processes {
    children: Vec<ChildProcess>,
    testbed: Testbed,
}

impl Processes {
    pub fn new() -> io::Result<Processes> {
        let testbed = Testbed::start().map_err(io::Error::other)?;
        Ok(Processes { children: Vec::new(), testbed })
    }

    /// Starts a process, and waits until it is at it.
    pub fn start(&mut self, role: Role) -> io::Result<usize> {
        let broker = self.testbed.place(Service::Arrivals).broker.to_owned();
        let name = (&role).into();
        let part = Part { role, broker };
        let mut program = Command::new(std::env::current_exe()?);
        self.children.push(ChildProcess::start_role(name, &mut program, "broadcast-role", &part)?);
        Ok(self.children.len() - 1)
    }

    pub fn get(&mut self, number: usize) -> &mut ChildProcess {
        &mut self.children[number]
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        while self.children.pop().is_some() {}
    }
}
