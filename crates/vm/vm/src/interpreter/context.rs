//! What an operation works on, and how it ends.

use crate::class::{Code, LoadedDex, Method};
use crate::exception;
use crate::stack::Registers;
use crate::vm::{Thread, Thrown};
use std::sync::atomic::Ordering::Relaxed;

/// The units of each instruction that pushes a frame.
pub(super) const CALL_UNITS: i32 = 3;

/// The place of an instruction in verified code.
///
/// Verification says that an instruction has all its units, that branches lead to instructions,
/// and that control never leaves the code. So a place that an operation returns is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Pc(*const u16);

impl Pc {
    /// Places of no instruction: units are aligned to two bytes.
    pub const NONE: [Pc; 3] = [
        Pc(std::ptr::without_provenance(1)),
        Pc(std::ptr::without_provenance(3)),
        Pc(std::ptr::without_provenance(5)),
    ];

    /// Whether this is the place of an instruction.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.0.addr() & 1 == 0
    }

    /// The place of the first instruction.
    #[inline(always)]
    pub fn first(code: &Code) -> Pc {
        Pc(code.units.as_ptr())
    }

    /// The place of a unit at which an instruction starts.
    #[inline(always)]
    pub fn at(code: &Code, unit: u32) -> Pc {
        Pc(code.units[unit as usize..].as_ptr())
    }

    /// A unit of the instruction, or of its payload.
    #[inline(always)]
    pub fn unit(self, index: usize) -> u16 {
        // SAFETY: the instruction has this unit, by the verification of the code.
        unsafe { *self.0.add(index) }
    }

    /// The number of the unit in its code.
    pub fn index(self, code: &Code) -> u32 {
        (self.0.addr() - code.units.as_ptr().addr()) as u32 / 2
    }

    /// The place at a distance in units.
    #[inline(always)]
    pub fn jump(self, distance: i32) -> Pc {
        Pc(self.0.wrapping_offset(distance as isize))
    }

    /// The opcode.
    #[inline(always)]
    pub fn opcode(self) -> u8 {
        self.unit(0) as u8
    }

    /// The high byte of the first unit: a register of most formats.
    #[inline(always)]
    pub fn aa(self) -> usize {
        usize::from(self.unit(0) >> 8)
    }

    /// Bits 8 to 11 of the first unit.
    #[inline(always)]
    pub fn a(self) -> usize {
        usize::from(self.unit(0) >> 8 & 0xf)
    }

    /// Bits 12 to 15 of the first unit.
    #[inline(always)]
    pub fn b(self) -> usize {
        usize::from(self.unit(0) >> 12)
    }

    /// The low byte of the second unit.
    #[inline(always)]
    pub fn bb(self) -> usize {
        usize::from(self.unit(1) as u8)
    }

    /// The high byte of the second unit.
    #[inline(always)]
    pub fn cc(self) -> usize {
        usize::from(self.unit(1) >> 8)
    }

    /// The second unit as an index.
    #[inline(always)]
    pub fn bbbb(self) -> usize {
        usize::from(self.unit(1))
    }

    /// The second unit with its sign.
    #[inline(always)]
    pub fn signed(self) -> i32 {
        i32::from(self.unit(1) as i16)
    }

    /// Two units from `index` on.
    #[inline(always)]
    pub fn word(self, index: usize) -> i32 {
        (u32::from(self.unit(index)) | u32::from(self.unit(index + 1)) << 16) as i32
    }
}

/// One instruction of one frame of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub t: &'a Thread,
    pub code: &'static Code,
    pub r: Registers,
    pub pc: Pc,
}

/// How an operation ends.
///
/// An operation that calls another function and goes on after it has to save registers first, each
/// time it runs. So those that run often call none: they end, and say what has to be done.
#[must_use]
pub(crate) enum Flow {
    /// The frame goes on at this place.
    Next(Pc),
    /// So it does, after the thread has done what a collector asks for.
    Attend(Pc),
    /// The instruction needs what this finds, and is executed anew afterwards.
    Find(fn(Place<'_>) -> Result<(), Thrown>),
    /// The instruction calls this method.
    Call(&'static Method),
    /// So it does, once the method's class is initialized.
    CallStatic(&'static Method),
    /// A frame was pushed, which runs this code on these registers.
    Enter(&'static Code, Registers),
    /// The frame was popped.
    Return,
    /// An exception is under way.
    Throw,
}

impl From<Thrown> for Flow {
    fn from(_: Thrown) -> Flow {
        Flow::Throw
    }
}

impl Context<'_> {
    /// The file that indices belong to.
    #[inline(always)]
    pub fn dex(&self) -> &'static LoadedDex {
        self.code.dex
    }

    /// The end of an operation that has no other successor.
    #[inline(always)]
    pub fn next(&self, n_units: i32) -> Flow {
        Flow::Next(self.pc.jump(n_units))
    }

    /// The end of a branch. A thread stops here if another one wants it to.
    #[inline(always)]
    pub fn branch(&self, distance: i32) -> Flow {
        let next = self.pc.jump(distance);
        if distance <= 0 && self.t.state.has_attention() {
            return Flow::Attend(next);
        }
        Flow::Next(next)
    }

    /// Makes the place known to stack traces. Before anything that may throw or call.
    #[inline(always)]
    pub fn save(&self) {
        self.t.state.stack.top_frame().pc.store(self.pc.index(self.code), Relaxed);
    }

    /// The place of the instruction, for what is done rarely.
    #[inline(always)]
    pub fn place(&self) -> Place<'_> {
        Place { t: self.t, pc: self.pc }
    }

    /// Throws an exception.
    #[inline(always)]
    pub fn throw(&self, class: &str, message: &str) -> Thrown {
        self.place().throw(class, message)
    }

    /// Throws a NullPointerException.
    #[inline(always)]
    pub fn null(&self, message: &str) -> Thrown {
        self.place().null(message)
    }

    /// Throws a VerifyError: the types in registers are not what the instruction needs.
    #[inline(always)]
    pub fn unverified(&self, expected: &str) -> Thrown {
        self.place().unverified(expected)
    }

    /// The method that runs.
    pub fn method(&self) -> &'static Method {
        self.place().method()
    }
}

/// The place of an instruction that runs: what functions take that are not part of an operation.
/// Two words are passed in registers. A [`Context`] would have to lie in memory, and an operation
/// that has something in memory cannot end in a jump.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub t: &'a Thread,
    pub pc: Pc,
}

impl Place<'_> {
    /// The code that runs.
    pub fn code(self) -> &'static Code {
        top(self.t).0
    }

    /// The method that runs.
    pub fn method(self) -> &'static Method {
        self.t.state.stack.top_frame().method.get().expect("a frame has a method")
    }

    /// Like [`Context::save`].
    pub fn save(self) {
        self.t.state.stack.top_frame().pc.store(self.pc.index(self.code()), Relaxed);
    }

    /// Throws an exception.
    #[cold]
    pub fn throw(self, class: &str, message: &str) -> Thrown {
        self.save();
        exception::throw(self.t, class, message)
    }

    /// Throws a NullPointerException.
    #[cold]
    pub fn null(self, message: &str) -> Thrown {
        self.throw("Ljava/lang/NullPointerException;", message)
    }

    /// Throws a VerifyError: the types in registers are not what the instruction needs.
    #[cold]
    pub fn unverified(self, expected: &str) -> Thrown {
        let message =
            format!("{} in {} needs {expected}", self.pc.index(self.code()), self.method());
        self.throw("Ljava/lang/VerifyError;", &message)
    }
}

/// The top frame, which has bytecode: its code and registers, and where it is.
#[inline(always)]
pub(super) fn top(t: &Thread) -> (&'static Code, Registers, Pc) {
    let frame = t.state.stack.top_frame();
    let code = frame.code.get().expect("the interpreter pushes frames with bytecode");
    (code, t.state.stack.top_registers(), Pc::at(code, frame.pc.load(Relaxed)))
}

/// The top frame, of which a call has returned: its code and registers, and where it goes on.
#[inline(always)]
pub(super) fn after_call(t: &Thread) -> (&'static Code, Registers, Pc) {
    let (code, registers, pc) = top(t);
    (code, registers, pc.jump(CALL_UNITS))
}
