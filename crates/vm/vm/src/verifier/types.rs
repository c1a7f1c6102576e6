//! Types of registers, and the classes behind their names.
//!
//! ```text
//! narrow   Zero  <  Constant  <  Int, Float  <  Unset       Zero  <  Null  <  Object
//! wide     Constant  <  Long, Double  <  Unset              a pair: Low, then High
//! objects  Object(name), by the superclasses that both have; Object of nothing found is on top of
//!          all names but java.lang.Object
//! new      Uninitialized(unit), UninitializedThis: equal ones only
//! ```
//!
//! A name is resolved when a comparison needs its class, and not before: most comparisons are of
//! equal names.

use crate::class::{Class, LoadedDex, Loader};
use crate::dex_files;
use crate::linker::{self, LinkError};
use crate::vm::Thread;
use baton_dex::TypeId;
use rustc_hash::FxHashMap;

/// The result of a rule: an error says what the instruction needs.
pub(super) type Checked<T> = Result<T, String>;

/// A type of values that take two registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wide {
    /// A long or a double
    Constant,
    Long,
    Double,
}

/// The type of one register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    /// Nothing that an instruction may use
    Unset,
    /// The constant 0: an int, a float, or null
    Zero,
    /// Another constant: an int or a float
    Constant,
    Int,
    Float,
    Low(Wide),
    High(Wide),
    Null,
    /// An object of a class, or null. Of an interface it says nothing: see [`Types::assign`]
    Object(Name),
    /// The object of the `new-instance` at this unit, whose constructor has not run
    Uninitialized(u32),
    /// `this` in a constructor, before the superclass's constructor
    UninitializedThis,
}

/// A class's name, by its number in [`Types`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name(u32);

impl Name {
    /// A class that could not be found, without its name.
    pub const UNKNOWN: Name = Name(0);
    /// java.lang.Object
    pub const OBJECT: Name = Name(1);
    /// java.lang.Throwable
    pub const THROWABLE: Name = Name(2);
    /// java.lang.String
    pub const STRING: Name = Name(3);
    /// java.lang.Class
    pub const CLASS: Name = Name(4);
}

/// What a descriptor of a parameter, field or result says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Void,
    Int,
    Float,
    Wide(Wide),
    Object(Name),
}

/// Whether a value may become a variable of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Assign {
    Yes,
    No,
    /// This one of both classes could not be found: null may
    Null(Name),
}

struct Entry {
    descriptor: &'static str,
    /// The class, once it was looked for; then none if it could not be found
    class: Option<Option<&'static Class>>,
}

/// The names that the code of one class uses.
pub(super) struct Types<'a> {
    pub t: &'a Thread,
    loader: Loader,
    names: Vec<Entry>,
    by_descriptor: FxHashMap<&'static str, Name>,
    by_id: FxHashMap<TypeId, &'static str>,
}

impl<'a> Types<'a> {
    pub fn new(t: &'a Thread, loader: Loader) -> Types<'a> {
        let mut types = Types {
            t,
            loader,
            names: vec![Entry { descriptor: "", class: Some(None) }],
            by_descriptor: FxHashMap::default(),
            by_id: FxHashMap::default(),
        };
        let library = ["Object;", "Throwable;", "String;", "Class;"];
        for (name, number) in library.into_iter().zip(1..) {
            let known = types.name(["Ljava/lang/", name].concat().leak());
            debug_assert_eq!(known, Name(number));
        }
        types
    }

    /// The name of a descriptor.
    pub fn name(&mut self, descriptor: &'static str) -> Name {
        let next = Name(self.names.len() as u32);
        let name = *self.by_descriptor.entry(descriptor).or_insert(next);
        if name == next {
            self.names.push(Entry { descriptor, class: None });
        }
        name
    }

    /// The name of a class.
    pub fn name_of(&mut self, class: &'static Class) -> Name {
        let name = self.name(class.descriptor);
        self.names[name.0 as usize].class.get_or_insert(Some(class));
        name
    }

    /// The descriptor of a type of a file.
    pub fn descriptor(&mut self, dex: &'static LoadedDex, id: TypeId) -> &'static str {
        self.by_id.entry(id).or_insert_with(|| dex_files::text(dex.file.descriptor(id)))
    }

    /// A name's descriptor: empty for [`Name::UNKNOWN`].
    pub fn text(&self, name: Name) -> &'static str {
        self.names[name.0 as usize].descriptor
    }

    /// What a descriptor says.
    pub fn value(&mut self, descriptor: &'static str) -> Value {
        match descriptor.as_bytes()[0] {
            b'V' => Value::Void,
            b'F' => Value::Float,
            b'J' => Value::Wide(Wide::Long),
            b'D' => Value::Wide(Wide::Double),
            b'L' | b'[' => Value::Object(self.name(descriptor)),
            _ => Value::Int,
        }
    }

    /// The class of a name, if it can be found.
    pub fn class(&mut self, name: Name) -> Option<&'static Class> {
        let entry = &self.names[name.0 as usize];
        if let Some(class) = entry.class {
            return class;
        }
        let (t, loader, descriptor) = (self.t, self.loader, entry.descriptor);
        let class = found(t, || linker::find(t, loader, descriptor)).ok();
        self.names[name.0 as usize].class = Some(class);
        class
    }

    /// Whether a reference of one name may become a variable of another.
    ///
    /// Interfaces take every object, as in Java's own verifiers: calls of their methods check the
    /// receiver when they run.
    pub fn assign(&mut self, from: Name, to: Name) -> Assign {
        if from == to || to == Name::OBJECT {
            return Assign::Yes;
        }
        let Some(class) = self.class(to) else { return Assign::Null(to) };
        if class.is_interface() {
            return Assign::Yes;
        }
        match self.class(from) {
            None => Assign::Null(from),
            Some(from) if from.is_assignable_to(class) || is_array_of_interfaces(from, class) => {
                Assign::Yes
            }
            Some(_) => Assign::No,
        }
    }

    /// The type of a register that holds one or the other.
    pub fn merge(&mut self, one: Type, other: Type) -> Type {
        use Type::{Constant, Float, High, Int, Low, Null, Object, Unset, Zero};
        match (one, other) {
            _ if one == other => one,
            (Object(one), Object(other)) => Object(self.merge_names(one, other)),
            (Zero, it @ (Constant | Int | Float | Null | Object(_)))
            | (it @ (Constant | Int | Float | Null | Object(_)), Zero) => it,
            (Constant, it @ (Int | Float)) | (it @ (Int | Float), Constant) => it,
            (Null, it @ Object(_)) | (it @ Object(_), Null) => it,
            (Low(Wide::Constant), it @ Low(_)) | (it @ Low(_), Low(Wide::Constant)) => it,
            (High(Wide::Constant), it @ High(_)) | (it @ High(_), High(Wide::Constant)) => it,
            _ => Unset,
        }
    }

    fn merge_names(&mut self, one: Name, other: Name) -> Name {
        if one == Name::OBJECT || other == Name::OBJECT {
            return Name::OBJECT;
        }
        let Some((one, other)) = self.class(one).zip(self.class(other)) else {
            return Name::UNKNOWN;
        };
        match self.common(one, other) {
            Some(class) => self.name_of(class),
            None => Name::OBJECT,
        }
    }

    /// The lowest class that has all instances of both: none if only Object has.
    fn common(&mut self, one: &'static Class, other: &'static Class) -> Option<&'static Class> {
        if one.is_assignable_to(other) {
            return Some(other);
        }
        if other.is_assignable_to(one) {
            return Some(one);
        }
        if let (Some(one), Some(other)) = (one.component, other.component) {
            if one.is_primitive() || other.is_primitive() {
                return None;
            }
            let object = self.class(Name::OBJECT)?;
            let component = self.common(one, other).unwrap_or(object);
            return linker::array_of(self.t, component).ok();
        }
        let shared = one.superclasses.iter().zip(&other.superclasses);
        shared.take_while(|(one, other)| std::ptr::eq(**one, **other)).last().map(|(it, _)| *it)
    }
}

/// Whether both are arrays of objects, and the element of `to` is an interface: as for interfaces,
/// the verifier lets all pass.
fn is_array_of_interfaces(from: &'static Class, to: &'static Class) -> bool {
    match (from.component, to.component) {
        (Some(from), Some(to)) if !from.is_primitive() => {
            to.is_interface() || is_array_of_interfaces(from, to)
        }
        _ => false,
    }
}

/// Runs something that links; if a class loader throws, the exception is dropped. References that
/// linking keeps are released.
pub(super) fn found<T>(
    t: &Thread,
    link: impl FnOnce() -> Result<T, LinkError>,
) -> Result<T, LinkError> {
    t.scope(|| {
        let result = link();
        if let Err(LinkError::Thrown(_)) = result {
            let _ = t.take_exception();
        }
        result
    })
}
