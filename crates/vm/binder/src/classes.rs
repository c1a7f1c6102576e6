//! Android's classes, as the program's loader has them: found once.

use baton_vm::class::{Class, Field, Method};
use baton_vm::exception::OrThrow;
use baton_vm::natives::values;
use baton_vm::vm::{Thread, Thrown};
use baton_vm::{initialize, linker};
use std::sync::OnceLock;

/// Classes, fields and methods that this crate uses.
#[derive(Debug)]
pub struct Classes {
    /// android.os.Parcel
    pub parcel: &'static Class,
    /// android.os.Parcel: its constructor, with a number of contents, or 0 for new ones
    pub parcel_constructor: &'static Method,
    /// android.os.Parcel: whether the contents are its own
    pub parcel_owns: &'static Field,
    /// android.os.Parcel: recycled ones that own their contents
    pub owned_pool: &'static Field,
    /// android.os.Parcel: recycled ones that do not
    pub holder_pool: &'static Field,
    /// android.os.Parcel: the number of its contents
    pub parcel_number: &'static Field,
    /// android.os.Binder
    pub binder: &'static Class,
    /// android.os.Binder: the number of its node
    pub binder_number: &'static Field,
    /// android.os.Binder: serves a request
    pub exec_transact: &'static Method,
    /// android.os.BinderProxy
    pub proxy: &'static Class,
    /// android.os.BinderProxy: the number of its remote object
    pub proxy_number: &'static Field,
    /// android.os.BinderProxy: the weak reference to itself
    pub proxy_self: &'static Field,
    /// android.os.BinderProxy: its constructor
    pub proxy_constructor: &'static Method,
    /// android.os.BinderProxy: tells a recipient of a death
    pub send_death_notice: &'static Method,
    /// java.lang.ref.Reference: its referent
    pub referent: &'static Method,
}

static CLASSES: OnceLock<Classes> = OnceLock::new();

/// The classes.
///
/// # Panics
/// Before a thread has called [`find`].
#[inline]
pub fn classes() -> &'static Classes {
    CLASSES.get().expect("objects of the classes exist")
}

/// Finds the classes for a native method of one of them.
///
/// # Errors
/// NoClassDefFoundError; UnsatisfiedLinkError if a second loader has the classes, too.
pub fn find(t: &Thread) -> Result<&'static Classes, Thrown> {
    let loader = t.caller().expect("a native method runs").class().loader;
    let found = match CLASSES.get() {
        Some(found) => found,
        None => {
            let found = look_up(t)?;
            CLASSES.get_or_init(|| found)
        }
    };
    if found.binder.loader != loader {
        let message = "android.os.Binder is there for another class loader already";
        return Err(values::throw(t, "java/lang/UnsatisfiedLinkError", message));
    }
    Ok(found)
}

fn look_up(t: &Thread) -> Result<Classes, Thrown> {
    let loader = t.caller().expect("a native method runs").class().loader;
    let class = |name: &str| -> Result<&'static Class, Thrown> {
        let class = linker::find(t, loader, name).or_throw(t)?;
        initialize::initialize(t, class)?;
        Ok(class)
    };
    let no_such = |class: &Class, name: &str| {
        values::throw(t, "java/lang/NoSuchFieldError", &format!("{}.{name}", class.java_name()))
    };
    let field = |class: &'static Class, name: &str, descriptor: &str| {
        class.declared_field(name, descriptor).ok_or_else(|| no_such(class, name))
    };
    let method = |class: &'static Class, name: &str, signature: &str| {
        class.declared_method(name, signature).ok_or_else(|| no_such(class, name))
    };
    let parcel = class("Landroid/os/Parcel;")?;
    let binder = class("Landroid/os/Binder;")?;
    let proxy = class("Landroid/os/BinderProxy;")?;
    let reference = class("Ljava/lang/ref/Reference;")?;
    let notice = "(Landroid/os/IBinder$DeathRecipient;)V";
    Ok(Classes {
        parcel,
        parcel_constructor: method(parcel, "<init>", "(I)V")?,
        parcel_owns: field(parcel, "mOwnsNativeParcelObject", "Z")?,
        owned_pool: field(parcel, "sOwnedPool", "[Landroid/os/Parcel;")?,
        holder_pool: field(parcel, "sHolderPool", "[Landroid/os/Parcel;")?,
        parcel_number: field(parcel, "mNativePtr", "I")?,
        binder,
        binder_number: field(binder, "mObject", "I")?,
        exec_transact: method(binder, "execTransact", "(IIII)Z")?,
        proxy,
        proxy_number: field(proxy, "mObject", "I")?,
        proxy_self: field(proxy, "mSelf", "Ljava/lang/ref/WeakReference;")?,
        proxy_constructor: method(proxy, "<init>", "()V")?,
        send_death_notice: method(proxy, "sendDeathNotice", notice)?,
        referent: method(reference, "get", "()Ljava/lang/Object;")?,
    })
}

/// Throws an exception of an Android class, by its name in dex form. Without a message its
/// constructor takes none.
pub fn throw(t: &Thread, name: &str, message: Option<&str>) -> Thrown {
    let thrown = || -> Result<Thrown, Thrown> {
        let class = linker::find(t, classes().binder.loader, &format!("L{name};")).or_throw(t)?;
        initialize::initialize(t, class)?;
        let exception = values::instance(t, class)?;
        let signature = if message.is_some() { "(Ljava/lang/String;)V" } else { "()V" };
        let constructor = class.declared_method("<init>", signature).expect("an exception's");
        let mut args = vec![baton_vm::stack::Value::Ref(exception)];
        if let Some(message) = message {
            args.push(baton_vm::stack::Value::Ref(values::text(t, message)?));
        }
        t.invoke(constructor, &args)?;
        Ok(t.throw_object(exception))
    };
    t.scope(|| thrown().unwrap_or_else(|thrown| thrown))
}
