//! The map: every section of a file, in the order of offsets.

use crate::error::DexError;
use crate::file::DexFile;
use crate::header::{HEADER_BYTES, Header, Table};
use std::collections::BTreeMap;

pub(super) const HEADER: u16 = 0x0000;
pub(super) const STRINGS: u16 = 0x0001;
pub(super) const TYPES: u16 = 0x0002;
pub(super) const PROTOS: u16 = 0x0003;
pub(super) const FIELDS: u16 = 0x0004;
pub(super) const METHODS: u16 = 0x0005;
pub(super) const CLASSES: u16 = 0x0006;
pub(super) const CALL_SITES: u16 = 0x0007;
pub(super) const METHOD_HANDLES: u16 = 0x0008;
pub(super) const MAP: u16 = 0x1000;
pub(super) const TYPE_LIST: u16 = 0x1001;
pub(super) const ANNOTATION_SET_LIST: u16 = 0x1002;
pub(super) const ANNOTATION_SET: u16 = 0x1003;
pub(super) const CLASS_DATA: u16 = 0x2000;
pub(super) const CODE: u16 = 0x2001;
pub(super) const STRING_DATA: u16 = 0x2002;
pub(super) const DEBUG_INFO: u16 = 0x2003;
pub(super) const ANNOTATION: u16 = 0x2004;
pub(super) const ENCODED_ARRAY: u16 = 0x2005;
pub(super) const ANNOTATIONS_DIRECTORY: u16 = 0x2006;
/// Flags for Android's boot class path, which nobody reads here.
pub(super) const HIDDEN_API: u16 = 0xf000;

/// The sections of a file by their kinds.
pub(super) struct Map(BTreeMap<u16, Table>);

impl Map {
    /// A section: an empty one if the map lacks it.
    pub(super) fn table(&self, kind: u16) -> Table {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// Kinds and sections.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u16, Table)> {
        self.0.iter().map(|(kind, table)| (*kind, *table))
    }
}

/// The tables that the header names: bytes of an entry, and the most entries.
fn tables(header: &Header) -> [(u16, Table, u64, u32); 6] {
    [
        (STRINGS, header.strings, 4, u32::MAX),
        (TYPES, header.types, 4, 1 << 16),
        (PROTOS, header.protos, 12, 1 << 16),
        (FIELDS, header.fields, 8, u32::MAX),
        (METHODS, header.methods, 8, u32::MAX),
        (CLASSES, header.classes, 32, u32::MAX),
    ]
}

/// Reads the map, and checks it against the header.
pub(super) fn read(file: &DexFile) -> Result<Map, DexError> {
    let header = file.header();
    let error = |offset: usize, expected| Err(DexError { offset, expected });
    let n_bytes = file.bytes().len() as u64;
    let is_inside = |table: Table, entry_bytes: u64| {
        u64::from(table.offset) + u64::from(table.count) * entry_bytes <= n_bytes
    };
    if !is_inside(header.link, 1) {
        return error(44, "a link section inside the file");
    }
    if !is_inside(header.data, 1) {
        return error(104, "a data section inside the file");
    }
    for (index, (_, table, entry_bytes, most)) in tables(header).into_iter().enumerate() {
        let offset = 56 + 8 * index;
        if table.count > most {
            return error(offset, "at most 65536 entries");
        }
        if table.count == 0 && table.offset != 0 {
            return error(offset + 4, "the offset 0 of an empty table");
        }
        let is_behind = table.count == 0 || table.offset as usize >= HEADER_BYTES;
        if !table.offset.is_multiple_of(4) || !is_inside(table, entry_bytes) || !is_behind {
            return error(offset + 4, "an aligned table between the header and the file's end");
        }
    }
    let mut cursor = file.cursor(header.map_offset);
    if !header.map_offset.is_multiple_of(4) || (header.map_offset as usize) < HEADER_BYTES {
        return error(52, "the aligned offset of the map");
    }
    let mut sections = BTreeMap::new();
    let mut last = None;
    for _ in 0..cursor.u32()? {
        let place = cursor;
        let kind = cursor.u16()?;
        cursor.u16()?;
        let table = Table { count: cursor.u32()?, offset: cursor.u32()? };
        if last.is_some_and(|last| table.offset <= last) {
            return place.error("sections in ascending order of offsets");
        }
        if table.count == 0 {
            return place.error("a section with at least one item");
        }
        if table.offset as usize >= file.bytes().len() {
            return place.error("a section inside the file");
        }
        let is_known = matches!(kind, HEADER..=METHOD_HANDLES | MAP..=ANNOTATION_SET | HIDDEN_API)
            || matches!(kind, CLASS_DATA..=ANNOTATIONS_DIRECTORY);
        if !is_known {
            return place.error("a known kind of section");
        }
        if sections.insert(kind, table).is_some() {
            return place.error("one section of each kind");
        }
        last = Some(table.offset);
    }
    let map = Map(sections);
    let end = file.cursor(header.map_offset);
    for (kind, table, ..) in tables(header) {
        if map.table(kind) != table {
            return end.error("a map with the header's tables");
        }
    }
    if map.table(HEADER) != (Table { count: 1, offset: 0 }) {
        return end.error("a map with one header at offset 0");
    }
    if map.table(MAP) != (Table { count: 1, offset: header.map_offset }) {
        return end.error("a map with itself");
    }
    for (kind, entry_bytes) in [(CALL_SITES, 4), (METHOD_HANDLES, 8)] {
        let table = map.table(kind);
        if !table.offset.is_multiple_of(4) || !is_inside(table, entry_bytes) {
            return end.error("aligned tables inside the file");
        }
    }
    Ok(map)
}
