//! A whole file, as bytes and the places of its tables.

use crate::cursor::Cursor;
use crate::error::DexError;
use crate::header::{Header, Table};

/// Why an accessor may rely on a file's bytes.
pub(crate) const CHECKED: &str = "the file was checked when it was opened";

/// A dex file that was checked from its first byte to its last: accessors of a file and of its
/// parts cannot fail. They panic if an id is from another file.
///
/// Instructions are not checked yet: see [`crate::verify::verify`].
#[derive(Debug)]
pub struct DexFile<'a> {
    bytes: &'a [u8],
    header: Header,
    call_sites: Table,
    method_handles: Table,
    /// The class definition of each type: `u32::MAX` for none.
    definitions: Vec<u32>,
}

impl<'a> DexFile<'a> {
    /// A file whose header alone was read.
    pub(crate) fn unchecked(bytes: &'a [u8]) -> Result<DexFile<'a>, DexError> {
        Ok(DexFile {
            bytes,
            header: Header::read(bytes)?,
            call_sites: Table::default(),
            method_handles: Table::default(),
            definitions: Vec::new(),
        })
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn call_sites(&self) -> Table {
        self.call_sites
    }

    pub(crate) fn method_handles(&self) -> Table {
        self.method_handles
    }

    pub(crate) fn set_call_sites(&mut self, call_sites: Table, method_handles: Table) {
        (self.call_sites, self.method_handles) = (call_sites, method_handles);
    }

    pub(crate) fn set_definitions(&mut self, definitions: Vec<u32>) {
        self.definitions = definitions;
    }

    /// The class definition of a type, by its number: `u32::MAX` for none.
    pub(crate) fn definition(&self, of_type: usize) -> u32 {
        self.definitions[of_type]
    }

    /// A cursor at an entry of a table.
    pub(crate) fn entry(&self, table: Table, index: u32, n_bytes: usize) -> Cursor<'a> {
        assert!(index < table.count, "an id of another file: {index} of {}", table.count);
        Cursor::new(self.bytes, table.offset as usize + index as usize * n_bytes)
    }

    pub(crate) fn cursor(&self, offset: u32) -> Cursor<'a> {
        Cursor::new(self.bytes, offset as usize)
    }

    /// The version: 35 to 39.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The number of strings. Ids are the numbers below it: likewise for the other tables.
    pub fn n_strings(&self) -> u32 {
        self.header.strings.count
    }

    /// The number of types.
    pub fn n_types(&self) -> u32 {
        self.header.types.count
    }

    /// The number of prototypes.
    pub fn n_protos(&self) -> u32 {
        self.header.protos.count
    }

    /// The number of fields that the file defines or uses.
    pub fn n_fields(&self) -> u32 {
        self.header.fields.count
    }

    /// The number of methods that the file defines or uses.
    pub fn n_methods(&self) -> u32 {
        self.header.methods.count
    }

    /// The number of call sites.
    pub fn n_call_sites(&self) -> u32 {
        self.call_sites.count
    }

    /// The number of method handles.
    pub fn n_method_handles(&self) -> u32 {
        self.method_handles.count
    }

    /// The number of classes that the file defines.
    pub fn n_classes(&self) -> u32 {
        self.header.classes.count
    }
}
