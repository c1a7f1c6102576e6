//! What the broker and a server may need under any attack.

/// How much the broker's memory may grow: `docs/limits.md`.
pub const BROKER_GROWTH_BYTES: u64 = 256 << 20;
/// How much a server's memory may grow for what strangers send it and do not take back.
pub const SERVER_GROWTH_BYTES: u64 = 64 << 20;
/// How much it may grow for thousands of honest clients.
pub const SERVER_OF_CROWD_BYTES: u64 = 256 << 20;
/// Descriptors that the broker keeps for others than the one user.
pub const RESERVED_DESCRIPTORS: u64 = 64;
/// What may remain of an attack's memory when the attackers are gone.
pub const REMAINDER_BYTES: u64 = 32 << 20;
