//! Annotations of dex files: those that the compiler leaves for the VM, and those that Java sees

use super::boxes;
use super::members;
use super::values::{self, find};
use crate::boxing::boxed;
use crate::class::{Class, Field, LoadedDex, Method};
use crate::exception::OrThrow;
use crate::linker;
use crate::object::{Kind, Ref};
use crate::resolution;
use crate::stack::Value;
use crate::vm::{Thread, Thrown};
use baton_dex::{AnnotationSet, Annotations, EncodedAnnotation, Value as Encoded, Visibility};

/// The annotations that only the VM sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    InnerClass,
    EnclosingClass,
    EnclosingMethod,
    MemberClasses,
    Signature,
    Throws,
    AnnotationDefault,
}

/// An annotation with the file whose indices it uses.
pub struct Found {
    pub dex: &'static LoadedDex,
    pub annotation: EncodedAnnotation<'static>,
}

type Set = Option<AnnotationSet<'static>>;

fn directory(class: &Class) -> Option<Annotations<'static>> {
    let definition = class.definition?;
    Some(definition.class.annotations())
}

/// The annotations of a class.
pub fn of_class(class: &Class) -> Set {
    Some(directory(class)?.class())
}

/// The annotations of a field.
pub fn of_field(field: &Field) -> Set {
    Some(directory(field.class())?.field(baton_dex::FieldId(field.dex_index)))
}

/// The annotations of a method.
pub fn of_method(method: &Method) -> Set {
    Some(directory(method.class())?.method(baton_dex::MethodId(method.dex_index)))
}

/// An annotation for the VM in a set.
pub fn in_set(class: &Class, set: Set, which: System) -> Option<Found> {
    let dex = class.definition?.dex;
    let wanted = format!("Ldalvik/annotation/{which:?};");
    let is_wanted = |annotation: &EncodedAnnotation<'static>| {
        dex.file.descriptor(annotation.type_id).as_bytes() == wanted.as_bytes()
    };
    let system = set?.iter().filter(|it| it.visibility == Visibility::System);
    let annotation = system.map(|it| it.annotation).find(is_wanted)?;
    Some(Found { dex, annotation })
}

/// An annotation for the VM of a class.
pub fn system(class: &Class, which: System) -> Option<Found> {
    in_set(class, of_class(class), which)
}

/// An element of an annotation.
pub fn element(found: &Found, name: &str) -> Option<Encoded<'static>> {
    let file = &found.dex.file;
    let named = |id| file.string(id).as_bytes() == name.as_bytes();
    found.annotation.elements().find(|(id, _)| named(*id)).map(|(_, value)| value)
}

/// An element that is a string.
pub fn text(found: &Found, name: &str) -> Option<String> {
    match element(found, name)? {
        Encoded::String(id) => Some(found.dex.file.string(id).to_string()),
        _ => None,
    }
}

/// An element that is an int.
pub fn int(found: &Found, name: &str) -> Option<i32> {
    match element(found, name)? {
        Encoded::Int(value) => Some(value),
        _ => None,
    }
}

/// The classes that the `value` of an annotation for the VM names.
pub fn types(
    t: &Thread,
    class: &'static Class,
    which: System,
) -> Result<Vec<&'static Class>, Thrown> {
    types_of(t, class, system(class, which))
}

fn types_of(
    t: &Thread,
    class: &'static Class,
    found: Option<Found>,
) -> Result<Vec<&'static Class>, Thrown> {
    let Some(found) = found else { return Ok(Vec::new()) };
    let all: Vec<Encoded<'static>> = match element(&found, "value") {
        Some(Encoded::Array(all)) => all.iter().collect(),
        one => one.into_iter().collect(),
    };
    let ids = all.into_iter().filter_map(|it| match it {
        Encoded::Type(id) => Some(id),
        _ => None,
    });
    ids.map(|id| find(t, class.loader, &found.dex.file.descriptor(id).to_string())).collect()
}

/// The classes of a method's `throws` clause.
pub fn throws(t: &Thread, method: &'static Method) -> Result<Vec<&'static Class>, Thrown> {
    let class = method.class();
    types_of(t, class, in_set(class, of_method(method), System::Throws))
}

/// The generic signature.
pub fn signature(class: &Class, set: Set) -> Option<String> {
    let found = in_set(class, set, System::Signature)?;
    let Some(Encoded::Array(parts)) = element(&found, "value") else { return None };
    let parts = parts.iter().filter_map(|part| match part {
        Encoded::String(id) => Some(found.dex.file.string(id).to_string()),
        _ => None,
    });
    Some(parts.collect())
}

/// The default of an annotation's element: null if there is none.
pub fn default_of(t: &Thread, method: &'static Method) -> Result<Ref, Thrown> {
    let class = method.class();
    let Some(found) = in_set(class, of_class(class), System::AnnotationDefault) else {
        return Ok(Ref::NULL);
    };
    let Some(Encoded::Annotation(defaults)) = element(&found, "value") else {
        return Ok(Ref::NULL);
    };
    let defaults = Found { dex: found.dex, annotation: defaults };
    match element(&defaults, method.name) {
        Some(value) => {
            let kind = find(t, class.loader, method.result_descriptor())?;
            value_object(t, defaults.dex, &value, kind)
        }
        None => Ok(Ref::NULL),
    }
}

/// An `Annotation[]` of a set's annotations that are visible at run time. One whose class is not
/// there is left out, as the language says.
pub fn objects_of(t: &Thread, class: &'static Class, set: Set) -> Result<Ref, Thrown> {
    let mut objects = Vec::new();
    if let (Some(set), Some(definition)) = (set, class.definition) {
        for annotation in set.iter().filter(|it| it.visibility == Visibility::Runtime) {
            if let Some(object) = annotation_object(t, definition.dex, &annotation.annotation)? {
                objects.push(object);
            }
        }
    }
    let interface = values::class(t, "java/lang/annotation/Annotation")?;
    values::objects(t, interface, &objects)
}

/// An `Annotation[][]` of a method's parameters, without elements if there are none.
pub fn of_parameters(t: &Thread, method: &'static Method) -> Result<Ref, Thrown> {
    let class = method.class();
    let sets = directory(class)
        .map(|it| it.parameters(baton_dex::MethodId(method.dex_index)).collect::<Vec<_>>());
    let sets = sets.unwrap_or_default();
    let mut arrays = Vec::new();
    if !sets.is_empty() {
        // Parameters that the source does not have come first.
        let hidden = method.parameters.len().saturating_sub(sets.len());
        for set in std::iter::repeat_n(None, hidden).chain(sets.into_iter().map(Some)) {
            arrays.push(objects_of(t, class, set)?);
        }
    }
    let interface = values::class(t, "java/lang/annotation/Annotation")?;
    values::objects(t, values::array_class(t, interface)?, &arrays)
}

fn annotation_object(
    t: &Thread,
    dex: &'static LoadedDex,
    annotation: &EncodedAnnotation<'static>,
) -> Result<Option<Ref>, Thrown> {
    let Ok(class) = linker::resolve_type(t, dex, annotation.type_id) else { return Ok(None) };
    let member = values::class(t, "libcore/reflect/AnnotationMember")?;
    let mut members = Vec::new();
    for (name, value) in annotation.elements() {
        let name = dex.file.string(name).to_string();
        let Some(method) = class.methods.iter().find(|method| method.name == name) else {
            continue;
        };
        let kind = find(t, class.loader, method.result_descriptor())?;
        let value = value_object(t, dex, &value, kind)?;
        let args = [
            Value::Ref(values::text(t, &name)?),
            Value::Ref(value),
            Value::Ref(kind.mirror()),
            Value::Ref(members::method_object(t, method)?),
        ];
        let signature =
            "(Ljava/lang/String;Ljava/lang/Object;Ljava/lang/Class;Ljava/lang/reflect/Method;)V";
        members.push(values::construct(t, "libcore/reflect/AnnotationMember", signature, &args)?);
    }
    let members = values::objects(t, member, &members)?;
    let made = values::call(
        t,
        "libcore/reflect/AnnotationFactory",
        "createAnnotation",
        "(Ljava/lang/Class;[Llibcore/reflect/AnnotationMember;)Ljava/lang/annotation/Annotation;",
        &[Value::Ref(class.mirror()), Value::Ref(members)],
    )?;
    Ok(Some(made.reference()))
}

/// A value as an object of the element's type, primitive ones boxed.
fn value_object(
    t: &Thread,
    dex: &'static LoadedDex,
    value: &Encoded<'static>,
    of: &'static Class,
) -> Result<Ref, Thrown> {
    let file = &dex.file;
    match *value {
        Encoded::Null | Encoded::MethodType(_) | Encoded::MethodHandle(_) => Ok(Ref::NULL),
        Encoded::String(id) => resolution::resolve_string(t, dex, id).or_throw(t),
        Encoded::Type(id) => Ok(linker::resolve_type(t, dex, id).or_throw(t)?.mirror()),
        Encoded::Enum(id) | Encoded::Field(id) => {
            let field = resolution::resolve_field(t, dex, id, None).or_throw(t)?;
            crate::initialize::initialize(t, field.class())?;
            Ok(t.keep(field.get_ref(field.holder())))
        }
        Encoded::Method(id) => {
            let method = file.method(id);
            let class = linker::resolve_type(t, dex, method.class).or_throw(t)?;
            let name = file.string(method.name).to_string();
            match class.declared_method(&name, &file.signature(method.proto)) {
                Some(method) => members::method_object(t, method),
                None => Ok(Ref::NULL),
            }
        }
        Encoded::Annotation(annotation) => {
            Ok(annotation_object(t, dex, &annotation)?.unwrap_or(Ref::NULL))
        }
        Encoded::Array(all) => {
            let component = of.component.unwrap_or(of);
            let array = values::array(t, values::array_class(t, component)?, all.len())?;
            for (index, value) in (0..).zip(all.iter()) {
                match primitive(&value) {
                    Some(value) if component.is_primitive() => {
                        boxes::set_element(array, component.kind, index, value);
                    }
                    _ => array.set_ref(index, value_object(t, dex, &value, component)?),
                }
            }
            Ok(array)
        }
        _ => {
            let kind = if of.is_primitive() { of.kind } else { Kind::Int };
            boxed(t, kind, primitive(value).expect("all others are primitive"))
        }
    }
}

fn primitive(value: &Encoded<'_>) -> Option<Value> {
    Some(match *value {
        Encoded::Byte(value) => Value::Int(value.into()),
        Encoded::Short(value) => Value::Int(value.into()),
        Encoded::Char(value) => Value::Int(value.into()),
        Encoded::Int(value) => Value::Int(value),
        Encoded::Boolean(value) => Value::Int(value.into()),
        Encoded::Long(value) => Value::Long(value),
        Encoded::Float(value) => Value::Float(value),
        Encoded::Double(value) => Value::Double(value),
        _ => return None,
    })
}
