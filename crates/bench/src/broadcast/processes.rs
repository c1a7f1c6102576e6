//! The processes of one measurement, as the run sees them. Dropped, they end, those that came last
//! first.

use crate::broadcast::designs::Design;
use crate::broadcast::role::{Part, Role};
use crate::child::ChildProcess;
use crate::pair::command;
use crate::service::Service;
use crate::testbed::Testbed;
use std::io;

/// The processes, each known by its number, and their broker.
pub struct Processes {
    design: Design,
    children: Vec<ChildProcess>,
    testbed: Testbed,
}

impl Processes {
    pub fn new(design: Design) -> io::Result<Processes> {
        let testbed = Testbed::start()?;
        Ok(Processes { design, children: Vec::new(), testbed })
    }

    /// Starts a process, and waits until it is at it.
    pub fn start(&mut self, role: Role) -> io::Result<usize> {
        let place = self.testbed.place(Service::Arrivals);
        let mut program = command(self.design.system(), place.broker)?;
        let (broker, directory) = (place.broker.to_owned(), place.directory.to_owned());
        let name = (&role).into();
        let part = Part { role, design: self.design, broker, directory };
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
