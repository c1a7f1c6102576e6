//! Many clients of one server: all are served, however many there are already.

use super::open_storm::{be_served, gather};
use super::{Attack, Play, Whose};

const NAME: &str = "many_clients";
/// Clients in the short and the long form.
const CLIENTS: [usize; 2] = [1_000, 4_000];

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "thousands of honest clients call one server, and stay",
    whose: Whose::Anybodys,
    play: Play::Own(|run| be_served(run, NAME)),
    attack: |attacker| {
        let [short, long] = CLIENTS;
        gather(attacker, attacker.scale.of(short, long))
    },
};
