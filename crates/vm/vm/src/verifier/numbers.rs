//! Arithmetic: types of operands and results by opcode.

use super::line::Line;
use super::types::{Checked, Type, Wide};
use baton_dex::Instruction;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    Int,
    Float,
    Long,
    Double,
}

use Number::{Double, Float, Int, Long};

/// The result's type and those of one or two operands; none for other opcodes than arithmetic.
pub(super) fn signature(opcode: u8) -> Option<(Number, Number, Option<Number>)> {
    let binary = |number| (number, number, Some(number));
    Some(match opcode {
        0x2d | 0x2e => (Int, Float, Some(Float)),
        0x2f | 0x30 => (Int, Double, Some(Double)),
        0x31 => (Int, Long, Some(Long)),
        0x7b | 0x7c | 0x8d..=0x8f | 0xd0..=0xe2 => (Int, Int, None),
        0x7d | 0x7e => (Long, Long, None),
        0x7f => (Float, Float, None),
        0x80 => (Double, Double, None),
        0x81 => (Long, Int, None),
        0x82 => (Float, Int, None),
        0x83 => (Double, Int, None),
        0x84 => (Int, Long, None),
        0x85 => (Float, Long, None),
        0x86 => (Double, Long, None),
        0x87 => (Int, Float, None),
        0x88 => (Long, Float, None),
        0x89 => (Double, Float, None),
        0x8a => (Int, Double, None),
        0x8b => (Long, Double, None),
        0x8c => (Float, Double, None),
        0x90..=0x9a => binary(Int),
        0x9b..=0xa2 => binary(Long),
        0xa3..=0xa5 => (Long, Long, Some(Int)),
        0xa6..=0xaa => binary(Float),
        0xab..=0xaf => binary(Double),
        // The first operand is the result, too.
        0xb0..=0xcf => return signature(opcode - 0x20),
        _ => return None,
    })
}

/// Executes an instruction with this signature.
pub(super) fn transfer(
    line: &mut Line,
    instruction: &Instruction,
    (result, first, second): (Number, Number, Option<Number>),
) -> Checked<()> {
    let is_2addr = matches!(instruction.opcode as u8, 0xb0..=0xcf);
    let registers = match is_2addr {
        true => [instruction.a, instruction.b],
        false => [instruction.b, instruction.c],
    };
    operand(line, registers[0], first)?;
    if let Some(second) = second {
        operand(line, registers[1], second)?;
    }
    match result {
        Int => line.set(instruction.a, Type::Int),
        Float => line.set(instruction.a, Type::Float),
        Long => line.set_wide(instruction.a, Wide::Long),
        Double => line.set_wide(instruction.a, Wide::Double),
    }
    Ok(())
}

fn operand(line: &Line, register: u16, of: Number) -> Checked<()> {
    match of {
        Int => line.int(register),
        Float => line.float(register),
        Long => line.wide(register, Wide::Long),
        Double => line.wide(register, Wide::Double),
    }
}
