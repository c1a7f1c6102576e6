//! Items of the data section, each on its own.

use super::map::{self, Map};
use crate::annotation::Annotation;
use crate::class::ClassData;
use crate::code::Code;
use crate::cursor::Cursor;
use crate::debug::{self, Use};
use crate::error::DexError;
use crate::file::DexFile;
use crate::header::Table;
use crate::string::Mutf8;
use crate::value::{EncodedAnnotation, Value, Values};
use std::collections::BTreeMap;

/// The offsets of all items by their kinds, in ascending order.
pub(super) struct Items(BTreeMap<u16, Vec<u32>>);

impl Items {
    /// Whether an item of a kind begins at an offset.
    pub(super) fn has(&self, kind: u16, offset: u32) -> bool {
        self.0.get(&kind).is_some_and(|offsets| offsets.binary_search(&offset).is_ok())
    }
}

/// A reference from one item to another, to be resolved when all items are known.
struct Reference {
    from: usize,
    to: u32,
    kind: u16,
    expected: &'static str,
}

/// The check of one file's items.
struct Check<'a, 'b> {
    file: &'b DexFile<'a>,
    references: Vec<Reference>,
}

/// Checks every item of the sections that the map names.
pub(super) fn check(file: &DexFile, map: &Map) -> Result<Items, DexError> {
    let mut check = Check { file, references: Vec::new() };
    let mut items = BTreeMap::new();
    let data = file.header().data;
    let mut sections: Vec<(u16, Table)> = map.sections().collect();
    sections.sort_by_key(|(_, table)| table.offset);
    let mut end = 0;
    for (kind, table) in sections {
        if (table.offset as usize) < end {
            return file.cursor(table.offset).error("sections without overlaps");
        }
        let entry_bytes = match kind {
            map::HEADER => crate::header::HEADER_BYTES,
            map::STRINGS | map::TYPES | map::CALL_SITES => 4,
            map::FIELDS | map::METHODS | map::METHOD_HANDLES => 8,
            map::PROTOS => 12,
            map::CLASSES => crate::class::CLASS_BYTES,
            map::MAP => {
                let mut cursor = file.cursor(table.offset);
                end = table.offset as usize + 4 + 12 * cursor.u32()? as usize;
                continue;
            }
            map::HIDDEN_API => continue,
            _ => 0,
        };
        if entry_bytes > 0 {
            end = table.offset as usize + entry_bytes * table.count as usize;
            continue;
        }
        let mut cursor = file.cursor(table.offset);
        let mut offsets = Vec::new();
        for _ in 0..table.count {
            if is_aligned(kind) {
                cursor.align(4)?;
            }
            offsets.push(cursor.offset() as u32);
            check.item(kind, &mut cursor)?;
        }
        end = cursor.offset();
        let data_end = data.offset as usize + data.count as usize;
        if table.offset < data.offset || end > data_end {
            return file.cursor(table.offset).error("items inside the data section");
        }
        items.insert(kind, offsets);
    }
    let items = Items(items);
    for reference in check.references {
        if !items.has(reference.kind, reference.to) {
            return Err(DexError { offset: reference.from, expected: reference.expected });
        }
    }
    Ok(items)
}

fn is_aligned(kind: u16) -> bool {
    matches!(
        kind,
        map::TYPE_LIST
            | map::ANNOTATION_SET_LIST
            | map::ANNOTATION_SET
            | map::CODE
            | map::ANNOTATIONS_DIRECTORY
    )
}

impl<'a> Check<'a, '_> {
    /// Checks an item, and moves the cursor behind it.
    fn item(&mut self, kind: u16, cursor: &mut Cursor<'a>) -> Result<(), DexError> {
        match kind {
            map::TYPE_LIST => self.type_list(cursor),
            map::ANNOTATION_SET_LIST => self.annotation_set_list(cursor),
            map::ANNOTATION_SET => self.annotation_set(cursor),
            map::CLASS_DATA => self.class_data(cursor),
            map::CODE => self.code(cursor),
            map::STRING_DATA => string_data(cursor),
            map::DEBUG_INFO => self.debug_info(cursor),
            map::ANNOTATION => {
                let place = *cursor;
                cursor.u8()?;
                EncodedAnnotation::skip(cursor, 0)?;
                self.annotation(place, &Annotation::read(place)?.annotation)
            }
            map::ENCODED_ARRAY => {
                let place = *cursor;
                let values = Values::skip(cursor, 0)?;
                values.iter().try_for_each(|value| self.value(place, value))
            }
            _ => self.annotations_directory(cursor),
        }
    }

    fn refer(&mut self, place: Cursor, to: u32, kind: u16, expected: &'static str) {
        self.references.push(Reference { from: place.offset(), to, kind, expected });
    }

    fn type_list(&self, cursor: &mut Cursor) -> Result<(), DexError> {
        for _ in 0..cursor.u32()? {
            let place = *cursor;
            id(place, cursor.u16()?.into(), self.file.n_types())?;
        }
        Ok(())
    }

    fn annotation_set_list(&mut self, cursor: &mut Cursor) -> Result<(), DexError> {
        for _ in 0..cursor.u32()? {
            let place = *cursor;
            let offset = cursor.u32()?;
            if offset != 0 {
                self.refer(
                    place,
                    offset,
                    map::ANNOTATION_SET,
                    "the offset of a set of annotations",
                );
            }
        }
        Ok(())
    }

    fn annotation_set(&mut self, cursor: &mut Cursor) -> Result<(), DexError> {
        for _ in 0..cursor.u32()? {
            let place = *cursor;
            let offset = cursor.u32()?;
            self.refer(place, offset, map::ANNOTATION, "the offset of an annotation");
        }
        Ok(())
    }

    fn class_data(&mut self, cursor: &mut Cursor) -> Result<(), DexError> {
        let place = *cursor;
        let data = ClassData::read(cursor)?;
        for field in data.static_fields.iter().chain(&data.instance_fields) {
            id(place, field.id.0, self.file.n_fields())?;
        }
        for method in data.methods() {
            id(place, method.id.0, self.file.n_methods())?;
            if method.code != 0 {
                self.refer(place, method.code, map::CODE, "methods with offsets of code items");
            }
        }
        Ok(())
    }

    fn code(&mut self, cursor: &mut Cursor<'a>) -> Result<(), DexError> {
        let place = *cursor;
        let code = Code::read(self.file, place.offset() as u32)?;
        if code.n_ins > code.n_registers {
            return place.error("at most as many argument registers as registers");
        }
        if code.n_units() == 0 {
            return place.error("code with at least one instruction");
        }
        let (tries, end) = code.read_tries()?;
        for handler in tries.iter().flat_map(|one| one.handlers.iter()) {
            if handler.exception.is_some_and(|class| class.0 >= self.file.n_types()) {
                return place.error("handlers with types of the file");
            }
        }
        if code.debug_info() != 0 {
            self.refer(place, code.debug_info(), map::DEBUG_INFO, "code with debug information");
        }
        *cursor = Cursor::new(self.file.bytes(), end);
        Ok(())
    }

    fn debug_info(&self, cursor: &mut Cursor) -> Result<(), DexError> {
        let place = *cursor;
        debug::read(cursor, |used| match used {
            Use::String(string) => id(place, string, self.file.n_strings()),
            Use::Type(class) => id(place, class, self.file.n_types()),
        })?;
        Ok(())
    }

    fn annotation(&self, place: Cursor, one: &EncodedAnnotation) -> Result<(), DexError> {
        id(place, one.type_id.0, self.file.n_types())?;
        let mut last = None;
        for (name, value) in one.elements() {
            id(place, name.0, self.file.n_strings())?;
            if last.is_some_and(|last| name <= last) {
                return place.error("elements of an annotation in ascending order of names");
            }
            last = Some(name);
            self.value(place, value)?;
        }
        Ok(())
    }

    fn value(&self, place: Cursor, value: Value) -> Result<(), DexError> {
        let file = self.file;
        match value {
            Value::String(string) => id(place, string.0, file.n_strings()),
            Value::Type(class) => id(place, class.0, file.n_types()),
            Value::MethodType(proto) => id(place, proto.0, file.n_protos()),
            Value::MethodHandle(handle) => id(place, handle.0, file.n_method_handles()),
            Value::Field(field) | Value::Enum(field) => id(place, field.0, file.n_fields()),
            Value::Method(method) => id(place, method.0, file.n_methods()),
            Value::Array(values) => values.iter().try_for_each(|value| self.value(place, value)),
            Value::Annotation(annotation) => self.annotation(place, &annotation),
            _ => Ok(()),
        }
    }

    fn annotations_directory(&mut self, cursor: &mut Cursor) -> Result<(), DexError> {
        let place = *cursor;
        let class = cursor.u32()?;
        if class != 0 {
            self.refer(place, class, map::ANNOTATION_SET, "the offset of a set of annotations");
        }
        let counts = [cursor.u32()?, cursor.u32()?, cursor.u32()?];
        let (file, set) = (self.file, "the offset of a set of annotations");
        let tables = [
            (file.n_fields(), map::ANNOTATION_SET, set),
            (file.n_methods(), map::ANNOTATION_SET, set),
            (file.n_methods(), map::ANNOTATION_SET_LIST, "the offset of a list of annotation sets"),
        ];
        for (count, (n_ids, kind, expected)) in counts.into_iter().zip(tables) {
            let mut last = None;
            for _ in 0..count {
                let place = *cursor;
                let member = cursor.u32()?;
                id(place, member, n_ids)?;
                if last.is_some_and(|last| member <= last) {
                    return place.error("annotated members in ascending order of ids");
                }
                last = Some(member);
                let place = *cursor;
                let offset = cursor.u32()?;
                self.refer(place, offset, kind, expected);
            }
        }
        Ok(())
    }
}

/// Checks an index against the number of a table's entries.
pub(super) fn id(place: Cursor, id: u32, count: u32) -> Result<(), DexError> {
    if id < count {
        Ok(())
    } else {
        place.error("an index below the number of the table's entries")
    }
}

fn string_data(cursor: &mut Cursor) -> Result<(), DexError> {
    let place = *cursor;
    let n_units = cursor.uleb128()?;
    let mut contents = *cursor;
    let bytes = cursor.until_zero()?;
    let string = match Mutf8::new(bytes) {
        Ok(string) => string,
        Err(at) => {
            contents.bytes(at)?;
            return contents.error("modified UTF-8");
        }
    };
    if string.utf16().count() != n_units as usize {
        return place.error("the number of UTF-16 units of the string");
    }
    Ok(())
}
