//! A payload that has been copied out of its lane, and lies in no receive buffer.

use baton_abi::lane::Message;
use baton_shm::mapping::View;
use std::cell::RefCell;

type Long = Box<[u8]>;

thread_local! {
    /// Memory of payloads that are gone: a thread that calls or serves all day needs one or two.
    static SPARE: RefCell<Vec<Long>> = const { RefCell::new(Vec::new()) };
}

/// Most that a thread keeps.
const MOST_SPARE: usize = 2;
/// Longest that needs no memory of its own.
const SHORT_BYTES: usize = 32;
/// Least that is allocated for a longer one.
const LEAST_BYTES: usize = 128;

/// One payload.
pub(crate) struct Inline {
    data: Bytes,
    bytes: usize,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The sender's pid and effective uid.
    pub sender: (u32, u32),
}

enum Bytes {
    Short([u8; SHORT_BYTES]),
    Long(Spare),
}

/// It goes back to the others when it is dropped, and is `None` only then.
struct Spare(Option<Long>);

impl Inline {
    /// Copies a plain message's data from where it lies in a lane.
    #[inline]
    pub(super) fn copy(message: &Message, map: View<'_>, at: usize, sender: (u32, u32)) -> Inline {
        let (code, flags, bytes) = (message.code, message.flags, message.data_bytes as usize);
        let data = if bytes <= SHORT_BYTES {
            // All of it, whatever lies behind: a copy of a fixed size is a load and a store.
            let mut data = [0; SHORT_BYTES];
            map.read(at, &mut data);
            Bytes::Short(data)
        } else {
            Bytes::Long(Spare::filled(map, at, bytes))
        };
        Inline { data, bytes, code, flags, sender }
    }

    #[inline]
    pub fn data(&self) -> &[u8] {
        let all: &[u8] = match &self.data {
            Bytes::Short(data) => data,
            Bytes::Long(Spare(data)) => data.as_ref().map_or(&[], |data| &data[..]),
        };
        &all[..self.bytes]
    }
}

impl Spare {
    #[inline(never)]
    fn filled(map: View<'_>, at: usize, bytes: usize) -> Spare {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        // What is too short makes way: of calls that are alike each finds the last one's.
        let mut data = spare.filter(|data: &Long| data.len() >= bytes).unwrap_or_else(|| {
            vec![0; bytes.next_power_of_two().max(LEAST_BYTES)].into_boxed_slice()
        });
        map.read(at, &mut data[..bytes]);
        Spare(Some(data))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST_SPARE {
                spare.extend(self.0.take());
            }
        });
    }
}
