//! Arrays: their elements one by one, in ranges, as copies, and in place.
//!
//! `Get<Type>ArrayElements` gives a copy, and its `Release` copies back. The functions for critical
//! sections give the elements themselves: nothing moves, and no collection waits for the section.
//!
//! ```text
//! copy:  | the array's address | MARK | elements . . |
//!        0                     8      16
//! ```

use crate::env::{Call, Env, begin, begin_anyway, call, call_for_object, give};
use crate::handle::Handle;
use baton_vm::class::Class;
use baton_vm::exception;
use baton_vm::natives::values;
use baton_vm::object::{Array, ELEMENTS, Kind, Ref};
use baton_vm::vm::Thrown;
use std::ffi::c_void;
use std::ptr;

/// Copy the elements back, and keep the copy.
const COMMIT: i32 = 1;
/// Free the copy only.
const ABORT: i32 = 2;
/// What a copy has before its elements.
const HEADER_BYTES: usize = 16;
/// Says that a pointer is one to a copy.
const MARK: u64 = 0x6261_746f_6e5f_6a6e;

/// `GetArrayLength`.
pub extern "C" fn get_array_length(env: *const Env, array: Handle) -> i32 {
    begin(env, "GetArrayLength").array(array).length() as i32
}

/// `NewObjectArray`.
pub extern "C" fn new_object_array(
    env: *const Env,
    length: i32,
    class: Handle,
    initial: Handle,
) -> Handle {
    call_for_object(env, "NewObjectArray", |call| {
        let (class, initial) = (call.class(class), call.t.keep(call.object(initial)));
        if class.is_primitive() {
            call.wrong(format_args!("{} is no class of objects", class.java_name()));
        }
        if !initial.is_null() && !Class::of(initial).is_assignable_to(class) {
            let names = (call.name_of(initial), class.pretty_name());
            call.wrong(format_args!("{} as an element of {}[]", names.0, names.1));
        }
        let array = new_array(call, values::array_class(call.t, class)?, length)?;
        if !initial.is_null() {
            (0..array.length()).for_each(|index| array.set_ref(index, initial));
        }
        Ok(array)
    })
}

fn new_array(call: &Call<'_>, class: &'static Class, length: i32) -> Result<Ref, Thrown> {
    match u32::try_from(length) {
        Ok(length) => exception::new_array(call.t, class, length),
        Err(_) => {
            let class = "java/lang/NegativeArraySizeException";
            Err(values::throw(call.t, class, &length.to_string()))
        }
    }
}

/// The array of objects of a handle, and an index in it.
fn element(call: &Call<'_>, array: Handle, index: i32) -> Result<(Array, u32), Thrown> {
    let array = of_kind(call, array, Kind::Reference);
    match u32::try_from(index).ok().filter(|index| *index < array.length()) {
        Some(index) => Ok((array, index)),
        None => {
            let message = format!("length={}; index={index}", array.length());
            let class = "java/lang/ArrayIndexOutOfBoundsException";
            Err(values::throw(call.t, class, &message))
        }
    }
}

fn of_kind(call: &Call<'_>, handle: Handle, kind: Kind) -> Array {
    let array = call.array(handle);
    if array.kind() != kind {
        call.wrong(format_args!("{} in place of an array of {kind:?}", call.name_of(array.object)));
    }
    array
}

/// `GetObjectArrayElement`.
pub extern "C" fn get_object_array_element(env: *const Env, array: Handle, index: i32) -> Handle {
    call_for_object(env, "GetObjectArrayElement", |call| {
        let (array, index) = element(call, array, index)?;
        Ok(array.get_ref(index))
    })
}

/// `SetObjectArrayElement`.
pub extern "C" fn set_object_array_element(
    env: *const Env,
    array: Handle,
    index: i32,
    value: Handle,
) {
    call(env, "SetObjectArrayElement", (), |call| {
        let (array, index) = element(call, array, index)?;
        let value = call.object(value);
        let component = Class::of(array.object).component.expect("an array has a component");
        if !value.is_null() && !Class::of(value).is_assignable_to(component) {
            let names = (call.name_of(value), call.name_of(array.object));
            let message = format!("{} cannot be stored in an array of type {}", names.0, names.1);
            return Err(values::throw(call.t, "java/lang/ArrayStoreException", &message));
        }
        array.set_ref(index, value);
        Ok(())
    });
}

/// Where an array's elements are: they stay there as long as the array exists.
fn elements(array: Array) -> *mut u8 {
    ptr::with_exposed_provenance_mut((array.object.address() + ELEMENTS) as usize)
}

fn n_bytes(array: Array) -> usize {
    array.length() as usize * array.kind().element_bytes() as usize
}

/// A copy of an array's elements for C; null if there is no memory.
fn copy(
    env: *const Env,
    function: &'static str,
    kind: Kind,
    array: Handle,
    is_copy: *mut u8,
) -> *mut c_void {
    let call = begin(env, function);
    let array = of_kind(&call, array, kind);
    let n_bytes = n_bytes(array);
    // SAFETY: asks for memory.
    let block: *mut u8 = unsafe { libc::malloc(HEADER_BYTES + n_bytes) }.cast();
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the block has room for the header, and then for the elements.
    unsafe {
        block.cast::<[u64; 2]>().write([array.object.address().into(), MARK]);
        let copy = block.add(HEADER_BYTES);
        copy.copy_from_nonoverlapping(elements(array), n_bytes);
        give(is_copy, 1);
        copy.cast()
    }
}

/// Takes a copy back.
fn release(
    env: *const Env,
    function: &'static str,
    (kind, array): (Kind, Handle),
    copy: *mut c_void,
    mode: i32,
) {
    let call = begin_anyway(env, function);
    let array = of_kind(&call, array, kind);
    if copy.is_null() {
        call.wrong("the elements are NULL");
    }
    let copy: *mut u8 = copy.cast();
    // SAFETY: C gives what the function that copies has given, with its header before.
    let [address, mark] = unsafe { copy.sub(HEADER_BYTES).cast::<[u64; 2]>().read() };
    if mark != MARK || address != u64::from(array.object.address()) {
        call.wrong("the elements are no copy of this array's, or were released before");
    }
    if mode != ABORT {
        // SAFETY: the copy has as many elements as the array.
        unsafe { elements(array).copy_from_nonoverlapping(copy, n_bytes(array)) };
    }
    if mode != COMMIT {
        // SAFETY: the block is the copy's, and nobody uses it any more.
        unsafe {
            let block = copy.sub(HEADER_BYTES);
            block.cast::<[u64; 2]>().write([0, 0]);
            libc::free(block.cast());
        }
    }
}

/// The address of a range's first element, and the range's size in bytes.
fn range(
    call: &Call<'_>,
    (kind, array): (Kind, Handle),
    start: i32,
    count: i32,
) -> Result<(*mut u8, usize), Thrown> {
    let array = of_kind(call, array, kind);
    values::check_range(call.t, array.object, start, count)?;
    let unit = kind.element_bytes() as usize;
    // SAFETY: the range lies in the array.
    Ok((unsafe { elements(array).add(start as usize * unit) }, count as usize * unit))
}

macro_rules! arrays {
    ($($kind:ident, $type:ty, $new:ident, $get:ident, $release:ident,
        $get_region:ident, $set_region:ident;)+) => {$(
        /// A new array of zeros.
        pub extern "C" fn $new(env: *const Env, length: i32) -> Handle {
            call_for_object(env, concat!("New", stringify!($kind), "Array"), |call| {
                new_array(call, call.t.vm.known().array_of(Kind::$kind), length)
            })
        }

        /// A copy of all elements.
        pub extern "C" fn $get(env: *const Env, array: Handle, is_copy: *mut u8) -> *mut c_void {
            let function = concat!("Get", stringify!($kind), "ArrayElements");
            copy(env, function, Kind::$kind, array, is_copy)
        }

        /// Takes a copy back.
        pub extern "C" fn $release(env: *const Env, array: Handle, copy: *mut c_void, mode: i32) {
            let function = concat!("Release", stringify!($kind), "ArrayElements");
            release(env, function, (Kind::$kind, array), copy, mode);
        }

        /// Copies a range to C.
        pub extern "C" fn $get_region(
            env: *const Env, array: Handle, start: i32, count: i32, to: *mut $type,
        ) {
            call(env, concat!("Get", stringify!($kind), "ArrayRegion"), (), |call| {
                let (from, n_bytes) = range(call, (Kind::$kind, array), start, count)?;
                if n_bytes > 0 {
                    // SAFETY: C gives room for the range; that may be the array itself.
                    unsafe { to.cast::<u8>().copy_from(from, n_bytes) };
                }
                Ok(())
            });
        }

        /// Copies a range from C.
        pub extern "C" fn $set_region(
            env: *const Env, array: Handle, start: i32, count: i32, from: *const $type,
        ) {
            call(env, concat!("Set", stringify!($kind), "ArrayRegion"), (), |call| {
                let (to, n_bytes) = range(call, (Kind::$kind, array), start, count)?;
                if n_bytes > 0 {
                    // SAFETY: C gives as many elements as the range has.
                    unsafe { to.copy_from(from.cast(), n_bytes) };
                }
                Ok(())
            });
        }
    )+};
}

arrays! {
    Boolean, u8, new_boolean, get_boolean, release_boolean,
        get_boolean_region, set_boolean_region;
    Byte, i8, new_byte, get_byte, release_byte,
        get_byte_region, set_byte_region;
    Char, u16, new_char, get_char, release_char,
        get_char_region, set_char_region;
    Short, i16, new_short, get_short, release_short,
        get_short_region, set_short_region;
    Int, i32, new_int, get_int, release_int,
        get_int_region, set_int_region;
    Long, i64, new_long, get_long, release_long,
        get_long_region, set_long_region;
    Float, f32, new_float, get_float, release_float,
        get_float_region, set_float_region;
    Double, f64, new_double, get_double, release_double,
        get_double_region, set_double_region;
}

/// `GetPrimitiveArrayCritical`.
pub extern "C" fn get_critical(env: *const Env, array: Handle, is_copy: *mut u8) -> *mut c_void {
    let call = begin(env, "GetPrimitiveArrayCritical");
    give(is_copy, 0);
    elements(of_numbers(&call, array)).cast()
}

/// `ReleasePrimitiveArrayCritical`.
pub extern "C" fn release_critical(env: *const Env, array: Handle, at: *mut c_void, _mode: i32) {
    let call = begin_anyway(env, "ReleasePrimitiveArrayCritical");
    if elements(of_numbers(&call, array)).cast() != at {
        call.wrong("the elements are another array's");
    }
}

fn of_numbers(call: &Call<'_>, array: Handle) -> Array {
    let array = call.array(array);
    if array.kind() == Kind::Reference {
        call.wrong(format_args!("{} is no array of numbers", call.name_of(array.object)));
    }
    array
}
