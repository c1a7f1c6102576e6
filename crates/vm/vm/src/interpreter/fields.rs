//! Instance and static fields.

use super::context::{Context, Flow, Place};
use crate::class::Field;
use crate::exception::OrThrow;
use crate::field_access::Word;
use crate::initialize;
use crate::object::Kind;
use crate::resolution;
use crate::vm::Thrown;
use baton_dex::FieldId;

/// The field of the index at the second unit.
#[inline(always)]
fn field(c: Context<'_>) -> Result<&'static Field, Flow> {
    match c.dex().fields[c.pc.bbbb()].get() {
        Some(field) => Ok(field),
        None => Err(Flow::Find(resolve)),
    }
}

#[cold]
fn resolve(p: Place<'_>) -> Result<(), Thrown> {
    p.save();
    let id = FieldId(p.pc.bbbb() as u32);
    let class = p.method().class();
    p.t.scope(|| resolution::resolve_field(p.t, p.code().dex, id, Some(class)).or_throw(p.t))?;
    Ok(())
}

/// The word of an instance field in the object.
#[inline(always)]
fn instance(c: Context<'_>, verb: &str) -> Result<Word<'static>, Flow> {
    let field = field(c)?;
    let object = c.r.reference(c.pc.b());
    if object.is_null() {
        return Err(on_null(c.place(), field, verb).into());
    }
    // What verification of types would prove.
    Word::of_instance(field, object).ok_or_else(|| mismatch(c.place(), field).into())
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

/// The word of a static field of an initialized class.
#[inline(always)]
fn static_field(c: Context<'_>) -> Result<Word<'static>, Flow> {
    let field = field(c)?;
    let Some(word) = Word::of_static(field) else {
        return Err(not_static(c.place(), field).into());
    };
    if !field.class().is_initialized() {
        initialize(c.place(), field)?;
    }
    Ok(word)
}

#[cold]
fn not_static(p: Place<'_>, field: &'static Field) -> Thrown {
    let message =
        format!("Expected '{}' to be a static field rather than an instance field", pretty(field));
    p.throw("Ljava/lang/IncompatibleClassChangeError;", &message)
}

#[cold]
fn initialize(p: Place<'_>, field: &'static Field) -> Result<(), Thrown> {
    p.save();
    initialize::initialize(p.t, field.class())
}

#[cold]
fn wrong_kind(p: Place<'_>) -> Thrown {
    p.unverified("a field of another type")
}

macro_rules! operation {
    (
        $name:ident, $find:expr, $register:ident, $kind:pat,
        |$c:ident, $word:ident, $r:ident| $do:expr
    ) => {
        #[inline(always)]
        pub(super) fn $name($c: Context<'_>) -> Flow {
            match $find($c) {
                Ok($word) => {
                    if !matches!($word.kind(), $kind) {
                        return wrong_kind($c.place()).into();
                    }
                    let $r = $c.pc.$register();
                    $do;
                    $c.next(2)
                }
                Err(end) => end,
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
fn read(c: Context<'_>) -> Result<Word<'static>, Flow> {
    instance(c, "read from")
}

#[inline(always)]
fn write(c: Context<'_>) -> Result<Word<'static>, Flow> {
    instance(c, "write to")
}

operation!(get, read, a, narrow!(), |c, word, r| c.r.set_int(r, word.get32() as i32));
operation!(get_wide, read, a, wide!(), |c, word, r| c.r.set_long(r, word.get64() as i64));
operation!(get_reference, read, a, Kind::Reference, |c, word, r| {
    c.r.set_reference(r, word.get_ref())
});
operation!(put, write, a, narrow!(), |c, word, r| word.set32(c.r.int(r) as u32));
operation!(put_wide, write, a, wide!(), |c, word, r| word.set64(c.r.long(r) as u64));
operation!(put_reference, write, a, Kind::Reference, |c, word, r| {
    word.set_ref(c.r.reference(r))
});
operation!(get_static, static_field, aa, narrow!(), |c, word, r| {
    c.r.set_int(r, word.get32() as i32)
});
operation!(get_static_wide, static_field, aa, wide!(), |c, word, r| {
    c.r.set_long(r, word.get64() as i64)
});
operation!(get_static_reference, static_field, aa, Kind::Reference, |c, word, r| {
    c.r.set_reference(r, word.get_ref())
});
operation!(put_static, static_field, aa, narrow!(), |c, word, r| { word.set32(c.r.int(r) as u32) });
operation!(put_static_wide, static_field, aa, wide!(), |c, word, r| {
    word.set64(c.r.long(r) as u64)
});
operation!(put_static_reference, static_field, aa, Kind::Reference, |c, word, r| {
    word.set_ref(c.r.reference(r))
});
