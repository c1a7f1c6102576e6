//! The attacks: one per file, named after what they do. [`Attack`] says how one is played.
//!
//! Each has two sides. `play` runs in the run's process, starts the others and judges. `attack`
//! runs in the attack's processes, which belong to other users and may break every protocol.
//!
//! **Invariant**: an attack ends after a bounded number of actions and a bounded time, whatever
//! other processes do.

mod all_at_once;
mod connect_flood;
mod denying_owner;
mod doorbells;
mod filled_book;
mod filled_handles;
mod fork_in_call;
mod freeze_toggles;
mod full_table;
mod future_names;
mod grant_flood;
mod kept_grants;
mod many_channels;
mod many_clients;
mod many_contexts;
mod many_devices;
mod many_engines;
mod moved_sleepers;
mod one_way_flood;
mod open_storm;
mod others_handles;
mod over_return;
mod own_table;
mod real_time_lanes;
mod rejoin_with_nothing;
mod report_flood;
mod reused_pid;
mod silent_guests;
mod squatting;
mod stolen_names;
mod stopped_server;
mod unannounced_descriptors;
mod unclaimed_tickets;
mod unread_descriptors;
mod unread_events;
mod unread_returns;

use crate::play::Attack;

/// All attacks in the order in which they run.
pub const ALL: &[&Attack] = &[
    &full_table::ATTACK,
    &unannounced_descriptors::ATTACK,
    &own_table::ATTACK,
    &many_channels::ATTACK,
    &rejoin_with_nothing::ATTACK,
    &unread_descriptors::ATTACK,
    &unclaimed_tickets::ATTACK,
    &report_flood::ATTACK,
    &others_handles::ATTACK,
    &freeze_toggles::ATTACK,
    &stopped_server::ATTACK,
    &unread_events::ATTACK,
    &many_devices::ATTACK,
    &silent_guests::ATTACK,
    &connect_flood::ATTACK,
    &many_engines::ATTACK,
    &doorbells::ATTACK,
    &moved_sleepers::ATTACK,
    &one_way_flood::ATTACK,
    &filled_book::ATTACK,
    &filled_handles::ATTACK,
    &over_return::ATTACK,
    &kept_grants::ATTACK,
    &grant_flood::ATTACK,
    &unread_returns::ATTACK,
    &denying_owner::ATTACK,
    &stolen_names::ATTACK,
    &future_names::ATTACK,
    &reused_pid::ATTACK,
    &squatting::ATTACK,
    &many_contexts::ATTACK,
    &real_time_lanes::ATTACK,
    &fork_in_call::ATTACK,
    &open_storm::ATTACK,
    &many_clients::ATTACK,
    &all_at_once::ATTACK,
];

pub fn find(name: &str) -> Option<&'static Attack> {
    ALL.iter().find(|attack| attack.name == name).copied()
}

/// The attacks with these names. The error is the first unknown name.
pub fn attacks_by_name(names: &[String]) -> Result<Vec<&'static Attack>, &str> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    names.iter().map(|name| find(name).ok_or(&name[..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::{Run, Scale};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn every_file_contains_the_attack_of_its_name() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attack");
        let files = std::fs::read_dir(directory).expect("the sources").map(|entry| {
            let path = entry.expect("the sources").path();
            path.file_stem().expect("a name").to_string_lossy().into_owned()
        });
        let files: BTreeSet<String> = files.filter(|name| name != "mod").collect();
        let names: BTreeSet<String> = ALL.iter().map(|attack| attack.name.to_owned()).collect();
        assert_eq!(names, files);
        assert_eq!(names.len(), ALL.len(), "two attacks have one name");
    }

    #[test]
    fn every_group_of_a_load_names_an_attack() {
        for scale in [Scale::Short, Scale::Long] {
            let run = Run { scale, patience: Duration::ZERO };
            for load in ALL.iter().filter_map(|attack| attack.load(&run)) {
                for group in &load.groups {
                    assert!(find(group.attack).is_some(), "{}", group.attack);
                    assert!(group.processes > 0);
                }
            }
        }
    }
}
