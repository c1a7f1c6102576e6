//! Debug information: source lines, and names of parameters and local variables.

use crate::cursor::Cursor;
use crate::error::DexError;

/// Opcodes of the state machine that describes lines and local variables.
mod opcode {
    pub(super) const END_SEQUENCE: u8 = 0;
    pub(super) const ADVANCE_PC: u8 = 1;
    pub(super) const ADVANCE_LINE: u8 = 2;
    pub(super) const START_LOCAL: u8 = 3;
    pub(super) const START_LOCAL_EXTENDED: u8 = 4;
    pub(super) const END_LOCAL: u8 = 5;
    pub(super) const RESTART_LOCAL: u8 = 6;
    pub(super) const SET_PROLOGUE_END: u8 = 7;
    pub(super) const SET_EPILOGUE_BEGIN: u8 = 8;
    pub(super) const SET_FILE: u8 = 9;
    pub(super) const FIRST_SPECIAL: u8 = 10;
}

/// A use of something by debug information.
pub(crate) enum Use {
    String(u32),
    Type(u32),
}

/// Reads debug information: units and lines, in ascending order of units. Calls `check` for each
/// use of a string and of a type.
pub(crate) fn read(
    cursor: &mut Cursor,
    mut check: impl FnMut(Use) -> Result<(), DexError>,
) -> Result<Vec<(u32, u32)>, DexError> {
    let mut line = cursor.uleb128()?;
    let n_parameters = cursor.uleb128()?;
    let mut address = 0u32;
    let mut lines = Vec::new();
    let mut name = |cursor: &mut Cursor, make: fn(u32) -> Use| match cursor.uleb128p1()? {
        Some(id) => check(make(id)),
        None => Ok(()),
    };
    for _ in 0..n_parameters {
        name(cursor, Use::String)?;
    }
    loop {
        match cursor.u8()? {
            opcode::END_SEQUENCE => break,
            opcode::ADVANCE_PC => address = address.wrapping_add(cursor.uleb128()?),
            opcode::ADVANCE_LINE => line = line.wrapping_add_signed(cursor.sleb128()?),
            kind @ (opcode::START_LOCAL | opcode::START_LOCAL_EXTENDED) => {
                cursor.uleb128()?;
                name(cursor, Use::String)?;
                name(cursor, Use::Type)?;
                if kind == opcode::START_LOCAL_EXTENDED {
                    name(cursor, Use::String)?;
                }
            }
            opcode::END_LOCAL | opcode::RESTART_LOCAL => {
                cursor.uleb128()?;
            }
            opcode::SET_PROLOGUE_END | opcode::SET_EPILOGUE_BEGIN => {}
            opcode::SET_FILE => name(cursor, Use::String)?,
            special => {
                let step = special - opcode::FIRST_SPECIAL;
                address = address.wrapping_add(u32::from(step / 15));
                line = line.wrapping_add_signed(i32::from(step % 15) - 4);
                lines.push((address, line));
            }
        }
    }
    Ok(lines)
}
