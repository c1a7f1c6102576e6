//! sun.misc.Unsafe: words of objects by their offset
//!
//! Each access is checked: the word lies in the object, and a word holds a reference exactly if the
//! collector takes it for one.

use super::values::{VOID, boolean, non_null, throw};
use crate::cards::before_store;
use crate::class::Class;
use crate::memory::{atomic32, atomic64, load8, store8};
use crate::object::{ELEMENTS, HEADER_BYTES, Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use crate::{exception, initialize};
use std::sync::atomic::Ordering::{self, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

const UNSAFE: &str = "Lsun/misc/Unsafe;";

/// Where the arguments of an instance method begin.
const OBJECT: usize = 1;
const OFFSET: usize = 2;
const VALUE: usize = 4;

macro_rules! get {
    ($name:literal, $signature:literal, $word:ident, $order:expr, $of:expr) => {
        (UNSAFE, $name, $signature, |t, a| {
            let word = $word(t, a)?.load($order);
            let of: fn(_) -> Value = $of;
            Ok(of(word))
        })
    };
}

macro_rules! put {
    ($name:literal, $signature:literal, $word:ident, $order:expr, $of:expr) => {
        (UNSAFE, $name, $signature, |t, a| {
            let of: fn(Args) -> _ = $of;
            $word(t, a)?.store(of(a), $order);
            VOID
        })
    };
}

pub(super) const TABLE: &[Native] = &[
    (UNSAFE, "objectFieldOffset0", "(Ljava/lang/reflect/Field;)J", |t, a| {
        let field = super::members::field_of(t, non_null(t, a.reference(0), "field")?)?;
        Ok(Value::Long(i64::from(field.offset)))
    }),
    (UNSAFE, "arrayBaseOffset0", "(Ljava/lang/Class;)I", |_, _| Ok(Value::Int(ELEMENTS as i32))),
    (UNSAFE, "arrayIndexScale0", "(Ljava/lang/Class;)I", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(0), "class")?);
        let component = class.component.map_or(Kind::Void, |of| of.kind);
        Ok(Value::Int(component.element_bytes() as i32))
    }),
    (UNSAFE, "allocateInstance", "(Ljava/lang/Class;)Ljava/lang/Object;", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(OBJECT), "class")?);
        super::members::check_instantiable(t, class)?;
        initialize::initialize(t, class)?;
        Ok(Value::Ref(exception::new_object(t, class)?))
    }),
    (UNSAFE, "compareAndSwapInt", "(Ljava/lang/Object;JII)Z", |t, a| {
        let (old, new) = (a.int(VALUE) as u32, a.int(VALUE + 1) as u32);
        boolean(word32(t, a)?.compare_exchange(old, new, SeqCst, Relaxed).is_ok())
    }),
    (UNSAFE, "compareAndSwapLong", "(Ljava/lang/Object;JJJ)Z", |t, a| {
        let (old, new) = (a.long(VALUE) as u64, a.long(VALUE + 2) as u64);
        boolean(word64(t, a)?.compare_exchange(old, new, SeqCst, Relaxed).is_ok())
    }),
    (
        UNSAFE,
        "compareAndSwapObject",
        "(Ljava/lang/Object;JLjava/lang/Object;Ljava/lang/Object;)Z",
        |t, a| {
            let (old, new) = (a.reference(VALUE).address(), a.reference(VALUE + 1).address());
            let word = reference_word(t, a)?;
            // SAFETY: the word holds a reference; no safepoint is in between.
            unsafe { before_store(word.as_ptr().addr() as u32, new) };
            boolean(word.compare_exchange(old, new, SeqCst, Relaxed).is_ok())
        },
    ),
    get!("getInt", "(Ljava/lang/Object;J)I", word32, Relaxed, int),
    get!("getIntVolatile", "(Ljava/lang/Object;J)I", word32, SeqCst, int),
    get!("getLong", "(Ljava/lang/Object;J)J", word64, Relaxed, |word| Value::Long(word as i64)),
    get!("getLongVolatile", "(Ljava/lang/Object;J)J", word64, SeqCst, |word| {
        Value::Long(word as i64)
    }),
    get!("getFloat", "(Ljava/lang/Object;J)F", word32, Relaxed, |word| {
        Value::Float(f32::from_bits(word))
    }),
    get!("getDouble", "(Ljava/lang/Object;J)D", word64, Relaxed, |word| {
        Value::Double(f64::from_bits(word))
    }),
    (UNSAFE, "getObject", "(Ljava/lang/Object;J)Ljava/lang/Object;", |t, a| {
        load_reference(t, a, Relaxed)
    }),
    (UNSAFE, "getObjectVolatile", "(Ljava/lang/Object;J)Ljava/lang/Object;", |t, a| {
        load_reference(t, a, SeqCst)
    }),
    (UNSAFE, "getByte", "(Ljava/lang/Object;J)B", |t, a| Ok(Value::Int(i32::from(byte(t, a)?)))),
    (UNSAFE, "getBoolean", "(Ljava/lang/Object;J)Z", |t, a| boolean(byte(t, a)? != 0)),
    (UNSAFE, "putByte", "(Ljava/lang/Object;JB)V", put_byte),
    (UNSAFE, "putBoolean", "(Ljava/lang/Object;JZ)V", put_byte),
    put!("putInt", "(Ljava/lang/Object;JI)V", word32, Relaxed, |a| a.int(VALUE) as u32),
    put!("putIntVolatile", "(Ljava/lang/Object;JI)V", word32, SeqCst, |a| a.int(VALUE) as u32),
    put!("putOrderedInt", "(Ljava/lang/Object;JI)V", word32, Release, |a| a.int(VALUE) as u32),
    put!("putLong", "(Ljava/lang/Object;JJ)V", word64, Relaxed, |a| a.long(VALUE) as u64),
    put!("putLongVolatile", "(Ljava/lang/Object;JJ)V", word64, SeqCst, |a| a.long(VALUE) as u64),
    put!("putOrderedLong", "(Ljava/lang/Object;JJ)V", word64, Release, |a| a.long(VALUE) as u64),
    put!("putFloat", "(Ljava/lang/Object;JF)V", word32, Relaxed, |a| a.float(VALUE).to_bits()),
    put!("putDouble", "(Ljava/lang/Object;JD)V", word64, Relaxed, |a| a.double(VALUE).to_bits()),
    put!(
        "putObject",
        "(Ljava/lang/Object;JLjava/lang/Object;)V",
        stored_reference,
        Release,
        object
    ),
    put!(
        "putObjectVolatile",
        "(Ljava/lang/Object;JLjava/lang/Object;)V",
        stored_reference,
        SeqCst,
        object
    ),
    put!(
        "putOrderedObject",
        "(Ljava/lang/Object;JLjava/lang/Object;)V",
        stored_reference,
        Release,
        object
    ),
];

fn int(word: u32) -> Value {
    Value::Int(word as i32)
}

fn object(a: Args) -> u32 {
    a.reference(VALUE).address()
}

/// The address of a word of the object that the arguments name.
fn address(t: &Thread, a: Args, n_bytes: u32, is_reference: bool) -> Result<u32, Thrown> {
    let object = non_null(t, a.reference(OBJECT), "object")?;
    let offset = u32::try_from(a.long(OFFSET)).unwrap_or(u32::MAX);
    let end = offset.checked_add(n_bytes);
    let is_word = offset >= HEADER_BYTES
        && offset % n_bytes == 0
        && end.is_some_and(|end| end <= object.n_bytes())
        && (n_bytes == 1 || is_reference == object.holds_reference(offset));
    if is_word {
        Ok(object.address() + offset)
    } else {
        let message = format!("no such word at {offset} of {}", Class::of(object).java_name());
        Err(throw(t, "java/lang/IllegalArgumentException", &message))
    }
}

fn word32(t: &Thread, a: Args) -> Result<&'static AtomicU32, Thrown> {
    // SAFETY: a word of an object that the arguments keep, and no reference.
    Ok(unsafe { atomic32(address(t, a, 4, false)?) })
}

fn word64(t: &Thread, a: Args) -> Result<&'static AtomicU64, Thrown> {
    // SAFETY: as in `word32`; a word of 64 bits at a multiple of 8.
    Ok(unsafe { atomic64(address(t, a, 8, false)?) })
}

fn reference_word(t: &Thread, a: Args) -> Result<&'static AtomicU32, Thrown> {
    // SAFETY: a word of an object that the arguments keep; callers store addresses of objects.
    Ok(unsafe { atomic32(address(t, a, 4, true)?) })
}

/// A word that holds a reference, into which the caller stores the argument.
fn stored_reference(t: &Thread, a: Args) -> Result<&'static AtomicU32, Thrown> {
    let word = reference_word(t, a)?;
    // SAFETY: the word holds a reference; no safepoint is in between.
    unsafe { before_store(word.as_ptr().addr() as u32, object(a)) };
    Ok(word)
}

fn load_reference(t: &Thread, a: Args, order: Ordering) -> Result<Value, Thrown> {
    let address = reference_word(t, a)?.load(order);
    // SAFETY: the word holds a reference.
    Ok(Value::Ref(t.keep(unsafe { Ref::from_address(address) })))
}

/// A byte of an array, or the low byte of a field, which has a word of its own.
fn byte(t: &Thread, a: Args) -> Result<i8, Thrown> {
    if is_byte_array(a.reference(OBJECT)) {
        // SAFETY: an element of an array of bytes.
        return Ok(unsafe { load8(address(t, a, 1, false)?, Relaxed) } as i8);
    }
    Ok(word32(t, a)?.load(Relaxed) as i8)
}

fn put_byte(t: &Thread, a: Args) -> Result<Value, Thrown> {
    let value = a.int(VALUE);
    if is_byte_array(a.reference(OBJECT)) {
        // SAFETY: an element of an array of bytes.
        unsafe { store8(address(t, a, 1, false)?, value as _, Relaxed) };
    } else {
        word32(t, a)?.store(value as u32, Relaxed);
    }
    VOID
}

fn is_byte_array(object: Ref) -> bool {
    !object.is_null() && matches!(object.element_kind(), Some(Kind::Boolean | Kind::Byte))
}
