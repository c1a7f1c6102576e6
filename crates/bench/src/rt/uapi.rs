//! A Binder program of the raw interface. It is the same on Baton, which is loaded before it, and
//! on the kernel's own driver.

use crate::endpoint::say;
use crate::rt::request::{BYTES, answer};
use crate::rt::way::{Call, Ends, Place};
use crate::system::Client;
use crate::systems::uapi::{self, Form};
use std::io;
use std::sync::Arc;
use std::thread;

/// Threads that read, and serve whoever comes.
const N_LOOPERS: usize = 4;
/// Those that the driver may ask for, as libbinder has it.
const MORE_LOOPERS: u32 = 15;

pub const ENDS: Ends = Ends { serve, callers };

fn serve(_place: &Place) -> io::Result<()> {
    let answer = |request: &[u8], reply: &mut Vec<u8>| {
        let answer = answer(request);
        reply.extend_from_slice(answer.as_ref().map_or(&[], |answer| answer));
        answer.is_some()
    };
    let _pool = uapi::pool_of(Form::Libc, N_LOOPERS, MORE_LOOPERS, Arc::new(answer))?;
    say("ready")?;
    loop {
        thread::park();
    }
}

/// Threads of one process.
fn callers(_place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let caller = |mut caller: uapi::Caller| -> Call {
        Box::new(move |request| {
            let mut answer = Err(io::ErrorKind::InvalidData.into());
            caller.call(&request.bytes(), &mut |reply| {
                answer = <[u8; BYTES]>::try_from(reply).map_err(io::Error::other);
            })?;
            answer
        })
    };
    Ok(uapi::callers(Form::Libc, n_callers)?.into_iter().map(caller).collect())
}
