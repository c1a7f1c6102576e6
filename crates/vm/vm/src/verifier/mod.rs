//! The verifier of types: follows all ways through the code of a class before the class is
//! initialized.
//!
//! [`types`] has the lattice of register types and [`line`] those of one place. [`transfer`]
//! executes an instruction on a line, with [`numbers`], [`arrays`], [`fields`] and [`calls`].
//! [`flow`] repeats that until no line changes.
//!
//! Code that no types fit is refused: the class throws VerifyError when it is initialized. Code
//! that names something missing or hidden is not, as it may never run; the interpreter then throws
//! in its place ([`Deferred`]). The class library is not verified, like in Dalvik: whoever chooses
//! the library trusts it. The rules are those of Android's verifier where Java code can tell.

mod arrays;
mod calls;
mod fields;
mod flow;
mod line;
pub(crate) mod naming;
mod numbers;
mod step;
mod transfer;
mod types;

use crate::class::{Class, Method, access};
use crate::verified::{Deferred, Verified};
use crate::vm::Thread;
use step::Subject;
use types::Types;

/// Verifies the code of a class, unless that has been done.
///
/// # Errors
/// The method that is refused, and what an instruction of it needs.
pub fn verify(t: &Thread, class: &'static Class) -> Result<&'static Verified, String> {
    if class.verified.get().is_none() {
        // A class loader written in Java may run meanwhile, so nobody may wait here. Threads that
        // race find the same.
        let _ = class.verified.set(run(t, class));
    }
    let verified = class.verified.get().expect("it has been set");
    verified.as_ref().map_err(Clone::clone)
}

/// The checks that a method's instructions make.
///
/// # Errors
/// As [`verify`].
pub(crate) fn checks(
    t: &Thread,
    method: &'static Method,
) -> Result<&'static [(u32, Deferred)], String> {
    let checks = verify(t, method.class())?.checks.get(&method.dex_index);
    Ok(checks.map_or(&[], |it| it))
}

fn run(t: &Thread, class: &'static Class) -> Result<Verified, String> {
    let mut verified = Verified::default();
    let Some(definition) = class.definition else { return Ok(verified) };
    let flags = access::ABSTRACT | access::FINAL;
    if class.access & flags == flags && !class.is_interface() {
        let name = class.java_name();
        return Err(format!("Rejecting class {name}: it is abstract and final"));
    }
    let mut types = Types::new(t, class.loader);
    for method in class.methods {
        let Some(encoded) = method.definition else { continue };
        let Some(code) = definition.dex.file.code(&encoded) else { continue };
        let refused = |unit: usize, expected: &str| {
            let method = method.pretty();
            format!("Rejecting {method}: instruction at unit {unit:#x}: expected {expected}")
        };
        baton_dex::verify(&definition.dex.file, &encoded, &code)
            .map_err(|error| refused(error.unit, error.expected))?;
        let units: Box<[u16]> = code.units().collect();
        let subject = Subject { method, class, dex: definition.dex, units: &units };
        let checks = flow::run(subject, &code, &mut types)
            .map_err(|(unit, expected)| refused(unit as usize, &expected))?;
        if !checks.is_empty() {
            verified.checks.insert(method.dex_index, checks.into());
        }
    }
    Ok(verified)
}

#[cfg(test)]
mod tests;
