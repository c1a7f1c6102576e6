//! Android's parcel format, as far as services without AIDL and the tools that call them need it.
//!
//! Every value takes a multiple of four bytes. A string is UTF-16, with its length before it and a
//! zero after it. A request begins with the caller's strict-mode policy and work source, a mark,
//! and the interface descriptor, which the receiver checks. An AIDL reply begins with a status.

use crate::Parcel;
use baton_abi::uapi::{BINDER_TYPE_BINDER, FlatObject};

/// The strict-mode policy that `Parcel::writeInterfaceToken` writes: gather violations, of no
/// policy.
const STRICT_MODE: i32 = i32::MIN;
/// The work source of a caller that works for itself.
const NO_WORK_SOURCE: i32 = -1;
/// The mark of a system parcel.
const HEADER: i32 = i32::from_be_bytes(*b"SYST");
/// A status before which there is a header, as in strict-mode reports.
const HAS_REPLY_HEADER: i32 = -128;

/// What this format writes, on a [`Parcel`].
pub trait Write {
    /// Writes the beginning of a request: see the module.
    fn write_token(&mut self, descriptor: &str);
    /// Writes an `i32`.
    fn write_i32(&mut self, value: i32);
    /// Writes a string.
    fn write_string(&mut self, text: &str);
    /// Writes a null string.
    fn write_null_string(&mut self);
    /// Writes a null object.
    fn write_null_object(&mut self);
    /// Writes an AIDL status that is an exception (`EX_*`), without a stack trace.
    fn write_exception(&mut self, code: i32, message: &str);
}

impl Write for Parcel {
    fn write_token(&mut self, descriptor: &str) {
        for value in [STRICT_MODE, NO_WORK_SOURCE, HEADER] {
            self.write_i32(value);
        }
        self.write_string(descriptor);
    }

    fn write_i32(&mut self, value: i32) {
        self.write(&value.to_le_bytes());
    }

    fn write_string(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().collect();
        self.write_i32(units.len() as i32);
        let mut bytes: Vec<u8> = units.iter().chain(&[0]).flat_map(|u| u.to_le_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.write(&bytes);
    }

    fn write_null_string(&mut self) {
        self.write_i32(-1);
    }

    fn write_null_object(&mut self) {
        // Bytes, and not an object of the parcel: the driver has nothing to translate.
        let none = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0, binder: 0, cookie: 0 };
        for half in [none.kind, none.flags, 0, 0, 0, 0] {
            self.write(&half.to_le_bytes());
        }
        let undeclared_stability = 0;
        self.write_i32(undeclared_stability);
    }

    fn write_exception(&mut self, code: i32, message: &str) {
        let stack_trace_bytes = 0;
        self.write_i32(code);
        self.write_string(message);
        self.write_i32(stack_trace_bytes);
    }
}

/// Reads a parcel from its beginning. Each method returns `None` if the parcel has another value
/// there or ends.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// An exception with which a service has answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Exception {
    /// The exception code, an `EX_*` of AIDL.
    pub code: i32,
    /// The service's message.
    pub message: String,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads the beginning of a request and returns its interface descriptor.
    pub fn token(&mut self) -> Option<String> {
        let [_policy, _work_source, header] = [self.i32()?, self.i32()?, self.i32()?];
        if header == HEADER { self.string() } else { None }
    }

    /// Reads an `i32`.
    pub fn i32(&mut self) -> Option<i32> {
        self.take(4).map(|bytes| i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Reads a string. `None` also if it is null.
    pub fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.i32()?).ok()?;
        let bytes = self.take((length.checked_add(1)?.checked_mul(2)?).next_multiple_of(4))?;
        let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        Some(char::decode_utf16(units.take(length)).map(|c| c.unwrap_or('\u{fffd}')).collect())
    }

    /// Reads a vector of strings.
    pub fn strings(&mut self) -> Option<Vec<String>> {
        let count = self.i32()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// Reads an AIDL status.
    pub fn status(&mut self) -> Option<Result<(), Exception>> {
        match self.i32()? {
            0 => Some(Ok(())),
            HAS_REPLY_HEADER => {
                let mut header = *self;
                let bytes = usize::try_from(header.i32()?).ok()?;
                self.take(bytes)?;
                Some(Ok(()))
            }
            code => Some(Err(Exception { code, message: self.string().unwrap_or_default() })),
        }
    }
}

/// The bytes as words and letters, as Android's `service` tool prints a parcel.
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::from("Result: Parcel(");
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let words = chunk.chunks(4).map(|word| {
            let mut four = [0; 4];
            four[..word.len()].copy_from_slice(word);
            format!("{:08x} ", u32::from_le_bytes(four))
        });
        let letters = chunk.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        });
        let (words, letters): (String, String) = (words.collect(), letters.collect());
        if bytes.len() > 16 {
            text.push_str(&format!("\n  0x{:08x}: {words:<36}'{letters}'", line * 16));
        } else {
            text.push_str(&format!("{words}'{letters}'"));
        }
    }
    text + ")\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_a_terminator_and_padding() {
        for (text, bytes) in [
            ("", &[0, 0, 0, 0, 0, 0, 0, 0][..]),
            ("a", &[1, 0, 0, 0, b'a', 0, 0, 0]),
            ("ab", &[2, 0, 0, 0, b'a', 0, b'b', 0, 0, 0, 0, 0]),
        ] {
            let mut parcel = Parcel::new();
            parcel.write_string(text);
            assert_eq!(parcel.data(), bytes, "{text:?}");
            assert_eq!(Reader::new(bytes).string().as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_cut_short_is_none() {
        let mut parcel = Parcel::new();
        parcel.write_i32(2);
        parcel.write_string("first");
        parcel.write_string("second");
        let all = parcel.data();
        assert_eq!(Reader::new(all).strings().unwrap(), ["first", "second"]);
        for length in 0..all.len() {
            assert_eq!(Reader::new(&all[..length]).strings(), None, "{length}");
        }
        let null = (-1i32).to_le_bytes();
        assert_eq!(Reader::new(&null).string(), None);
        assert_eq!(Reader::new(&i32::MAX.to_le_bytes()).string(), None);
    }

    #[test]
    fn statuses() {
        let words = |words: &[i32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut ok = words(&[0, 7]);
        let mut reader = Reader::new(&ok);
        assert_eq!((reader.status(), reader.i32()), (Some(Ok(())), Some(7)));
        ok = words(&[-128, 8, 0, 7]);
        reader = Reader::new(&ok);
        assert_eq!((reader.status(), reader.i32()), (Some(Ok(())), Some(7)));
        let security = words(&[-1, 1, i32::from(b'x')]);
        let exception = Exception { code: -1, message: "x".into() };
        assert_eq!(Reader::new(&security).status(), Some(Err(exception)));
        assert_eq!(Reader::new(&words(&[-128, -4])).status(), None);
    }

    #[test]
    fn dumps() {
        assert_eq!(dump(b""), "Result: Parcel()\n");
        assert_eq!(dump(&[1, 0, 0, 0, b'a', 0]), "Result: Parcel(00000001 00000061 '....a.')\n");
        assert!(dump(&[0; 17]).contains("\n  0x00000010: 00000000 "));
    }
}
