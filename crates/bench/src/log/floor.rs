//! What no log can go below: the length of a message, a stamp, and a copy into a ring that nobody
//! else sees.

use crate::log::log_writer::RecordFn;
use baton_log::Settings;
use baton_log::moment::Source;

/// The ring: as large as a log's, and with nothing that would tell where a record begins.
pub struct Floor {
    bytes: Vec<u8>,
    end: usize,
    source: Source,
}

impl Floor {
    /// An empty one, whose memory is there.
    pub fn new(source: Source) -> Floor {
        let n_bytes = Settings::default().ring_bytes[0];
        Floor { bytes: vec![1; n_bytes], end: 0, source }
    }
}

impl RecordFn for Floor {
    /// A stamp and a text.
    #[inline(always)]
    fn write(&mut self, text: &'static [u8]) {
        let stamp = self.source.stamp().to_ne_bytes();
        let length = stamp.len() + text.len();
        if self.end + length > self.bytes.len() {
            self.end = 0;
        }
        let room = &mut self.bytes[self.end..self.end + length];
        let (first, second) = room.split_at_mut(stamp.len());
        first.copy_from_slice(&stamp);
        second.copy_from_slice(text);
        self.end += length;
    }
}
