//! What serves an object.

use super::{Parcel, Request};
use crate::engine::Engine;
use crate::engine::fast::{Plain, Posted, Receiver};
use bytemuck::{Pod, bytes_of};
use rustix::io::Errno;

/// Most bytes of a function's answer.
pub const SHORT_BYTES: usize = 32;

/// A value, and what happens to lie behind it.
pub(super) type Short = [u8; SHORT_BYTES];

/// The program's code.
pub(super) enum Handler {
    /// Of whatever can be sent.
    Parcels(Box<Parcels>),
    /// Of one value.
    Function(Function),
}

type Parcels = dyn Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync;

type OnBytes = dyn Fn(u32, &[u8], &mut Short) -> Result<(), Errno> + Send + Sync;

/// A function of a code and a value, of which it has the bytes. It puts those of its answer in
/// their place.
pub(super) struct Function {
    body: Box<OnBytes>,
    /// How many of those there are.
    pub answer_bytes: usize,
}

impl Function {
    /// One of the program's.
    pub fn new<Value: Pod, Answer: Pod>(
        function: impl Fn(u32, Value) -> Result<Answer, Errno> + Send + Sync + 'static,
    ) -> Function {
        const { assert!(size_of::<Answer>() <= SHORT_BYTES, "a longer answer is a parcel's") };
        let body = move |code: u32, data: &[u8], short: &mut Short| {
            let value = bytemuck::try_pod_read_unaligned(data).map_err(|_| Errno::INVAL)?;
            let answer: Answer = function(code, value)?;
            short[..size_of::<Answer>()].copy_from_slice(bytes_of(&answer));
            Ok(())
        };
        Function { body: Box::new(body), answer_bytes: size_of::<Answer>() }
    }

    /// Calls it by the code with the first so many of these bytes.
    #[inline(always)]
    pub fn call(
        &self,
        (code, data, bytes): (u32, &Short, usize),
        short: &mut Short,
    ) -> Result<(), Errno> {
        (self.body)(code, &data[..bytes.min(SHORT_BYTES)], short)
    }
}

impl Handler {
    /// Serves a request.
    #[inline(always)]
    pub fn serve(&self, request: &Request<'_>) -> Result<Parcel, Errno> {
        match self {
            Handler::Parcels(parcels) => parcels(request),
            Handler::Function(function) => {
                let mut short = [0; SHORT_BYTES];
                (function.body)(request.code(), request.data(), &mut short)?;
                Ok(Parcel::from(&short[..function.answer_bytes]))
            }
        }
    }
}

/// A request whose value has been copied.
pub(super) struct Given;

impl Receiver for Given {
    #[inline(always)]
    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
        // The point of no return, if it has begun.
        let begun = request.begin(engine);
        if !begun {
            request.turn_back(engine);
        }
        begun
    }

    fn take_answer(&mut self, _: &Engine, _: &Plain<'_>) -> bool {
        false
    }
}
