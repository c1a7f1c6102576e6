//! Parcel objects that are used again: the two pools that android.os.Parcel has in static fields.
//!
//! Parcel's own methods take a monitor and search an array, in bytecode; each call of a service
//! does so four times at either end. The pools stay Java's arrays, so that collectors know them.
//! One pool is for parcels that own their contents, the other for those that a call lends them.

use crate::classes::{Classes, classes, find};
use crate::parcel::Parcel;
use crate::parcels::PARCELS;
use baton_vm::class::Field;
use baton_vm::finalizer;
use baton_vm::natives::values;
use baton_vm::object::{Array, Ref};
use baton_vm::stack::Value;
use baton_vm::vm::{Thread, Thrown};
use std::sync::Mutex;

/// Held for a few instructions, in which no object is allocated.
static POOLS: Mutex<()> = Mutex::new(());

/// Calls `with` for the places of a pool, until it returns something.
fn search<T>(pool: &Field, with: impl Fn(Array, u32) -> Option<T>) -> Option<T> {
    let pool = pool.get_ref(pool.holder()).array().expect("an array");
    let _pools = POOLS.lock().expect("no holder panics");
    (0..pool.length()).find_map(|index| with(pool, index))
}

/// A parcel of a pool, or a new one by the constructor that takes a number.
fn take(t: &Thread, classes: &Classes, pool: &Field, number: i32) -> Result<Ref, Thrown> {
    let recycled = search(pool, |pool, index| {
        let parcel = pool.get_ref(index);
        (!parcel.is_null()).then(|| {
            pool.set_ref(index, Ref::NULL);
            t.keep(parcel)
        })
    });
    if let Some(parcel) = recycled {
        return Ok(parcel);
    }
    let parcel = values::instance(t, classes.parcel)?;
    finalizer::register(t, parcel)?;
    t.invoke(classes.parcel_constructor, &[Value::Ref(parcel), Value::Int(number)])?;
    Ok(parcel)
}

/// A parcel with contents of its own, which are empty.
///
/// # Errors
/// The heap is full, or [`find`] fails.
pub fn obtain(t: &Thread) -> Result<Ref, Thrown> {
    let classes = find(t)?;
    take(t, classes, classes.owned_pool, 0)
}

/// A parcel for the contents of a number, which it does not own.
///
/// # Errors
/// The heap is full, or [`find`] fails.
pub fn obtain_holder(t: &Thread, number: i32) -> Result<Ref, Thrown> {
    let classes = find(t)?;
    let parcel = take(t, classes, classes.holder_pool, number)?;
    classes.parcel_number.set32(parcel, number as u32);
    Ok(parcel)
}

/// Puts a parcel into its pool, without contents. False if its contents are gone.
pub fn recycle(parcel: Ref) -> bool {
    let classes = classes();
    let is_owner = classes.parcel_owns.get32(parcel) != 0;
    let pool = if is_owner {
        let number = classes.parcel_number.get32(parcel);
        if PARCELS.with(number, Parcel::clear).is_none() {
            return false;
        }
        classes.owned_pool
    } else {
        classes.parcel_number.set32(parcel, 0);
        classes.holder_pool
    };
    // A parcel for which there is no place is garbage.
    search(pool, |pool, index| {
        let is_free = pool.get_ref(index).is_null();
        is_free.then(|| pool.set_ref(index, parcel))
    });
    true
}
