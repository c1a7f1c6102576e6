//! Numbers that no peer can guess, some in stock: one at a time from the kernel would cost as much as a
//! call.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::cell::Cell;

/// How many a thread asks for at once.
const AT_ONCE: usize = 256;

thread_local! {
    static STOCK: [Cell<u64>; AT_ONCE] = const { [const { Cell::new(0) }; AT_ONCE] };
    /// How many of them nobody has been given.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// One that nobody has been given before, but for a signal handler in the middle of this. An error is
/// the kernel's: it has no randomness yet.
#[inline]
pub fn next() -> Result<u64, Errno> {
    if LEFT.get() == 0 {
        refill()?;
    }
    let left = LEFT.get() - 1;
    LEFT.set(left);
    Ok(STOCK.with(|stock| stock[left % AT_ONCE].get()))
}

#[cold]
fn refill() -> Result<(), Errno> {
    let mut tokens = [0; AT_ONCE];
    let bytes = bytemuck::bytes_of_mut(&mut tokens);
    let filled = rustix::rand::getrandom(bytes, GetRandomFlags::empty())? / size_of::<u64>();
    STOCK.with(|stock| stock.iter().zip(tokens).for_each(|(place, token)| place.set(token)));
    LEFT.set(filled);
    if filled == 0 { Err(Errno::AGAIN) } else { Ok(()) }
}
