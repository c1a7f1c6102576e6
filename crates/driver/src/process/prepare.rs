//! Getting ready to call.

use super::{CallError, Handle, Process, failure};
use crate::engine::tid;
use std::time::Duration;

impl Process {
    /// Does what the calling thread's first call by this handle would do: it opens a channel, takes
    /// a lane and, for a thread of a real-time policy, waits until the server has a looper for that
    /// lane, at most `longest`. A first call waits for it too, but shorter. If the thread's
    /// priority has changed, that is seen here.
    ///
    /// True if the server has a looper that waits for this thread alone; whether that has the
    /// thread's priority
    /// `baton ps` tells. Not so for an ordinary thread, for a server that does not serve
    /// yet, and for one that has no such loopers.
    /// Errors are those of [`Process::call`].
    pub fn prepare(&self, handle: &Handle, longest: Duration) -> Result<bool, CallError> {
        self.check_handle(handle)?;
        if handle.number == 0 {
            self.find_manager()?;
        }
        let prepared = self.inner.engine.prepare_lane(tid(), handle.number, longest);
        prepared.map_err(|refusal| failure(refusal.command, refusal.errno.raw_os_error()))
    }
}
