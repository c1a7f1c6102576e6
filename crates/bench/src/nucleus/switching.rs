//! The bare switch of stacks that an IPC is compared with.

use super::batch::batches;
use baton_nucleus::bare::{self, Context};
use std::cell::UnsafeCell;
use std::io;

const BATCH: u64 = 1000;
const STACK_WORDS: usize = 4096;

struct Places([UnsafeCell<Context>; 2]);

thread_local! {
    static PLACES: Places = const { Places([const { UnsafeCell::new(Context::empty()) }; 2]) };
}

fn places() -> [*mut Context; 2] {
    PLACES.with(|places| [places.0[0].get(), places.0[1].get()])
}

extern "C" fn answer() -> ! {
    let [ours, theirs] = places();
    loop {
        // SAFETY: only reached from the other place, which was left for this one.
        unsafe { bare::switch(theirs, ours) };
    }
}

/// What a switch from one stack to another took of each batch, in picoseconds.
pub fn bare_switch(n_batches: u64) -> io::Result<Vec<u64>> {
    let mut stack = vec![[0_usize; 2]; STACK_WORDS];
    let top = stack.as_mut_ptr_range().end.cast::<usize>();
    let top = top.wrapping_byte_sub(top as usize % 16);
    let [ours, theirs] = places();
    // SAFETY: a stack of its own, which lives until nobody goes there any more.
    unsafe { theirs.write(Context::beginning(top, answer)) };
    batches(n_batches, 2 * BATCH, |_| {
        for _ in 0..BATCH {
            // SAFETY: begun above, or left by `answer`.
            unsafe { bare::switch(ours, theirs) };
        }
        Ok(())
    })
}
