//! Memory that is used no more goes back to the system.

#![expect(unsafe_code, reason = "malloc_trim")]

/// What has been done since the allocator was asked last, in units of a request's cost, after which
/// it is worth asking: some hundred bytes each.
const WORTH_IT: u64 = 1 << 16;

/// How much memory may have been used and left since the allocator was asked.
#[derive(Debug, Default)]
pub(crate) struct Used(u64);

impl Used {
    /// So much has been done.
    pub fn add(&mut self, cost: u64) {
        self.0 = self.0.saturating_add(cost);
    }

    /// Nobody waits: the allocator, which keeps what was freed between other things, gives it back.
    pub fn give_back(&mut self) {
        if self.0 < WORTH_IT {
            return;
        }
        self.0 = 0;
        // SAFETY: may be called at any time; it moves nothing that is in use.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
