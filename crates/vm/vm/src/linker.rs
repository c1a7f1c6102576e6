//! How classes come to be: found in [dex files](crate::dex_files), [laid out](crate::layout), and
//! given their [tables of methods](crate::method_tables).
//!
//! Threads may link a class at the same time: the first one to publish it in the VM's table wins,
//! and no lock is held meanwhile. What loses is never freed, like all of a class.

use crate::allocation::{self, OutOfMemory};
use crate::cards::note_root;
use crate::class::{
    Class, Definition, Field, IN_NO_TABLE, InterfaceTable, LoadedDex, Loader, Method, OF_INTERFACE,
    access,
};
use crate::descriptor::java_name;
use crate::dex_files::text;
use crate::layout::{lay_out, place, shape};
use crate::method_tables::{interface_tables, vtable};
use crate::object::{HEADER_BYTES, Kind, Shape, Sort};
use crate::resolved::Resolved;
use crate::stack::Value;
use crate::string;
use crate::vm::{Thread, Thrown, Vm};
use baton_dex::{ClassDef, EncodedMethod, TypeId};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Room for the hidden field at the start of java.lang.Class: the class.
const MIRROR_FIELD_BYTES: u32 = 4;
/// The index of a field that no dex file has.
pub const HIDDEN: u32 = u32::MAX;

/// Why a class, field or method could not be found or linked.
#[derive(Debug)]
pub enum LinkError {
    /// No loader has a class of this descriptor.
    NotFound(String),
    /// An error of this class, with a message, is to be thrown.
    Error(&'static str, String),
    /// The heap is full.
    OutOfMemory,
    /// A class loader has thrown.
    Thrown(Thrown),
}

impl From<OutOfMemory> for LinkError {
    fn from(_: OutOfMemory) -> Self {
        LinkError::OutOfMemory
    }
}

impl From<Thrown> for LinkError {
    fn from(thrown: Thrown) -> Self {
        LinkError::Thrown(thrown)
    }
}

pub(crate) type Linked<T> = Result<T, LinkError>;

fn incompatible<T>(message: String) -> Linked<T> {
    Err(LinkError::Error("Ljava/lang/IncompatibleClassChangeError;", message))
}

/// The class of a descriptor as a loader sees it.
///
/// # Errors
/// Why there is none.
pub fn find(t: &Thread, loader: Loader, descriptor: &str) -> Linked<&'static Class> {
    if let Some(class) = loaded(t.vm, loader, descriptor) {
        return Ok(class);
    }
    if let Some(component) = descriptor.strip_prefix('[') {
        let component = find(t, loader, component)?;
        return array_of(t, component);
    }
    if loader != Loader::BOOT {
        match find(t, Loader::BOOT, descriptor) {
            Err(LinkError::NotFound(_)) => {}
            found => return found,
        }
    }
    let dexes = t.vm.dexes.read().expect("no holder panics").get(&loader).cloned();
    let Some(dexes) = dexes else { return ask_loader(t, loader, descriptor) };
    for dex in dexes {
        if let Some(class) = dex.file.find_class(descriptor.as_bytes()) {
            return define(t, dex, class);
        }
    }
    Err(LinkError::NotFound(descriptor.to_owned()))
}

/// A class that has been linked already.
pub fn loaded(vm: &Vm, loader: Loader, descriptor: &str) -> Option<&'static Class> {
    let classes = vm.classes.read().expect("no holder panics");
    classes.get(&(loader, descriptor)).copied()
}

/// Asks a loader that Java code implements.
fn ask_loader(t: &Thread, loader: Loader, descriptor: &str) -> Linked<&'static Class> {
    let not_found = || LinkError::NotFound(descriptor.to_owned());
    if loader == Loader::BOOT || !descriptor.starts_with('L') {
        return Err(not_found());
    }
    let name = descriptor[1..descriptor.len() - 1].replace('/', ".");
    let method = Class::of(loader.0)
        .find_method("loadClass", "(Ljava/lang/String;)Ljava/lang/Class;")
        .ok_or_else(not_found)?;
    let mirror = t.scope(|| {
        let name = t.keep(string::new(t, &name)?);
        t.invoke(method, &[Value::Ref(loader.0), Value::Ref(name)]).map_err(LinkError::from)
    })?;
    if mirror.reference().is_null() {
        return Err(not_found());
    }
    let class = Class::mirrored_by(mirror.reference());
    if class.descriptor != descriptor {
        return Err(not_found());
    }
    let mut classes = t.vm.classes.write().expect("no holder panics");
    Ok(classes.entry((loader, class.descriptor)).or_insert(class))
}

/// The class of arrays of a component type.
///
/// # Errors
/// The heap is full.
pub fn array_of(t: &Thread, component: &'static Class) -> Linked<&'static Class> {
    if let Some(class) = component.array.get() {
        return Ok(class);
    }
    if component.kind == Kind::Void {
        return Err(LinkError::NotFound("[V".to_owned()));
    }
    let object = find(t, Loader::BOOT, "Ljava/lang/Object;")?;
    let interfaces = ["Ljava/lang/Cloneable;", "Ljava/io/Serializable;"];
    let interfaces = interfaces
        .iter()
        .map(|descriptor| find(t, Loader::BOOT, descriptor))
        .collect::<Linked<Box<[_]>>>()?;
    let visible = component.access & access::PUBLIC;
    let class = new_class(
        t.vm,
        Class {
            shape: shape(Sort::of_array(component), 0),
            descriptor: format!("[{}", component.descriptor).leak(),
            access: visible | access::FINAL | access::ABSTRACT,
            superclass: Some(object),
            vtable: object.vtable.clone(),
            interface_tables: interfaces
                .iter()
                .map(|interface| InterfaceTable { interface, methods: Box::default() })
                .collect(),
            interfaces,
            component: Some(component),
            ..bare(component.loader)
        },
    )?;
    let class = publish(t, class)?;
    component.array.set(class);
    Ok(class)
}

/// A class without anything.
fn bare(loader: Loader) -> Class {
    Class {
        shape: shape(Sort::Plain, 0),
        descriptor: "",
        access: 0,
        superclass: None,
        superclasses: Box::default(),
        interfaces: Box::default(),
        interface_tables: Box::default(),
        loader,
        definition: None,
        component: None,
        kind: Kind::Reference,
        fields: &[],
        methods: &[],
        vtable: Box::default(),
        finalizer: None,
        status: AtomicU8::new(0),
        initializing_thread: AtomicU32::new(0),
        mirror: AtomicU32::new(0),
        failure: AtomicU32::new(0),
        array: Resolved::new(),
        verified: OnceLock::new(),
    }
}

/// Places a class for ever, and completes what refers to it.
fn new_class(vm: &Vm, class: Class) -> Linked<&'static Class> {
    let superclasses =
        class.superclass.map_or(Vec::new(), |it| [&it.superclasses[..], &[it]].concat());
    let class = Class { superclasses: superclasses.into(), ..class };
    let class = vm.arena.place(class).ok_or(LinkError::OutOfMemory)?;
    class.fields.iter().for_each(|field| field.class.set(class));
    class.methods.iter().for_each(|method| method.class.set(class));
    Ok(class)
}

/// Gives a class its mirror and lets others find it. Returns the class that was first.
fn publish(t: &Thread, class: &'static Class) -> Linked<&'static Class> {
    // While java.lang.Class itself is being linked, there are no mirrors yet.
    if let Some(of_class) = loaded(t.vm, Loader::BOOT, "Ljava/lang/Class;") {
        give_mirror(t, of_class, class)?;
    }
    let mut classes = t.vm.classes.write().expect("no holder panics");
    Ok(classes.entry((class.loader, class.descriptor)).or_insert(class))
}

fn give_mirror(t: &Thread, of_class: &'static Class, class: &'static Class) -> Linked<()> {
    let mirror = allocation::mirror(t, of_class, class.shape.mirror_bytes)?;
    // The frame of the method that causes the loading keeps the mirror until it is published.
    t.keep(mirror);
    // SAFETY: the mirror has as many bytes as the class says.
    unsafe { mirror.set_mirrored(&class.shape) };
    note_root(mirror.address());
    class.mirror.store(mirror.address(), Relaxed);
    Ok(())
}

/// Links java.lang.Object, java.lang.Class and the primitive types, and gives mirrors to all that
/// was linked before there were any.
///
/// # Errors
/// Why one of them could not be linked.
pub(crate) fn bootstrap(t: &Thread) -> Linked<()> {
    find(t, Loader::BOOT, "Ljava/lang/Object;")?;
    let of_class = find(t, Loader::BOOT, "Ljava/lang/Class;")?;
    let without: Vec<&'static Class> = {
        let classes = t.vm.classes.read().expect("no holder panics");
        classes.values().filter(|class| class.mirror().is_null()).copied().collect()
    };
    for class in without {
        give_mirror(t, of_class, class)?;
    }
    for descriptor in ["Z", "B", "C", "S", "I", "J", "F", "D", "V"] {
        let flags = access::PUBLIC | access::FINAL | access::ABSTRACT;
        let kind = Kind::of(descriptor);
        let class = Class { descriptor, access: flags, kind, ..bare(Loader::BOOT) };
        publish(t, new_class(t.vm, class)?)?;
    }
    Ok(())
}

/// Links the definition of a class.
///
/// # Errors
/// Why it is no class.
pub fn define(
    t: &Thread,
    dex: &'static LoadedDex,
    class: ClassDef<'static>,
) -> Linked<&'static Class> {
    let descriptor = text(dex.file.descriptor(class.type_id));
    let key = (dex.loader, descriptor.to_owned());
    if t.loading.borrow().contains(&key) {
        let message = java_name(descriptor);
        return Err(LinkError::Error("Ljava/lang/ClassCircularityError;", message));
    }
    t.loading.borrow_mut().push(key);
    let linked = link(t, dex, descriptor, class);
    t.loading.borrow_mut().pop();
    publish(t, linked?)
}

fn link(
    t: &Thread,
    dex: &'static LoadedDex,
    descriptor: &'static str,
    definition: ClassDef<'static>,
) -> Linked<&'static Class> {
    let superclass = definition.superclass.map(|id| resolve_type(t, dex, id)).transpose()?;
    let is_interface = definition.access_flags & access::INTERFACE != 0;
    if let Some(of) = superclass {
        if of.is_interface() || of.is_array() || of.is_primitive() {
            let names = (java_name(descriptor), of.java_name());
            return incompatible(format!("{} extends {}, which is no class", names.0, names.1));
        }
        if of.access & access::FINAL != 0 {
            let message =
                format!("{} extends {}, which is final", java_name(descriptor), of.java_name());
            return Err(LinkError::Error("Ljava/lang/VerifyError;", message));
        }
    }
    let mut interfaces = Vec::new();
    for id in definition.interfaces.iter() {
        let interface = resolve_type(t, dex, id)?;
        if !interface.is_interface() {
            let names = (java_name(descriptor), interface.java_name());
            return incompatible(format!("{} implements {}, no interface", names.0, names.1));
        }
        interfaces.push(interface);
    }
    let data = definition.data();
    let mut shape = match superclass {
        Some(of) => Shape {
            references: of.shape.references.clone(),
            ..shape(of.shape.sort, of.shape.instance_bytes)
        },
        None => shape(Sort::Plain, HEADER_BYTES),
    };
    if descriptor == "Ljava/lang/Class;" {
        shape.sort = Sort::Mirror;
        shape.instance_bytes += MIRROR_FIELD_BYTES;
    }
    let fields = lay_out(dex, descriptor, &data.static_fields, &data.instance_fields, &mut shape);
    let direct = data.direct_methods.iter().map(|it| new_method(dex, it));
    let methods: Vec<Method> =
        direct.chain(data.virtual_methods.iter().map(|it| new_method(dex, it))).collect();
    let methods: &'static [Method] = Box::leak(methods.into_boxed_slice());
    let virtual_methods = &methods[data.direct_methods.len()..];
    let vtable = if is_interface {
        for (index, method) in virtual_methods.iter().enumerate() {
            method.table_index.store(OF_INTERFACE | index as u32, Relaxed);
        }
        superclass.map_or(Box::default(), |it| it.vtable.clone())
    } else {
        vtable(descriptor, dex.loader, superclass, virtual_methods)
    };
    let interface_tables = interface_tables(superclass, &interfaces, &vtable, is_interface);
    let finalizer = vtable
        .iter()
        .find(|it| it.name == "finalize" && it.signature == "()V")
        .filter(|it| it.class.get().is_none_or(|of| of.superclass.is_some()))
        .copied();
    new_class(
        t.vm,
        Class {
            shape,
            descriptor,
            access: definition.access_flags,
            superclass,
            interfaces: interfaces.into(),
            interface_tables,
            definition: Some(Definition { dex, class: definition }),
            fields,
            methods,
            vtable,
            finalizer: finalizer.filter(|_| superclass.is_some()),
            ..bare(dex.loader)
        },
    )
}

/// Links a class that no dex file defines: below Object, with instance fields and methods that
/// implement interfaces.
///
/// # Errors
/// The heap is full.
pub(crate) fn synthesize(
    t: &Thread,
    loader: Loader,
    descriptor: &'static str,
    interfaces: Vec<&'static Class>,
    mut fields: Vec<Field>,
    methods: Vec<Method>,
) -> Linked<&'static Class> {
    let superclass = t.vm.known().object;
    let mut shape = shape(Sort::Plain, superclass.shape.instance_bytes);
    let (end, references) = place(&mut fields, shape.instance_bytes);
    shape.instance_bytes = end;
    shape.references = references.into();
    let methods: &'static [Method] = Box::leak(methods.into_boxed_slice());
    let vtable = vtable(descriptor, loader, Some(superclass), methods);
    let class = new_class(
        t.vm,
        Class {
            shape,
            descriptor,
            access: access::FINAL | access::SYNTHETIC,
            superclass: Some(superclass),
            interface_tables: interface_tables(Some(superclass), &interfaces, &vtable, false),
            interfaces: interfaces.into(),
            fields: Box::leak(fields.into_boxed_slice()),
            methods,
            vtable,
            ..bare(loader)
        },
    )?;
    publish(t, class)
}

fn new_method(dex: &'static LoadedDex, definition: &EncodedMethod) -> Method {
    let id = dex.file.method(definition.id);
    let proto = dex.file.proto(id.proto);
    let kind = |id| Kind::of(text(dex.file.descriptor(id)));
    let parameters: Box<[Kind]> = proto.parameters.iter().map(kind).collect();
    let is_static = definition.access_flags & access::STATIC != 0;
    let registers = parameters.iter().map(|kind| if kind.is_wide() { 2 } else { 1 }).sum::<u16>();
    Method {
        class: Resolved::new(),
        name: text(dex.file.string(id.name)),
        signature: dex.file.signature(id.proto).leak(),
        n_argument_registers: registers + u16::from(!is_static),
        parameters,
        result: kind(proto.return_type),
        access: definition.access_flags,
        dex_index: definition.id.0,
        definition: Some(*definition),
        table_index: AtomicU32::new(IN_NO_TABLE),
        body: Resolved::new(),
        native_types: OnceLock::new(),
    }
}

/// Whether a class overrides no final methods. A class that does is linked, and fails when it is
/// initialized.
///
/// # Errors
/// The method.
pub(crate) fn check_overrides(class: &'static Class) -> Linked<()> {
    let inherited = class.superclass.map_or(&[][..], |it| &it.vtable);
    let mut overridden = inherited.iter().zip(&class.vtable);
    let is_final = |(of, own): &(&&'static Method, &&'static Method)| {
        of.access & access::FINAL != 0 && !std::ptr::eq(**of, **own)
    };
    match overridden.find(is_final) {
        Some((of, own)) => {
            let message = format!("{own} overrides {of}");
            Err(LinkError::Error("Ljava/lang/LinkageError;", message))
        }
        None => Ok(()),
    }
}

/// The class of a type of a dex file.
///
/// # Errors
/// Why there is none.
#[inline]
pub fn resolve_type(t: &Thread, dex: &'static LoadedDex, id: TypeId) -> Linked<&'static Class> {
    if let Some(class) = dex.types[id.index()].get() {
        return Ok(class);
    }
    let class = find(t, dex.loader, text(dex.file.descriptor(id)))?;
    dex.types[id.index()].set(class);
    Ok(class)
}

/// Registers of a method's parameters of classes and arrays, with their types. Every object is an
/// Object, and calls of an interface's methods check their receiver.
///
/// A native method has them before it runs, and then its arguments are checked.
pub fn parameter_classes(t: &Thread, method: &'static Method) -> &'static [(u16, &'static Class)] {
    if let Some(known) = method.native_types.get() {
        return known;
    }
    let mut register = u16::from(!method.is_static());
    let mut classes = Vec::new();
    for descriptor in method.parameter_descriptors() {
        let class = restricting_class(t, method.class().loader, descriptor);
        classes.extend(class.map(|class| (register, class)));
        register += 1 + u16::from(Kind::of(descriptor).is_wide());
    }
    // A class loader may run the method meanwhile, and so have been here.
    method.native_types.get_or_init(|| classes.into())
}

/// The class that a variable's objects have to be of: none for Object, interfaces and numbers.
pub fn restricting_class(t: &Thread, loader: Loader, descriptor: &str) -> Option<&'static Class> {
    if Kind::of(descriptor) != Kind::Reference || descriptor == "Ljava/lang/Object;" {
        return None;
    }
    match find(t, loader, descriptor) {
        Ok(class) => Some(class).filter(|it| !it.is_interface()),
        // A class that cannot be found has no instances, and nobody looks at one.
        Err(LinkError::Thrown(Thrown)) => {
            t.take_exception();
            None
        }
        Err(_) => None,
    }
}
