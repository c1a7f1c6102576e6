//! Threaded dispatch: each opcode has a function, which executes one instruction and ends in a call
//! of the next instruction's function.
//!
//! The compiler makes a jump of such a call: no function here has anything to do after it. So each
//! opcode has an indirect branch of its own, whose target a processor predicts by what mostly
//! follows that opcode, and the four arguments stay in their registers.
//!
//! A build with less optimization makes real calls of them (`calls_may_stay_calls`, which the build
//! script sets). There a chain ends at each backward branch, so that it is never longer than a
//! method.

use super::checked;
use super::context::{Context, Flow, Pc};
use super::prepare::CHECKED;
use super::table;
use crate::class::Code;
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
    /// The frame was popped.
    pub const RETURN: Ended = Ended(Pc::NONE[0]);
    /// An exception is under way.
    pub const THROW: Ended = Ended(Pc::NONE[1]);
    /// A frame was pushed for bytecode.
    pub const CALL: Ended = Ended(Pc::NONE[2]);

    /// Where the frame goes on. `None` of the others.
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

/// Whether the compiler can make a jump of the call of the next operation. It cannot where an
/// operation has something in memory: those that allocate and those that call go back to the loop.
const fn ends_in_a_jump(opcode: u8) -> bool {
    !matches!(opcode, 0x1a..=0x1c | 0x22..=0x26 | 0x3e | 0x6e..=0x78 | 0xfa..=0xff)
}

fn step<const OPCODE: u8>(t: &Thread, code: &'static Code, r: Registers, pc: Pc) -> Ended {
    let context = Context { t, code, r, pc };
    let flow = match OPCODE {
        CHECKED => checked(context),
        _ => table::operation(OPCODE, context),
    };
    match flow {
        Flow::Next(next) if !ends_in_a_jump(OPCODE) => Ended(next),
        Flow::Next(next) if cfg!(calls_may_stay_calls) && next <= pc => Ended(next),
        Flow::Next(next) => start(t, code, r, next),
        Flow::Call => Ended::CALL,
        Flow::Return => Ended::RETURN,
        Flow::Throw => Ended::THROW,
    }
}

/// Executes an instruction after its checks.
#[inline(never)]
fn checked(c: Context<'_>) -> Flow {
    match checked::check(c) {
        Ok(opcode) => table::operation(opcode, c),
        Err(Thrown) => Flow::Throw,
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
