//! Which method an invocation runs: the tables of a class's virtual methods, and of those of its
//! interfaces.

use crate::class::{Body, Class, InterfaceTable, Loader, Method, access};
use crate::descriptor::package;
use crate::resolved::Resolved;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whether a method of a class overrides one that is in the superclass's table.
fn overrides(descriptor: &str, loader: Loader, method: &Method, inherited: &Method) -> bool {
    if method.name != inherited.name || method.signature != inherited.signature {
        return false;
    }
    let of = inherited.class();
    inherited.access & (access::PUBLIC | access::PROTECTED) != 0
        || (of.loader == loader && package(of.descriptor) == package(descriptor))
}

pub(crate) fn vtable(
    descriptor: &str,
    loader: Loader,
    superclass: Option<&'static Class>,
    methods: &'static [Method],
) -> Box<[&'static Method]> {
    let mut table = superclass.map_or(Vec::new(), |it| it.vtable.to_vec());
    for method in methods {
        let mut place = None;
        let inherited = superclass.map_or(&[][..], |it| &it.vtable);
        for (index, inherited) in inherited.iter().enumerate() {
            if !overrides(descriptor, loader, method, inherited) {
                continue;
            }
            table[index] = method;
            place = place.or(Some(index));
        }
        let index = place.unwrap_or_else(|| {
            table.push(method);
            table.len() - 1
        });
        method.table_index.store(index as u32, Relaxed);
    }
    table.into()
}

pub(crate) fn interface_tables(
    superclass: Option<&'static Class>,
    direct: &[&'static Class],
    vtable: &[&'static Method],
    is_interface: bool,
) -> Box<[InterfaceTable]> {
    let mut all: Vec<&'static Class> = Vec::new();
    let mut add = |interface: &'static Class| {
        if !all.iter().any(|it| std::ptr::eq(*it, interface)) {
            all.push(interface);
        }
    };
    for table in superclass.iter().flat_map(|it| &it.interface_tables) {
        add(table.interface);
    }
    for interface in direct {
        add(interface);
        interface.interface_tables.iter().for_each(|table| add(table.interface));
    }
    let table = |interface: &'static Class| {
        let declared = interface.virtual_methods();
        let methods = match is_interface {
            true => Box::default(),
            false => declared.map(|method| implementation(method, vtable, &all)).collect(),
        };
        InterfaceTable { interface, methods }
    };
    all.iter().map(|interface| table(interface)).collect()
}

/// The method that a class has for one of an interface: its own or an inherited one, else the most
/// specific default method of its interfaces.
pub(crate) fn implementation(
    of: &'static Method,
    vtable: &[&'static Method],
    interfaces: &[&'static Class],
) -> &'static Method {
    let is_like = |it: &Method| it.name == of.name && it.signature == of.signature;
    if let Some(method) = vtable.iter().rev().find(|it| is_like(it)) {
        return method;
    }
    let candidates: Vec<&'static Method> = interfaces
        .iter()
        .filter_map(|interface| interface.virtual_methods().find(|it| is_like(it)))
        .collect();
    let is_hidden = |it: &Method| {
        candidates.iter().any(|other| {
            !std::ptr::eq(other.class(), it.class())
                && other.class().interface_table(it.class()).is_some()
        })
    };
    let mut defaults = candidates.iter().filter(|it| !is_hidden(it) && !it.is_abstract());
    match (defaults.next(), defaults.next()) {
        (Some(method), None) => method,
        (Some(method), Some(_)) => conflict(method),
        // An abstract method of a subinterface takes a default method away.
        _ => candidates.iter().find(|it| !is_hidden(it)).copied().unwrap_or(of),
    }
}

/// A method of which invocations throw IncompatibleClassChangeError.
fn conflict(like: &'static Method) -> &'static Method {
    let method = Method {
        class: Resolved::new(),
        name: like.name,
        signature: like.signature,
        parameters: like.parameters.clone(),
        result: like.result,
        access: like.access,
        n_argument_registers: like.n_argument_registers,
        dex_index: like.dex_index,
        definition: None,
        table_index: AtomicU32::new(like.table_index.load(Relaxed)),
        body: Resolved::new(),
        native_types: OnceLock::new(),
    };
    method.class.set(like.class());
    method.body.set(Box::leak(Box::new(Body::Conflict)));
    Box::leak(Box::new(method))
}
