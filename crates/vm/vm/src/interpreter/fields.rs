//! Instance and static fields.

use super::context::{Context, Flow, Place};
use crate::class::Field;
use crate::exception::OrThrow;
use crate::initialize;
use crate::object::{Kind, Ref};
use crate::resolution;
use crate::vm::Thrown;
use baton_dex::FieldId;

/// The field of the index at the second unit.
#[inline(always)]
fn field(c: Context<'_>) -> Result<&'static Field, Thrown> {
    match c.dex().fields[c.pc.bbbb()].get() {
        Some(field) => Ok(field),
        None => resolve(c.place()),
    }
}

#[cold]
fn resolve(p: Place<'_>) -> Result<&'static Field, Thrown> {
    p.save();
    let id = FieldId(p.pc.bbbb() as u32);
    p.t.scope(|| {
        resolution::resolve_field(p.t, p.code().dex, id, Some(p.method().class())).or_throw(p.t)
    })
}

/// An instance field and the object that has it.
#[inline(always)]
fn instance(c: Context<'_>, verb: &str) -> Result<(&'static Field, Ref), Thrown> {
    let field = field(c)?;
    let object = c.r.reference(c.pc.b());
    if object.is_null() {
        return Err(on_null(c.place(), field, verb));
    }
    // What verification of types would prove.
    if field.is_static() || !field.is_in(object) {
        return Err(mismatch(c.place(), field));
    }
    Ok((field, object))
}

#[cold]
fn on_null(p: Place<'_>, field: &Field, verb: &str) -> Thrown {
    p.null(&format!("Attempt to {verb} field '{}' on a null object reference", pretty(field)))
}

#[cold]
fn mismatch(p: Place<'_>, field: &Field) -> Thrown {
    if field.is_static() {
        let message = format!(
            "Expected '{}' to be an instance field rather than a static field",
            pretty(field)
        );
        return p.throw("Ljava/lang/IncompatibleClassChangeError;", &message);
    }
    p.unverified(field.class().descriptor)
}

/// `int java.lang.Foo.bar`
fn pretty(field: &Field) -> String {
    let types = (crate::descriptor::pretty_name(field.descriptor), field.class().java_name());
    format!("{} {}.{}", types.0, types.1, field.name)
}

/// A static field of an initialized class, and its holder.
#[inline(always)]
fn static_field(c: Context<'_>) -> Result<(&'static Field, Ref), Thrown> {
    let field = field(c)?;
    if !field.class().is_initialized() || !field.is_static() {
        static_slowly(c.place(), field)?;
    }
    Ok((field, field.holder()))
}

#[cold]
fn static_slowly(p: Place<'_>, field: &'static Field) -> Result<(), Thrown> {
    p.save();
    if !field.is_static() {
        let message = format!(
            "Expected '{}' to be a static field rather than an instance field",
            pretty(field)
        );
        return Err(p.throw("Ljava/lang/IncompatibleClassChangeError;", &message));
    }
    initialize::initialize(p.t, field.class())
}

#[cold]
fn wrong_kind(p: Place<'_>) -> Thrown {
    p.unverified("a field of another type")
}

macro_rules! operation {
    (
        $name:ident, $place:expr, $register:ident, $kind:pat,
        |$c:ident, $field:ident, $at:ident, $r:ident| $do:expr
    ) => {
        #[inline(always)]
        pub(super) fn $name($c: Context<'_>) -> Flow {
            match $place($c) {
                Ok(($field, $at)) => {
                    if !matches!($field.kind, $kind) {
                        return wrong_kind($c.place()).into();
                    }
                    let $r = $c.pc.$register();
                    $do;
                    $c.next(2)
                }
                Err(Thrown) => Flow::Throw,
            }
        }
    };
}

macro_rules! narrow {
    () => {
        Kind::Boolean | Kind::Byte | Kind::Char | Kind::Short | Kind::Int | Kind::Float
    };
}

macro_rules! wide {
    () => {
        Kind::Long | Kind::Double
    };
}

#[inline(always)]
fn read(c: Context<'_>) -> Result<(&'static Field, Ref), Thrown> {
    instance(c, "read from")
}

#[inline(always)]
fn write(c: Context<'_>) -> Result<(&'static Field, Ref), Thrown> {
    instance(c, "write to")
}

operation!(get, read, a, narrow!(), |c, field, at, r| c.r.set_int(r, field.get32(at) as i32));
operation!(get_wide, read, a, wide!(), |c, field, at, r| c.r.set_long(r, field.get64(at) as i64));
operation!(get_reference, read, a, Kind::Reference, |c, field, at, r| {
    c.r.set_reference(r, field.get_ref(at))
});
operation!(put, write, a, narrow!(), |c, field, at, r| field.set32(at, c.r.int(r) as u32));
operation!(put_wide, write, a, wide!(), |c, field, at, r| field.set64(at, c.r.long(r) as u64));
operation!(put_reference, write, a, Kind::Reference, |c, field, at, r| {
    field.set_ref(at, c.r.reference(r))
});
operation!(get_static, static_field, aa, narrow!(), |c, field, at, r| {
    c.r.set_int(r, field.get32(at) as i32)
});
operation!(get_static_wide, static_field, aa, wide!(), |c, field, at, r| {
    c.r.set_long(r, field.get64(at) as i64)
});
operation!(get_static_reference, static_field, aa, Kind::Reference, |c, field, at, r| {
    c.r.set_reference(r, field.get_ref(at))
});
operation!(put_static, static_field, aa, narrow!(), |c, field, at, r| {
    field.set32(at, c.r.int(r) as u32)
});
operation!(put_static_wide, static_field, aa, wide!(), |c, field, at, r| {
    field.set64(at, c.r.long(r) as u64)
});
operation!(put_static_reference, static_field, aa, Kind::Reference, |c, field, at, r| {
    field.set_ref(at, c.r.reference(r))
});
