//! Access to the tables of a file: strings, types, prototypes, fields, methods, and what calls by
//! method handles need.

use crate::error::DexError;
use crate::file::{CHECKED, DexFile};
use crate::ids::{
    CallSiteId, Field, FieldId, Method, MethodHandle, MethodHandleId, MethodId, Proto, ProtoId,
    StringId, TypeId, TypeList,
};
use crate::string::Mutf8;
use crate::value::Values;

impl<'a> DexFile<'a> {
    /// A string.
    pub fn string(&self, id: StringId) -> Mutf8<'a> {
        self.string_data(id).expect(CHECKED).1
    }

    /// A string's UTF-16 units, as its header counts them, and its bytes.
    pub(crate) fn string_data(&self, id: StringId) -> Result<(u32, Mutf8<'a>), DexError> {
        let offset = self.entry(self.header().strings, id.0, 4).u32()?;
        let mut cursor = self.cursor(offset);
        let n_units = cursor.uleb128()?;
        Ok((n_units, Mutf8::accepted(cursor.until_zero()?)))
    }

    /// The number of a string's UTF-16 units.
    pub fn string_units(&self, id: StringId) -> u32 {
        self.string_data(id).expect(CHECKED).0
    }

    /// The string that holds a type's descriptor.
    pub fn type_name(&self, id: TypeId) -> StringId {
        StringId(self.entry(self.header().types, id.0, 4).u32().expect(CHECKED))
    }

    /// A type's descriptor: `I`, `Ljava/lang/String;`, `[[J`.
    pub fn descriptor(&self, id: TypeId) -> Mutf8<'a> {
        self.string(self.type_name(id))
    }

    /// A prototype.
    pub fn proto(&self, id: ProtoId) -> Proto<'a> {
        self.read_proto(id).expect(CHECKED)
    }

    pub(crate) fn read_proto(&self, id: ProtoId) -> Result<Proto<'a>, DexError> {
        let mut cursor = self.entry(self.header().protos, id.0, 12);
        Ok(Proto {
            shorty: StringId(cursor.u32()?),
            return_type: TypeId(cursor.u32()?),
            parameters: self.type_list(cursor.u32()?)?,
        })
    }

    /// A prototype's descriptor, as in JNI and in `MethodType`: `(ILjava/lang/String;)V`.
    pub fn signature(&self, id: ProtoId) -> String {
        let proto = self.proto(id);
        let parameters: String =
            proto.parameters.iter().map(|id| self.descriptor(id).to_string()).collect();
        format!("({parameters}){}", self.descriptor(proto.return_type))
    }

    /// A field.
    pub fn field(&self, id: FieldId) -> Field {
        let mut cursor = self.entry(self.header().fields, id.0, 8);
        Field {
            class: TypeId(cursor.u16().expect(CHECKED).into()),
            type_id: TypeId(cursor.u16().expect(CHECKED).into()),
            name: StringId(cursor.u32().expect(CHECKED)),
        }
    }

    /// A method.
    pub fn method(&self, id: MethodId) -> Method {
        let mut cursor = self.entry(self.header().methods, id.0, 8);
        Method {
            class: TypeId(cursor.u16().expect(CHECKED).into()),
            proto: ProtoId(cursor.u16().expect(CHECKED).into()),
            name: StringId(cursor.u32().expect(CHECKED)),
        }
    }

    /// A method handle.
    pub fn method_handle(&self, id: MethodHandleId) -> MethodHandle {
        self.read_method_handle(id).expect(CHECKED)
    }

    pub(crate) fn read_method_handle(&self, id: MethodHandleId) -> Result<MethodHandle, DexError> {
        let mut cursor = self.entry(self.method_handles(), id.0, 8);
        let place = cursor;
        let kind = cursor.u16()?;
        cursor.u16()?;
        let target = u32::from(cursor.u16()?);
        Ok(match kind {
            0 => MethodHandle::StaticPut(FieldId(target)),
            1 => MethodHandle::StaticGet(FieldId(target)),
            2 => MethodHandle::InstancePut(FieldId(target)),
            3 => MethodHandle::InstanceGet(FieldId(target)),
            4 => MethodHandle::InvokeStatic(MethodId(target)),
            5 => MethodHandle::InvokeInstance(MethodId(target)),
            6 => MethodHandle::InvokeConstructor(MethodId(target)),
            7 => MethodHandle::InvokeDirect(MethodId(target)),
            8 => MethodHandle::InvokeInterface(MethodId(target)),
            _ => return place.error("a kind of method handle from 0 to 8"),
        })
    }

    /// The values of a call site: the bootstrap method's handle, a name, a method type, and then
    /// further arguments of the bootstrap method.
    pub fn call_site(&self, id: CallSiteId) -> Values<'a> {
        let offset = self.entry(self.call_sites(), id.0, 4).u32().expect(CHECKED);
        Values::read(self.cursor(offset)).expect(CHECKED)
    }

    /// The id of a string, by a binary search.
    pub fn find_string(&self, string: Mutf8<'_>) -> Option<StringId> {
        let (mut low, mut high) = (0, self.n_strings());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.string(StringId(middle)).utf16().cmp(string.utf16()) {
                std::cmp::Ordering::Equal => return Some(StringId(middle)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The id of a type, by a binary search for its descriptor. Bytes are modified UTF-8.
    pub fn find_type(&self, descriptor: &[u8]) -> Option<TypeId> {
        let name = self.find_string(Mutf8::new(descriptor).ok()?)?;
        let (mut low, mut high) = (0, self.n_types());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.type_name(TypeId(middle)).cmp(&name) {
                std::cmp::Ordering::Equal => return Some(TypeId(middle)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The list at an offset: an empty one for offset 0.
    pub(crate) fn type_list(&self, offset: u32) -> Result<TypeList<'a>, DexError> {
        if offset == 0 {
            return Ok(TypeList::new(&[]));
        }
        let mut cursor = self.cursor(offset);
        let count = cursor.u32()?;
        Ok(TypeList::new(cursor.bytes((count as usize).saturating_mul(2))?))
    }
}
