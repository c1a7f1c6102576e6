//! Strings: UTF-16, modified UTF-8, and copies of either.
//!
//! C gets copies, which `malloc` has made. Only `GetStringCritical` gives the characters
//! themselves, as nothing moves.

use crate::env::{Call, Env, begin_anyway, call, call_for_object, give};
use crate::handle::Handle;
use baton_dex::encode_mutf8;
use baton_vm::exception::OrThrow;
use baton_vm::natives::values;
use baton_vm::object::{ELEMENTS, Ref};
use baton_vm::string;
use baton_vm::vm::Thrown;
use std::ffi::{CStr, c_char};
use std::ptr;

/// `NewString`.
pub extern "C" fn new_string(env: *const Env, units: *const u16, count: i32) -> Handle {
    call_for_object(env, "NewString", |call| {
        let Ok(count) = usize::try_from(count) else {
            call.wrong(format_args!("a length of {count}"));
        };
        if units.is_null() && count > 0 {
            call.wrong("the characters are NULL");
        }
        let units = match count {
            0 => &[],
            // SAFETY: C gives this many characters.
            _ => unsafe { std::slice::from_raw_parts(units, count) },
        };
        string::from_utf16(call.t, units).or_throw(call.t)
    })
}

/// `NewStringUTF`: `NULL` of `NULL`.
pub extern "C" fn new_string_utf(env: *const Env, text: *const c_char) -> Handle {
    call_for_object(env, "NewStringUTF", |call| {
        if text.is_null() {
            return Ok(Ref::NULL);
        }
        // SAFETY: C gives a string.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        string::from_utf16(call.t, &call.units(bytes)).or_throw(call.t)
    })
}

/// `GetStringLength`.
pub extern "C" fn get_string_length(env: *const Env, string: Handle) -> i32 {
    call(env, "GetStringLength", 0, |call| Ok(units(call, string).len() as i32))
}

/// `GetStringUTFLength`.
pub extern "C" fn get_string_utf_length(env: *const Env, string: Handle) -> i32 {
    get_string_utf_length_as_long(env, string) as i32
}

/// `GetStringUTFLengthAsLong`.
pub extern "C" fn get_string_utf_length_as_long(env: *const Env, string: Handle) -> i64 {
    call(env, "GetStringUTFLength", 0, |call| Ok(encode_mutf8(units(call, string)).len() as i64))
}

fn units(call: &Call<'_>, string: Handle) -> Vec<u16> {
    string::units(call.t, call.string(string))
}

/// A copy for C, with a zero at its end; null if there is no memory.
fn copied<T: Copy + Default>(of: &[T], is_copy: *mut u8) -> *const T {
    // SAFETY: asks for memory.
    let to: *mut T = unsafe { libc::malloc((of.len() + 1) * size_of::<T>()) }.cast();
    if !to.is_null() {
        // SAFETY: there is room for all and the zero.
        unsafe {
            to.copy_from_nonoverlapping(of.as_ptr(), of.len());
            to.add(of.len()).write(T::default());
        }
        give(is_copy, 1);
    }
    to
}

/// `GetStringChars`.
pub extern "C" fn get_string_chars(
    env: *const Env,
    string: Handle,
    is_copy: *mut u8,
) -> *const u16 {
    call(env, "GetStringChars", ptr::null(), |call| Ok(copied(&units(call, string), is_copy)))
}

/// `ReleaseStringChars`.
pub extern "C" fn release_string_chars(env: *const Env, string: Handle, chars: *const u16) {
    let call = begin_anyway(env, "ReleaseStringChars");
    call.string(string);
    // SAFETY: C gives what `GetStringChars` has given.
    unsafe { libc::free(chars.cast_mut().cast()) }
}

/// `GetStringUTFChars`.
pub extern "C" fn get_string_utf_chars(
    env: *const Env,
    string: Handle,
    is_copy: *mut u8,
) -> *const c_char {
    call(env, "GetStringUTFChars", ptr::null(), |call| {
        Ok(copied(&encode_mutf8(units(call, string)), is_copy).cast())
    })
}

/// `ReleaseStringUTFChars`.
pub extern "C" fn release_string_utf_chars(env: *const Env, string: Handle, text: *const c_char) {
    let call = begin_anyway(env, "ReleaseStringUTFChars");
    call.string(string);
    // SAFETY: C gives what `GetStringUTFChars` has given.
    unsafe { libc::free(text.cast_mut().cast()) }
}

/// The units of a range of a string.
fn region(call: &Call<'_>, string: Handle, start: i32, count: i32) -> Result<Vec<u16>, Thrown> {
    let units = units(call, string);
    if start < 0 || count < 0 || start as usize + count as usize > units.len() {
        let message = format!("length={}; regionStart={start}; regionLength={count}", units.len());
        let class = "java/lang/StringIndexOutOfBoundsException";
        return Err(values::throw(call.t, class, &message));
    }
    Ok(units[start as usize..(start + count) as usize].to_vec())
}

/// `GetStringRegion`.
pub extern "C" fn get_string_region(
    env: *const Env,
    string: Handle,
    start: i32,
    count: i32,
    to: *mut u16,
) {
    call(env, "GetStringRegion", (), |call| {
        let units = region(call, string, start, count)?;
        if !units.is_empty() {
            // SAFETY: C gives room for the range.
            unsafe { to.copy_from_nonoverlapping(units.as_ptr(), units.len()) };
        }
        Ok(())
    });
}

/// `GetStringUTFRegion`: with a zero at the end, as other machines have it.
pub extern "C" fn get_string_utf_region(
    env: *const Env,
    string: Handle,
    start: i32,
    count: i32,
    to: *mut c_char,
) {
    call(env, "GetStringUTFRegion", (), |call| {
        let bytes = encode_mutf8(region(call, string, start, count)?);
        if !to.is_null() {
            // SAFETY: C gives room for the range and a zero.
            unsafe {
                to.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
                to.add(bytes.len()).write(0);
            }
        }
        Ok(())
    });
}

/// Where a string's characters are: they stay there as long as C has a reference to the string.
fn characters(call: &Call<'_>, string: Handle) -> *const u16 {
    let (known, string) = (call.t.vm.known(), call.string(string));
    let value = known.string_value.get_ref(string);
    let first = value.address() + ELEMENTS + 2 * known.string_offset.get32(string);
    ptr::with_exposed_provenance(first as usize)
}

/// `GetStringCritical`.
pub extern "C" fn get_string_critical(
    env: *const Env,
    string: Handle,
    is_copy: *mut u8,
) -> *const u16 {
    call(env, "GetStringCritical", ptr::null(), |call| {
        give(is_copy, 0);
        Ok(characters(call, string))
    })
}

/// `ReleaseStringCritical`.
pub extern "C" fn release_string_critical(env: *const Env, string: Handle, chars: *const u16) {
    let call = begin_anyway(env, "ReleaseStringCritical");
    if characters(&call, string) != chars {
        call.wrong("the characters are another string's");
    }
}
