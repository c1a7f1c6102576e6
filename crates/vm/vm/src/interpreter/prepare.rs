//! What a method runs: decided at its first invocation.

use crate::class::{Body, Code, Loader, Method};
use crate::exception;
use crate::linker;
use crate::verified::Deferred;
use crate::verifier;
use crate::vm::{Thread, Thrown};

/// The opcode of an instruction with checks, in the interpreter's copy of the code. No dex file may
/// use it.
pub(super) const CHECKED: u8 = 0x3e;

/// Verifies the code of a method, or finds its native function.
///
/// # Errors
/// VerifyError, or UnsatisfiedLinkError that names the method.
#[cold]
pub(super) fn prepare(t: &Thread, method: &'static Method) -> Result<&'static Body, Thrown> {
    let body = find(t, method)?;
    // Frames of all threads are in the same copy of the code.
    Ok(method.body.set_first(Box::leak(Box::new(body))))
}

fn find(t: &Thread, method: &'static Method) -> Result<Body, Thrown> {
    if let Some(index) = t.vm.native(method) {
        linker::parameter_classes(t, method);
        return Ok(Body::Native(index));
    }
    if method.is_native() {
        let tried = match t.vm.options.foreign.map(|calls| (calls.find)(t, method)) {
            Some(Ok(foreign)) => {
                linker::parameter_classes(t, method);
                return Ok(Body::Foreign(foreign));
            }
            Some(Err(tried)) => format!(" ({tried})"),
            None => String::new(),
        };
        let message = format!("No implementation found for {}{tried}", method.pretty());
        // The method itself is on top of the stack trace.
        let is_on_top = t.state.stack.push(method, None, 0, 0).is_ok();
        let thrown = exception::throw(t, "Ljava/lang/UnsatisfiedLinkError;", &message);
        if is_on_top {
            t.state.stack.pop();
        }
        return Err(thrown);
    }
    let bad = |message: String| {
        let message = format!("Rejecting {}: {message}", method.pretty());
        exception::throw(t, "Ljava/lang/VerifyError;", &message)
    };
    let Some((definition, class)) = method.definition.zip(method.class().definition) else {
        return Ok(Body::Abstract);
    };
    let file = &class.dex.file;
    let Some(code) = file.code(&definition) else {
        if method.is_abstract() {
            return Ok(Body::Abstract);
        }
        return Err(bad("the method has no code".to_owned()));
    };
    let checks = if method.class().loader == Loader::BOOT {
        baton_dex::verify(file, &definition, &code).map_err(|error| bad(error.to_string()))?;
        &[]
    } else {
        let checks = verifier::checks(t, method);
        checks.map_err(|message| exception::throw(t, "Ljava/lang/VerifyError;", &message))?
    };
    if code.n_ins != method.n_argument_registers {
        return Err(bad("the code has another number of arguments".to_owned()));
    }
    Ok(Body::Code(Code {
        dex: class.dex,
        n_registers: code.n_registers,
        n_ins: code.n_ins,
        units: code.units().zip(0..).map(|(unit, at)| with_check(checks, unit, at)).collect(),
        tries: code.tries(),
        checks,
    }))
}

/// The unit `at` of code, with another opcode if the instruction there makes checks.
fn with_check(checks: &[(u32, Deferred)], unit: u16, at: u32) -> u16 {
    let is_checked = checks.iter().any(|(checked, _)| *checked == at);
    if is_checked { unit & 0xff00 | u16::from(CHECKED) } else { unit }
}
