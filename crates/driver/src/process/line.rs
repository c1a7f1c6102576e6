//! Calls of plain values by a way that a thread keeps.

use super::{CallError, Handle, Parcel, Process};
use crate::engine::Engine;
use crate::engine::fast::{self, Outcome, Plain, Posted, Receiver};
use crate::engine::tid;
use baton_abi::lane::Message;
use baton_abi::uapi::TF_ACCEPT_FDS;
use bytemuck::{Pod, bytes_of, bytes_of_mut};
use rustix::io::Errno;

/// A thread's way to an object, for calls that carry one plain value there and one back.
///
/// What [`Process::call`] does for every object, every parcel and every thread, a line does once:
/// it knows who calls whom, by which lane, and how long the values are. Its calls are served like
/// any others, by any object.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let process = baton_driver::process::Process::open("binder", "broker.sock".as_ref())?;
/// let thermometer = process.context_manager()?;
/// let mut line = process.line(&thermometer)?;
/// let celsius: i32 = line.call(1, &0_u32)?;
/// # Ok(())
/// # }
/// ```
pub struct Line<'a> {
    process: &'a Process,
    engine: &'a Engine,
    handle: &'a Handle,
    way: Option<fast::Line>,
}

impl Process {
    /// The calling thread's line to an object. `EINVAL` if the handle is another process's, `EBADF`
    /// after [`Process::close`].
    pub fn line<'a>(&'a self, handle: &'a Handle) -> Result<Line<'a>, CallError> {
        self.check_handle(handle)?;
        Ok(Line { process: self, engine: &self.inner.engine, handle, way: None })
    }
}

impl Line<'_> {
    /// A two-way transaction, as [`Process::call`]. `EPROTO` if the answer is not of the length of
    /// an `Answer`: its server's fault. Objects in it are let go.
    #[inline]
    pub fn call<Value: Pod, Answer: Pod>(
        &mut self,
        code: u32,
        value: &Value,
    ) -> Result<Answer, CallError> {
        let mut answer = Awaited(Answer::zeroed());
        let engine = self.engine;
        let Some(way) = &mut self.way else { return self.call_by_process(code, bytes_of(value)) };
        match engine.call_by_line(way, (code, TF_ACCEPT_FDS), bytes_of(value), &mut answer) {
            Outcome::Answered => Ok(answer.0),
            Outcome::Adopted(_) => self.await_answer(),
            Outcome::No => self.call_by_process(code, bytes_of(value)),
        }
    }

    #[cold]
    fn call_by_process<Answer: Pod>(
        &mut self,
        code: u32,
        value: &[u8],
    ) -> Result<Answer, CallError> {
        self.way = None;
        let answer = self.process.call(self.handle, code, &Parcel::from(value))?;
        self.way = self.engine.line(self.handle.number);
        value_of(answer.data())
    }

    #[cold]
    fn await_answer<Answer: Pod>(&mut self) -> Result<Answer, CallError> {
        self.way = None;
        value_of(self.process.await_reply(tid(), self.handle.number)?.data())
    }
}

fn value_of<Answer: Pod>(data: &[u8]) -> Result<Answer, CallError> {
    bytemuck::try_pod_read_unaligned(data).map_err(|_| CallError::Failed(Errno::PROTO))
}

/// A value that is awaited.
struct Awaited<Answer>(Answer);

impl<Answer: Pod> Receiver for Awaited<Answer> {
    /// One of another length is the state's, which has a place for it.
    #[inline(always)]
    fn fits(&self, message: &Message) -> bool {
        message.data_bytes as usize == size_of::<Answer>()
    }

    #[inline(always)]
    fn take_answer(&mut self, _: &Engine, answer: &Plain<'_>) -> bool {
        let is_ours = answer.leave();
        if is_ours {
            answer.area.read(size_of::<Message>(), bytes_of_mut(&mut self.0));
        }
        is_ours
    }

    fn take_request(&mut self, _: &Engine, _: &Posted<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::broker;
    use std::sync::{Arc, Barrier};
    use std::thread;

    const HOLD: u32 = 1;
    /// Calls after which a looper dwells at its only caller's lane, and more.
    const MANY: u32 = 200;

    /// Whether a call goes the line's own way.
    fn by_itself(line: &mut Line<'_>) -> bool {
        let way = line.way.as_mut().expect("it has one");
        let (mut answer, data) = (Awaited(0_u32), bytes_of(&1_u32));
        let outcome = line.engine.call_by_line(way, (0, TF_ACCEPT_FDS), data, &mut answer);
        matches!(outcome, Outcome::Answered)
    }

    /// At either end, in the middle of a call that both know each other for.
    #[test]
    fn a_call_that_becomes_the_states_is_answered() {
        let (broker, _directory) = broker();
        let [server, client] = [(); 2].map(|()| Process::open("binder", broker.socket()).unwrap());
        let held = Arc::new([(); 2].map(|()| Barrier::new(2)));
        let holds = Arc::clone(&held);
        let object = server.add_function(move |code, value: u32| {
            if code == HOLD {
                holds.iter().for_each(|barrier| _ = barrier.wait());
            }
            Ok(value + 1)
        });
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = thread::spawn(move || serving.serve());
        let manager = client.context_manager().unwrap();
        let mut line = client.line(&manager).unwrap();
        for ends in [[false, true], [true, false], [true, true]] {
            (0..MANY).for_each(|value| assert_eq!(line.call(0, &value), Ok(value + 1)));
            thread::scope(|scope| {
                scope.spawn(|| {
                    held[0].wait();
                    for process in [&server, &client].into_iter().zip(ends).filter(|end| end.1) {
                        let engine = &process.0.inner.engine;
                        let mut state = engine.lock();
                        engine.gather(&mut state);
                        engine.unlock(state);
                    }
                    held[1].wait();
                });
                assert_eq!(line.call(HOLD, &7_u32), Ok(8_u32), "{ends:?}");
            });
        }
        // It has found its way again.
        (0..MANY).for_each(|value| assert_eq!(line.call(0, &value), Ok(value + 1)));
        assert!(by_itself(&mut line), "by the line");
        // What is not for a line is the state's, and so is the lane that it shares with others.
        let mut other = client.line(&manager).unwrap();
        assert_eq!(other.call(0, &1_u32), Ok(2_u32));
        let failed = CallError::Failed(Errno::PROTO);
        assert_eq!(other.call::<u32, u64>(0, &1), Err(failed));
        assert!(!by_itself(&mut line), "by a lane that is another's");
        server.close();
        looper.join().unwrap();
    }
}
