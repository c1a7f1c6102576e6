//! Where fields are: in instances, and in the mirrors of classes.

use crate::class::{Field, LoadedDex};
use crate::dex_files::text;
use crate::object::{Kind, Shape, Sort};
use crate::resolved::Resolved;
use baton_dex::EncodedField;

/// Where static fields begin in a mirror, whatever fields java.lang.Class has.
const STATICS: u32 = 32;

/// A shape without references.
pub(crate) fn shape(sort: Sort, instance_bytes: u32) -> Shape {
    Shape {
        sort,
        instance_bytes,
        references: Box::default(),
        mirror_bytes: STATICS,
        static_references: Box::default(),
    }
}

fn new_field(dex: &'static LoadedDex, definition: &EncodedField) -> Field {
    let id = dex.file.field(definition.id);
    let descriptor = text(dex.file.descriptor(id.type_id));
    Field {
        class: Resolved::new(),
        name: text(dex.file.string(id.name)),
        descriptor,
        kind: Kind::of(descriptor),
        access: definition.access_flags,
        dex_index: definition.id.0,
        offset: 0,
    }
}

/// Gives offsets to fields, and completes the shape.
pub(crate) fn lay_out(
    dex: &'static LoadedDex,
    descriptor: &str,
    statics: &[EncodedField],
    instances: &[EncodedField],
    shape: &mut Shape,
) -> &'static [Field] {
    let mut fields: Vec<Field> = statics.iter().map(|it| new_field(dex, it)).collect();
    let (end, references) = place(&mut fields, STATICS);
    shape.mirror_bytes = end;
    shape.static_references = references.into();
    let mut own: Vec<Field> = instances.iter().map(|it| new_field(dex, it)).collect();
    if descriptor == "Ljava/lang/Throwable;" {
        own.push(Field::synthetic("backtrace", "[J"));
    }
    let (end, mut references) = place(&mut own, shape.instance_bytes);
    shape.instance_bytes = end;
    if descriptor == "Ljava/lang/ref/Reference;"
        && let Some(referent) = own.iter().find(|field| field.name == "referent")
    {
        shape.sort = Sort::Reference(referent.offset);
        references.retain(|offset| *offset != referent.offset);
    }
    shape.references = shape.references.iter().copied().chain(references).collect();
    fields.append(&mut own);
    Box::leak(fields.into_boxed_slice())
}

/// Places fields from `start` on: wide ones at multiples of 8, with a narrow one in the gap before.
/// Returns the end, and the offsets of references.
pub(crate) fn place(fields: &mut [Field], start: u32) -> (u32, Vec<u32>) {
    let mut at = start;
    let mut references = Vec::new();
    let mut gap = None;
    if fields.iter().any(|field| field.kind.is_wide()) && !at.is_multiple_of(8) {
        gap = Some(at);
        at += 4;
    }
    for field in fields.iter_mut().filter(|field| field.kind.is_wide()) {
        field.offset = at;
        at += 8;
    }
    for field in fields.iter_mut().filter(|field| !field.kind.is_wide()) {
        field.offset = gap.take().unwrap_or_else(|| {
            at += 4;
            at - 4
        });
        if field.kind == Kind::Reference {
            references.push(field.offset);
        }
    }
    (at, references)
}
