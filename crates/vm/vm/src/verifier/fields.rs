//! Fields: the object that has one, and its value.

use super::line::expect;
use super::naming::is_put;
use super::step::Step;
use super::types::{Checked, Type, Value};
use baton_dex::{FieldId, Instruction};

/// Executes an instruction that loads or stores a field.
pub(super) fn transfer(step: &mut Step<'_, '_>) -> Checked<()> {
    let Instruction { opcode, a, b, index, .. } = step.instruction;
    step.access();
    let field = step.subject.dex.file.field(FieldId(index));
    let value = step.value(field.type_id);
    if (opcode as u8) < 0x60 {
        object(step, b, field)?;
    }
    if is_put(opcode) {
        return step.assign(a, value);
    }
    match value {
        Value::Void => return Err("a field with a value".to_owned()),
        value => step.line.set_value(a, value),
    }
    Ok(())
}

/// The object of an instance's field. A constructor may use fields of its own class before it calls
/// another constructor.
fn object(step: &mut Step<'_, '_>, register: u16, field: baton_dex::Field) -> Checked<()> {
    let class = step.name(field.class);
    match step.line.get(register) {
        found @ Type::UninitializedThis => {
            let own = step.subject.class;
            let name = crate::dex_files::text(step.subject.dex.file.string(field.name));
            let is_own = step.types.text(class) == own.descriptor
                && own.fields.iter().any(|it| !it.is_static() && it.name == name);
            if is_own { Ok(()) } else { expect("a reference", register, found) }
        }
        _ => step.assign_reference(register, class),
    }
}
