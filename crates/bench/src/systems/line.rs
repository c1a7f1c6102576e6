//! A function of the typed API that answers with the value that it is called with, and a line to
//! it.

use super::typed::{self, Owner};
use crate::system::{Client, System};
use baton_driver::process::{Line, Process};
use std::io;
use std::path::Path;

const ECHO: u32 = 1;

/// Who calls. Its process and its handle live as long as the program, as its line refers to them.
pub struct Caller(Line<'static>);

pub fn connect(broker: &Path) -> io::Result<Caller> {
    let (process, object) = typed::reach(broker, System::BatonLine.name())?;
    let (process, object) = (Box::leak(Box::new(process)), Box::leak(Box::new(object)));
    Ok(Caller(process.line(object).map_err(typed::failed)?))
}

pub fn listen(broker: &Path) -> io::Result<Owner> {
    let process = Process::open(System::BatonLine.name(), broker).map_err(typed::opened)?;
    let object = process.add_function(|_, value: u32| Ok(value));
    typed::serve(process, object, 1)
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let value = request.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        let answer: u32 = self.0.call(ECHO, &u32::from_ne_bytes(value)).map_err(typed::failed)?;
        consume(&answer.to_ne_bytes());
        Ok(())
    }
}
