//! libcore.io.Memory and the raw memory of org.robovm.rt.VM: addresses that Java code computes
//!
//! The class library uses them for direct and mapped buffers, whose bounds its Java half checks.

use super::values::{VOID, check_range, non_null};
use crate::class::Class;
use crate::object::{ELEMENTS, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};

const MEMORY: &str = "Llibcore/io/Memory;";
const VM: &str = "Lorg/robovm/rt/VM;";

macro_rules! peek_array {
    ($name:literal, $signature:literal, $type:ty, $set:ident, $as:ty) => {
        (MEMORY, $name, $signature, |t, a| {
            let (address, array, offset, count) = (a.long(0), a.reference(2), a.int(3), a.int(4));
            check_range(t, array, offset, count)?;
            let swap = $signature.ends_with("Z)V") && a.boolean(5);
            for (index, element) in (offset as u32..(offset + count) as u32).zip(0..) {
                // SAFETY: the caller's buffer has so many elements.
                let value = unsafe { read::<$type>(address + element * size_of::<$type>() as i64) };
                array.$set(index, if swap { value.swap_bytes() } else { value } as $as);
            }
            VOID
        })
    };
}

macro_rules! poke_array {
    ($name:literal, $signature:literal, $type:ty, $get:ident) => {
        (MEMORY, $name, $signature, |t, a| {
            let (address, array, offset, count) = (a.long(0), a.reference(2), a.int(3), a.int(4));
            check_range(t, array, offset, count)?;
            let swap = $signature.ends_with("Z)V") && a.boolean(5);
            for (index, element) in (offset as u32..(offset + count) as u32).zip(0..) {
                let value = array.$get(index) as $type;
                let value = if swap { value.swap_bytes() } else { value };
                // SAFETY: the caller's buffer has so many elements.
                unsafe { write(address + element * size_of::<$type>() as i64, value) };
            }
            VOID
        })
    };
}

pub(super) const TABLE: &[Native] = &[
    (MEMORY, "peekByte", "(J)B", |_, a| {
        // SAFETY: the address is one of the caller's buffer.
        Ok(Value::Int(i32::from(unsafe { read::<i8>(a.long(0)) })))
    }),
    (MEMORY, "peekShort", "(JZ)S", |_, a| {
        // SAFETY: the address is one of the caller's buffer.
        let value = unsafe { read::<i16>(a.long(0)) };
        Ok(Value::Int(i32::from(if a.boolean(2) { value.swap_bytes() } else { value })))
    }),
    (MEMORY, "peekInt", "(JZ)I", |_, a| {
        // SAFETY: the address is one of the caller's buffer.
        let value = unsafe { read::<i32>(a.long(0)) };
        Ok(Value::Int(if a.boolean(2) { value.swap_bytes() } else { value }))
    }),
    (MEMORY, "peekLong", "(JZ)J", |_, a| {
        // SAFETY: the address is one of the caller's buffer.
        let value = unsafe { read::<i64>(a.long(0)) };
        Ok(Value::Long(if a.boolean(2) { value.swap_bytes() } else { value }))
    }),
    (MEMORY, "pokeByte", "(JB)V", |_, a| {
        // SAFETY: the address is one of the caller's buffer.
        unsafe { write(a.long(0), a.int(2) as i8) };
        VOID
    }),
    (MEMORY, "pokeShort", "(JSZ)V", |_, a| {
        let value = a.int(2) as i16;
        // SAFETY: the address is one of the caller's buffer.
        unsafe { write(a.long(0), if a.boolean(3) { value.swap_bytes() } else { value }) };
        VOID
    }),
    (MEMORY, "pokeInt", "(JIZ)V", |_, a| {
        let value = a.int(2);
        // SAFETY: the address is one of the caller's buffer.
        unsafe { write(a.long(0), if a.boolean(3) { value.swap_bytes() } else { value }) };
        VOID
    }),
    (MEMORY, "pokeLong", "(JJZ)V", |_, a| {
        let value = a.long(2);
        // SAFETY: the address is one of the caller's buffer.
        unsafe { write(a.long(0), if a.boolean(4) { value.swap_bytes() } else { value }) };
        VOID
    }),
    peek_array!("peekByteArray", "(J[BII)V", i8, set_i8, i8),
    peek_array!("peekCharArray", "(J[CIIZ)V", u16, set_u16, u16),
    peek_array!("peekShortArray", "(J[SIIZ)V", i16, set_i16, i16),
    peek_array!("peekIntArray", "(J[IIIZ)V", i32, set_i32, i32),
    peek_array!("peekLongArray", "(J[JIIZ)V", i64, set_i64, i64),
    peek_array!("peekFloatArray", "(J[FIIZ)V", u32, set_f32_bits, u32),
    peek_array!("peekDoubleArray", "(J[DIIZ)V", u64, set_f64_bits, u64),
    poke_array!("pokeByteArray", "(J[BII)V", i8, get_i8),
    poke_array!("pokeCharArray", "(J[CIIZ)V", u16, get_u16),
    poke_array!("pokeShortArray", "(J[SIIZ)V", i16, get_i16),
    poke_array!("pokeIntArray", "(J[IIIZ)V", i32, get_i32),
    poke_array!("pokeLongArray", "(J[JIIZ)V", i64, get_i64),
    poke_array!("pokeFloatArray", "(J[FIIZ)V", u32, get_f32_bits),
    poke_array!("pokeDoubleArray", "(J[DIIZ)V", u64, get_f64_bits),
    // Bytes into an array of a wider type, and back.
    (MEMORY, "unsafeBulkGet", "(Ljava/lang/Object;II[BIIZ)V", |t, a| {
        let (array, from) = (a.reference(0), a.reference(3));
        let (offset, count, from_offset) = (a.int(1), a.int(2), a.int(4));
        check_range(t, from, from_offset, count)?;
        let target = elements(t, array, offset, count)?;
        let source = elements(t, from, from_offset, count)?;
        move_units(source, target, count, if a.boolean(6) { a.int(5) } else { 1 });
        VOID
    }),
    (MEMORY, "unsafeBulkPut", "([BIILjava/lang/Object;IIZ)V", |t, a| {
        let (to, offset, count) = (a.reference(0), a.int(1), a.int(2));
        let source = elements(t, a.reference(3), a.int(4), count)?;
        let target = elements(t, to, offset, count)?;
        move_units(source, target, count, if a.boolean(6) { a.int(5) } else { 1 });
        VOID
    }),
    (MEMORY, "memmove", "(Ljava/lang/Object;ILjava/lang/Object;IJ)V", |t, a| {
        let count = i32::try_from(a.long(4)).unwrap_or(i32::MAX);
        let target = elements(t, a.reference(0), a.int(1), count)?;
        let source = elements(t, a.reference(2), a.int(3), count)?;
        // SAFETY: both ranges lie in arrays of numbers or in buffers.
        unsafe { std::ptr::copy(pointer::<u8>(source), pointer::<u8>(target), count as usize) };
        VOID
    }),
    (VM, "memmove8", "(JJJ)V", |_, a| raw_move(a, 1)),
    (VM, "memmove16", "(JJJ)V", |_, a| raw_move(a, 2)),
    (VM, "memmove32", "(JJJ)V", |_, a| raw_move(a, 4)),
    (VM, "memmove64", "(JJJ)V", |_, a| raw_move(a, 8)),
    (VM, "memcpy", "(JJJ)V", |_, a| raw_move(a, 1)),
    (VM, "memset", "(JBJ)V", |_, a| {
        // SAFETY: the caller's buffer has so many bytes.
        unsafe { pointer::<u8>(a.long(0)).write_bytes(a.int(2) as u8, a.long(3) as usize) };
        VOID
    }),
];

fn pointer<T>(address: i64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// A value of the type is at the address.
unsafe fn read<T>(address: i64) -> T {
    // SAFETY: by the caller's promise.
    unsafe { pointer::<T>(address).read_unaligned() }
}

/// # Safety
/// Room for a value of the type is at the address.
unsafe fn write<T>(address: i64, value: T) {
    // SAFETY: by the caller's promise.
    unsafe { pointer::<T>(address).write_unaligned(value) }
}

fn raw_move(a: Args, unit: usize) -> Result<Value, Thrown> {
    let (target, source, count) = (a.long(0), a.long(2), a.long(4) as usize);
    // SAFETY: the caller's buffers have so many units.
    unsafe { std::ptr::copy(pointer::<u8>(source), pointer::<u8>(target), count * unit) };
    VOID
}

/// The address of a direct buffer's memory, and how many bytes it has. The address of none may be
/// 0, as that of an empty map of a file is.
pub(super) fn direct(object: Ref) -> Option<(i64, i64)> {
    let class = Class::of(object);
    let address = class.library_field("effectiveDirectAddress", "J")?.get64(object) as i64;
    let number = |name: &str| Some(class.library_field(name, "I")?.get32(object) as i32);
    let n_bytes = i64::from(number("capacity")?) << number("_elementSizeShift")?.clamp(0, 3);
    (address != 0 || n_bytes == 0).then_some((address, n_bytes))
}

/// The address of a range of bytes in an array of numbers, or in a direct buffer.
fn elements(t: &Thread, array: Ref, offset: i32, n_bytes: i32) -> Result<i64, Thrown> {
    use crate::object::Kind;
    non_null(t, array, "array")?;
    let kind = array.element_kind().filter(|kind| *kind != Kind::Reference);
    let (start, size) = match kind {
        Some(kind) => {
            let size = i64::from(kind.element_bytes()) * i64::from(array.length());
            (i64::from(array.address() + ELEMENTS), size)
        }
        None => direct(array).unwrap_or_default(),
    };
    if offset < 0 || n_bytes < 0 || i64::from(offset) + i64::from(n_bytes) > size {
        let message = format!("offset={offset} count={n_bytes} of {size} bytes");
        let class = "java/lang/ArrayIndexOutOfBoundsException";
        return Err(super::values::throw(t, class, &message));
    }
    Ok(start + i64::from(offset))
}

/// Copies bytes between arrays, and reverses each unit of more than one byte.
fn move_units(source: i64, target: i64, n_bytes: i32, unit: i32) {
    let unit = i64::from(unit.max(1));
    let count = i64::from(n_bytes);
    for at in 0..count - count % unit {
        let mirrored = at - at % unit + unit - 1 - at % unit;
        // SAFETY: both ranges have so many bytes, by `elements`.
        unsafe { write(target + mirrored, read::<u8>(source + at)) };
    }
}

/// The bytes at an address, copied.
///
/// # Safety
/// So many bytes are there.
pub unsafe fn copy_out(address: i64, n_bytes: usize) -> Vec<u8> {
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer::<u8>(address), n_bytes) }.to_vec()
}

/// Copies bytes to an address.
///
/// # Safety
/// So much room is there.
pub unsafe fn copy_in(address: i64, bytes: &[u8]) {
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer::<u8>(address), bytes.len()) }
}
