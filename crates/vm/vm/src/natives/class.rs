//! java.lang.Class and the VM's side of class loaders

use super::annotations::{self, System};
use super::members;
use super::values::{self, NULL, VOID, boolean, find, non_null, rust, text, throw};
use crate::class::{Class, Loader, Method, access};
use crate::linker::{self, LinkError};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use crate::{exception::OrThrow, initialize};

const CLASS: &str = "Ljava/lang/Class;";
const VM_LOADER: &str = "Ljava/lang/VMClassLoader;";

/// Flags of fields that a class's modifiers have no meaning for.
const NOT_MODIFIERS: u32 = 0x20;

pub(super) const TABLE: &[Native] = &[
    (
        CLASS,
        "classForName",
        "(Ljava/lang/String;ZLjava/lang/ClassLoader;)Ljava/lang/Class;",
        |t, a| {
            let class = by_name(t, Loader::of(a.reference(2)), &rust(t, a.reference(0))?)?;
            if a.boolean(1) {
                initialize::initialize(t, class)?;
            }
            Ok(Value::Ref(class.mirror()))
        },
    ),
    (CLASS, "getClassLoader", "(Ljava/lang/Class;)Ljava/lang/ClassLoader;", |_, a| {
        Ok(Value::Ref(Class::mirrored_by(a.reference(0)).loader.0))
    }),
    (CLASS, "getComponentType", "()Ljava/lang/Class;", |_, a| mirror_or_null(this(a).component)),
    (CLASS, "getSuperclass", "()Ljava/lang/Class;", |_, a| {
        let class = this(a);
        mirror_or_null(class.superclass.filter(|_| !class.is_interface()))
    }),
    (CLASS, "getInterfaces", "()[Ljava/lang/Class;", |t, a| {
        let class = this(a);
        let known = t.vm.known();
        let of_arrays = [known.cloneable, known.serializable];
        let interfaces = if class.is_array() { &of_arrays[..] } else { &class.interfaces };
        Ok(Value::Ref(members::mirrors(t, interfaces)?))
    }),
    (CLASS, "getName0", "()Ljava/lang/String;", |t, a| {
        let descriptor = this(a).descriptor;
        let name = descriptor.strip_prefix('L').map_or(descriptor, |it| it.trim_end_matches(';'));
        Ok(Value::Ref(text(t, name)?))
    }),
    (CLASS, "getModifiers", "(Ljava/lang/Class;Z)I", |_, a| {
        let class = Class::mirrored_by(a.reference(0));
        Ok(Value::Int(modifiers(class, a.boolean(1)) as i32))
    }),
    (CLASS, "isInterface", "()Z", |_, a| boolean(this(a).is_interface())),
    (CLASS, "isPrimitive", "()Z", |_, a| boolean(this(a).is_primitive())),
    (CLASS, "isInstance", "(Ljava/lang/Object;)Z", |_, a| {
        let object = a.reference(1);
        boolean(!object.is_null() && Class::of(object).is_assignable_to(this(a)))
    }),
    (CLASS, "isAssignableFrom", "(Ljava/lang/Class;)Z", |t, a| {
        let from = Class::mirrored_by(non_null(t, a.reference(1), "c")?);
        boolean(from.is_assignable_to(this(a)))
    }),
    (CLASS, "newInstance", "()Ljava/lang/Object;", new_instance),
    (CLASS, "desiredAssertionStatus", "()Z", |_, _| boolean(false)),
    (CLASS, "isAnonymousClass", "()Z", |_, a| boolean(is_anonymous(this(a)))),
    (CLASS, "getInnerClassName", "()Ljava/lang/String;", |t, a| {
        let inner = annotations::system(this(a), System::InnerClass);
        match inner.and_then(|inner| annotations::text(&inner, "name")) {
            Some(name) => Ok(Value::Ref(text(t, &name)?)),
            None => NULL,
        }
    }),
    (CLASS, "getDeclaringClass", "()Ljava/lang/Class;", |t, a| {
        let class = this(a);
        // The class around an anonymous one of an initializer encloses it, but declares nothing.
        if is_anonymous(class) {
            return NULL;
        }
        mirror_or_null(enclosing_by(t, class, System::EnclosingClass)?)
    }),
    (CLASS, "getEnclosingClass", "()Ljava/lang/Class;", |t, a| {
        let class = this(a);
        if let Some(method) = enclosing_method(t, class)? {
            return Ok(Value::Ref(method.class().mirror()));
        }
        mirror_or_null(enclosing_by(t, class, System::EnclosingClass)?)
    }),
    (CLASS, "getEnclosingMethod", "()Ljava/lang/reflect/Method;", |t, a| {
        match enclosing_method(t, this(a))?.filter(|method| !method.is_constructor()) {
            Some(method) => Ok(Value::Ref(members::method_object(t, method)?)),
            None => NULL,
        }
    }),
    (CLASS, "getEnclosingConstructor", "()Ljava/lang/reflect/Constructor;", |t, a| {
        match enclosing_method(t, this(a))?.filter(|method| method.is_constructor()) {
            Some(method) => Ok(Value::Ref(members::method_object(t, method)?)),
            None => NULL,
        }
    }),
    (CLASS, "getDeclaredClasses0", "(Z)[Ljava/lang/Class;", |t, a| {
        let mut members = annotations::types(t, this(a), System::MemberClasses)?;
        if a.boolean(1) {
            members.retain(|class| modifiers(class, false) & access::PUBLIC != 0);
        }
        Ok(Value::Ref(members::mirrors(t, &members)?))
    }),
    (CLASS, "getDeclaredFields0", "(Z)[Ljava/lang/reflect/Field;", |t, a| {
        let wanted = this(a).fields.iter().filter(|field| {
            field.dex_index != linker::HIDDEN
                && (!a.boolean(1) || field.access & access::PUBLIC != 0)
        });
        let fields =
            wanted.map(|it| members::field_object(t, it)).collect::<Result<Vec<_>, _>>()?;
        let class = values::class(t, "java/lang/reflect/Field")?;
        Ok(Value::Ref(values::objects(t, class, &fields)?))
    }),
    (CLASS, "getDeclaredMethods0", "(Z)[Ljava/lang/reflect/Method;", |t, a| {
        methods(t, a, "java/lang/reflect/Method", |it| !it.name.starts_with('<'))
    }),
    (CLASS, "getDeclaredConstructors0", "(Z)[Ljava/lang/reflect/Constructor;", |t, a| {
        methods(t, a, "java/lang/reflect/Constructor", |it| it.name == "<init>")
    }),
    (CLASS, "getDeclaredAnnotations0", "()[Ljava/lang/annotation/Annotation;", |t, a| {
        let class = this(a);
        Ok(Value::Ref(annotations::objects_of(t, class, annotations::of_class(class))?))
    }),
    (CLASS, "getSignatureAttribute", "()Ljava/lang/String;", |t, a| {
        let class = this(a);
        match annotations::signature(class, annotations::of_class(class)) {
            Some(signature) => Ok(Value::Ref(text(t, &signature)?)),
            None => NULL,
        }
    }),
    ("Ljava/lang/reflect/AccessibleObject;", "getAccessFlags", "(Ljava/lang/Class;)I", |_, a| {
        Ok(Value::Int(modifiers(Class::mirrored_by(a.reference(0)), true) as i32))
    }),
    (
        "Ljava/lang/ClassCache;",
        "loadReflectionAccess",
        "()Lorg/robovm/rt/ReflectionAccess;",
        |t, _| {
            let class = values::class(t, "java/lang/reflect/AccessibleObject")?;
            let field =
                class.declared_field("REFLECTION_ACCESS", "Lorg/robovm/rt/ReflectionAccess;");
            let field = field.expect("a field of AccessibleObject");
            Ok(Value::Ref(field.get_ref(field.holder())))
        },
    ),
    (
        VM_LOADER,
        "findLoadedClass",
        "(Ljava/lang/ClassLoader;Ljava/lang/String;)Ljava/lang/Class;",
        |t, a| {
            let descriptor = descriptor(&rust(t, a.reference(1))?);
            mirror_or_null(linker::loaded(t.vm, Loader::of(a.reference(0)), &descriptor))
        },
    ),
    (
        VM_LOADER,
        "findClassInClasspathForLoader",
        "(Ljava/lang/ClassLoader;Ljava/lang/String;)Ljava/lang/Class;",
        |t, a| {
            let (loader, name) = (Loader::of(a.reference(0)), rust(t, a.reference(1))?);
            let has_files = t.vm.dexes.read().expect("no holder panics").contains_key(&loader);
            if !has_files {
                return Err(throw(t, "java/lang/ClassNotFoundException", &name));
            }
            Ok(Value::Ref(by_name(t, loader, &name)?.mirror()))
        },
    ),
    // Assertions are configured for the whole VM.
    ("Ljava/lang/ClassLoader;", "clearAssertionStatus", "()V", |_, _| VOID),
];

fn is_anonymous(class: &Class) -> bool {
    let inner = annotations::system(class, System::InnerClass);
    inner.is_some_and(|inner| annotations::text(&inner, "name").is_none())
}

fn this(a: Args) -> &'static Class {
    Class::mirrored_by(a.reference(0))
}

/// Class.newInstance: an exception of the constructor comes out as it is.
fn new_instance(t: &Thread, a: Args) -> values::Outcome {
    let classes = values::array(t, values::array_class(t, t.vm.known().class)?, 0)?;
    let objects = values::array(t, values::array_class(t, t.vm.known().object)?, 0)?;
    let signature = "([Ljava/lang/Class;)Ljava/lang/reflect/Constructor;";
    let mirror = a.reference(0);
    let found =
        values::call_on(t, mirror, "getDeclaredConstructor", signature, &[Value::Ref(classes)]);
    let constructor = found.map_err(|thrown| {
        if thrown_class(t) != "Ljava/lang/NoSuchMethodException;" {
            return thrown;
        }
        t.take_exception();
        throw(t, "java/lang/InstantiationException", &this(a).java_name())
    })?;
    let signature = "([Ljava/lang/Object;)Ljava/lang/Object;";
    let constructor = constructor.reference();
    let made = values::call_on(t, constructor, "newInstance", signature, &[Value::Ref(objects)]);
    made.or_else(|thrown| {
        if thrown_class(t) != "Ljava/lang/reflect/InvocationTargetException;" {
            return Err(thrown);
        }
        let wrapper = t.take_exception();
        let get = "getTargetException";
        let cause = values::call_on(t, wrapper, get, "()Ljava/lang/Throwable;", &[])?;
        Err(t.throw_object(cause.reference()))
    })
}

/// The descriptor of the class of the exception under way.
fn thrown_class(t: &Thread) -> &'static str {
    Class::of(t.exception()).descriptor
}

fn mirror_or_null(class: Option<&'static Class>) -> values::Outcome {
    Ok(Value::Ref(class.map_or(Ref::NULL, |class| class.mirror())))
}

fn descriptor(name: &str) -> String {
    let name = name.replace('.', "/");
    if name.starts_with('[') { name } else { format!("L{name};") }
}

/// A class by the name that Class.forName takes.
fn by_name(t: &Thread, loader: Loader, name: &str) -> Result<&'static Class, Thrown> {
    let element = name.trim_start_matches('[');
    let is_name = !name.contains('/')
        && !name.is_empty()
        && (element.len() == name.len()
            || matches!(element, "Z" | "B" | "C" | "S" | "I" | "J" | "F" | "D")
            || element.len() > 2 && element.starts_with('L') && element.ends_with(';'));
    if !is_name {
        return Err(throw(t, "java/lang/ClassNotFoundException", name));
    }
    match linker::find(t, loader, &descriptor(name)) {
        Err(LinkError::NotFound(_)) => Err(throw(t, "java/lang/ClassNotFoundException", name)),
        found => found.or_throw(t),
    }
}

/// A class's modifiers: those of the source if it is an inner class, unless they do not matter.
fn modifiers(class: &'static Class, own: bool) -> u32 {
    if let Some(component) = class.component {
        let visible = access::PUBLIC | access::PRIVATE | access::PROTECTED;
        return modifiers(component, own) & visible | access::FINAL | access::ABSTRACT;
    }
    if class.is_primitive() {
        return access::PUBLIC | access::FINAL | access::ABSTRACT;
    }
    let inner = if own { None } else { annotations::system(class, System::InnerClass) };
    let flags = inner.and_then(|inner| annotations::int(&inner, "accessFlags"));
    flags.map_or(class.access & 0xffff, |flags| flags as u32) & !NOT_MODIFIERS
}

fn enclosing_by(
    t: &Thread,
    class: &'static Class,
    by: System,
) -> Result<Option<&'static Class>, Thrown> {
    Ok(annotations::types(t, class, by)?.first().copied())
}

fn enclosing_method(t: &Thread, class: &'static Class) -> Result<Option<&'static Method>, Thrown> {
    let Some(annotation) = annotations::system(class, System::EnclosingMethod) else {
        return Ok(None);
    };
    let Some(baton_dex::Value::Method(id)) = annotations::element(&annotation, "value") else {
        return Ok(None);
    };
    let file = &annotation.dex.file;
    let method = file.method(id);
    let of = find(t, class.loader, &file.descriptor(method.class).to_string())?;
    let name = file.string(method.name).to_string();
    Ok(of.declared_method(&name, &file.signature(method.proto)))
}

fn methods(t: &Thread, a: Args, class: &str, wanted: fn(&Method) -> bool) -> values::Outcome {
    let all = this(a)
        .methods
        .iter()
        .filter(|method| wanted(method) && (!a.boolean(1) || method.access & access::PUBLIC != 0));
    let objects = all.map(|it| members::method_object(t, it)).collect::<Result<Vec<_>, _>>()?;
    let class = values::class(t, class)?;
    Ok(Value::Ref(values::objects(t, class, &objects)?))
}
