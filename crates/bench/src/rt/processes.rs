//! The processes of one measurement, as the run sees them: a server, and others. Dropped, they end,
//! those that came last first.

use crate::actor::{Actor, PATIENCE};
use crate::rt::mqueue;
use crate::rt::role::Role;
use crate::rt::way::Way;
use crate::service::Service;
use crate::stage::Stage;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;

/// The processes.
pub struct RtProcesses<'a> {
    stage: &'a Stage,
    way: Way,
    members: Vec<(Role, Actor)>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Member(usize);

impl RtProcesses<'_> {
    /// Nobody yet.
    pub fn new(stage: &Stage, way: Way) -> RtProcesses<'_> {
        RtProcesses { stage, way, members: Vec::new() }
    }

    /// A server, whose thread has this priority if it has one for everybody.
    pub fn server(&mut self, level: u8, words: &[String]) -> io::Result<Member> {
        let level = ["--level".to_owned(), level.to_string()];
        self.ready(Role::Server, &[words, &level].concat())
    }

    /// Starts a process, and waits until it is at it.
    pub fn ready(&mut self, role: Role, words: &[String]) -> io::Result<Member> {
        let member = self.add(role, words)?;
        self.is_ready(member)?;
        Ok(member)
    }

    fn is_ready(&mut self, member: Member) -> io::Result<()> {
        match self.hear(member, PATIENCE)?.as_str() {
            "ready\n" => Ok(()),
            _ => {
                let role = self.members[member.0].0;
                Err(io::Error::other(format!("the {} says something else", role.name())))
            }
        }
    }

    /// Starts a process.
    pub fn add(&mut self, role: Role, words: &[String]) -> io::Result<Member> {
        let place = self.stage.place(Service::Echo);
        let mut command = self.way.command(place.broker).map_err(io::Error::other)?;
        command.args(["rt-role", self.way.name(), role.name()]);
        command.arg(place.directory).arg(place.broker).args(words);
        command.arg("--starter").arg(std::process::id().to_string());
        self.members.push((role, Actor::start(&mut command)?));
        Ok(Member(self.members.len() - 1))
    }

    /// Tells it to do something, so often, and waits until it has.
    pub fn ask(&mut self, member: Member, order: &str) -> io::Result<()> {
        self.tell(member, order)?;
        self.is_ready(member)
    }

    /// Tells it to do something.
    pub fn tell(&mut self, Member(member): Member, order: &str) -> io::Result<()> {
        self.members[member].1.say(order)
    }

    /// Its process id.
    pub fn process(&self, Member(member): Member) -> u32 {
        self.members[member].1.id()
    }

    /// That it has not ended.
    pub fn is_there(&mut self, Member(member): Member) -> io::Result<()> {
        let (role, actor) = &mut self.members[member];
        match actor.has_ended()? {
            false => Ok(()),
            true => Err(io::Error::other(format!("the {} has ended", role.name()))),
        }
    }

    /// What it says next.
    pub fn hear(&mut self, Member(member): Member, patience: Duration) -> io::Result<String> {
        let (role, actor) = &mut self.members[member];
        let silent = |silence| io::Error::other(format!("the {} {silence}", role.name()));
        actor.hear(patience).map_err(silent)
    }

    /// What it has found in so much time.
    pub fn hear_found<T: DeserializeOwned>(
        &mut self,
        member: Member,
        takes: Duration,
    ) -> io::Result<T> {
        Ok(serde_json::from_str(&self.hear(member, PATIENCE + takes)?)?)
    }
}

impl Drop for RtProcesses<'_> {
    fn drop(&mut self) {
        // Who calls ends before who answers, and has nothing to complain of.
        while self.members.pop().is_some() {}
        if self.way == Way::Mqueue {
            mqueue::forget(self.stage.place(Service::Echo).directory);
        }
    }
}
