//! Numbers that no peer can guess, some in stock: one at a time from the kernel would cost as much as a
//! call.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::cell::RefCell;

/// How many a thread asks for at once.
const AT_ONCE: usize = 32;

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { tokens: [0; AT_ONCE], left: 0 }) };
}

struct Stock {
    tokens: [u64; AT_ONCE],
    left: usize,
}

/// One that nobody has been given before. An error is the kernel's: it has no randomness yet.
pub fn next() -> Result<u64, Errno> {
    STOCK.with(|stock| match stock.try_borrow_mut() {
        Ok(mut stock) => stock.next(),
        // In a signal handler that came in the middle of this.
        Err(_) => Stock { tokens: [0; AT_ONCE], left: 0 }.next(),
    })
}

impl Stock {
    fn next(&mut self) -> Result<u64, Errno> {
        if self.left == 0 {
            let bytes = bytemuck::bytes_of_mut(&mut self.tokens);
            self.left = rustix::rand::getrandom(bytes, GetRandomFlags::empty())? / size_of::<u64>();
        }
        self.left = self.left.checked_sub(1).ok_or(Errno::AGAIN)?;
        Ok(self.tokens[self.left])
    }
}
