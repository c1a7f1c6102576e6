//! Many clients of one server: all are served, however many are already connected.

use super::open_storm::{check_all_served, start_crowd};
use crate::play::{Attack, Play, Whose};

const NAME: &str = "many_clients";
/// Number of clients in the short and the long form.
const CLIENTS: [usize; 2] = [1_000, 4_000];

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "thousands of honest clients call one server, and stay",
    whose: Whose::Anybodys,
    play: Play::Own(|run| check_all_served(run, NAME)),
    attack: |attacker| {
        let [short, long] = CLIENTS;
        start_crowd(attacker, attacker.scale.of(short, long))
    },
};
