//! Calls: receivers, arguments and results.

use super::line::expect;
use super::step::Step;
use super::types::{Assign, Checked, Name, Type, Value, found};
use crate::resolution;
use baton_dex::Value as Constant;
use baton_dex::{CallSiteId, IndexKind, Instruction, MethodId, Opcode, ProtoId, TypeId};

/// Executes a call.
pub(super) fn transfer(step: &mut Step<'_, '_>) -> Checked<()> {
    let Instruction { opcode, index, proto, .. } = step.instruction;
    let file = &step.subject.dex.file;
    let proto = match opcode.index_kind() {
        IndexKind::MethodAndProto => ProtoId(proto),
        IndexKind::CallSite => match file.call_site(CallSiteId(index)).iter().nth(2) {
            Some(Constant::MethodType(proto)) => proto,
            _ => return Err("a call site with a method type".to_owned()),
        },
        _ => file.method(MethodId(index)).proto,
    };
    step.access();
    let mut at = 0;
    let is_static = matches!(
        opcode,
        Opcode::InvokeStatic
            | Opcode::InvokeStaticRange
            | Opcode::InvokeCustom
            | Opcode::InvokeCustomRange
    );
    if !is_static {
        receiver(step)?;
        at += 1;
    }
    let proto = file.proto(proto);
    for id in proto.parameters.iter() {
        let value = step.value(id);
        step.assign(step.instruction.argument(at), value)?;
        at += if matches!(value, Value::Wide(_)) { 2 } else { 1 };
    }
    step.line.result = step.value(proto.return_type);
    Ok(())
}

fn receiver(step: &mut Step<'_, '_>) -> Checked<()> {
    let file = &step.subject.dex.file;
    let id = file.method(MethodId(step.instruction.index));
    let register = step.instruction.argument(0);
    let class = step.name(id.class);
    if file.string(id.name).as_bytes() == b"<init>" {
        return construct(step, register, class);
    }
    let Type::Object(from) = step.line.reference(register)? else { return Ok(()) };
    match step.types.assign(from, class) {
        // The class that declares the method may be above the named one.
        Assign::No if is_declared_above(step, from) => Ok(()),
        _ => step.assign_reference(register, class),
    }
}

/// Whether instances of a class inherit the method from the class that declares it.
fn is_declared_above(step: &mut Step<'_, '_>, class: Name) -> bool {
    let (t, dex) = (step.types.t, step.subject.dex);
    let id = MethodId(step.instruction.index);
    let Ok(method) = found(t, || resolution::resolve_method(t, dex, id, None)) else {
        return false;
    };
    step.types.class(class).is_some_and(|class| class.is_assignable_to(method.class()))
}

/// A constructor makes an object of what its register and copies of it have.
fn construct(step: &mut Step<'_, '_>, register: u16, class: Name) -> Checked<()> {
    let subject = step.subject;
    let new = step.line.get(register);
    let object = match new {
        Type::Uninitialized(unit) => {
            let made = Instruction::decode(subject.units, unit as usize);
            let name = step.name(TypeId(made.expect("the new-instance").index));
            if name != class {
                let names = (step.types.text(class), step.types.text(name));
                return Err(format!("a new {} in v{register}, which has {}", names.0, names.1));
            }
            name
        }
        Type::UninitializedThis => {
            let descriptor = step.types.text(class);
            let superclass = subject.class.superclass.map(|it| it.descriptor);
            if descriptor != subject.class.descriptor && Some(descriptor) != superclass {
                return Err(format!("a constructor of this or its superclass, not {descriptor}"));
            }
            step.line.is_constructed = true;
            step.types.name_of(subject.class)
        }
        found => return expect("an object before its constructor", register, found),
    };
    step.line.replace(new, Type::Object(object));
    Ok(())
}
