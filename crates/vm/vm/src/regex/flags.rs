//! `Pattern`'s flags, as Java numbers them

/// `Pattern.UNIX_LINES`
pub const UNIX_LINES: u32 = 0x01;
/// `Pattern.CASE_INSENSITIVE`
pub const CASE_INSENSITIVE: u32 = 0x02;
/// `Pattern.COMMENTS`
pub const COMMENTS: u32 = 0x04;
/// `Pattern.MULTILINE`
pub const MULTILINE: u32 = 0x08;
/// `Pattern.DOTALL`
pub const DOTALL: u32 = 0x20;
