//! The processes of one measurement, as the run sees them: a server, and others. Dropped, they end,
//! those that came last first, and the server after them.

use crate::child::ChildProcess;
use crate::order::Side;
use crate::pair::{Endpoint, Place, command};
use crate::rt::role::{Part, Role};
use crate::service::Service;
use crate::system::System;
use crate::systems::mqueue;
use crate::testbed::Testbed;
use baton_rt::SchedPriority;
use std::io;

/// Threads of a server's pool, which serve all callers.
pub const N_LOOPERS: usize = 4;

/// The processes, each known by its number.
pub struct Processes<'a> {
    place: Place<'a>,
    system: System,
    children: Vec<ChildProcess>,
    servers: Vec<Endpoint>,
}

impl Processes<'_> {
    pub fn new(testbed: &Testbed, system: System) -> Processes<'_> {
        let place = testbed.place(Service::Clock);
        Processes { place, system, children: Vec::new(), servers: Vec::new() }
    }

    /// A server, whose thread has this priority if it has one for everybody; and its process id.
    pub fn server(&mut self, level: u8, cpu: Option<usize>) -> io::Result<u32> {
        let has_one = self.system == System::Mqueue && level > 0;
        let priority = has_one.then_some(SchedPriority::fifo(level));
        let place = Place { priority, ..self.place };
        let mut server = Endpoint::start(self.system, Side::Pool, place, N_LOOPERS)?;
        cpu.map_or(Ok(()), |cpu| server.go_to(Some(cpu)))?;
        let id = server.id();
        self.servers.push(server);
        Ok(id)
    }

    /// Starts a process, and waits until it is at it.
    pub fn start(&mut self, role: Role) -> io::Result<usize> {
        let (directory, broker) = (self.place.directory.to_owned(), self.place.broker.to_owned());
        let mut program = command(self.system, &broker)?;
        let name = (&role).into();
        let part = Part { role, system: self.system, directory, broker };
        self.children.push(ChildProcess::start_role(name, &mut program, "rt-role", &part)?);
        Ok(self.children.len() - 1)
    }

    pub fn get(&mut self, number: usize) -> &mut ChildProcess {
        &mut self.children[number]
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        // Callers end before servers, and have nothing to complain of.
        while self.children.pop().is_some() {}
        self.servers.clear();
        if self.system == System::Mqueue {
            mqueue::forget(self.place.directory);
        }
    }
}
