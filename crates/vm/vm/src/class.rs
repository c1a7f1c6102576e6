//! Classes, their fields and methods, and dex files with what has been resolved in them.
//!
//! All of these live until the process ends. A class is complete when the linker publishes it:
//! only its status, its mirror and the entries that are resolved later change.

use crate::descriptor::{
    java_name, package, parameter_descriptors, pretty_name, result_descriptor,
};
use crate::memory::placed;
use crate::object::{Kind, Ref, Shape, Sort};
use crate::resolved::Resolved;
use crate::verified::{Deferred, Verified};
pub use baton_dex::access;
use baton_dex::{ClassDef, DexFile, EncodedMethod, Try};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Who defines a class: null for the boot class path, else a java.lang.ClassLoader, which is never
/// freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Loader(pub Ref);

impl Loader {
    /// The loader of the class library.
    pub const BOOT: Loader = Loader(Ref::NULL);

    /// The loader that a java.lang.ClassLoader stands for.
    pub fn of(object: Ref) -> Loader {
        let is_boot =
            object.is_null() || Class::of(object).descriptor == "Ljava/lang/BootClassLoader;";
        if is_boot { Loader::BOOT } else { Loader(object) }
    }
}

/// How far a class's initialization has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Status {
    /// Published, with fields laid out and tables of methods
    Linked,
    /// A thread runs the initializer, or waits for the superclass's
    Initializing,
    /// Ready
    Initialized,
    /// The initializer threw, or verification failed
    Erroneous,
}

/// A class, an interface, an array's class or a primitive type.
#[derive(Debug)]
#[repr(C)]
pub struct Class {
    /// What the collector knows of instances. The first field: headers of objects have its address.
    pub(crate) shape: Shape,
    /// The descriptor: `Ljava/lang/Object;`, `[I`, `I`
    pub descriptor: &'static str,
    /// [`access`] flags, as the class's own definition says
    pub access: u32,
    /// The superclass; none for Object, interfaces and primitive types
    pub superclass: Option<&'static Class>,
    /// Superclasses from Object on
    pub(crate) superclasses: Box<[&'static Class]>,
    /// Interfaces that the class itself names
    pub interfaces: Box<[&'static Class]>,
    /// All interfaces, inherited ones included, with their methods as this class implements them
    pub(crate) interface_tables: Box<[InterfaceTable]>,
    /// Who defines it
    pub loader: Loader,
    /// Where its definition is
    pub definition: Option<Definition>,
    /// The type of an array's elements
    pub component: Option<&'static Class>,
    /// Which primitive type it is; `Reference` for all others
    pub kind: Kind,
    /// Fields that the class itself declares, static ones first
    pub fields: &'static [Field],
    /// Methods that the class itself declares, direct ones first
    pub methods: &'static [Method],
    /// Methods for invoke-virtual
    pub(crate) vtable: Box<[&'static Method]>,
    /// The method `finalize()V`, if it is not Object's
    pub finalizer: Option<&'static Method>,
    pub(crate) status: AtomicU8,
    pub(crate) initializing_thread: AtomicU32,
    pub(crate) mirror: AtomicU32,
    /// What the initializer threw: the cause of later errors
    pub(crate) failure: AtomicU32,
    pub(crate) array: Resolved<Class>,
    /// What the verification of its code has found, or why the code is refused
    pub(crate) verified: OnceLock<Result<Verified, String>>,
}

/// Where a class is defined.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The file
    pub dex: &'static LoadedDex,
    /// The definition there
    pub class: ClassDef<'static>,
}

/// The methods of one interface in one class.
#[derive(Debug)]
pub(crate) struct InterfaceTable {
    pub interface: &'static Class,
    /// For each virtual method of the interface, in its order
    pub methods: Box<[&'static Method]>,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    pub(crate) class: Resolved<Class>,
    /// Its name
    pub name: &'static str,
    /// Its type's descriptor
    pub descriptor: &'static str,
    /// Its type's kind
    pub kind: Kind,
    /// [`access`] flags
    pub access: u32,
    /// Its index in the dex file's table
    pub dex_index: u32,
    /// Where it is in instances, or in the class's mirror if it is static
    pub offset: u32,
}

/// A method.
#[derive(Debug)]
pub struct Method {
    pub(crate) class: Resolved<Class>,
    /// Its name
    pub name: &'static str,
    /// Parameters and result: `(ILjava/lang/String;)V`
    pub signature: &'static str,
    /// Kinds of the parameters, `this` left out
    pub parameters: Box<[Kind]>,
    /// The result's kind
    pub result: Kind,
    /// [`access`] flags
    pub access: u32,
    /// Registers that the arguments take, `this` included
    pub n_argument_registers: u16,
    /// Its index in the dex file's table
    pub dex_index: u32,
    /// Its definition in the dex file
    pub definition: Option<EncodedMethod>,
    /// Its place in the vtable; or [`OF_INTERFACE`] and its place among the interface's methods; or
    /// [`IN_NO_TABLE`]
    pub(crate) table_index: AtomicU32,
    pub(crate) body: Resolved<Body>,
    /// Types of a native method's arguments, by register
    pub(crate) native_types: OnceLock<Box<[(u16, &'static Class)]>>,
}

/// The index of a direct method: an invocation runs this method itself.
pub(crate) const IN_NO_TABLE: u32 = u32::MAX;
/// Added to the index of an interface's method.
pub(crate) const OF_INTERFACE: u32 = 1 << 31;

/// What an invocation runs.
#[derive(Debug)]
// A discriminant of its own is found out with one load; each call asks for it.
#[repr(u8)]
pub enum Body {
    /// Bytecode
    Code(Code),
    /// A function: its index in the VM's table of natives
    Native(usize),
    /// A function of a library that was loaded
    Foreign(Foreign),
    /// A functional interface's method that a lambda expression implements
    Lambda(Lambda),
    /// Nothing: AbstractMethodError
    Abstract,
    /// The default methods of two interfaces: IncompatibleClassChangeError
    Conflict,
}

/// A function of a library that was loaded.
#[derive(Debug)]
pub struct Foreign {
    /// Its address
    pub function: usize,
    /// The class that a result has to be an instance of, if that is not every object
    pub result: Option<&'static Class>,
    /// Where the arguments go, `this` left out
    pub arguments: Box<[ForeignArgument]>,
    /// How many words go to the processor's stack
    pub n_stack_words: usize,
}

/// An argument of a function of a library.
#[derive(Debug)]
pub struct ForeignArgument {
    /// The register of the method's frame
    pub register: u16,
    /// Which of the call's words it becomes, as whoever calls the function counts them
    pub word: u16,
    /// Its kind
    pub kind: Kind,
}

/// What the object of a lambda expression or method reference does.
#[derive(Debug)]
pub struct Lambda {
    /// The method that runs
    pub target: &'static Method,
    /// How the target is called
    pub call: LambdaCall,
    /// Parameters and result with the types that the program has put in place of type variables
    pub instantiated: &'static str,
    /// Who defines the classes that it names
    pub loader: Loader,
}

/// How a lambda calls its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LambdaCall {
    /// Exactly the target
    Exact,
    /// The first argument's method for it
    Virtual,
    /// With a new object, which is the result
    Constructor,
}

/// Bytecode that has been verified.
#[derive(Debug)]
pub struct Code {
    /// The file whose indices it uses
    pub dex: &'static LoadedDex,
    /// Registers of a frame; arguments come last
    pub n_registers: u16,
    /// Registers of the arguments
    pub n_ins: u16,
    /// The instructions
    pub units: Box<[u16]>,
    /// Ranges with handlers, in order
    pub tries: Vec<Try>,
    /// Checks that instructions make before they run
    pub checks: &'static [(u32, Deferred)],
}

/// A dex file, and what has been resolved of it.
#[derive(Debug)]
pub struct LoadedDex {
    /// The file
    pub file: DexFile<'static>,
    /// Where it came from
    pub path: String,
    /// Who defines its classes
    pub loader: Loader,
    pub(crate) types: Box<[Resolved<Class>]>,
    pub(crate) fields: Box<[Resolved<Field>]>,
    pub(crate) methods: Box<[Resolved<Method>]>,
    /// Interned strings, by their index; 0 if not yet
    pub(crate) strings: Box<[AtomicU32]>,
    /// Classes of lambda expressions, by their call site
    pub(crate) lambdas: Box<[Resolved<Class>]>,
}

impl Class {
    /// The class of an object.
    ///
    /// # Panics
    /// If the reference is null.
    #[inline(always)]
    pub fn of(object: Ref) -> &'static Class {
        // SAFETY: an object's class word is the address of a shape, which is the first field of a
        // class in an arena: only `Class::new_object_of` and the linker create objects.
        unsafe { placed(object.class_word()) }
    }

    /// The class whose java.lang.Class object this is.
    ///
    /// # Panics
    /// If the object is no java.lang.Class.
    pub fn mirrored_by(mirror: Ref) -> &'static Class {
        let shape = mirror.mirrored().expect("the mirror of a class");
        // SAFETY: the shape is the first field of a class, by `set_mirrored`.
        unsafe { placed((&raw const *shape).expose_provenance() as u32) }
    }

    /// The word that headers of instances have.
    #[inline(always)]
    pub(crate) fn word(&'static self) -> u32 {
        (&raw const *self).expose_provenance() as u32
    }

    /// The java.lang.Class object.
    #[inline(always)]
    pub fn mirror(&self) -> Ref {
        // SAFETY: the linker stored a mirror, which a class keeps for ever.
        unsafe { Ref::from_address(self.mirror.load(Ordering::Relaxed)) }
    }

    /// What the initializer threw; null if it did not.
    pub(crate) fn failure(&self) -> Ref {
        // SAFETY: the word holds a reference that the roots contain.
        unsafe { Ref::from_address(self.failure.load(Ordering::Relaxed)) }
    }

    /// The name as Java shows it: `java.lang.Object`, `[I`, `int`.
    pub fn java_name(&self) -> String {
        java_name(self.descriptor)
    }

    /// The name as error messages show it: `java.lang.Object`, `int[]`, `int`.
    pub fn pretty_name(&self) -> String {
        pretty_name(self.descriptor)
    }

    /// Whether it is an interface.
    pub fn is_interface(&self) -> bool {
        self.access & access::INTERFACE != 0
    }

    /// Whether it is an array's class.
    pub fn is_array(&self) -> bool {
        self.component.is_some()
    }

    /// Whether it is `int` or another primitive type, or `void`.
    pub fn is_primitive(&self) -> bool {
        self.kind != Kind::Reference
    }

    /// Whether its initializer has run to its end.
    #[inline(always)]
    pub fn is_initialized(&self) -> bool {
        // Acquire pairs with the release in the initialization, so that static fields are seen.
        self.status.load(Ordering::Acquire) == Status::Initialized as u8
    }

    /// How far its initialization has come.
    pub fn status(&self) -> Status {
        match self.status.load(Ordering::Acquire) {
            0 => Status::Linked,
            1 => Status::Initializing,
            2 => Status::Initialized,
            _ => Status::Erroneous,
        }
    }

    /// Whether a value of this type can be assigned to a variable of type `to`.
    #[inline(always)]
    pub fn is_assignable_to(&'static self, to: &'static Class) -> bool {
        self.is_subclass_of(to) || self.is_assignable_to_other(to)
    }

    #[inline(never)]
    fn is_assignable_to_other(&'static self, to: &'static Class) -> bool {
        if to.is_interface() {
            return self.interface_table(to).is_some();
        }
        if let Some(of) = to.component {
            return self.component.is_some_and(|mine| {
                if of.is_primitive() || mine.is_primitive() {
                    std::ptr::eq(of, mine)
                } else {
                    mine.is_assignable_to(of)
                }
            });
        }
        false
    }

    /// Whether the class is `of` or below it. Interfaces do not count.
    #[inline(always)]
    pub fn is_subclass_of(&'static self, of: &'static Class) -> bool {
        std::ptr::eq(self, of)
            || self.superclasses.get(of.superclasses.len()).is_some_and(|it| std::ptr::eq(*it, of))
    }

    /// Whether code of this class may name another class.
    pub(crate) fn can_access(&self, class: &'static Class) -> bool {
        let mut element = class;
        while let Some(component) = element.component {
            element = component;
        }
        element.access & access::PUBLIC != 0 || self.is_in_package_of(element)
    }

    /// Whether code of this class may use a member of a class, by the member's flags.
    pub(crate) fn can_access_member(&'static self, of: &'static Class, flags: u32) -> bool {
        if flags & access::PUBLIC != 0 || std::ptr::eq(self, of) {
            return true;
        }
        if flags & access::PRIVATE != 0 {
            return false;
        }
        let inherits = flags & access::PROTECTED != 0 && self.is_subclass_of(of);
        inherits || self.is_in_package_of(of)
    }

    fn is_in_package_of(&self, other: &Class) -> bool {
        self.loader == other.loader && package(self.descriptor) == package(other.descriptor)
    }

    /// Methods that the class itself declares and that are not direct.
    pub(crate) fn virtual_methods(&self) -> impl Iterator<Item = &'static Method> + Clone {
        self.methods.iter().filter(|method| !method.is_direct())
    }

    pub(crate) fn interface_table(&self, of: &'static Class) -> Option<&InterfaceTable> {
        self.interface_tables.iter().find(|table| std::ptr::eq(table.interface, of))
    }

    /// A field that the class itself declares.
    pub fn declared_field(&self, name: &str, descriptor: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name && field.descriptor == descriptor)
    }

    /// A field of the class, its interfaces or its superclasses, in Java's order.
    pub fn find_field(&self, name: &str, descriptor: &str) -> Option<&'static Field> {
        let in_interfaces =
            |class: &Class| class.interfaces.iter().find_map(|it| it.find_field(name, descriptor));
        self.declared_field(name, descriptor)
            .or_else(|| in_interfaces(self))
            .or_else(|| self.superclass?.find_field(name, descriptor))
    }

    /// The field of this name that the class nearest to Object declares. A field of the class
    /// library is this one, whatever fields a program's subclass has.
    pub fn library_field(&self, name: &str, descriptor: &str) -> Option<&'static Field> {
        let inherited = self.superclass.and_then(|class| class.library_field(name, descriptor));
        inherited.or_else(|| self.declared_field(name, descriptor))
    }

    /// A method that the class itself declares.
    pub fn declared_method(&self, name: &str, signature: &str) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.name == name && method.signature == signature)
    }

    /// A method of the class, its superclasses or its interfaces, in Java's order.
    pub fn find_method(&self, name: &str, signature: &str) -> Option<&'static Method> {
        let mut class = Some(self);
        while let Some(of) = class {
            if let Some(method) = of.declared_method(name, signature) {
                return Some(method);
            }
            class = of.superclass;
        }
        let mut fallback = None;
        for table in &self.interface_tables {
            if let Some(method) = table.interface.declared_method(name, signature) {
                if !method.is_abstract() {
                    return Some(method);
                }
                fallback = fallback.or(Some(method));
            }
        }
        fallback
    }

    /// The method that an invocation of `method` on an instance of this class runs.
    pub fn implementation(&self, method: &'static Method) -> Option<&'static Method> {
        let index = method.table_index.load(Ordering::Relaxed);
        if method.is_of_interface() {
            let methods = &self.interface_table(method.class())?.methods;
            return methods.get((index - OF_INTERFACE) as usize).copied();
        }
        if index == IN_NO_TABLE { Some(method) } else { self.vtable.get(index as usize).copied() }
    }

    /// The method that an invocation of `method`, which is in a vtable, runs on an instance of this
    /// class. `None` if it is in none, or if this class is not the method's or below it.
    #[inline(always)]
    pub(crate) fn overriding(&'static self, method: &'static Method) -> Option<&'static Method> {
        // No vtable is as long as the numbers in place of an index.
        let index = method.table_index.load(Ordering::Relaxed) as usize;
        self.vtable.get(index).copied().filter(|_| self.is_subclass_of(method.class()))
    }

    /// The class's simple file name in stack traces, if its definition has one.
    pub fn source_file(&self) -> Option<String> {
        let definition = self.definition?;
        let file = &definition.dex.file;
        Some(file.string(definition.class.source_file?).to_string())
    }
}

impl Field {
    /// The class that declares it.
    #[inline(always)]
    pub fn class(&self) -> &'static Class {
        self.class.get().expect("the linker sets it")
    }

    /// Whether it is static.
    pub fn is_static(&self) -> bool {
        self.access & access::STATIC != 0
    }

    /// Whether it is volatile.
    #[inline(always)]
    pub fn is_volatile(&self) -> bool {
        self.access & access::VOLATILE != 0
    }

    /// Whether an object has the field: an instance, or the mirror of the class if it is static.
    ///
    /// # Panics
    /// If the reference is null.
    #[inline(always)]
    pub fn is_in(&self, object: Ref) -> bool {
        let class = self.class();
        if self.is_static() {
            return object == class.mirror();
        }
        // The first test is the usual case.
        object.class_word() == class.word() || Class::of(object).is_subclass_of(class)
    }

    /// The object that holds a static field.
    pub fn holder(&self) -> Ref {
        self.class().mirror()
    }
}

impl Method {
    /// The class that declares it.
    #[inline(always)]
    pub fn class(&self) -> &'static Class {
        self.class.get().expect("the linker sets it")
    }

    /// Whether it is static.
    #[inline(always)]
    pub fn is_static(&self) -> bool {
        self.access & access::STATIC != 0
    }

    /// Whether it is abstract.
    pub fn is_abstract(&self) -> bool {
        self.access & access::ABSTRACT != 0
    }

    /// Has a native method run a function of a library from now on.
    pub fn bind(&self, foreign: Foreign) {
        self.body.set(Box::leak(Box::new(Body::Foreign(foreign))));
    }

    /// Undoes [`Method::bind`]: the next invocation looks for a function anew.
    pub fn unbind(&self) {
        if let Some(Body::Foreign(_)) = self.body.get() {
            self.body.clear();
        }
    }

    /// Whether it is native.
    pub fn is_native(&self) -> bool {
        self.access & access::NATIVE != 0
    }

    /// Whether it is a constructor or a class initializer.
    pub fn is_constructor(&self) -> bool {
        self.name.starts_with('<')
    }

    /// Whether it is one of an interface, and not direct.
    #[inline]
    pub(crate) fn is_of_interface(&self) -> bool {
        let index = self.table_index.load(Ordering::Relaxed);
        index & OF_INTERFACE != 0 && index != IN_NO_TABLE
    }

    /// Whether it is in no table: static, private or a constructor.
    pub fn is_direct(&self) -> bool {
        self.access & (access::STATIC | access::PRIVATE) != 0 || self.is_constructor()
    }

    /// Whether it holds its object's monitor, or its class's.
    #[inline(always)]
    pub fn is_synchronized(&self) -> bool {
        let flags = access::SYNCHRONIZED | access::DECLARED_SYNCHRONIZED;
        self.access & flags & !(if self.is_native() { 0 } else { access::SYNCHRONIZED }) != 0
    }

    /// Descriptors of the parameters, from the signature.
    pub fn parameter_descriptors(&self) -> Vec<&'static str> {
        parameter_descriptors(self.signature)
    }

    /// The method as error messages show it: `int java.lang.String.indexOf(java.lang.String, int)`.
    pub fn pretty(&self) -> String {
        let parameters = self.parameter_descriptors();
        let parameters: Vec<String> = parameters.into_iter().map(pretty_name).collect();
        format!(
            "{} {}.{}({})",
            pretty_name(self.result_descriptor()),
            self.class().java_name(),
            self.name,
            parameters.join(", ")
        )
    }

    /// The descriptor of the result.
    pub fn result_descriptor(&self) -> &'static str {
        result_descriptor(self.signature)
    }
}

impl Method {
    /// A method that no dex file defines.
    pub(crate) fn synthetic(name: &'static str, signature: &'static str, body: Body) -> Method {
        let parameters: Box<[Kind]> =
            parameter_descriptors(signature).into_iter().map(Kind::of).collect();
        let registers: u16 = parameters.iter().map(|kind| 1 + u16::from(kind.is_wide())).sum();
        let method = Method {
            class: Resolved::new(),
            name,
            signature,
            parameters,
            result: Kind::of(result_descriptor(signature)),
            access: access::PUBLIC | access::SYNTHETIC,
            n_argument_registers: 1 + registers,
            dex_index: u32::MAX,
            definition: None,
            table_index: AtomicU32::new(IN_NO_TABLE),
            body: Resolved::new(),
            native_types: OnceLock::new(),
        };
        method.body.set(Box::leak(Box::new(body)));
        method
    }
}

impl Field {
    /// A field that no dex file defines.
    pub(crate) fn synthetic(name: &'static str, descriptor: &'static str) -> Field {
        Field {
            class: Resolved::new(),
            name,
            descriptor,
            kind: Kind::of(descriptor),
            access: access::PRIVATE | access::FINAL | access::SYNTHETIC,
            dex_index: u32::MAX,
            offset: 0,
        }
    }
}

impl Method {
    /// The line of an instruction in the source file: -2 in native methods, -1 if it is not known.
    pub fn line(&self, unit: u32) -> i32 {
        if self.is_native() {
            return -2;
        }
        let line = self.definition.zip(self.class().definition).and_then(|(method, class)| {
            let file = &class.dex.file;
            file.line(&file.code(&method)?, unit)
        });
        line.map_or(-1, |line| line as i32)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}{}", self.class().java_name(), self.name, self.signature)
    }
}

impl Sort {
    /// The sort of arrays of a component type.
    pub(crate) fn of_array(component: &Class) -> Sort {
        Sort::Array(component.kind)
    }
}
