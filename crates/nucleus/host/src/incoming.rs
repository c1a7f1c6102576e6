//! The request of a call: of another process, or of the host's own.

use baton::Request;

/// A request that a service is to answer.
pub(crate) enum Incoming<'a> {
    /// A transaction that the driver has brought.
    Transaction(&'a Request<'a>),
    /// A request of a thread of this process.
    Local { code: u32, data: &'a [u8] },
}

const _: () = is_sync::<Incoming<'static>>();
const fn is_sync<T: Sync>() {}
