//! Random choices: the handles and nodes that a step names, and whether they make sense.

use crate::profile::Profile;
use crate::random::Random;
use crate::world::World;

/// The source of a scenario's choices.
pub struct Choices {
    /// The random numbers.
    pub random: Random,
    /// The kinds of steps and their frequencies.
    pub profile: &'static Profile,
}

impl Choices {
    /// Whether the next choice should make no sense.
    pub fn wrong(&mut self) -> bool {
        self.profile.wrong > 0 && self.random.once_in(self.profile.wrong)
    }

    /// A handle, preferably one that the process has.
    pub fn handle(&mut self, world: &World, process: u8) -> u32 {
        if self.wrong() {
            return self.random.below(6) as u32;
        }
        let process = &world.processes[process as usize];
        let known: Vec<_> = process.handles.iter().copied().collect();
        if !process.manages && self.random.once_in(3) {
            return 0;
        }
        self.random.one_of(&known).unwrap_or(0)
    }

    /// A handle to send. The process has it, unless the choice is wrong on purpose.
    pub fn known_handle(&mut self, world: &World, process: u8) -> Option<u32> {
        if self.wrong() {
            return Some(self.random.below(6) as u32);
        }
        let known: Vec<_> = world.processes[process as usize].handles.iter().copied().collect();
        self.random.one_of(&known)
    }

    /// A node of the process: one that was sent before, or another.
    pub fn node(&mut self, world: &World, process: u8) -> (u64, u64) {
        let known = &world.processes[process as usize].nodes;
        if !self.random.once_in(3)
            && let Some(node) = self.random.one_of(known)
        {
            return node;
        }
        let ptr = 0x10_0000 * (u64::from(process) + 1) + 0x100 * self.random.below(6);
        (ptr, ptr + if self.wrong() { 9 } else { 8 })
    }
}
