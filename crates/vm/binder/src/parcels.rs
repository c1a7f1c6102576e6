//! Parcels by the numbers that Java's objects have of them.
//!
//! Slots lie in chunks, each twice as large as the one before it, which are never moved nor freed:
//! a number leads to its parcel without a lock of the table. A slot's own lock is held for one
//! value, and never while Java runs or an object is allocated.

use crate::parcel::Parcel;
use std::sync::{Mutex, OnceLock};

/// Slots of the first chunk.
const FIRST: u32 = 64;
/// So many chunks have a number for each positive `int`.
const CHUNKS: usize = 25;

type Slot = Mutex<Option<Box<Parcel>>>;

/// All parcels of the process.
#[derive(Debug, Default)]
pub struct Parcels {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    numbers: Vec<u32>,
    /// How many numbers have been given
    given: u32,
}

/// The parcels.
pub static PARCELS: Parcels = Parcels {
    chunks: [const { OnceLock::new() }; CHUNKS],
    free: Mutex::new(Free { numbers: Vec::new(), given: 0 }),
};

/// The chunk of a number, and the place in it.
fn place(number: u32) -> Option<(usize, usize)> {
    let from_first = number.checked_sub(1)?.checked_add(FIRST)?;
    let chunk = (from_first.ilog2() - FIRST.ilog2()) as usize;
    Some((chunk, (from_first - (FIRST << chunk)) as usize))
}

impl Parcels {
    fn slot(&self, number: u32) -> Option<&Slot> {
        let (chunk, index) = place(number)?;
        self.chunks.get(chunk)?.get()?.get(index)
    }

    /// Adds a parcel; returns its number, which is not 0.
    ///
    /// # Panics
    /// If two billion parcels are there.
    pub fn add(&self, parcel: Box<Parcel>) -> u32 {
        let mut free = self.free.lock().expect("no holder panics");
        let number = free.numbers.pop().unwrap_or_else(|| {
            free.given += 1;
            free.given
        });
        let (chunk, index) = place(number).expect("numbers begin with 1");
        let slots = self.chunks[chunk]
            .get_or_init(|| (0..FIRST << chunk).map(|_| Mutex::default()).collect());
        drop(free);
        *slots[index].lock().expect("no holder panics") = Some(parcel);
        number
    }

    /// Takes a parcel out.
    pub fn remove(&self, number: u32) -> Option<Box<Parcel>> {
        let parcel = self.slot(number)?.lock().expect("no holder panics").take()?;
        self.free.lock().expect("no holder panics").numbers.push(number);
        Some(parcel)
    }

    /// Runs `with` on a parcel. None if there is no parcel of this number.
    pub fn with<T>(&self, number: u32, with: impl FnOnce(&mut Parcel) -> T) -> Option<T> {
        self.slot(number)?.lock().expect("no holder panics").as_deref_mut().map(with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_parcels() {
        let parcels = Parcels::default();
        let numbers: Vec<u32> = (0..1000)
            .map(|value| {
                let mut parcel = Box::<Parcel>::default();
                parcel.write_i32(value);
                parcels.add(parcel)
            })
            .collect();
        for (value, number) in (0..).zip(&numbers) {
            let found = parcels.with(*number, |parcel| {
                parcel.set_position(0);
                parcel.read_i32()
            });
            assert_eq!(found, Some(value));
        }
        assert!(parcels.remove(numbers[7]).is_some());
        assert!(parcels.remove(numbers[7]).is_none());
        for number in [0, numbers[7], 1001, 1 << 20, i32::MAX as u32, u32::MAX] {
            assert!(parcels.with(number, |_| ()).is_none(), "{number}");
        }
        assert_eq!(parcels.add(Box::default()), numbers[7]);
    }

    #[test]
    fn chunks_follow_each_other() {
        assert_eq!(place(0), None);
        for (number, expected) in
            [(1, (0, 0)), (64, (0, 63)), (65, (1, 0)), (192, (1, 127)), (193, (2, 0))]
        {
            assert_eq!(place(number), Some(expected), "{number}");
        }
        assert!(place(i32::MAX as u32).unwrap().0 <= CHUNKS);
    }
}
