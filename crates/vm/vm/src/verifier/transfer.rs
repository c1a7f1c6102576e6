//! The rules: which types each instruction needs, and which it leaves.

use super::line::expect;
use super::step::Step;
use super::types::{Checked, Name, Type, Wide};
use super::{arrays, calls, fields, numbers};
use baton_dex::{Instruction, Opcode, TypeId};

/// Executes the instruction on its line.
pub(super) fn transfer(step: &mut Step<'_, '_>) -> Checked<()> {
    use Opcode::*;
    let Instruction { opcode, a, b, .. } = step.instruction;
    if let Some(signature) = numbers::signature(opcode as u8) {
        return numbers::transfer(step.line, &step.instruction, signature);
    }
    match opcode {
        Nop | Goto | Goto16 | Goto32 => {}
        Move | MoveFrom16 | Move16 => match step.line.get(b) {
            it @ (Type::Zero | Type::Constant | Type::Int | Type::Float) => step.line.set(a, it),
            found => return expect("a value of 32 bits", b, found),
        },
        MoveWide | MoveWideFrom16 | MoveWide16 => {
            step.line.wide(b, Wide::Constant)?;
            if let Type::Low(wide) = step.line.get(b) {
                step.line.set_wide(a, wide);
            }
        }
        MoveObject | MoveObjectFrom16 | MoveObject16 => match step.line.get(b) {
            it @ (Type::Zero | Type::Null | Type::Object(_)) => step.line.set(a, it),
            it @ (Type::Uninitialized(_) | Type::UninitializedThis) => step.line.set(a, it),
            found => return expect("a reference", b, found),
        },
        MoveResult | MoveResultWide | MoveResultObject => step.line.set_value(a, step.line.result),
        // The line of a handler has the exception's type as result.
        MoveException => step.line.set_value(a, step.line.result),
        ReturnVoid => constructed(step)?,
        Return | ReturnWide | ReturnObject => {
            constructed(step)?;
            let result = step.types.value(step.subject.method.result_descriptor());
            step.assign(a, result)?;
        }
        Const4 | Const16 | Const | ConstHigh16 => {
            let is_zero = step.instruction.literal as i32 == 0;
            step.line.set(a, if is_zero { Type::Zero } else { Type::Constant });
        }
        ConstWide16 | ConstWide32 | ConstWide | ConstWideHigh16 => {
            step.line.set_wide(a, Wide::Constant);
        }
        ConstString | ConstStringJumbo => step.line.set(a, Type::Object(Name::STRING)),
        ConstClass => {
            step.access();
            step.line.set(a, Type::Object(Name::CLASS));
        }
        ConstMethodHandle => object(step, "Ljava/lang/invoke/MethodHandle;"),
        ConstMethodType => object(step, "Ljava/lang/invoke/MethodType;"),
        MonitorEnter | MonitorExit => {
            step.line.reference(a)?;
        }
        CheckCast => {
            step.access();
            step.line.reference(a)?;
            let name = step.name(TypeId(step.instruction.index));
            step.line.set(a, Type::Object(name));
        }
        InstanceOf => {
            step.access();
            step.line.reference(b)?;
            step.line.set(a, Type::Int);
        }
        NewInstance => {
            step.access();
            // Objects of an earlier round of a loop can get no constructor any more.
            let new = Type::Uninitialized(step.unit);
            step.line.replace(new, Type::Unset);
            step.line.set(a, new);
        }
        // Other objects than exceptions are refused when they are thrown.
        Throw => {
            step.line.reference(a)?;
        }
        PackedSwitch | SparseSwitch => step.line.int(a)?,
        IfEq | IfNe => equal(step)?,
        IfLt | IfGe | IfGt | IfLe => {
            step.line.int(a)?;
            step.line.int(b)?;
        }
        IfEqz | IfNez => match step.line.get(a) {
            Type::Object(_) | Type::Null => {}
            _ => step.line.int(a)?,
        },
        IfLtz | IfGez | IfGtz | IfLez => step.line.int(a)?,
        _ if matches!(opcode as u8, 0x21 | 0x23..=0x26 | 0x44..=0x51) => arrays::transfer(step)?,
        _ if matches!(opcode as u8, 0x52..=0x6d) => fields::transfer(step)?,
        _ => calls::transfer(step)?,
    }
    Ok(())
}

fn object(step: &mut Step<'_, '_>, descriptor: &'static str) {
    let name = step.types.name(descriptor);
    step.line.set(step.instruction.a, Type::Object(name));
}

/// Two numbers or two references.
fn equal(step: &mut Step<'_, '_>) -> Checked<()> {
    let Instruction { a, b, .. } = step.instruction;
    let is_reference = |it| matches!(it, Type::Null | Type::Object(_));
    if is_reference(step.line.get(a)) || is_reference(step.line.get(b)) {
        step.line.reference(a)?;
        step.line.reference(b)?;
        return Ok(());
    }
    step.line.int(a)?;
    step.line.int(b)
}

/// A constructor ends after another constructor of `this`.
fn constructed(step: &Step<'_, '_>) -> Checked<()> {
    let is_object = step.subject.class.superclass.is_none();
    if step.subject.method.name != "<init>" || is_object || step.line.is_constructed {
        return Ok(());
    }
    Err("a call of another constructor before a constructor's end".to_owned())
}
