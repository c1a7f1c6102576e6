//! Reads the values of a binary event, one element after the other.
//!
//! Each list begins with an element of its own, and ends with a stop. At the end of the payload
//! comes one more stop, and then complete unknown elements. A broken value is an unknown element.

use baton_logcat::event::{Value, Values};
use std::ffi::c_char;

/// Bytes of a payload, at most.
pub(crate) const MAX_BYTES: usize = ring_log::MAX_PAYLOAD_BYTES - size_of::<i32>();
/// `ANDROID_MAX_LIST_NEST_DEPTH`: lists within the outer one.
pub(crate) const MAX_DEPTH: usize = 8;

const INT: u32 = 0;
const LONG: u32 = 1;
const STRING: u32 = 2;
const LIST: u32 = 3;
const FLOAT: u32 = 4;
/// `EVENT_TYPE_LIST_STOP`
pub(crate) const STOP: u32 = b'\n' as u32;
/// `EVENT_TYPE_UNKNOWN`
pub(crate) const UNKNOWN: u32 = b'?' as u32;

/// `android_log_list_element`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Element {
    kind: u32,
    complete: u16,
    n_bytes: u16,
    data: Data,
}

/// The value of an element.
#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    int: i32,
    long: i64,
    string: *const c_char,
    float: f32,
}

impl Element {
    pub(crate) fn new(kind: u32, complete: bool) -> Element {
        Element { kind, complete: complete.into(), n_bytes: 0, data: Data { long: 0 } }
    }
}

/// A payload that is being read.
#[derive(Clone, Debug)]
pub struct Parser {
    /// Never moves, as elements point to its strings.
    payload: Box<[u8]>,
    at: Position,
}

/// The position in a payload.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    read: usize,
    depth: usize,
    /// The values that each open list still has, the payload itself first.
    left: [u32; MAX_DEPTH + 1],
    /// The innermost list is at its end.
    stops: bool,
}

impl Position {
    /// Counts a value of the innermost list.
    fn count(&mut self) {
        let left = &mut self.left[self.depth];
        *left = left.saturating_sub(1);
        self.stops |= *left == 0;
    }

    fn is_last(&self) -> bool {
        self.depth == 0 && self.left[0] == 0
    }

    /// Leaves the innermost list.
    fn stop(&mut self, next: Option<u8>) {
        // Some writers also end lists with a newline.
        self.read += usize::from(next == Some(b'\n'));
        self.stops = self.depth > 0;
        if self.depth > 0 {
            self.depth -= 1;
            self.stops = self.left[self.depth] == 0;
        }
    }
}

impl Parser {
    pub(crate) fn new(payload: &[u8]) -> Parser {
        let payload = payload[..payload.len().min(MAX_BYTES)].into();
        Parser { payload, at: Position::default() }
    }

    /// The next element, without reading it.
    pub(crate) fn peek(&self) -> Element {
        self.next().0
    }

    /// Reads the next element.
    pub(crate) fn read(&mut self) -> Element {
        let (element, at) = self.next();
        self.at = at;
        element
    }

    /// The next element, and the position after it.
    fn next(&self) -> (Element, Position) {
        let mut at = self.at;
        if at.depth > MAX_DEPTH {
            return (Element::new(UNKNOWN, true), at);
        }
        let next = self.payload.get(at.read).copied();
        if at.stops {
            let outer = at.depth == 0 || (at.depth == 1 && at.left[1] == 0);
            let complete = at.left[0] == 0 && outer;
            at.stop(next);
            return (Element::new(STOP, complete), at);
        }
        match next {
            None => (Element::new(UNKNOWN, true), at),
            Some(b'\n') => {
                at.read += 1;
                let kind = if at.depth > 0 { STOP } else { UNKNOWN };
                let element = Element::new(kind, at.depth == 0);
                at.depth = at.depth.saturating_sub(1);
                (element, at)
            }
            Some(_) => self.value(at),
        }
    }

    /// The element for a value that the payload's end has cut, as Android's liblog returns it.
    fn broken(&self) -> Element {
        let cut = u32::from(self.payload[self.at.read]);
        let n_bytes = match cut {
            INT | FLOAT => 4,
            LONG => 8,
            _ => 0,
        };
        Element { n_bytes, ..Element::new(UNKNOWN, [STRING, LIST].contains(&cut)) }
    }

    fn value(&self, mut at: Position) -> (Element, Position) {
        let before = at;
        let mut values = Values::new(&self.payload[at.read..]);
        let Ok((value, _)) = values.read() else { return (self.broken(), before) };
        at.read = self.payload.len() - values.rest().len();
        let mut element = Element::new(kind(&value), at.is_last());
        match value {
            Value::Int(int) => (element.n_bytes, element.data.int) = (4, int),
            Value::Float(float) => (element.n_bytes, element.data.float) = (4, float),
            Value::Long(long) => (element.n_bytes, element.data.long) = (8, long),
            Value::String(string) => {
                let said = u32::from_le_bytes(
                    self.payload[before.read + 1..][..4].try_into().expect("four bytes"),
                );
                if said >= u32::from(u16::MAX) || (string.is_empty() && said > 0) {
                    return (Element::new(UNKNOWN, said < u32::from(u16::MAX)), before);
                }
                element.n_bytes = string.len() as u16;
                element.data.string = string.as_ptr().cast();
            }
            Value::List(count) => {
                element.complete = (at.depth >= MAX_DEPTH).into();
                at.left[at.depth] = at.left[at.depth].saturating_sub(1);
                at.depth += 1;
                at.stops = count == 0;
                if let Some(left) = at.left.get_mut(at.depth) {
                    *left = count.max(0).unsigned_abs().into();
                }
                return (element, at);
            }
        }
        at.count();
        (element, at)
    }
}

fn kind(value: &Value<'_>) -> u32 {
    match value {
        Value::Int(_) => INT,
        Value::Long(_) => LONG,
        Value::String(_) => STRING,
        Value::List(_) => LIST,
        Value::Float(_) => FLOAT,
    }
}
