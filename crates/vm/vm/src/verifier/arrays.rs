//! Arrays: their elements by opcode and by type.

use super::line::expect;
use super::step::Step;
use super::types::{Checked, Name, Type, Value, Wide};
use crate::object::Kind;
use crate::verified::Deferred;
use baton_dex::{Instruction, Opcode, TypeId};

/// Executes an instruction on an array.
pub(super) fn transfer(step: &mut Step<'_, '_>) -> Checked<()> {
    let Instruction { opcode, a, b, index, .. } = step.instruction;
    match opcode {
        Opcode::ArrayLength => {
            array(step, b)?;
            step.line.set(a, Type::Int);
        }
        Opcode::NewArray => {
            step.access();
            step.line.int(b)?;
            let name = step.name(TypeId(index));
            step.line.set(a, Type::Object(name));
        }
        Opcode::FilledNewArray | Opcode::FilledNewArrayRange => {
            step.access();
            let name = step.name(TypeId(index));
            let component = component(step, name);
            let instruction = step.instruction;
            for register in instruction.arguments() {
                step.assign(register, component)?;
            }
            step.line.result = Value::Object(name);
        }
        Opcode::FillArrayData => {
            if let Some(name) = array(step, a)? {
                let kind = Kind::of(&step.types.text(name)[1..]);
                let payload = step.unit.wrapping_add_signed(step.instruction.distance);
                let n_bytes = u32::from(step.subject.units[payload as usize + 1]);
                if kind == Kind::Reference || kind.element_bytes() != n_bytes {
                    return Err(format!("an array of numbers of {n_bytes} bytes"));
                }
            }
        }
        _ => element(step)?,
    }
    Ok(())
}

/// The array in a register: none for null, and for one whose type could not be found.
fn array(step: &mut Step<'_, '_>, register: u16) -> Checked<Option<Name>> {
    match step.line.reference(register)? {
        Type::Object(Name::UNKNOWN) => {
            step.defer(Deferred::Null(register, step.types.text(Name::UNKNOWN)));
            Ok(None)
        }
        Type::Object(name) if step.types.text(name).starts_with('[') => Ok(Some(name)),
        found @ Type::Object(_) => expect("an array", register, found),
        _ => Ok(None),
    }
}

/// The type of an array's elements.
fn component(step: &mut Step<'_, '_>, array: Name) -> Value {
    let descriptor = &step.types.text(array)[1..];
    step.types.value(descriptor)
}

/// aget and aput.
fn element(step: &mut Step<'_, '_>) -> Checked<()> {
    let Instruction { opcode, a, b, c, .. } = step.instruction;
    step.line.int(c)?;
    // Seven opcodes each, in one order of types.
    let number = opcode as u8 - Opcode::Aget as u8;
    let (kind, is_get) = (usize::from(number % 7), number < 7);
    let Some(array) = array(step, b)? else { return element_of_null(step, kind, is_get) };
    let letters = [&b"IF"[..], b"JD", b"L[", b"Z", b"B", b"C", b"S"][kind];
    if !letters.contains(&step.types.text(array).as_bytes()[1]) {
        return expect("an array of the instruction's type", b, Type::Object(array));
    }
    let component = component(step, array);
    match component {
        _ if is_get => step.line.set_value(a, component),
        // The array's own class decides when the instruction runs.
        Value::Object(_) => {
            step.line.reference(a)?;
        }
        _ => step.assign(a, component)?,
    }
    Ok(())
}

/// The instruction throws; what follows is verified all the same.
fn element_of_null(step: &mut Step<'_, '_>, kind: usize, is_get: bool) -> Checked<()> {
    let a = step.instruction.a;
    match (kind, is_get) {
        (0, true) => step.line.set(a, Type::Constant),
        (1, true) => step.line.set_wide(a, Wide::Constant),
        (2, true) => step.line.set(a, Type::Null),
        (_, true) => step.line.set(a, Type::Int),
        (0, false) => match step.line.get(a) {
            Type::Float => {}
            _ => step.line.int(a)?,
        },
        (1, false) => step.line.wide(a, Wide::Constant)?,
        (2, false) => {
            step.line.reference(a)?;
        }
        (_, false) => step.line.int(a)?,
    }
    Ok(())
}
