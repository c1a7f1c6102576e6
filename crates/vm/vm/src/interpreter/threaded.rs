//! Threaded dispatch: each opcode has a function, which executes one instruction and ends in a call
//! of the next instruction's function.
//!
//! The compiler makes a jump of such a call: no function here has anything to do after it. So each
//! opcode has an indirect branch of its own, whose target a processor predicts by what mostly
//! follows that opcode, and the four arguments stay in their registers.
//!
//! A build with less optimization makes real calls of them (`calls_may_stay_calls`, which the build
//! script sets). There a chain ends at each backward branch, call and return, so that it is never
//! longer than a method.

use super::calls;
use super::checked;
use super::context::{Context, Flow, Pc, Place, after_call};
use super::prepare::CHECKED;
use super::table;
use crate::class::{Body, Code, Method};
use crate::stack::Registers;
use crate::vm::{Thread, Thrown};

/// Executes the instruction at a place, and those after it.
type Operation = fn(&Thread, &'static Code, Registers, Pc) -> Ended;

/// Why a chain of operations has ended, in one word: the compiler makes no jump of a call whose
/// result has two.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended(Pc);

impl Ended {
    /// The frame was popped. Where calls become jumps: the one with which the chain began.
    pub const RETURN: Ended = Ended(Pc::NONE[0]);
    /// An exception is under way.
    pub const THROW: Ended = Ended(Pc::NONE[1]);
    /// A frame was pushed. Not where calls become jumps.
    pub const CALL: Ended = Ended(Pc::NONE[2]);

    /// Where the frame goes on. `None` of the others. A chain ends so only where calls stay calls.
    #[inline(always)]
    pub fn here(self) -> Option<Pc> {
        self.0.is_some().then_some(self.0)
    }
}

/// Executes instructions of the top frame from a place on.
#[inline(always)]
pub(super) fn start(t: &Thread, code: &'static Code, r: Registers, pc: Pc) -> Ended {
    OPERATIONS[usize::from(pc.opcode())](t, code, r, pc)
}

/// Whether an operation has something in memory: those that allocate. The compiler makes no jump of
/// a call in such a function, and they run out of line.
const fn uses_memory(opcode: u8) -> bool {
    matches!(opcode, 0x1a..=0x1c | 0x22..=0x26 | 0xfa..=0xff)
}

/// Whether an instruction that calls names its arguments by a range of registers.
const fn has_range(opcode: u8) -> bool {
    matches!(opcode, 0x74..=0x78)
}

fn step<const OPCODE: u8>(t: &Thread, code: &'static Code, r: Registers, pc: Pc) -> Ended {
    if OPCODE == CHECKED {
        return match checked::check(t, code, r, pc) {
            Ok(opcode) => OPERATIONS[usize::from(opcode)](t, code, r, pc),
            Err(Thrown) => Ended::THROW,
        };
    }
    if uses_memory(OPCODE) {
        return resume(t, code, r, out_of_line::<OPCODE>(t, code, r, pc));
    }
    match table::operation(OPCODE, Context { t, code, r, pc }) {
        Flow::Call(target) if has_range(OPCODE) => call::<true>(t, code, r, pc, target),
        Flow::Call(target) => call::<false>(t, code, r, pc, target),
        Flow::CallStatic(target) if has_range(OPCODE) => {
            initialize_and_call::<true>(t, code, r, pc, target)
        }
        Flow::CallStatic(target) => initialize_and_call::<false>(t, code, r, pc, target),
        Flow::Find(find) => find_first(t, code, r, pc, find),
        flow => follow(t, code, r, pc, flow),
    }
}

/// Finds what an instruction needs, and executes it.
#[cold]
#[inline(never)]
fn find_first(
    t: &Thread,
    code: &'static Code,
    r: Registers,
    pc: Pc,
    find: fn(Place<'_>) -> Result<(), Thrown>,
) -> Ended {
    match find(Place { t, pc }) {
        Ok(()) => start(t, code, r, pc),
        Err(Thrown) => Ended::THROW,
    }
}

/// Calls a static method once its class is initialized.
#[cold]
#[inline(never)]
fn initialize_and_call<const HAS_RANGE: bool>(
    t: &Thread,
    code: &'static Code,
    r: Registers,
    pc: Pc,
    target: &'static Method,
) -> Ended {
    match calls::initialize(Place { t, pc }, target) {
        Ok(()) => call::<HAS_RANGE>(t, code, r, pc, target),
        Err(Thrown) => Ended::THROW,
    }
}

/// Calls a method with the arguments that an instruction names.
// Out of line: the opcodes that call share it.
#[inline(never)]
fn call<const HAS_RANGE: bool>(
    t: &Thread,
    code: &'static Code,
    r: Registers,
    pc: Pc,
    target: &'static Method,
) -> Ended {
    let Some(Body::Code(callee)) = target.body.get() else {
        return call_native::<HAS_RANGE>(t, code, r, pc, target);
    };
    let c = Context { t, code, r, pc };
    follow(t, code, r, pc, calls::call(c, target, callee, registers::<HAS_RANGE>(c)))
}

/// Calls a method that has no bytecode, and goes on after it.
#[inline(never)]
fn call_native<const HAS_RANGE: bool>(
    t: &Thread,
    code: &'static Code,
    r: Registers,
    pc: Pc,
    target: &'static Method,
) -> Ended {
    resume(t, code, r, run_native::<HAS_RANGE>(t, code, r, pc, target))
}

/// Calls a method that has no bytecode: its result is in memory.
#[inline(never)]
fn run_native<const HAS_RANGE: bool>(
    t: &Thread,
    code: &'static Code,
    r: Registers,
    pc: Pc,
    target: &'static Method,
) -> Ended {
    let c = Context { t, code, r, pc };
    stay(c.place(), calls::call_native(c, target, registers::<HAS_RANGE>(c)))
}

/// The registers of the arguments.
#[inline(always)]
fn registers<const HAS_RANGE: bool>(c: Context<'_>) -> calls::Registers {
    if HAS_RANGE { calls::range(c) } else { calls::list(c) }
}

/// Goes on as an operation says.
#[inline(always)]
fn follow(t: &Thread, code: &'static Code, r: Registers, pc: Pc, flow: Flow) -> Ended {
    match flow {
        Flow::Next(next) if cfg!(calls_may_stay_calls) && next <= pc => Ended(next),
        Flow::Next(next) => start(t, code, r, next),
        Flow::Attend(next) => attend(t, code, r, next, Ended(next)),
        Flow::Enter(code, r) if t.state.has_attention() => {
            attend(t, code, r, Pc::first(code), Ended::CALL)
        }
        Flow::Enter(..) if cfg!(calls_may_stay_calls) => Ended::CALL,
        Flow::Enter(code, r) => start(t, code, r, Pc::first(code)),
        Flow::Return if cfg!(calls_may_stay_calls) || t.has_returned() => Ended::RETURN,
        Flow::Return => {
            let (code, r, pc) = after_call(t);
            start(t, code, r, pc)
        }
        Flow::Throw => Ended::THROW,
        Flow::Find(_) | Flow::Call(_) | Flow::CallStatic(_) => unreachable!("only of operations"),
    }
}

/// Executes one instruction, which pushes and pops no frame.
#[inline(never)]
fn out_of_line<const OPCODE: u8>(t: &Thread, code: &'static Code, r: Registers, pc: Pc) -> Ended {
    stay(Place { t, pc }, table::operation(OPCODE, Context { t, code, r, pc }))
}

/// Does what a collector asks for, and goes on at a place; or ends so, where calls stay calls.
#[cold]
#[inline(never)]
fn attend(t: &Thread, code: &'static Code, r: Registers, pc: Pc, ended: Ended) -> Ended {
    t.safepoint();
    if cfg!(calls_may_stay_calls) { ended } else { start(t, code, r, pc) }
}

/// The end of what runs out of line, in the frame where it began.
fn stay(p: Place<'_>, flow: Flow) -> Ended {
    match flow {
        Flow::Next(next) => Ended(next),
        Flow::Find(find) if find(p).is_ok() => Ended(p.pc),
        Flow::Find(_) | Flow::Throw => Ended::THROW,
        _ => unreachable!("the operation changes no frame"),
    }
}

/// Goes on after what ran out of line.
#[inline(always)]
fn resume(t: &Thread, code: &'static Code, r: Registers, ended: Ended) -> Ended {
    match ended.here() {
        Some(next) if !cfg!(calls_may_stay_calls) => start(t, code, r, next),
        _ => ended,
    }
}

macro_rules! sixteen {
    ($($first:literal)*) => {
        [$(
            step::<$first>, step::<{ $first + 1 }>, step::<{ $first + 2 }>, step::<{ $first + 3 }>,
            step::<{ $first + 4 }>, step::<{ $first + 5 }>, step::<{ $first + 6 }>,
            step::<{ $first + 7 }>, step::<{ $first + 8 }>, step::<{ $first + 9 }>,
            step::<{ $first + 10 }>, step::<{ $first + 11 }>, step::<{ $first + 12 }>,
            step::<{ $first + 13 }>, step::<{ $first + 14 }>, step::<{ $first + 15 }>,
        )*]
    };
}

/// By opcode.
static OPERATIONS: [Operation; 256] = sixteen!(
    0x00 0x10 0x20 0x30 0x40 0x50 0x60 0x70 0x80 0x90 0xa0 0xb0 0xc0 0xd0 0xe0 0xf0
);
