//! Instructions of which the verifier could not see that they may run.

use super::context::{Context, Pc, Place};
use crate::class::Code;
use crate::exception::OrThrow;
use crate::stack::Registers;
use crate::verified::Deferred;
use crate::verifier::naming;
use crate::vm::{Thread, Thrown};
use baton_dex::Instruction;

/// Makes the checks of an instruction; returns the opcode that it has in the dex file.
///
/// # Errors
/// A check has failed.
// Its arguments are those of an operation, in registers.
#[inline(never)]
pub(super) fn check(t: &Thread, code: &'static Code, r: Registers, pc: Pc) -> Result<u8, Thrown> {
    let c = Context { t, code, r, pc };
    let unit = c.pc.index(c.code);
    for (_, check) in c.code.checks.iter().filter(|(at, _)| *at == unit) {
        match check {
            Deferred::Null(register, _) if c.r.reference((*register).into()).is_null() => {}
            Deferred::Null(_, missing) => {
                let message = format!("Failed resolution of: {missing}");
                return Err(c.throw("Ljava/lang/NoClassDefFoundError;", &message));
            }
            Deferred::Access => may_name(c.place(), &instruction(c, unit))?,
        }
    }
    Ok(instruction(c, unit).opcode as u8)
}

/// The instruction as the dex file has it.
fn instruction(c: Context<'_>, unit: u32) -> Instruction {
    let definition = c.method().definition.expect("bytecode has a definition");
    let code = c.dex().file.code(&definition).expect("bytecode");
    let units: Vec<u16> = code.units().skip(unit as usize).take(5).collect();
    Instruction::decode(&units, 0).expect("an instruction of verified code")
}

fn may_name(p: Place<'_>, instruction: &Instruction) -> Result<(), Thrown> {
    p.save();
    let (class, dex) = (p.method().class(), p.code().dex);
    p.t.scope(|| naming::check(p.t, class, dex, instruction).or_throw(p.t))
}
