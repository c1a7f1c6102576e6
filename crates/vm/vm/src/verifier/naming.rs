//! What code may name: classes, fields and methods that are visible to its class.

use crate::class::{Class, Field, LoadedDex, access};
use crate::linker::{self, LinkError};
use crate::resolution;
use crate::vm::Thread;
use baton_dex::{FieldId, IndexKind, Instruction, MethodId, Opcode, TypeId};

/// Whether code of `referrer` may name all that an instruction names.
///
/// # Errors
/// Why not: a name that cannot be found, too.
pub(crate) fn check(
    t: &Thread,
    referrer: &'static Class,
    dex: &'static LoadedDex,
    instruction: &Instruction,
) -> Result<(), LinkError> {
    let index = instruction.index;
    match instruction.opcode.index_kind() {
        IndexKind::Type => {
            resolution::check_access(referrer, linker::resolve_type(t, dex, TypeId(index))?)
        }
        IndexKind::Field => {
            let field = resolution::resolve_field(t, dex, FieldId(index), Some(referrer))?;
            if is_put(instruction.opcode) { check_final(referrer, field) } else { Ok(()) }
        }
        IndexKind::Method => {
            resolution::resolve_method(t, dex, MethodId(index), Some(referrer))?;
            let class = linker::resolve_type(t, dex, dex.file.method(MethodId(index)).class)?;
            check_sort(instruction.opcode, class)
        }
        _ => Ok(()),
    }
}

/// `invoke-virtual` is for methods of classes, `invoke-interface` for those of interfaces.
fn check_sort(opcode: Opcode, class: &'static Class) -> Result<(), LinkError> {
    let expected = match opcode {
        Opcode::InvokeVirtual | Opcode::InvokeVirtualRange if class.is_interface() => "a class",
        Opcode::InvokeInterface | Opcode::InvokeInterfaceRange if !class.is_interface() => {
            "an interface"
        }
        _ => return Ok(()),
    };
    let message = format!("{} is called as {expected}, which it is not", class.java_name());
    Err(LinkError::Error("Ljava/lang/IncompatibleClassChangeError;", message))
}

/// Whether an instruction stores into a field.
pub(super) fn is_put(opcode: Opcode) -> bool {
    matches!(opcode as u8, 0x59..=0x5f | 0x67..=0x6d)
}

fn check_final(referrer: &'static Class, field: &'static Field) -> Result<(), LinkError> {
    if field.access & access::FINAL == 0 || std::ptr::eq(referrer, field.class()) {
        return Ok(());
    }
    let names = (field.class().java_name(), field.name, referrer.java_name());
    let message = format!(
        "Final field '{}.{}' cannot be written to by class '{}'",
        names.0, names.1, names.2
    );
    Err(LinkError::Error("Ljava/lang/IllegalAccessError;", message))
}
