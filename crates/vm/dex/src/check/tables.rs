//! Entries of the tables of ids, and definitions of classes.

use super::descriptor::{is_class, is_member_name, is_type};
use super::items::{Items, id};
use super::map;
use crate::class::{CLASS_BYTES, ClassDef, EncodedField, EncodedMethod, access};
use crate::cursor::Cursor;
use crate::error::DexError;
use crate::file::DexFile;
use crate::ids::{
    CallSiteId, FieldId, MethodHandle, MethodHandleId, MethodId, ProtoId, StringId, TypeId,
};
use crate::value::Value;

/// Checks all tables. Returns the class definition of each type: `u32::MAX` for none.
pub(super) fn check(file: &DexFile, items: &Items) -> Result<Vec<u32>, DexError> {
    strings(file, items)?;
    types(file)?;
    protos(file, items)?;
    fields(file)?;
    methods(file)?;
    method_handles(file)?;
    call_sites(file, items)?;
    classes(file, items)
}

fn strings(file: &DexFile, items: &Items) -> Result<(), DexError> {
    let mut last = None;
    for index in 0..file.n_strings() {
        let place = file.entry(file.header().strings, index, 4);
        if !items.has(map::STRING_DATA, { place }.u32()?) {
            return place.error("the offset of a string");
        }
        let string = file.string(StringId(index));
        if last.is_some_and(|last| !precedes(last, string)) {
            return place.error("strings in ascending order");
        }
        last = Some(string);
    }
    Ok(())
}

/// Whether a string comes before another one by their UTF-16 units.
fn precedes(one: crate::Mutf8, other: crate::Mutf8) -> bool {
    // For bytes of one length, and before the first longer one, both orders agree.
    let (left, right) = (one.as_bytes(), other.as_bytes());
    match left.iter().zip(right).find(|(left, right)| left != right) {
        Some((left, right)) if left.is_ascii() && right.is_ascii() => left < right,
        Some(_) => one.utf16().lt(other.utf16()),
        None => left.len() < right.len(),
    }
}

fn types(file: &DexFile) -> Result<(), DexError> {
    let mut last = None;
    for index in 0..file.n_types() {
        let place = file.entry(file.header().types, index, 4);
        let name = StringId({ place }.u32()?);
        id(place, name.0, file.n_strings())?;
        if !is_type(file.string(name)) {
            return place.error("the descriptor of a type");
        }
        if last.is_some_and(|last| name <= last) {
            return place.error("types in ascending order of descriptors");
        }
        last = Some(name);
    }
    Ok(())
}

/// The letter of a type in a shorty.
fn letter(file: &DexFile, class: TypeId) -> u8 {
    match file.descriptor(class).as_bytes()[0] {
        b'[' => b'L',
        letter => letter,
    }
}

fn protos(file: &DexFile, items: &Items) -> Result<(), DexError> {
    let mut last = None;
    for index in 0..file.n_protos() {
        let place = file.entry(file.header().protos, index, 12);
        let mut cursor = place;
        id(place, cursor.u32()?, file.n_strings())?;
        id(place, cursor.u32()?, file.n_types())?;
        let offset = cursor.u32()?;
        if offset != 0 && !items.has(map::TYPE_LIST, offset) {
            return place.error("the offset of a list of types");
        }
        let proto = file.read_proto(ProtoId(index))?;
        if proto.parameters.len() > 255 {
            return place.error("at most 255 parameters");
        }
        let mut letters = vec![letter(file, proto.return_type)];
        for class in proto.parameters.iter() {
            match letter(file, class) {
                b'V' => return place.error("parameters of other types than void"),
                letter => letters.push(letter),
            }
        }
        if file.string(proto.shorty).as_bytes() != letters {
            return place.error("the letters of the result and the parameters");
        }
        let key = (proto.return_type, proto.parameters.iter().collect::<Vec<_>>());
        if last.is_some_and(|last| key <= last) {
            return place.error("prototypes in ascending order");
        }
        last = Some(key);
    }
    Ok(())
}

fn fields(file: &DexFile) -> Result<(), DexError> {
    let mut last = None;
    for index in 0..file.n_fields() {
        let place = file.entry(file.header().fields, index, 8);
        let field = file.field(FieldId(index));
        id(place, field.class.0, file.n_types())?;
        id(place, field.type_id.0, file.n_types())?;
        id(place, field.name.0, file.n_strings())?;
        if !is_class(file.descriptor(field.class)) {
            return place.error("a field of a class");
        }
        if letter(file, field.type_id) == b'V' {
            return place.error("a field of another type than void");
        }
        if !is_member_name(file.string(field.name)) {
            return place.error("the name of a field");
        }
        let key = (field.class, field.name, field.type_id);
        if last.is_some_and(|last| key <= last) {
            return place.error("fields in ascending order");
        }
        last = Some(key);
    }
    Ok(())
}

fn methods(file: &DexFile) -> Result<(), DexError> {
    let mut last = None;
    for index in 0..file.n_methods() {
        let place = file.entry(file.header().methods, index, 8);
        let method = file.method(MethodId(index));
        id(place, method.class.0, file.n_types())?;
        id(place, method.proto.0, file.n_protos())?;
        id(place, method.name.0, file.n_strings())?;
        if letter(file, method.class) != b'L' {
            return place.error("a method of a class or of an array");
        }
        if !is_member_name(file.string(method.name)) {
            return place.error("the name of a method");
        }
        let key = (method.class, method.name, method.proto);
        if last.is_some_and(|last| key <= last) {
            return place.error("methods in ascending order");
        }
        last = Some(key);
    }
    Ok(())
}

fn method_handles(file: &DexFile) -> Result<(), DexError> {
    for index in 0..file.n_method_handles() {
        let place = file.entry(file.method_handles(), index, 8);
        match file.read_method_handle(MethodHandleId(index))? {
            MethodHandle::StaticPut(field)
            | MethodHandle::StaticGet(field)
            | MethodHandle::InstancePut(field)
            | MethodHandle::InstanceGet(field) => id(place, field.0, file.n_fields())?,
            MethodHandle::InvokeStatic(method)
            | MethodHandle::InvokeInstance(method)
            | MethodHandle::InvokeConstructor(method)
            | MethodHandle::InvokeDirect(method)
            | MethodHandle::InvokeInterface(method) => id(place, method.0, file.n_methods())?,
        }
    }
    Ok(())
}

fn call_sites(file: &DexFile, items: &Items) -> Result<(), DexError> {
    for index in 0..file.n_call_sites() {
        let place = file.entry(file.call_sites(), index, 4);
        if !items.has(map::ENCODED_ARRAY, { place }.u32()?) {
            return place.error("the offset of an encoded array");
        }
        let values: Vec<Value> = file.call_site(CallSiteId(index)).iter().take(3).collect();
        let [Value::MethodHandle(_), Value::String(_), Value::MethodType(_)] = values[..] else {
            return place.error("a call site of a method handle, a name and a method type");
        };
    }
    Ok(())
}

/// The definition of each type, by its number: `u32::MAX` for none.
pub(super) fn definitions(file: &DexFile) -> Result<Vec<u32>, DexError> {
    let mut definitions = vec![u32::MAX; file.n_types() as usize];
    for index in 0..file.n_classes() {
        let place = file.entry(file.header().classes, index, CLASS_BYTES);
        let class = { place }.u32()?;
        id(place, class, file.n_types())?;
        let definition = &mut definitions[class as usize];
        if *definition != u32::MAX {
            return place.error("one definition of each class");
        }
        *definition = index;
    }
    Ok(definitions)
}

fn classes(file: &DexFile, items: &Items) -> Result<Vec<u32>, DexError> {
    for index in 0..file.n_classes() {
        let place = file.entry(file.header().classes, index, CLASS_BYTES);
        let offsets = ClassDef::offsets(file, index)?;
        for (offset, kind, expected) in [
            (offsets.interfaces, map::TYPE_LIST, "the offset of a list of types"),
            (offsets.annotations, map::ANNOTATIONS_DIRECTORY, "the offset of annotations"),
            (offsets.data, map::CLASS_DATA, "the offset of a class's data"),
            (offsets.static_values, map::ENCODED_ARRAY, "the offset of an encoded array"),
        ] {
            if offset != 0 && !items.has(kind, offset) {
                return place.error(expected);
            }
        }
        let class = ClassDef::read(file, index)?;
        definition(file, place, &class)?;
        members(file, place, &class)?;
        static_values(file, place, &class)?;
    }
    definitions(file)
}

fn definition(file: &DexFile, place: Cursor, class: &ClassDef) -> Result<(), DexError> {
    id(place, class.type_id.0, file.n_types())?;
    let descriptor = file.descriptor(class.type_id);
    if !is_class(descriptor) {
        return place.error("a class");
    }
    match class.superclass {
        Some(superclass) => {
            id(place, superclass.0, file.n_types())?;
            if !is_class(file.descriptor(superclass)) {
                return place.error("a class as superclass");
            }
        }
        None if descriptor.as_bytes() != b"Ljava/lang/Object;" => {
            return place.error("a superclass of every class except java.lang.Object");
        }
        None => {}
    }
    if class.interfaces.iter().any(|interface| !is_class(file.descriptor(interface))) {
        return place.error("a list of interfaces");
    }
    if class.source_file.is_some_and(|name| name.0 >= file.n_strings()) {
        return place.error("the name of a source file");
    }
    let annotations = class.annotations();
    let of = |table, member: fn(&DexFile, u32) -> TypeId| {
        annotations.entries(table).all(|(id, _)| member(file, id) == class.type_id)
    };
    let field = |file: &DexFile, id| file.field(FieldId(id)).class;
    let method = |file: &DexFile, id| file.method(MethodId(id)).class;
    if !of(0, field) || !of(1, method) || !of(2, method) {
        return place.error("annotations of members of the class");
    }
    Ok(())
}

fn members(file: &DexFile, place: Cursor, class: &ClassDef) -> Result<(), DexError> {
    let data = class.data();
    let is_own_field = |field: &EncodedField| file.field(field.id).class == class.type_id;
    let is_own_method = |method: &EncodedMethod| file.method(method.id).class == class.type_id;
    let mut fields = data.static_fields.iter().chain(&data.instance_fields);
    if !fields.all(is_own_field) || !data.methods().all(is_own_method) {
        return place.error("members of the class in the class's data");
    }
    let is_static = |flags: u32| flags & access::STATIC != 0;
    if data.static_fields.iter().any(|field| !is_static(field.access_flags))
        || data.instance_fields.iter().any(|field| is_static(field.access_flags))
    {
        return place.error("static and instance fields in their lists");
    }
    const DIRECT: u32 = access::STATIC | access::PRIVATE | access::CONSTRUCTOR;
    let is_direct = |method: &EncodedMethod| method.access_flags & DIRECT != 0;
    if !data.direct_methods.iter().all(is_direct) || data.virtual_methods.iter().any(is_direct) {
        return place.error("direct and virtual methods in their lists");
    }
    for method in data.methods() {
        let flags = method.access_flags;
        if (method.code == 0) != (flags & (access::NATIVE | access::ABSTRACT) != 0) {
            return place.error("code of each method that is neither native nor abstract");
        }
        let name = file.string(file.method(method.id).name);
        let is_right = match name.as_bytes() {
            b"<init>" => !is_static(flags) && flags & access::CONSTRUCTOR != 0,
            // Android runs class initializers without the flag, too.
            b"<clinit>" => is_static(flags),
            [b'<', ..] => false,
            _ => flags & access::CONSTRUCTOR == 0,
        };
        if !is_right {
            return place.error("constructors with their names and flags");
        }
    }
    Ok(())
}

fn static_values(file: &DexFile, place: Cursor, class: &ClassDef) -> Result<(), DexError> {
    let Some(values) = class.static_values() else { return Ok(()) };
    let fields = class.data().static_fields;
    if values.len() > fields.len() {
        return place.error("at most one value for each static field");
    }
    for (value, field) in values.iter().zip(&fields) {
        let descriptor = file.descriptor(file.field(field.id).type_id).as_bytes();
        let fits = match value {
            Value::Boolean(_) => descriptor == b"Z",
            Value::Byte(_) => descriptor == b"B",
            Value::Short(_) => descriptor == b"S",
            Value::Char(_) => descriptor == b"C",
            Value::Int(_) => descriptor == b"I",
            Value::Long(_) => descriptor == b"J",
            Value::Float(_) => descriptor == b"F",
            Value::Double(_) => descriptor == b"D",
            Value::Null => descriptor.len() > 1,
            Value::String(_) => descriptor == b"Ljava/lang/String;",
            Value::Type(_) => descriptor == b"Ljava/lang/Class;",
            Value::MethodType(_) => descriptor == b"Ljava/lang/invoke/MethodType;",
            Value::MethodHandle(_) => descriptor == b"Ljava/lang/invoke/MethodHandle;",
            _ => false,
        };
        if !fits {
            return place.error("values of the types of static fields");
        }
    }
    Ok(())
}
