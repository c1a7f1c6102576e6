//! Limits of the broker's and a server's resources under any attack.

/// Growth of the broker's memory: `docs/limits.md`.
pub const BROKER_GROWTH_BYTES: u64 = 256 << 20;
/// Growth of a server's memory for messages that strangers send and do not take back.
pub const SERVER_GROWTH_BYTES: u64 = 64 << 20;
/// Growth of a server's memory for thousands of honest clients.
pub const SERVER_OF_CROWD_BYTES: u64 = 256 << 20;
/// Descriptors that the broker keeps for users other than the attacker.
pub const RESERVED_DESCRIPTORS: u64 = 64;
/// Memory that may remain after the attackers are gone.
pub const REMAINDER_BYTES: u64 = 32 << 20;
