//! The check of a whole file when it is opened.
//!
//! `items` checks each item of the data section alone, in the order of the map, so that its time
//! grows with the file's size and not with the number of references. `tables` then checks the
//! entries of each table of ids and of the class definitions: an offset must be that of an item of
//! the right kind.

mod descriptor;
mod items;
mod map;
mod tables;

use crate::error::DexError;
use crate::file::DexFile;
use crate::header;

impl<'a> DexFile<'a> {
    /// Opens the file, and checks all of it but its instructions.
    pub fn open(bytes: &'a [u8]) -> Result<DexFile<'a>, DexError> {
        let mut file = DexFile::unchecked(bytes)?;
        header::check_sum(bytes)?;
        let map = map::read(&file)?;
        // The header does not name these tables.
        file.set_call_sites(map.table(map::CALL_SITES), map.table(map::METHOD_HANDLES));
        let items = items::check(&file, &map)?;
        let definitions = tables::check(&file, &items)?;
        file.set_definitions(definitions);
        Ok(file)
    }

    /// Opens a file that [`DexFile::open`] has accepted before, without checking it again. A file
    /// that it has not accepted makes later accesses panic.
    pub fn open_checked(bytes: &'a [u8]) -> Result<DexFile<'a>, DexError> {
        let mut file = DexFile::unchecked(bytes)?;
        let map = map::read(&file)?;
        file.set_call_sites(map.table(map::CALL_SITES), map.table(map::METHOD_HANDLES));
        let definitions = tables::definitions(&file)?;
        file.set_definitions(definitions);
        Ok(file)
    }
}
