//! A payload that has been copied out of its lane, and lies in no receive buffer.

use super::INLINE_BYTES;
use baton_abi::lane::Message;
use baton_shm::mapping::Mapping;
use std::cell::RefCell;

type Bytes = Box<[u8; INLINE_BYTES]>;

thread_local! {
    /// Memory of payloads that are gone: a thread that calls or serves all day needs one or two.
    static SPARE: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
}

/// Most that a thread keeps.
const MOST_SPARE: usize = 4;

/// One payload.
pub(crate) struct Inline {
    /// `None` only while it is dropped.
    data: Option<Bytes>,
    bytes: usize,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The sender's pid and effective uid.
    pub sender: (u32, u32),
}

impl Inline {
    /// Copies a plain message's data from where it lies in a lane.
    #[inline]
    pub(super) fn copy(message: &Message, map: &Mapping, at: usize, sender: (u32, u32)) -> Inline {
        let (code, flags, bytes) = (message.code, message.flags, message.data_bytes as usize);
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let mut data = spare.unwrap_or_else(|| Box::new([0; INLINE_BYTES]));
        map.read(at, &mut data[..bytes]);
        Inline { data: Some(data), bytes, code, flags, sender }
    }

    pub fn data(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |data| &data[..self.bytes])
    }
}

impl Drop for Inline {
    #[inline]
    fn drop(&mut self) {
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST_SPARE {
                spare.extend(self.data.take());
            }
        });
    }
}
