//! What the indices of a dex file mean: its fields, methods and strings. The
//! [linker](crate::linker) finds its types.

use crate::allocation::OutOfMemory;
use crate::class::{Class, Field, LoadedDex, Loader, Method};
use crate::dex_files::text;
use crate::linker::{HIDDEN, LinkError, Linked, loaded, resolve_type};
use crate::method_tables::implementation;
use crate::object::Ref;
use crate::string;
use crate::vm::Thread;
use baton_dex::{FieldId, MethodId, StringId};
use std::sync::atomic::Ordering::Relaxed;

/// A class's code names what it may not.
fn inaccessible<T>(what: &str, referrer: &Class) -> Linked<T> {
    let message = format!("{what} is inaccessible to class '{}'", referrer.pretty_name());
    Err(LinkError::Error("Ljava/lang/IllegalAccessError;", message))
}

/// Whether code of a class may name another one.
pub(crate) fn check_access(referrer: &'static Class, class: &'static Class) -> Linked<()> {
    if referrer.can_access(class) {
        return Ok(());
    }
    inaccessible(&format!("Class '{}'", class.pretty_name()), referrer)
}

/// A field of a dex file, for code of `referrer`.
///
/// # Errors
/// Why there is none, or none that the code may use.
pub fn resolve_field(
    t: &Thread,
    dex: &'static LoadedDex,
    id: FieldId,
    referrer: Option<&'static Class>,
) -> Linked<&'static Field> {
    let entry = dex.file.field(id);
    let class = resolve_type(t, dex, entry.class)?;
    let field = match dex.fields[id.index()].get() {
        Some(field) => field,
        None => {
            let name = text(dex.file.string(entry.name));
            let descriptor = text(dex.file.descriptor(entry.type_id));
            let field = class.find_field(name, descriptor).filter(|it| it.dex_index != HIDDEN);
            field.ok_or_else(|| {
                let message = format!(
                    "No field {name} of type {descriptor} in class {} or its superclasses",
                    class.descriptor
                );
                LinkError::Error("Ljava/lang/NoSuchFieldError;", message)
            })?
        }
    };
    if let Some(referrer) = referrer {
        check_access(referrer, class)?;
        if !referrer.can_access_member(field.class(), field.access) {
            let names = (field.class().java_name(), field.name);
            return inaccessible(&format!("Field '{}.{}'", names.0, names.1), referrer);
        }
    }
    dex.fields[id.index()].set(field);
    Ok(field)
}

/// A method of a dex file, for code of `referrer`.
///
/// # Errors
/// Why there is none, or none that the code may call.
pub fn resolve_method(
    t: &Thread,
    dex: &'static LoadedDex,
    id: MethodId,
    referrer: Option<&'static Class>,
) -> Linked<&'static Method> {
    let entry = dex.file.method(id);
    let class = resolve_type(t, dex, entry.class)?;
    let method = match dex.methods[id.index()].get() {
        Some(method) => method,
        None => find_method(t, dex, class, entry)?,
    };
    if let Some(referrer) = referrer {
        check_access(referrer, class)?;
        // An array's clone is public.
        if !class.is_array() && !referrer.can_access_member(method.class(), method.access) {
            return inaccessible(&format!("Method '{method}'"), referrer);
        }
    }
    dex.methods[id.index()].set(method);
    Ok(method)
}

/// The method that an interface inherits, if `inherited` is of one of its superinterfaces.
fn in_interface(class: &'static Class, inherited: &'static Method) -> &'static Method {
    let is_own = std::ptr::eq(inherited.class(), class);
    if !class.is_interface() || is_own || inherited.is_direct() {
        return inherited;
    }
    let interfaces = class.interface_tables.iter().map(|table| table.interface);
    implementation(inherited, &[], &interfaces.collect::<Vec<_>>())
}

fn find_method(
    t: &Thread,
    dex: &'static LoadedDex,
    class: &'static Class,
    entry: baton_dex::Method,
) -> Linked<&'static Method> {
    let name = text(dex.file.string(entry.name));
    let signature = dex.file.signature(entry.proto);
    let method =
        class.find_method(name, &signature).map(|it| in_interface(class, it)).or_else(|| {
            // Interfaces have Object's methods, too.
            let object =
                class.is_interface().then(|| loaded(t.vm, Loader::BOOT, "Ljava/lang/Object;"));
            object.flatten()?.find_method(name, &signature)
        });
    method.ok_or_else(|| {
        let message = format!(
            "No method {name}{signature} in class {} or its super classes",
            class.descriptor
        );
        LinkError::Error("Ljava/lang/NoSuchMethodError;", message)
    })
}

/// A string constant of a dex file.
///
/// # Errors
/// The heap is full.
#[inline]
pub fn resolve_string(
    t: &Thread,
    dex: &'static LoadedDex,
    id: StringId,
) -> Result<Ref, OutOfMemory> {
    let word = &dex.strings[id.index()];
    // SAFETY: the word is 0 or the address of an interned string, which is never freed.
    let known = unsafe { Ref::from_address(word.load(Relaxed)) };
    if !known.is_null() {
        return Ok(known);
    }
    let string = string::intern(t, &dex.file.string(id).utf16().collect::<Vec<_>>())?;
    word.store(string.address(), Relaxed);
    Ok(string)
}
