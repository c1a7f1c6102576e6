//! Indices into the tables of a file, and the entries of these tables.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index of a slice.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Names a string of a file.
    StringId,
    /// Names a type of a file.
    TypeId,
    /// Names a prototype of a file.
    ProtoId,
    /// Names a field that a file defines or uses.
    FieldId,
    /// Names a method that a file defines or uses.
    MethodId,
    /// Names a call site of `invoke-custom`.
    CallSiteId,
    /// Names a method handle.
    MethodHandleId,
}

/// A method's parameters and the type of its result.
#[derive(Clone, Copy, Debug)]
pub struct Proto<'a> {
    /// One letter for each type, the result first. All references are `L`.
    pub shorty: StringId,
    /// The type of the result.
    pub return_type: TypeId,
    /// Types of parameters, without the receiver.
    pub parameters: TypeList<'a>,
}

/// A field by its class, type and name. The class may be one that inherits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The class in which the search starts.
    pub class: TypeId,
    /// The type of the value.
    pub type_id: TypeId,
    /// The field's name.
    pub name: StringId,
}

/// A method by its class, prototype and name. The class may be one that inherits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The class in which the search starts: an array, too, for its `clone`.
    pub class: TypeId,
    /// The parameters and the result.
    pub proto: ProtoId,
    /// The method's name.
    pub name: StringId,
}

/// A method handle: the kind of access, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodHandle {
    /// Sets a static field.
    StaticPut(FieldId),
    /// Gets a static field.
    StaticGet(FieldId),
    /// Sets an instance field.
    InstancePut(FieldId),
    /// Gets an instance field.
    InstanceGet(FieldId),
    /// Calls a static method.
    InvokeStatic(MethodId),
    /// Calls a virtual method.
    InvokeInstance(MethodId),
    /// Makes an object and calls its constructor.
    InvokeConstructor(MethodId),
    /// Calls a private method.
    InvokeDirect(MethodId),
    /// Calls a method of an interface.
    InvokeInterface(MethodId),
}

/// A list of types: parameters of a method, interfaces of a class.
#[derive(Clone, Copy, Debug)]
pub struct TypeList<'a>(&'a [u8]);

impl<'a> TypeList<'a> {
    /// A list of these bytes: two for each type.
    pub(crate) fn new(bytes: &'a [u8]) -> TypeList<'a> {
        TypeList(bytes)
    }

    /// The number of types.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether the list has no type.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The types in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TypeId> + 'a {
        self.0.chunks_exact(2).map(|pair| TypeId(u16::from_le_bytes([pair[0], pair[1]]).into()))
    }
}
