//! Classes, and the IDs of their fields and methods: the addresses of the VM's descriptions.

use crate::env::{Call, Env, call, call_for_object};
use crate::handle::Handle;
use baton_vm::class::{Class, Field, Loader, Method};
use baton_vm::dex_files;
use baton_vm::exception::OrThrow;
use baton_vm::initialize;
use baton_vm::linker::{self, HIDDEN};
use baton_vm::natives::{members, values};
use baton_vm::object::Ref;
use baton_vm::vm::Thrown;
use std::ffi::c_char;
use std::ptr;

/// `DefineClass`: the bytes are a dex file that has the class.
pub extern "C" fn define_class(
    env: *const Env,
    name: *const c_char,
    loader: Handle,
    bytes: *const u8,
    n_bytes: i32,
) -> Handle {
    call_for_object(env, "DefineClass", |call| {
        let t = call.t;
        let loader = Loader::of(call.object(loader));
        let n_bytes = usize::try_from(n_bytes).unwrap_or(0);
        if bytes.is_null() {
            call.wrong("the bytes are NULL");
        }
        // SAFETY: C gives this many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, n_bytes) }.to_vec();
        let malformed = |message: &str| values::throw(t, "java/lang/ClassFormatError", message);
        if bytes.starts_with(&0xcafe_babe_u32.to_be_bytes()) {
            return Err(malformed("a class file: this VM runs dex files"));
        }
        let dex = dex_files::load(loader, "DefineClass", bytes).map_err(|it| malformed(&it))?;
        let descriptor = match name.is_null() {
            false => Some(format!("L{};", call.text(name, "the name").replace('.', "/"))),
            true => None,
        };
        let first = || dex.file.classes().next();
        let class = match &descriptor {
            Some(descriptor) => dex.file.find_class(descriptor.as_bytes()),
            None => first(),
        };
        let Some(class) = class else {
            let name = descriptor.unwrap_or_default();
            return Err(values::throw(t, "java/lang/NoClassDefFoundError", &name));
        };
        let descriptor = dex.file.descriptor(class.type_id).to_string();
        if linker::loaded(t.vm, loader, &descriptor).is_some() {
            let message = format!("the loader has a class {descriptor}");
            return Err(values::throw(t, "java/lang/LinkageError", &message));
        }
        Ok(linker::define(t, dex, class).or_throw(t)?.mirror())
    })
}

/// `FindClass`: `java/lang/String`, or the descriptor of an array.
pub extern "C" fn find_class(env: *const Env, name: *const c_char) -> Handle {
    call_for_object(env, "FindClass", |call| {
        let name = call.text(name, "the name");
        let is_array = name.starts_with('[');
        if name.is_empty() || name.contains('.') || !is_array && name.ends_with(';') {
            return Err(values::throw(call.t, "java/lang/NoClassDefFoundError", &name));
        }
        let descriptor = if is_array { name } else { format!("L{name};") };
        Ok(linker::find(call.t, call.loader(), &descriptor).or_throw(call.t)?.mirror())
    })
}

/// `GetSuperclass`: `NULL` for an interface.
pub extern "C" fn get_superclass(env: *const Env, class: Handle) -> Handle {
    call_for_object(env, "GetSuperclass", |call| {
        let class = call.class(class);
        let superclass = class.superclass.filter(|_| !class.is_interface());
        Ok(superclass.map_or(Ref::NULL, |it| it.mirror()))
    })
}

/// `IsAssignableFrom`: whether objects of the first class are objects of the second.
pub extern "C" fn is_assignable_from(env: *const Env, from: Handle, to: Handle) -> u8 {
    call(env, "IsAssignableFrom", 0, |call| {
        Ok(call.class(from).is_assignable_to(call.class(to)).into())
    })
}

/// `IsInstanceOf`: null is an instance of all.
pub extern "C" fn is_instance_of(env: *const Env, object: Handle, class: Handle) -> u8 {
    call(env, "IsInstanceOf", 0, |call| {
        let (object, class) = (call.object(object), call.class(class));
        Ok((object.is_null() || Class::of(object).is_assignable_to(class)).into())
    })
}

/// `GetMethodID`.
pub extern "C" fn get_method_id(
    env: *const Env,
    class: Handle,
    name: *const c_char,
    signature: *const c_char,
) -> *const Method {
    call(env, "GetMethodID", ptr::null(), |call| method_id(call, class, name, signature, false))
}

/// `GetStaticMethodID`.
pub extern "C" fn get_static_method_id(
    env: *const Env,
    class: Handle,
    name: *const c_char,
    signature: *const c_char,
) -> *const Method {
    let function = "GetStaticMethodID";
    call(env, function, ptr::null(), |call| method_id(call, class, name, signature, true))
}

fn method_id(
    call: &Call<'_>,
    class: Handle,
    name: *const c_char,
    signature: *const c_char,
    is_static: bool,
) -> Result<*const Method, Thrown> {
    let (t, class) = (call.t, call.class(class));
    let (name, signature) = (call.text(name, "the name"), call.text(signature, "the signature"));
    initialize_for_id(call, class)?;
    let found = match name.as_str() {
        "<init>" => class.declared_method(&name, &signature),
        "<clinit>" => None,
        _ => class.find_method(&name, &signature).or_else(|| {
            // Interfaces have Object's methods, too.
            t.vm.known().object.find_method(&name, &signature).filter(|_| class.is_interface())
        }),
    };
    match found.filter(|method| method.is_static() == is_static) {
        Some(method) => Ok(method),
        None => {
            let sort = if is_static { "static" } else { "non-static" };
            let message = format!("no {sort} method {}.{name}{signature}", class.java_name());
            Err(values::throw(t, "java/lang/NoSuchMethodError", &message))
        }
    }
}

fn initialize_for_id(call: &Call<'_>, class: &'static Class) -> Result<(), Thrown> {
    if class.is_primitive() {
        call.wrong(format_args!("{} has no members", class.java_name()));
    }
    initialize::initialize(call.t, class)
}

/// `GetFieldID`.
pub extern "C" fn get_field_id(
    env: *const Env,
    class: Handle,
    name: *const c_char,
    descriptor: *const c_char,
) -> *const Field {
    call(env, "GetFieldID", ptr::null(), |call| field_id(call, class, name, descriptor, false))
}

/// `GetStaticFieldID`.
pub extern "C" fn get_static_field_id(
    env: *const Env,
    class: Handle,
    name: *const c_char,
    descriptor: *const c_char,
) -> *const Field {
    let function = "GetStaticFieldID";
    call(env, function, ptr::null(), |call| field_id(call, class, name, descriptor, true))
}

fn field_id(
    call: &Call<'_>,
    class: Handle,
    name: *const c_char,
    descriptor: *const c_char,
    is_static: bool,
) -> Result<*const Field, Thrown> {
    let class = call.class(class);
    let (name, descriptor) = (call.text(name, "the name"), call.text(descriptor, "the type"));
    initialize_for_id(call, class)?;
    let found = class.find_field(&name, &descriptor);
    match found.filter(|it| it.is_static() == is_static && it.dex_index != HIDDEN) {
        Some(field) => Ok(field),
        None => {
            let sort = if is_static { "static" } else { "instance" };
            let message = format!("no {sort} field {}.{name} of {descriptor}", class.java_name());
            Err(values::throw(call.t, "java/lang/NoSuchFieldError", &message))
        }
    }
}

/// `FromReflectedMethod`: of a Method or Constructor.
pub extern "C" fn from_reflected_method(env: *const Env, object: Handle) -> *const Method {
    call(env, "FromReflectedMethod", ptr::null(), |call| {
        let object = call.non_null(object, "the method");
        match Class::of(object).descriptor {
            "Ljava/lang/reflect/Method;" | "Ljava/lang/reflect/Constructor;" => {}
            _ => call.wrong(format_args!("an object of {} is no method", call.name_of(object))),
        }
        let number = values::field(object, "method", "J").get64(object) as i64;
        Ok(ptr::from_ref(members::numbered_method(call.t, number)?))
    })
}

/// `FromReflectedField`.
pub extern "C" fn from_reflected_field(env: *const Env, object: Handle) -> *const Field {
    call(env, "FromReflectedField", ptr::null(), |call| {
        let object = call.non_null(object, "the field");
        if Class::of(object).descriptor != "Ljava/lang/reflect/Field;" {
            call.wrong(format_args!("an object of {} is no field", call.name_of(object)));
        }
        Ok(ptr::from_ref(members::field_of(call.t, object)?))
    })
}

/// `ToReflectedMethod`.
pub extern "C" fn to_reflected_method(
    env: *const Env,
    _class: Handle,
    id: *const Method,
    _is_static: u8,
) -> Handle {
    call_for_object(env, "ToReflectedMethod", |call| {
        members::method_object(call.t, call.method(id))
    })
}

/// `ToReflectedField`.
pub extern "C" fn to_reflected_field(
    env: *const Env,
    _class: Handle,
    id: *const Field,
    _is_static: u8,
) -> Handle {
    call_for_object(env, "ToReflectedField", |call| members::field_object(call.t, call.field(id)))
}

/// `GetModule`, of Java 9: there are no modules.
pub extern "C" fn get_module(env: *const Env, _class: Handle) -> Handle {
    call_for_object(env, "GetModule", |call| {
        let message = "this VM has no modules";
        Err(values::throw(call.t, "java/lang/UnsupportedOperationException", message))
    })
}
