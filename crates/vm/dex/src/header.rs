//! The header: the version, and where each table of ids lies.
//!
//! ```text
//!   0   magic "dex\n", version "035\0" to "039\0"     8   adler32 of all bytes from 12
//!   12  SHA-1 signature, which nobody checks          32  u32 file bytes
//!   36  u32 header bytes (0x70)                       40  u32 endian tag 0x12345678
//!   44  u32 link bytes, offset                        52  u32 offset of the map
//!   56  u32 count, offset of: strings, types, prototypes, fields, methods, classes
//!   104 u32 data bytes, offset
//! ```

use crate::cursor::Cursor;
use crate::error::DexError;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 0x70;
const ENDIAN_TAG: u32 = 0x1234_5678;

/// A table: the count of its entries, and the offset of the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) count: u32,
    pub(crate) offset: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) link: Table,
    pub(crate) map_offset: u32,
    pub(crate) strings: Table,
    pub(crate) types: Table,
    pub(crate) protos: Table,
    pub(crate) fields: Table,
    pub(crate) methods: Table,
    pub(crate) classes: Table,
    /// Its count is in bytes.
    pub(crate) data: Table,
}

impl Header {
    /// Reads the header, and checks all that concerns it alone.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, DexError> {
        let mut cursor = Cursor::new(bytes, 0);
        let magic = cursor.bytes(8)?;
        let version = match magic {
            [b'd', b'e', b'x', b'\n', b'0', b'3', digit @ b'5'..=b'9', 0] => {
                30 + u32::from(digit - b'0')
            }
            _ => return Cursor::new(bytes, 0).error("the magic of a dex file 035 to 039"),
        };
        cursor.bytes(24)?;
        expect(&mut cursor, bytes.len() as u64, "the number of bytes of the file")?;
        expect(&mut cursor, HEADER_BYTES as u64, "0x70, the number of bytes of the header")?;
        expect(&mut cursor, u64::from(ENDIAN_TAG), "the tag of little-endian files")?;
        let link = table(&mut cursor)?;
        let map_offset = cursor.u32()?;
        Ok(Header {
            version,
            link,
            map_offset,
            strings: table(&mut cursor)?,
            types: table(&mut cursor)?,
            protos: table(&mut cursor)?,
            fields: table(&mut cursor)?,
            methods: table(&mut cursor)?,
            classes: table(&mut cursor)?,
            data: table(&mut cursor)?,
        })
    }
}

/// Compares the checksum of a file that has a header.
pub(crate) fn check_sum(bytes: &[u8]) -> Result<(), DexError> {
    let place = Cursor::new(bytes, 8);
    if adler2::adler32_slice(&bytes[12..]) != { place }.u32()? {
        return place.error("the Adler-32 checksum of the file");
    }
    Ok(())
}

fn table(cursor: &mut Cursor) -> Result<Table, DexError> {
    Ok(Table { count: cursor.u32()?, offset: cursor.u32()? })
}

fn expect(cursor: &mut Cursor, value: u64, expected: &'static str) -> Result<(), DexError> {
    let place = *cursor;
    if u64::from(cursor.u32()?) != value { place.error(expected) } else { Ok(()) }
}
