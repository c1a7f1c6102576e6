//! Android's parcel format, as far as services without AIDL and the tools that call them need it.
//!
//! Every value takes a multiple of four bytes. A string is UTF-16, with its length before it and a
//! zero after it; some values have strings in UTF-8, in the same form. A request begins with the
//! caller's strict-mode policy and work source, a mark, and the interface descriptor, which the
//! receiver checks. An AIDL reply begins with a status.

use crate::Parcel;
use baton_abi::uapi::{BINDER_TYPE_BINDER, FlatObject};
use std::borrow::Cow;

/// The strict-mode policy that `Parcel::writeInterfaceToken` writes: gather violations, of no
/// policy.
const STRICT_MODE: i32 = i32::MIN;
/// The work source of a caller that works for itself.
const NO_WORK_SOURCE: i32 = -1;
/// Statuses before which there is a header: of strict mode, where a success follows, and of noted
/// operations, where another status follows.
const HAS_REPLY_HEADER: i32 = -128;
const HAS_NOTED_OPERATIONS_HEADER: i32 = -127;
/// An exception that has a number of its service's.
const SERVICE_SPECIFIC: i32 = -8;
/// The highest code of an interface's method. Beyond it are transactions of every object, such as
/// `_DMP` and the shell command `_CMD`, which have no token. A caller takes any reply for success,
/// so an object lets a transaction fail that it does not know.
pub const LAST_CALL: u32 = 0x00ff_ffff;
/// The stability that follows a null object.
const NO_STABILITY: i32 = 0;
/// The stability that follows an object of the system, which callers of the same version of the
/// system may pass on.
pub const SYSTEM_STABILITY: i32 = 0b00_1100;

/// The mark in the beginning of a request. Each build of AOSP's libbinder writes one mark, and
/// takes no request with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Android's system. rsbinder and libgbinder write it as well.
    #[default]
    System,
    /// Android's vendor processes.
    Vendor,
    /// Android's recovery.
    Recovery,
    /// A system that is not Android: libbinder as built for a Linux host.
    Unknown,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Mark; 4] = [Mark::System, Mark::Vendor, Mark::Recovery, Mark::Unknown];

    /// The mark that this word of a request is.
    pub fn of(word: i32) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| mark.word() == word)
    }

    /// The word of a request.
    pub fn word(self) -> i32 {
        i32::from_be_bytes(match self {
            Mark::System => *b"SYST",
            Mark::Vendor => *b"VNDR",
            Mark::Recovery => *b"RECO",
            Mark::Unknown => *b"UNKN",
        })
    }
}

/// What this format writes, on a [`Parcel`].
pub trait Write {
    /// Writes the beginning of a request, with the system's mark: see the module.
    fn write_token(&mut self, descriptor: &str) {
        self.write_marked_token(Mark::System, descriptor);
    }
    /// Writes the beginning of a request.
    fn write_marked_token(&mut self, mark: Mark, descriptor: &str);
    /// Writes an `i32`.
    fn write_i32(&mut self, value: i32);
    /// Writes a string.
    fn write_string(&mut self, text: &str);
    /// Writes a null string, of either kind.
    fn write_null_string(&mut self);
    /// Writes a string in UTF-8 (`writeString8` of Android 11 and later).
    fn write_string8(&mut self, text: &str);
    /// Writes a string in UTF-8 that may be null.
    fn write_nullable_string8(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.write_string8(text),
            None => self.write_null_string(),
        }
    }
    /// Writes the length of an array of bytes, and the bytes packed.
    fn write_bytes(&mut self, bytes: &[u8]);
    /// Writes the size of a part, itself included, before the part. After an error the parcel is of
    /// no use.
    fn write_sized<E>(&mut self, part: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E>;
    /// Writes a null object without a stability, as up to Android 10.
    fn write_unstable_null_object(&mut self);
    /// Writes a null object.
    fn write_null_object(&mut self);
    /// Writes an AIDL status that is an exception (`EX_*`), without a stack trace.
    fn write_exception(&mut self, code: i32, message: &str);
}

impl Write for Parcel {
    fn write_marked_token(&mut self, mark: Mark, descriptor: &str) {
        for value in [STRICT_MODE, NO_WORK_SOURCE, mark.word()] {
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

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.write_i32(bytes.len() as i32);
        self.write(bytes);
        self.write(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn write_sized<E>(&mut self, part: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let at = self.data.len();
        self.write_i32(0);
        part(self)?;
        let bytes = (self.data.len() - at) as i32;
        self.data[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        Ok(())
    }

    fn write_null_string(&mut self) {
        self.write_i32(-1);
    }

    fn write_string8(&mut self, text: &str) {
        self.write_i32(text.len() as i32);
        self.write(text.as_bytes());
        self.write(&[0; 4][..(text.len() + 1).next_multiple_of(4) - text.len()]);
    }

    fn write_unstable_null_object(&mut self) {
        // Bytes, and not an object of the parcel: the driver has nothing to translate.
        let none = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0, binder: 0, cookie: 0 };
        for half in [none.kind, none.flags, 0, 0, 0, 0] {
            self.write(&half.to_le_bytes());
        }
    }

    fn write_null_object(&mut self) {
        self.write_unstable_null_object();
        self.write_i32(NO_STABILITY);
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
    /// The service's own number, of EX_SERVICE_SPECIFIC.
    pub service_specific: Option<i32>,
}

impl Exception {
    /// The constant's name.
    pub fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self.code {
            -1 => "EX_SECURITY",
            -2 => "EX_BAD_PARCELABLE",
            -3 => "EX_ILLEGAL_ARGUMENT",
            -4 => "EX_NULL_POINTER",
            -5 => "EX_ILLEGAL_STATE",
            -6 => "EX_NETWORK_MAIN_THREAD",
            -7 => "EX_UNSUPPORTED_OPERATION",
            SERVICE_SPECIFIC => "EX_SERVICE_SPECIFIC",
            -9 => "EX_PARCELABLE",
            -129 => "EX_TRANSACTION_FAILED",
            code => return Cow::Owned(format!("exception {code}")),
        })
    }
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

    /// Reads the beginning of a request, of whatever mark, and returns its interface descriptor.
    pub fn token(&mut self) -> Option<String> {
        self.marked_token().map(|(_, descriptor)| descriptor)
    }

    /// Reads the beginning of a request.
    pub fn marked_token(&mut self) -> Option<(Mark, String)> {
        let [_policy, _work_source, word] = [self.i32()?, self.i32()?, self.i32()?];
        Some((Mark::of(word)?, self.string()?))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the bytes of a number, of which four or eight are one.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("as many bytes"))
    }

    /// Reads an `i32`.
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    /// Reads packed bytes, behind their length.
    pub fn packed(&mut self, length: usize) -> Option<&'a [u8]> {
        self.take(length.checked_next_multiple_of(4)?).map(|bytes| &bytes[..length])
    }

    /// Reads a part that has its size before it, itself included.
    pub fn sized(&mut self) -> Option<Reader<'a>> {
        let bytes = usize::try_from(self.i32()?).ok()?.checked_sub(4)?;
        self.take(bytes).map(Reader::new)
    }

    /// Reads an object or a descriptor, without a stability. False if it is null.
    pub fn object(&mut self) -> Option<bool> {
        let object: FlatObject = bytemuck::pod_read_unaligned(self.take(size_of::<FlatObject>())?);
        Some(object.kind != BINDER_TYPE_BINDER || object.binder != 0)
    }

    /// Reads a string. `None` also if it is null.
    pub fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    /// Reads a string that may be null.
    pub fn nullable_string(&mut self) -> Option<Option<String>> {
        let length = self.i32()?;
        if length == -1 {
            return Some(None);
        }
        let length = usize::try_from(length).ok()?;
        let bytes = self.take((length.checked_add(1)?.checked_mul(2)?).next_multiple_of(4))?;
        let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let letters = char::decode_utf16(units.take(length));
        Some(Some(letters.map(|letter| letter.unwrap_or('\u{fffd}')).collect()))
    }

    /// Reads a string in UTF-8 that may be null. U+FFFD stands for what is no UTF-8.
    pub fn nullable_string8(&mut self) -> Option<Option<String>> {
        let length = self.i32()?;
        if length == -1 {
            return Some(None);
        }
        let length = usize::try_from(length).ok()?;
        let bytes = self.packed(length.checked_add(1)?)?;
        Some(Some(String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    /// Reads a vector of strings.
    pub fn strings(&mut self) -> Option<Vec<String>> {
        let count = self.i32()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// Reads an AIDL status.
    pub fn status(&mut self) -> Option<Result<(), Exception>> {
        let mut code = self.i32()?;
        if code == HAS_NOTED_OPERATIONS_HEADER {
            self.sized()?;
            code = self.i32()?;
        }
        match code {
            0 => Some(Ok(())),
            HAS_REPLY_HEADER => self.sized().map(|_| Ok(())),
            code => Some(Err(self.exception(code))),
        }
    }

    /// Reads what follows an exception's code. A service that ends its reply early has no more to
    /// say.
    fn exception(&mut self, code: i32) -> Exception {
        let message = self.string().unwrap_or_default();
        let stack_bytes = self.clone().i32().unwrap_or_default();
        let stack = if stack_bytes == 0 { self.i32().map(drop) } else { self.sized().map(drop) };
        let number = stack.filter(|()| code == SERVICE_SPECIFIC).and_then(|()| self.i32());
        Exception { code, message, service_specific: number }
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
    fn strings_in_utf8_have_a_terminator_and_padding() {
        for (text, bytes) in [
            ("", &[0, 0, 0, 0, 0, 0, 0, 0][..]),
            ("a", &[1, 0, 0, 0, b'a', 0, 0, 0]),
            ("abcd", &[4, 0, 0, 0, b'a', b'b', b'c', b'd', 0, 0, 0, 0]),
            ("\u{e4}", &[2, 0, 0, 0, 0xc3, 0xa4, 0, 0]),
        ] {
            let mut parcel = Parcel::new();
            parcel.write_string8(text);
            assert_eq!(parcel.data(), bytes, "{text:?}");
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.nullable_string8(), Some(Some(text.to_owned())));
            assert!(reader.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Reader::new(&bytes[..length]).nullable_string8(), None, "{length}");
            }
        }
        assert_eq!(Reader::new(&(-1i32).to_le_bytes()).nullable_string8(), Some(None));
        for length in [-2i32, i32::MAX] {
            assert_eq!(Reader::new(&length.to_le_bytes()).nullable_string8(), None);
        }
        let no_utf8 = [1, 0, 0, 0, 0xff, 0, 0, 0];
        assert_eq!(Reader::new(&no_utf8).nullable_string8(), Some(Some("\u{fffd}".to_owned())));
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
    fn tokens_have_marks() {
        for mark in Mark::ALL {
            let mut parcel = Parcel::new();
            parcel.write_marked_token(mark, "a.IThing");
            let token = Reader::new(parcel.data()).marked_token();
            assert_eq!(token, Some((mark, "a.IThing".to_owned())));
            assert_eq!(Reader::new(parcel.data()).token().as_deref(), Some("a.IThing"));
            for length in 0..parcel.data().len() {
                assert_eq!(Reader::new(&parcel.data()[..length]).marked_token(), None, "{length}");
            }
            let mut unmarked = parcel.data().to_vec();
            unmarked[8] ^= 0x80;
            assert_eq!(Reader::new(&unmarked).marked_token(), None);
        }
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
        let exception = |code, service_specific| {
            Some(Err(Exception { code, message: "x".into(), service_specific }))
        };
        assert_eq!(Reader::new(&security).status(), exception(-1, None));
        assert_eq!(Reader::new(&words(&[-128, -4])).status(), None);
        // A noted operation before it; a stack of no bytes, and of four.
        for specific in [&[-127, 8, 0, -8, 1, 120, 0, 42][..], &[-8, 1, 120, 8, 1, 42]] {
            assert_eq!(Reader::new(&words(specific)).status(), exception(-8, Some(42)));
        }
        ok = words(&[-127, 4, 0, 7]);
        reader = Reader::new(&ok);
        assert_eq!((reader.status(), reader.i32()), (Some(Ok(())), Some(7)));
    }

    #[test]
    fn parts_have_their_sizes() {
        let mut parcel = Parcel::new();
        let part = |parcel: &mut Parcel| {
            parcel.write_bytes(b"hello");
            Ok::<_, ()>(())
        };
        parcel.write_sized(part).unwrap();
        parcel.write_unstable_null_object();
        assert_eq!(parcel.data()[..12], [16, 0, 0, 0, 5, 0, 0, 0, b'h', b'e', b'l', b'l']);
        let mut reader = Reader::new(parcel.data());
        let mut inner = reader.sized().unwrap();
        assert_eq!(
            inner.i32().and_then(|length| inner.packed(length as usize)),
            Some(&b"hello"[..])
        );
        assert!(inner.is_empty() && !reader.is_empty());
        assert_eq!((reader.object(), reader.is_empty()), (Some(false), true));
        for bytes in [3i32, 5, -1, i32::MIN] {
            assert!(Reader::new(&bytes.to_le_bytes()).sized().is_none(), "{bytes}");
        }
        assert_eq!(Reader::new(&[0; 8]).packed(usize::MAX), None);
    }

    #[test]
    fn dumps() {
        assert_eq!(dump(b""), "Result: Parcel()\n");
        assert_eq!(dump(&[1, 0, 0, 0, b'a', 0]), "Result: Parcel(00000001 00000061 '....a.')\n");
        assert!(dump(&[0; 17]).contains("\n  0x00000010: 00000000 "));
    }
}
