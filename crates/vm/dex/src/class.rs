//! Definitions of classes, and the fields and methods that they define.

use crate::annotation::Annotations;
use crate::cursor::Cursor;
use crate::error::DexError;
use crate::file::{CHECKED, DexFile};
use crate::ids::{FieldId, MethodId, StringId, TypeId, TypeList};
use crate::value::Values;

/// Flags of classes, fields and methods.
#[allow(missing_docs, reason = "each is Java's word of its name")]
pub mod access {
    pub const PUBLIC: u32 = 0x1;
    pub const PRIVATE: u32 = 0x2;
    pub const PROTECTED: u32 = 0x4;
    pub const STATIC: u32 = 0x8;
    pub const FINAL: u32 = 0x10;
    pub const SYNCHRONIZED: u32 = 0x20;
    pub const VOLATILE: u32 = 0x40;
    pub const BRIDGE: u32 = 0x40;
    pub const TRANSIENT: u32 = 0x80;
    pub const VARARGS: u32 = 0x80;
    pub const NATIVE: u32 = 0x100;
    pub const INTERFACE: u32 = 0x200;
    pub const ABSTRACT: u32 = 0x400;
    pub const STRICT: u32 = 0x800;
    pub const SYNTHETIC: u32 = 0x1000;
    pub const ANNOTATION: u32 = 0x2000;
    pub const ENUM: u32 = 0x4000;
    /// An instance or class initializer.
    pub const CONSTRUCTOR: u32 = 0x1_0000;
    /// A method that is `synchronized` in its source; it locks by instructions, unless native.
    pub const DECLARED_SYNCHRONIZED: u32 = 0x2_0000;
}

/// Bytes of a class definition.
pub(crate) const CLASS_BYTES: usize = 32;

/// A class that a file defines.
#[derive(Clone, Copy, Debug)]
pub struct ClassDef<'a> {
    /// The class itself.
    pub type_id: TypeId,
    /// Flags of [`access`].
    pub access_flags: u32,
    /// The superclass: none for `java.lang.Object`.
    pub superclass: Option<TypeId>,
    /// The interfaces that the class itself names.
    pub interfaces: TypeList<'a>,
    /// The name of the source file.
    pub source_file: Option<StringId>,
    annotations: Annotations<'a>,
    data: Option<Cursor<'a>>,
    static_values: Option<Cursor<'a>>,
}

/// Offsets of a class definition's parts: 0 for none.
pub(crate) struct ClassOffsets {
    pub(crate) interfaces: u32,
    pub(crate) annotations: u32,
    pub(crate) data: u32,
    pub(crate) static_values: u32,
}

impl<'a> ClassDef<'a> {
    pub(crate) fn read(file: &DexFile<'a>, index: u32) -> Result<ClassDef<'a>, DexError> {
        let mut cursor = file.entry(file.header().classes, index, CLASS_BYTES);
        let at = |offset| (offset != 0).then(|| file.cursor(offset));
        let type_id = TypeId(cursor.u32()?);
        let access_flags = cursor.u32()?;
        let superclass = Some(cursor.u32()?).filter(|id| *id != u32::MAX).map(TypeId);
        let interfaces = file.type_list(cursor.u32()?)?;
        let source_file = Some(cursor.u32()?).filter(|id| *id != u32::MAX).map(StringId);
        let annotations = Annotations::read(file, cursor.u32()?)?;
        let data = at(cursor.u32()?);
        let static_values = at(cursor.u32()?);
        Ok(ClassDef {
            type_id,
            access_flags,
            superclass,
            interfaces,
            source_file,
            annotations,
            data,
            static_values,
        })
    }

    pub(crate) fn offsets(file: &DexFile, index: u32) -> Result<ClassOffsets, DexError> {
        let mut cursor = file.entry(file.header().classes, index, CLASS_BYTES);
        cursor.bytes(12)?;
        let interfaces = cursor.u32()?;
        cursor.u32()?;
        Ok(ClassOffsets {
            interfaces,
            annotations: cursor.u32()?,
            data: cursor.u32()?,
            static_values: cursor.u32()?,
        })
    }

    /// Annotations of the class, its fields, methods and parameters.
    pub fn annotations(&self) -> Annotations<'a> {
        self.annotations
    }

    /// Values of the first static fields, in the order of `ClassData::static_fields`. The others
    /// start as zero or null.
    pub fn static_values(&self) -> Option<Values<'a>> {
        self.static_values.map(|cursor| Values::read(cursor).expect(CHECKED))
    }

    /// The fields and methods of the class: all empty for a class without any.
    pub fn data(&self) -> ClassData {
        self.data.map_or_else(ClassData::default, |mut cursor| {
            ClassData::read(&mut cursor).expect(CHECKED)
        })
    }
}

/// A field that a class defines.
#[derive(Clone, Copy, Debug)]
pub struct EncodedField {
    /// The field's name and type.
    pub id: FieldId,
    /// Flags of [`access`].
    pub access_flags: u32,
}

/// A method that a class defines.
#[derive(Clone, Copy, Debug)]
pub struct EncodedMethod {
    /// The method's name and prototype.
    pub id: MethodId,
    /// Flags of [`access`].
    pub access_flags: u32,
    /// The offset of its code: 0 for abstract and native methods.
    pub(crate) code: u32,
}

/// The fields and methods of a class. Each list is in ascending order of ids.
#[derive(Clone, Debug, Default)]
pub struct ClassData {
    /// Static fields.
    pub static_fields: Vec<EncodedField>,
    /// Instance fields.
    pub instance_fields: Vec<EncodedField>,
    /// Static and private methods, and constructors.
    pub direct_methods: Vec<EncodedMethod>,
    /// The other methods.
    pub virtual_methods: Vec<EncodedMethod>,
}

impl ClassData {
    /// All methods: first the direct ones.
    pub fn methods(&self) -> impl Iterator<Item = &EncodedMethod> {
        self.direct_methods.iter().chain(&self.virtual_methods)
    }

    /// Reads the data, and moves the cursor behind it.
    pub(crate) fn read(cursor: &mut Cursor) -> Result<ClassData, DexError> {
        let counts = [cursor.uleb128()?, cursor.uleb128()?, cursor.uleb128()?, cursor.uleb128()?];
        Ok(ClassData {
            static_fields: members(cursor, counts[0], field)?,
            instance_fields: members(cursor, counts[1], field)?,
            direct_methods: members(cursor, counts[2], method)?,
            virtual_methods: members(cursor, counts[3], method)?,
        })
    }
}

/// Reads members, whose ids are encoded as differences.
fn members<T>(
    cursor: &mut Cursor,
    count: u32,
    read: fn(u32, &mut Cursor) -> Result<T, DexError>,
) -> Result<Vec<T>, DexError> {
    let mut members = Vec::new();
    let mut id = 0u32;
    for index in 0..count {
        let place = *cursor;
        let difference = cursor.uleb128()?;
        id = match id.checked_add(difference) {
            Some(id) if index == 0 || difference > 0 => id,
            _ => return place.error("members of a class in ascending order of ids"),
        };
        members.push(read(id, cursor)?);
    }
    Ok(members)
}

fn field(id: u32, cursor: &mut Cursor) -> Result<EncodedField, DexError> {
    Ok(EncodedField { id: FieldId(id), access_flags: cursor.uleb128()? })
}

fn method(id: u32, cursor: &mut Cursor) -> Result<EncodedMethod, DexError> {
    let access_flags = cursor.uleb128()?;
    Ok(EncodedMethod { id: MethodId(id), access_flags, code: cursor.uleb128()? })
}

impl<'a> DexFile<'a> {
    /// A class that the file defines, by its number below `n_classes`.
    pub fn class(&self, index: u32) -> ClassDef<'a> {
        ClassDef::read(self, index).expect(CHECKED)
    }

    /// The classes that the file defines.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = ClassDef<'a>> {
        (0..self.n_classes()).map(|index| self.class(index))
    }

    /// The definition of a class in this file, by its descriptor.
    pub fn find_class(&self, descriptor: &[u8]) -> Option<ClassDef<'a>> {
        self.class_of_type(self.find_type(descriptor)?)
    }

    /// The definition of a type in this file.
    pub fn class_of_type(&self, id: TypeId) -> Option<ClassDef<'a>> {
        let index = self.definition(id.index());
        (index != u32::MAX).then(|| self.class(index))
    }
}
