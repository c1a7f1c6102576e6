//! Rust values that Java holds by a number, as its classes hold the address of an ICU object.
//!
//! A number that Java made up, or that it closed before, finds nothing. Numbers are not reused.

use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Values of one type by their numbers.
#[derive(Debug)]
pub struct Handles<T> {
    values: OnceLock<Mutex<Numbered<T>>>,
}

#[derive(Debug)]
struct Numbered<T> {
    next: i64,
    values: FxHashMap<i64, Arc<T>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles::new()
    }
}

impl<T> Handles<T> {
    /// No values.
    pub const fn new() -> Handles<T> {
        Handles { values: OnceLock::new() }
    }

    fn with<R>(&self, run: impl FnOnce(&mut Numbered<T>) -> R) -> R {
        let empty = || Mutex::new(Numbered { next: 1, values: FxHashMap::default() });
        run(&mut self.values.get_or_init(empty).lock().expect("no holder panics"))
    }

    /// Adds a value; returns its number, which is not 0.
    pub fn add(&self, value: Arc<T>) -> i64 {
        self.with(|all| {
            let number = all.next;
            all.next += 1;
            all.values.insert(number, value);
            number
        })
    }

    /// The value of a number.
    pub fn get(&self, number: i64) -> Option<Arc<T>> {
        self.with(|all| all.values.get(&number).cloned())
    }

    /// Forgets a value.
    pub fn remove(&self, number: i64) {
        self.with(|all| all.values.remove(&number));
    }
}
