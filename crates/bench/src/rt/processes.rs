//! The processes of one measurement, as the run sees them: a server, and others. Dropped, they end,
//! those that came last first.

use crate::child::ChildProcess;
use crate::rt::mqueue;
use crate::rt::role::Role;
use crate::rt::way::Way;
use crate::service::Service;
use crate::testbed::Testbed;
use std::io;

/// The processes, each known by its number.
pub struct Processes<'a> {
    testbed: &'a Testbed,
    way: Way,
    children: Vec<ChildProcess>,
}

impl Processes<'_> {
    pub fn new(testbed: &Testbed, way: Way) -> Processes<'_> {
        Processes { testbed, way, children: Vec::new() }
    }

    /// A server, whose thread has this priority if it has one for everybody.
    pub fn server(&mut self, level: u8, words: &[String]) -> io::Result<usize> {
        let level = ["--level".to_owned(), level.to_string()];
        self.start(Role::Server, &[words, &level].concat())
    }

    /// Starts a process, and waits until it is at it.
    pub fn start(&mut self, role: Role, words: &[String]) -> io::Result<usize> {
        let place = self.testbed.place(Service::Echo);
        let mut command = self.way.command(place.broker)?;
        command.args(["rt-role", self.way.name(), role.name()]);
        command.arg(place.directory).arg(place.broker).args(words);
        self.children.push(ChildProcess::start_role(role.name(), &mut command)?);
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
        if self.way == Way::Mqueue {
            mqueue::forget(self.testbed.place(Service::Echo).directory);
        }
    }
}
