//! libcore.icu.NativeConverter: decoders and encoders of charsets
//!
//! A converter takes input step by step and keeps the bytes of a character that is not complete.

use super::handles::Handles;
use super::values::{
    Outcome, VOID, boolean, byte_range, bytes, char_range, construct, non_null, rust, strings,
    text, units,
};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use std::sync::{Arc, Mutex};

const CONVERTER: &str = "Llibcore/icu/NativeConverter;";

/// A charset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Charset {
    Ascii,
    Latin1,
    Utf8,
    Utf16Big,
    Utf16Little,
    /// With a byte order mark; big-endian without one
    Utf16,
}

/// A charset's names, and the bytes that a char takes.
struct Known {
    charset: Charset,
    name: &'static str,
    aliases: &'static [&'static str],
    /// The least, the most and the average for a char
    n_bytes: (i32, i32, f32),
}

const CHARSETS: &[Known] = &[
    Known {
        charset: Charset::Utf8,
        name: "UTF-8",
        aliases: &["UTF8", "unicode-1-1-utf-8"],
        n_bytes: (1, 3, 1.1),
    },
    Known {
        charset: Charset::Ascii,
        name: "US-ASCII",
        aliases: &["ASCII", "ISO646-US", "ANSI_X3.4-1968", "646", "us", "cp367"],
        n_bytes: (1, 1, 1.0),
    },
    Known {
        charset: Charset::Latin1,
        name: "ISO-8859-1",
        aliases: &["ISO8859_1", "ISO8859-1", "latin1", "l1", "ISO_8859-1", "8859_1", "cp819"],
        n_bytes: (1, 1, 1.0),
    },
    Known {
        charset: Charset::Utf16,
        name: "UTF-16",
        aliases: &["UTF16", "UTF_16", "unicode"],
        n_bytes: (2, 4, 2.0),
    },
    Known {
        charset: Charset::Utf16Big,
        name: "UTF-16BE",
        aliases: &["UTF_16BE", "UnicodeBigUnmarked"],
        n_bytes: (2, 2, 2.0),
    },
    Known {
        charset: Charset::Utf16Little,
        name: "UTF-16LE",
        aliases: &["UTF_16LE", "UnicodeLittleUnmarked"],
        n_bytes: (2, 2, 2.0),
    },
];

/// What a converter does with input that it cannot convert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Report,
    Ignore,
    Replace,
}

#[derive(Debug)]
struct State {
    charset: Charset,
    on_malformed: Action,
    on_unmappable: Action,
    replacement_units: Vec<u16>,
    replacement_bytes: Vec<u8>,
    /// Bytes of a character that is not complete
    bytes: Vec<u8>,
    /// A high surrogate
    unit: Option<u16>,
    /// The order that a byte order mark has given, or that a mark was written
    order: Option<Charset>,
}

static CONVERTERS: Handles<Mutex<State>> = Handles::new();

const OK: i32 = 0;
const UNMAPPABLE: i32 = 10;
const TRUNCATED: i32 = 11;
const MALFORMED: i32 = 12;
const OVERFLOW: i32 = 15;

pub(super) const TABLE: &[Native] = &[
    (CONVERTER, "charsetForName", "(Ljava/lang/String;)Ljava/nio/charset/Charset;", |t, a| {
        let name = rust(t, a.reference(0))?;
        let Some(known) = named(&name) else {
            return super::values::NULL;
        };
        let canonical = text(t, known.name)?;
        let args = [canonical, canonical, strings(t, known.aliases)?].map(Value::Ref);
        let signature = "(Ljava/lang/String;Ljava/lang/String;[Ljava/lang/String;)V";
        Ok(Value::Ref(construct(t, "java/nio/charset/CharsetICU", signature, &args)?))
    }),
    (CONVERTER, "getAvailableCharsetNames", "()[Ljava/lang/String;", |t, _| {
        let names: Vec<&str> = CHARSETS.iter().map(|it| it.name).collect();
        Ok(Value::Ref(strings(t, &names)?))
    }),
    (CONVERTER, "contains", "(Ljava/lang/String;Ljava/lang/String;)Z", |t, a| {
        let (one, other) = (rust(t, a.reference(0))?, rust(t, a.reference(1))?);
        let rank = |name: &str| match named(name)?.charset {
            Charset::Ascii => Some(0),
            Charset::Latin1 => Some(1),
            _ => Some(2),
        };
        boolean(rank(&other).zip(rank(&one)).is_some_and(|(other, one)| other <= one))
    }),
    (CONVERTER, "openConverter", "(Ljava/lang/String;)J", |t, a| {
        let name = rust(t, a.reference(0))?;
        let Some(&Known { charset, .. }) = named(&name) else {
            return Err(super::values::throw(
                t,
                "java/nio/charset/UnsupportedCharsetException",
                &name,
            ));
        };
        let state = State {
            charset,
            on_malformed: Action::Report,
            on_unmappable: Action::Report,
            replacement_units: vec![0xfffd],
            replacement_bytes: substitution(charset).to_vec(),
            bytes: Vec::new(),
            unit: None,
            order: None,
        };
        Ok(Value::Long(CONVERTERS.add(Arc::new(Mutex::new(state)))))
    }),
    (CONVERTER, "closeConverter", "(J)V", |_, a| {
        CONVERTERS.remove(a.long(0));
        VOID
    }),
    (CONVERTER, "resetByteToChar", "(J)V", reset),
    (CONVERTER, "resetCharToByte", "(J)V", reset),
    (CONVERTER, "getSubstitutionBytes", "(J)[B", |t, a| {
        let charset = with(t, a, |state| state.charset)?;
        Ok(Value::Ref(bytes(t, substitution(charset))?))
    }),
    (CONVERTER, "getMaxBytesPerChar", "(J)I", |t, a| Ok(Value::Int(sizes(t, a)?.1))),
    (CONVERTER, "getMinBytesPerChar", "(J)I", |t, a| Ok(Value::Int(sizes(t, a)?.0))),
    (CONVERTER, "getAveBytesPerChar", "(J)F", |t, a| Ok(Value::Float(sizes(t, a)?.2))),
    (CONVERTER, "getAveCharsPerByte", "(J)F", |t, a| Ok(Value::Float(1.0 / sizes(t, a)?.0 as f32))),
    (CONVERTER, "setCallbackDecode", "(JIILjava/lang/String;)V", |t, a| {
        let replacement = units(t, a.reference(4))?;
        with(t, a, |state| {
            (state.on_malformed, state.on_unmappable) = (action(a.int(2)), action(a.int(3)));
            state.replacement_units = replacement;
        })?;
        VOID
    }),
    (CONVERTER, "setCallbackEncode", "(JII[B)V", |t, a| {
        let array = non_null(t, a.reference(4), "subBytes")?;
        let replacement = byte_range(t, array, 0, array.length() as i32)?;
        with(t, a, |state| {
            (state.on_malformed, state.on_unmappable) = (action(a.int(2)), action(a.int(3)));
            state.replacement_bytes = replacement;
        })?;
        VOID
    }),
    (CONVERTER, "decode", "(J[BI[CI[IZ)I", |t, a| {
        let (input, output, data) = (a.reference(2), a.reference(4), a.reference(6));
        let (from, to) = (data.get_i32(0), data.get_i32(1));
        let input = byte_range(t, input, from, a.int(3) - from)?;
        super::values::check_range(t, output, to, a.int(5) - to)?;
        let room = (a.int(5) - to) as usize;
        let flush = a.boolean(7);
        let done = with(t, a, |state| state.decode(&input, room, flush))?;
        for (index, unit) in (to as u32..).zip(&done.output) {
            output.set_u16(index, *unit);
        }
        done.tell(data)
    }),
    (CONVERTER, "encode", "(J[CI[BI[IZ)I", |t, a| {
        let (input, output, data) = (a.reference(2), a.reference(4), a.reference(6));
        let (from, to) = (data.get_i32(0), data.get_i32(1));
        let input = char_range(t, input, from, a.int(3) - from)?;
        super::values::check_range(t, output, to, a.int(5) - to)?;
        let room = (a.int(5) - to) as usize;
        let flush = a.boolean(7);
        let done = with(t, a, |state| state.encode(&input, room, flush))?;
        for (index, byte) in (to as u32..).zip(&done.output) {
            output.set_i8(index, *byte as i8);
        }
        done.tell(data)
    }),
];

fn named(name: &str) -> Option<&'static Known> {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    CHARSETS.iter().find(|known| is(known.name) || known.aliases.iter().copied().any(is))
}

fn action(number: i32) -> Action {
    match number {
        0 => Action::Report,
        1 => Action::Ignore,
        _ => Action::Replace,
    }
}

fn substitution(charset: Charset) -> &'static [u8] {
    match charset {
        Charset::Ascii | Charset::Latin1 | Charset::Utf8 => b"?",
        Charset::Utf16Big | Charset::Utf16 => &[0xff, 0xfd],
        Charset::Utf16Little => &[0xfd, 0xff],
    }
}

fn with<R>(t: &Thread, a: Args, run: impl FnOnce(&mut State) -> R) -> Result<R, Thrown> {
    match CONVERTERS.get(a.long(0)) {
        Some(converter) => Ok(run(&mut converter.lock().expect("no holder panics"))),
        None => Err(super::values::throw(t, "java/lang/IllegalStateException", "closed")),
    }
}

fn sizes(t: &Thread, a: Args) -> Result<(i32, i32, f32), Thrown> {
    let charset = with(t, a, |state| state.charset)?;
    Ok(CHARSETS.iter().find(|it| it.charset == charset).expect("a charset of the table").n_bytes)
}

fn reset(t: &Thread, a: Args) -> Outcome {
    with(t, a, |state| {
        state.bytes.clear();
        (state.unit, state.order) = (None, None);
    })?;
    VOID
}

/// The result of one call.
struct Done<T> {
    status: i32,
    consumed: usize,
    invalid: usize,
    output: Vec<T>,
}

impl<T> Done<T> {
    fn tell(&self, data: crate::object::Ref) -> Outcome {
        data.set_i32(0, self.consumed as i32);
        data.set_i32(1, self.output.len() as i32);
        data.set_i32(2, self.invalid as i32);
        Ok(Value::Int(self.status))
    }
}

/// One step of a conversion: what it takes, and what it makes of that.
enum Step<T> {
    Makes(usize, T),
    Malformed(usize),
    Unmappable(usize),
    NeedsMore,
}

impl State {
    fn decode(&mut self, input: &[u8], room: usize, flush: bool) -> Done<u16> {
        let held = self.bytes.len();
        let all = [self.bytes.as_slice(), input].concat();
        let mut done = Done { status: OK, consumed: 0, invalid: 0, output: Vec::new() };
        let mut at = 0;
        let mut buffer = [0; 2];
        while at < all.len() {
            let (taken, made) = match self.decode_step(&all[at..]) {
                Step::Makes(taken, None) => (taken, Vec::new()),
                Step::Makes(taken, Some(Ok(c))) => {
                    (taken, char::encode_utf16(c, &mut buffer).to_vec())
                }
                Step::Makes(taken, Some(Err(unit))) => (taken, vec![unit]),
                Step::NeedsMore if !flush => {
                    self.bytes = all[at..].to_vec();
                    done.consumed = input.len();
                    return done;
                }
                Step::NeedsMore if self.on_malformed == Action::Report => {
                    (done.status, done.consumed) = (TRUNCATED, all.len() - at);
                    self.bytes.clear();
                    return done;
                }
                Step::NeedsMore => (all.len() - at, self.replacement(self.on_malformed)),
                Step::Malformed(length) if self.on_malformed == Action::Report => {
                    (done.status, done.invalid) = (MALFORMED, length);
                    break;
                }
                Step::Unmappable(length) if self.on_unmappable == Action::Report => {
                    (done.status, done.invalid) = (UNMAPPABLE, length);
                    break;
                }
                Step::Malformed(length) => (length, self.replacement(self.on_malformed)),
                Step::Unmappable(length) => (length, self.replacement(self.on_unmappable)),
            };
            if done.output.len() + made.len() > room {
                done.status = OVERFLOW;
                break;
            }
            done.output.extend(made);
            at += taken;
        }
        // Bytes of an earlier call stay held if nothing was made of them.
        self.bytes = if at < held { all[at..held].to_vec() } else { Vec::new() };
        done.consumed = at.saturating_sub(held);
        done
    }

    fn replacement(&self, action: Action) -> Vec<u16> {
        if action == Action::Replace { self.replacement_units.clone() } else { Vec::new() }
    }

    /// A character, or a surrogate that stays alone; nothing for a byte order mark.
    fn decode_step(&mut self, bytes: &[u8]) -> Step<Option<Result<char, u16>>> {
        let first = bytes[0];
        match self.charset {
            Charset::Ascii if first >= 0x80 => Step::Malformed(1),
            Charset::Ascii | Charset::Latin1 => Step::Makes(1, Some(Ok(char::from(first)))),
            Charset::Utf8 => {
                let head = &bytes[..bytes.len().min(4)];
                let valid = match std::str::from_utf8(head) {
                    Ok(_) => head.len(),
                    Err(error) if error.valid_up_to() > 0 => error.valid_up_to(),
                    Err(error) => {
                        return error.error_len().map_or(Step::NeedsMore, Step::Malformed);
                    }
                };
                let text = std::str::from_utf8(&head[..valid]).expect("the valid part");
                let c = text.chars().next().expect("not empty");
                Step::Makes(c.len_utf8(), Some(Ok(c)))
            }
            Charset::Utf16 | Charset::Utf16Big | Charset::Utf16Little => self.utf16_step(bytes),
        }
    }

    fn utf16_step(&mut self, bytes: &[u8]) -> Step<Option<Result<char, u16>>> {
        let Some(first) = bytes.first_chunk::<2>() else { return Step::NeedsMore };
        if self.charset == Charset::Utf16 && self.order.is_none() {
            let (order, is_mark) = match first {
                [0xfe, 0xff] => (Charset::Utf16Big, true),
                [0xff, 0xfe] => (Charset::Utf16Little, true),
                _ => (Charset::Utf16Big, false),
            };
            self.order = Some(order);
            if is_mark {
                return Step::Makes(2, None);
            }
        }
        let little = self.order.unwrap_or(self.charset) == Charset::Utf16Little;
        let unit = |pair: [u8; 2]| {
            if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) }
        };
        match unit(*first) {
            high @ 0xd800..=0xdbff => {
                let Some(&[c, d]) = bytes.get(2..4) else { return Step::NeedsMore };
                match char::decode_utf16([high, unit([c, d])]).next() {
                    Some(Ok(c)) => Step::Makes(4, Some(Ok(c))),
                    _ => Step::Malformed(2),
                }
            }
            0xdc00..=0xdfff => Step::Malformed(2),
            unit => Step::Makes(2, Some(Ok(char::from_u32(unit.into()).expect("no surrogate")))),
        }
    }

    fn encode(&mut self, input: &[u16], room: usize, flush: bool) -> Done<u8> {
        let held = usize::from(self.unit.is_some());
        let all: Vec<u16> = self.unit.into_iter().chain(input.iter().copied()).collect();
        let mut done = Done { status: OK, consumed: 0, invalid: 0, output: Vec::new() };
        let mut at = 0;
        while at < all.len() {
            let replacement = |action| {
                if action == Action::Replace { self.replacement_bytes.clone() } else { Vec::new() }
            };
            let (taken, made) = match self.encode_step(&all[at..], flush) {
                Step::Makes(taken, made) => (taken, made),
                Step::NeedsMore => {
                    self.unit = Some(all[at]);
                    done.consumed = input.len();
                    return done;
                }
                Step::Malformed(length) if self.on_malformed == Action::Report => {
                    // The Java half goes back over what is invalid.
                    (done.status, done.invalid) = (MALFORMED, length);
                    at += length;
                    break;
                }
                Step::Unmappable(length) if self.on_unmappable == Action::Report => {
                    (done.status, done.invalid) = (UNMAPPABLE, length);
                    at += length;
                    break;
                }
                Step::Malformed(length) => (length, replacement(self.on_malformed)),
                Step::Unmappable(length) => (length, replacement(self.on_unmappable)),
            };
            let mark = self.charset == Charset::Utf16 && self.order.is_none();
            let marked: &[u8] = if mark { &[0xfe, 0xff] } else { &[] };
            if done.output.len() + marked.len() + made.len() > room {
                done.status = OVERFLOW;
                break;
            }
            if mark {
                self.order = Some(Charset::Utf16Big);
            }
            done.output.extend_from_slice(marked);
            done.output.extend(made);
            at += taken;
        }
        self.unit = if at < held { Some(all[0]) } else { None };
        done.consumed = at.saturating_sub(held);
        done
    }

    fn encode_step(&self, units: &[u16], flush: bool) -> Step<Vec<u8>> {
        let is_high = (0xd800..=0xdbff).contains(&units[0]);
        if is_high && units.len() == 1 && !flush {
            return Step::NeedsMore;
        }
        let pair = units[..units.len().min(2)].iter().copied();
        let Some(Ok(c)) = char::decode_utf16(pair).next() else { return Step::Malformed(1) };
        let taken = c.len_utf16();
        let most = match self.charset {
            Charset::Ascii => 0x7f,
            Charset::Latin1 => 0xff,
            _ => u32::MAX,
        };
        if c as u32 > most {
            return Step::Unmappable(taken);
        }
        let own = units[..taken].iter();
        Step::Makes(
            taken,
            match self.charset {
                Charset::Ascii | Charset::Latin1 => vec![c as u8],
                Charset::Utf8 => c.encode_utf8(&mut [0; 4]).as_bytes().to_vec(),
                Charset::Utf16Little => own.flat_map(|unit| unit.to_le_bytes()).collect(),
                Charset::Utf16 | Charset::Utf16Big => own.flat_map(|it| it.to_be_bytes()).collect(),
            },
        )
    }
}
