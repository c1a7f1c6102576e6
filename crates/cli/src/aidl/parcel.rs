//! Values in a parcel, as AIDL's backends write and read them.
//!
//! | type | bytes |
//! |---|---|
//! | boolean, byte, char, int, float | four |
//! | long, double | eight |
//! | String | `android::Write::write_string`; null is a length of -1 |
//! | array, List | the number of elements, -1 for null, and the elements; bytes are packed |
//! | parcelable | 1, the size in bytes with itself, the fields; null is 0 |
//! | union | 1, the member's place, the member; null is 0 |
//! | object | a flat object, and since Android 11 its stability |
//! | file | 1, 0 for no second socket, a flat object; null is 0 |
//!
//! Source: `Parcel.cpp` and the C++ and Rust backends of `aidl`, Android 11 to 16.

use super::error::AidlError;
use super::interface::{Declared, Sources, Type, Typed};
use super::syntax::{Body, Field};
use super::value::{mismatch, real, short_real, to_real, to_unit, unit};
use baton::android::{Reader, SYSTEM_STABILITY, Write};
use baton::{Handle, Parcel, Received};
use rustix::fd::AsRawFd;
use serde_json::{Map, Value as Json};
use std::fs::File;

/// A marker before a value that may be null, or is a parcelable.
const PRESENT: i32 = 1;
const ABSENT: i32 = 0;
/// Parcelables within each other that a reply may have.
const DEEPEST_REPLY: usize = 100;

/// Writes values to a parcel.
pub struct Writer<'a> {
    pub sources: &'a Sources,
    /// Whether an object's stability follows it.
    pub has_stability: bool,
    /// Looks a service up.
    pub service: &'a dyn Fn(&str) -> Option<Handle>,
}

impl Writer<'_> {
    /// Writes a value. Nothing is to be sent if it is none of the type.
    pub fn write(&self, parcel: &mut Parcel, typed: &Typed, json: &Json) -> Result<(), AidlError> {
        let wrong = || mismatch(self.sources, typed, json);
        let integer = |least: i64, most: i64| {
            json.as_i64().filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
        };
        if json.is_null() && typed.nullable {
            match &typed.kind {
                Type::String => parcel.write_null_string(),
                Type::Array(..) => parcel.write_i32(-1),
                Type::Object(_) => self.write_object(parcel, None),
                _ => parcel.write_i32(ABSENT),
            }
            return Ok(());
        }
        match &typed.kind {
            Type::Boolean => parcel.write_i32(json.as_bool().ok_or_else(wrong)?.into()),
            Type::Byte => parcel.write_i32(integer(i8::MIN.into(), i8::MAX.into())? as i32),
            Type::Char => parcel.write_i32(to_unit(json).ok_or_else(wrong)?.into()),
            Type::Int => parcel.write_i32(integer(i32::MIN.into(), i32::MAX.into())? as i32),
            Type::Long => _ = parcel.write(&json.as_i64().ok_or_else(wrong)?.to_le_bytes()),
            Type::Float => {
                let number = to_real(json).ok_or_else(wrong)?;
                if number.is_finite() && (number as f32).is_infinite() {
                    return Err(wrong());
                }
                parcel.write(&(number as f32).to_le_bytes());
            }
            Type::Double => _ = parcel.write(&to_real(json).ok_or_else(wrong)?.to_le_bytes()),
            Type::String => parcel.write_string(json.as_str().ok_or_else(wrong)?),
            Type::Object(_) => match json {
                // Only the service knows whether it takes none.
                Json::Null => self.write_object(parcel, None),
                Json::String(name) => {
                    let service = (self.service)(name);
                    let absent = || mismatch(self.sources, typed, format!("no service {name:?}"));
                    self.write_object(parcel, Some(&service.ok_or_else(absent)?));
                }
                _ => return Err(wrong()),
            },
            Type::File => {
                let path = json.as_str().ok_or_else(wrong)?;
                let unread = |error| mismatch(self.sources, typed, format!("{path}: {error}"));
                let file = File::open(path).map_err(unread)?;
                parcel.write_i32(PRESENT);
                parcel.write_i32(ABSENT);
                parcel.write_owned_fd(file.into());
            }
            Type::Enumeration(declared) => {
                let (backing, values) = self.sources.enumeration(declared)?;
                let number = match json.as_str() {
                    Some(name) => {
                        let name = name.rsplit('.').next().unwrap_or(name);
                        let value = values.iter().find(|(known, _)| known == name);
                        value.ok_or_else(wrong)?.1
                    }
                    None => json.as_i64().ok_or_else(wrong)?,
                };
                self.write(parcel, &plain(backing), &number.into()).map_err(|_| wrong())?;
            }
            Type::Array(element, length) => {
                let values = json.as_array().ok_or_else(wrong)?;
                if length.is_some_and(|length| length != values.len()) {
                    let found = format!("{} elements", values.len());
                    return Err(mismatch(self.sources, typed, found));
                }
                self.write_elements(parcel, element, values)?;
            }
            Type::Parcelable(declared) => {
                let Body::Parcelable(fields) = &declared.body else { return Err(wrong()) };
                let given = json.as_object().ok_or_else(wrong)?;
                if let Some(unknown) =
                    given.keys().find(|key| !fields.iter().any(|f| f.name == **key))
                {
                    let found = format!("the member {unknown:?}");
                    return Err(mismatch(self.sources, typed, found));
                }
                parcel.write_i32(PRESENT);
                parcel.write_sized(|parcel| self.write_fields(parcel, declared, fields, given))?;
            }
            Type::Union(declared) => {
                let Body::Union(members) = &declared.body else { return Err(wrong()) };
                let given = json.as_object().filter(|given| given.len() == 1).ok_or_else(wrong)?;
                let (name, value) = given.iter().next().ok_or_else(wrong)?;
                let place = members.iter().position(|member| member.name == *name);
                let place = place.ok_or_else(wrong)?;
                let member = self.sources.resolve(declared, &members[place].of_type)?;
                parcel.write_i32(PRESENT);
                parcel.write_i32(place as i32);
                let within = |error: AidlError| error.within(&format!(".{name}"));
                self.write(parcel, &member, value).map_err(within)?;
            }
        }
        Ok(())
    }

    /// The number of elements, and the elements.
    fn write_elements(
        &self,
        parcel: &mut Parcel,
        element: &Typed,
        values: &[Json],
    ) -> Result<(), AidlError> {
        let within = |place: usize| move |error: AidlError| error.within(&format!("[{place}]"));
        if is_byte(self.sources, &element.kind)? {
            let mut bytes = Vec::with_capacity(values.len());
            for (place, value) in values.iter().enumerate() {
                bytes.push(self.byte(element, value).map_err(within(place))?);
            }
            parcel.write_bytes(&bytes);
            return Ok(());
        }
        parcel.write_i32(values.len() as i32);
        for (place, value) in values.iter().enumerate() {
            self.write(parcel, element, value).map_err(within(place))?;
        }
        Ok(())
    }

    /// A byte of an array. Backends differ in whether it has a sign.
    fn byte(&self, element: &Typed, value: &Json) -> Result<u8, AidlError> {
        if let (Type::Byte, Some(byte)) = (&element.kind, value.as_u64())
            && let Ok(byte) = u8::try_from(byte)
        {
            return Ok(byte);
        }
        let mut alone = Parcel::new();
        self.write(&mut alone, element, value)?;
        Ok(alone.data()[0])
    }

    fn write_fields(
        &self,
        parcel: &mut Parcel,
        declared: &Declared,
        fields: &[Field],
        given: &Map<String, Json>,
    ) -> Result<(), AidlError> {
        for field in fields {
            let typed = self.sources.resolve(declared, &field.of_type)?;
            let value = match (given.get(&field.name), &field.default) {
                (Some(value), _) => value.clone(),
                (None, Some(default)) => self.sources.evaluate(declared, default)?,
                (None, None) if typed.nullable => Json::Null,
                (None, None) => Err(mismatch(self.sources, &typed, "nothing"))
                    .map_err(|error| error.within(&format!(".{}", field.name)))?,
            };
            let within = |error: AidlError| error.within(&format!(".{}", field.name));
            self.write(parcel, &typed, &value).map_err(within)?;
        }
        Ok(())
    }

    fn write_object(&self, parcel: &mut Parcel, object: Option<&Handle>) {
        match (object, self.has_stability) {
            (None, true) => parcel.write_null_object(),
            (None, false) => parcel.write_unstable_null_object(),
            (Some(handle), false) => _ = parcel.write_handle(handle),
            (Some(handle), true) => {
                parcel.write_handle(handle).write_i32(SYSTEM_STABILITY);
            }
        }
    }
}

/// Reads values from a reply.
pub struct Replied<'a> {
    pub sources: &'a Sources,
    pub reader: Reader<'a>,
    received: &'a Received<'a>,
    has_stability: bool,
    interface: &'a dyn Fn(&Handle) -> Option<String>,
    /// Objects and files that have been read.
    n_objects: usize,
}

impl<'a> Replied<'a> {
    /// A reply behind its status, where `reader` stands. `interface` tells an object's descriptor.
    pub fn new(
        sources: &'a Sources,
        reader: Reader<'a>,
        received: &'a Received<'a>,
        has_stability: bool,
        interface: &'a dyn Fn(&Handle) -> Option<String>,
    ) -> Replied<'a> {
        Replied { sources, reader, received, has_stability, interface, n_objects: 0 }
    }

    /// Reads a value.
    pub fn read(&mut self, typed: &Typed) -> Result<Json, AidlError> {
        self.read_at(typed, DEEPEST_REPLY)
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), AidlError> {
        if self.reader.is_empty() { Ok(()) } else { Err(garbled("goes on behind its last value")) }
    }

    fn read_at(&mut self, typed: &Typed, left: usize) -> Result<Json, AidlError> {
        let left = left.checked_sub(1).ok_or_else(|| garbled("is nested too deeply"))?;
        let reader = &mut self.reader;
        Ok(match &typed.kind {
            Type::Boolean => Json::from(reader.i32().ok_or_else(ends)? != 0),
            Type::Byte => Json::from(reader.i32().ok_or_else(ends)? as i8),
            Type::Char => unit(reader.i32().ok_or_else(ends)? as u16),
            Type::Int => Json::from(reader.i32().ok_or_else(ends)?),
            Type::Long => Json::from(i64::from_le_bytes(reader.array().ok_or_else(ends)?)),
            Type::Float => short_real(f32::from_le_bytes(reader.array().ok_or_else(ends)?)),
            Type::Double => real(f64::from_le_bytes(reader.array().ok_or_else(ends)?)),
            Type::String => match reader.nullable_string().ok_or_else(ends)? {
                Some(text) => Json::from(text),
                None => null(typed)?,
            },
            Type::Enumeration(declared) => {
                let (backing, values) = self.sources.enumeration(declared)?;
                let number = self.read_at(&plain(backing), left)?;
                named(&values, number)
            }
            Type::Object(_) => self.object(typed)?,
            Type::File => self.file(typed)?,
            Type::Array(element, length) => {
                let values = self.elements(element, left)?;
                match (values, length) {
                    (None, _) => null(typed)?,
                    (Some(values), Some(length)) if values.len() != *length => {
                        return Err(garbled("has another number of elements"));
                    }
                    (Some(values), _) => Json::Array(values),
                }
            }
            Type::Parcelable(declared) => match self.present(typed)? {
                true => self.fields(declared, left)?,
                false => Json::Null,
            },
            Type::Union(declared) => match self.present(typed)? {
                true => self.member(declared, left)?,
                false => Json::Null,
            },
        })
    }

    /// Whether a value follows. A null is an error unless it may be one.
    fn present(&mut self, typed: &Typed) -> Result<bool, AidlError> {
        match self.reader.i32().ok_or_else(ends)? {
            PRESENT => Ok(true),
            ABSENT => null(typed).map(|_| false),
            _ => Err(garbled("has a marker that is neither 0 nor 1")),
        }
    }

    fn elements(&mut self, element: &Typed, left: usize) -> Result<Option<Vec<Json>>, AidlError> {
        let n_elements = self.reader.i32().ok_or_else(ends)?;
        let Ok(n_elements) = usize::try_from(n_elements) else { return Ok(None) };
        if is_byte(self.sources, &element.kind)? {
            let bytes = self.reader.packed(n_elements).ok_or_else(ends)?;
            let Type::Enumeration(declared) = &element.kind else {
                return Ok(Some(bytes.iter().map(|byte| Json::from(*byte)).collect()));
            };
            let (_, values) = self.sources.enumeration(declared)?;
            return Ok(Some(bytes.iter().map(|b| named(&values, (*b as i8).into())).collect()));
        }
        // Each element has bytes, so the loop ends with the reply.
        let mut values = Vec::new();
        for place in 0..n_elements {
            let within = |error: AidlError| error.within(&format!("[{place}]"));
            values.push(self.read_at(element, left).map_err(within)?);
        }
        Ok(Some(values))
    }

    fn fields(&mut self, declared: &Declared, left: usize) -> Result<Json, AidlError> {
        let Body::Parcelable(fields) = &declared.body else { return Ok(Json::Null) };
        // A writer of another version may know more fields or fewer.
        let inner = self.reader.sized().ok_or_else(ends)?;
        let behind = std::mem::replace(&mut self.reader, inner);
        let mut object = Map::new();
        for field in fields {
            if self.reader.is_empty() {
                break;
            }
            let typed = self.sources.resolve(declared, &field.of_type)?;
            let within = |error: AidlError| error.within(&format!(".{}", field.name));
            object.insert(field.name.clone(), self.read_at(&typed, left).map_err(within)?);
        }
        self.reader = behind;
        Ok(Json::Object(object))
    }

    fn member(&mut self, declared: &Declared, left: usize) -> Result<Json, AidlError> {
        let Body::Union(members) = &declared.body else { return Ok(Json::Null) };
        let place = usize::try_from(self.reader.i32().ok_or_else(ends)?).ok();
        let member = place.and_then(|place| members.get(place));
        let member = member.ok_or_else(|| garbled("has a member that the union has not"))?;
        let typed = self.sources.resolve(declared, &member.of_type)?;
        let within = |error: AidlError| error.within(&format!(".{}", member.name));
        let value = self.read_at(&typed, left).map_err(within)?;
        Ok(Json::Object(Map::from_iter([(member.name.clone(), value)])))
    }

    fn object(&mut self, typed: &Typed) -> Result<Json, AidlError> {
        let is_there = self.reader.object().ok_or_else(ends)?;
        if self.has_stability {
            self.reader.i32().ok_or_else(ends)?;
        }
        if !is_there {
            // A service without the mark @nullable may give none as well.
            return Ok(Json::Null);
        }
        let handle = self.received.handle(self.n_objects);
        self.n_objects += 1;
        let handle = handle.ok_or_else(|| garbled("is no object"))?;
        let declared = match &typed.kind {
            Type::Object(Some(declared)) => declared.name.clone(),
            _ => String::new(),
        };
        Ok(Json::from((self.interface)(&handle).unwrap_or(declared)))
    }

    fn file(&mut self, typed: &Typed) -> Result<Json, AidlError> {
        if !self.present(typed)? {
            return Ok(Json::Null);
        }
        let n_sockets = self.reader.i32().ok_or_else(ends)?;
        let mut shown = None;
        for _ in 0..=usize::from(n_sockets != 0) {
            self.reader.object().ok_or_else(ends)?;
            let file = self.received.fd(self.n_objects).ok_or_else(|| garbled("is no file"))?;
            self.n_objects += 1;
            let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
            let path = link.map_or_else(|_| "?".into(), |path| path.to_string_lossy().into_owned());
            shown.get_or_insert(path);
        }
        Ok(Json::from(shown))
    }
}

fn plain(kind: Type) -> Typed {
    Typed { kind, nullable: false }
}

/// Whether arrays of the type are packed.
fn is_byte(sources: &Sources, kind: &Type) -> Result<bool, AidlError> {
    Ok(match kind {
        Type::Byte => true,
        Type::Enumeration(declared) => matches!(sources.enumeration(declared)?.0, Type::Byte),
        _ => false,
    })
}

/// The name of an enumeration's value, or the number of one without a name.
fn named(values: &[(String, i64)], number: Json) -> Json {
    let named = values.iter().find(|(_, value)| number.as_i64() == Some(*value));
    named.map_or(number, |(name, _)| Json::from(name.as_str()))
}

fn null(typed: &Typed) -> Result<Json, AidlError> {
    if typed.nullable { Ok(Json::Null) } else { Err(garbled("is null and may not be")) }
}

fn garbled(why: &'static str) -> AidlError {
    AidlError::Garbled { place: String::new(), why }
}

fn ends() -> AidlError {
    garbled("ends too early")
}
