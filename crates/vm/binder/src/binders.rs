//! Java's Binder objects as objects of parcels, and back.

use crate::calls;
use crate::classes::{classes, throw};
use crate::nodes::{NodeRef, nodes};
use crate::parcel::Object;
use crate::remotes::{RemoteRef, remotes};
use baton_vm::class::Class;
use baton_vm::finalizer;
use baton_vm::globals::Global;
use baton_vm::natives::values;
use baton_vm::object::Ref;
use baton_vm::stack::Value;
use baton_vm::vm::{Thread, Thrown};

/// The object of a Binder or BinderProxy; none for null.
///
/// # Errors
/// IllegalArgumentException for another implementation of IBinder, and for a proxy that has been
/// finalized.
pub fn object_of(t: &Thread, binder: Ref) -> Result<Option<Object>, Thrown> {
    if binder.is_null() {
        return Ok(None);
    }
    let class = Class::of(binder);
    if class.is_subclass_of(classes().binder) {
        return Ok(Some(Object::Own(node_of(t, binder))));
    }
    let remote = if class.is_subclass_of(classes().proxy) { remote_of(binder) } else { None };
    let remote = remote.ok_or_else(|| {
        let message = format!("{} is no Binder of the system", class.java_name());
        values::throw(t, "java/lang/IllegalArgumentException", &message)
    })?;
    Ok(Some(Object::Remote(remote)))
}

/// The node of a Binder of this process.
fn node_of(t: &Thread, binder: Ref) -> NodeRef {
    let field = classes().binder_number;
    // Under the lock, so that one object gets one number.
    let mut nodes = nodes();
    let node = nodes.of_object(field.get32(binder), || Global::new(&t.vm.globals, binder));
    field.set32(binder, node.number());
    node
}

/// The remote object of a proxy. None if the proxy has been finalized.
pub fn remote_of(proxy: Ref) -> Option<RemoteRef> {
    RemoteRef::of_number(classes().proxy_number.get32(proxy))
}

/// The Java object for an object of a parcel, which the caller's frame keeps. Null for a
/// descriptor.
///
/// # Errors
/// The heap is full.
pub fn java_object(t: &Thread, object: Option<Object>) -> Result<Ref, Thrown> {
    match object {
        None | Some(Object::Descriptor(_)) => Ok(Ref::NULL),
        Some(Object::Own(node)) => Ok(t.keep(node.object(Global::get))),
        Some(Object::Remote(remote)) => proxy_of(t, remote),
    }
}

/// The proxy of a remote object: the one that lives, or a new one.
fn proxy_of(t: &Thread, remote: RemoteRef) -> Result<Ref, Thrown> {
    let classes = classes();
    let mut new = None;
    loop {
        // A statement of its own: the lock is free while Java runs.
        let known = remotes().proxy(&remote).map(|known| t.keep(known));
        if let Some(known) = known {
            let proxy = t.invoke(classes.referent, &[Value::Ref(known)])?.reference();
            if !proxy.is_null() {
                return Ok(proxy);
            }
        }
        let proxy = match new {
            Some(proxy) => proxy,
            None => {
                let proxy = values::instance(t, classes.proxy)?;
                t.invoke(classes.proxy_constructor, &[Value::Ref(proxy)])?;
                finalizer::register(t, proxy)?;
                *new.insert(proxy)
            }
        };
        let own = classes.proxy_self.get_ref(proxy);
        let global = Global::new(&t.vm.globals, own);
        let is_set = remotes().set_proxy(&remote, known, global);
        if is_set {
            classes.proxy_number.set32(proxy, remote.into_number());
            return Ok(proxy);
        }
    }
}

/// A proxy's object is not needed any more.
pub fn destroy_proxy(proxy: Ref) {
    let classes = classes();
    let number = classes.proxy_number.get32(proxy);
    classes.proxy_number.set32(proxy, 0);
    if number != 0 {
        let remote = RemoteRef::from_number(number);
        remotes().forget_proxy(&remote, classes.proxy_self.get_ref(proxy));
    }
}

/// Opens the driver, if that has not happened yet.
///
/// # Errors
/// RemoteException if no broker is there.
pub fn open_driver(t: &Thread) -> Result<(), Thrown> {
    calls::open(t).map_err(|message| throw(t, "android/os/RemoteException", Some(&message)))
}
