//! A thread's Java stack: frames with their registers.
//!
//! ```text
//! slots:  | args . . | locals, args | locals, args | ... free
//!           native     method         method (top)
//! slot:   low half: the value;  high half: the reference, 0 if the value is none
//! ```
//!
//! A register is one slot. A write of a number clears the reference, so that a number is never
//! taken for a reference, and the references between bottom and top are exactly the thread's.
//! A wide value has its halves in two slots. The stack is not Rust's: its depth has a limit of its
//! own, and a collector reads it while the thread waits.
//!
//! **Invariants**: a reference in a slot below the top is null or an object that is not free. Slots
//! are cleared, or get the arguments, when a frame is pushed. There are at least as many slots and
//! frames as their limits say, and as are in use.

use crate::class::{Code, Method};
use crate::memory::{Pages, Zero};
use crate::object::{Kind, Ref};
use crate::resolved::Resolved;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// One thread's frames. Only that thread changes them; others may read while it waits.
#[derive(Debug)]
pub struct Stack {
    slots: Pages<AtomicU64>,
    /// How many slots frames may use: fewer than there are, but while an overflow is thrown.
    limit: AtomicUsize,
    top: AtomicUsize,
    frames: Pages<Frame>,
    /// How many frames there may be: fewer than there are, but while an overflow is thrown.
    most_frames: AtomicUsize,
    depth: AtomicUsize,
}

/// What a frame runs.
#[derive(Debug)]
pub struct Frame {
    pub(crate) method: Resolved<Method>,
    /// Its bytecode, empty if it has none
    pub(crate) code: Resolved<Code>,
    /// The first slot
    pub(crate) base: AtomicU32,
    /// The unit of the instruction that runs, or that called
    pub(crate) pc: AtomicU32,
}

// SAFETY: zero is a number, and the null of a reference.
unsafe impl Zero for Frame {}

/// Slots that only the constructor of a StackOverflowError may use.
const RESERVED_SLOTS: usize = 2048;
/// As many frames.
const RESERVED_FRAMES: usize = 64;
/// Frames of fewer slots may fill the frames before the slots.
const SLOTS_OF_A_FRAME: usize = 4;

/// The stack has no room for another frame.
#[derive(Debug)]
pub struct Overflow;

impl Stack {
    /// A stack of this many slots, 8 bytes each.
    pub fn new(n_slots: usize) -> Stack {
        let n_slots = n_slots.max(4 * RESERVED_SLOTS);
        let n_frames = n_slots / SLOTS_OF_A_FRAME;
        Stack {
            limit: AtomicUsize::new(n_slots - RESERVED_SLOTS),
            slots: Pages::zeroed(n_slots),
            top: AtomicUsize::new(0),
            frames: Pages::zeroed(n_frames),
            most_frames: AtomicUsize::new(n_frames - RESERVED_FRAMES),
            depth: AtomicUsize::new(0),
        }
    }

    /// The number of slots that frames may use, and those that are reserved.
    pub fn n_slots(&self) -> usize {
        self.slots.len()
    }

    /// The number of frames.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    /// A frame by its depth: 0 is the outermost.
    #[inline(always)]
    pub fn frame(&self, depth: usize) -> &Frame {
        &self.frames[depth]
    }

    /// Pushes a frame of so many cleared registers, and registers of arguments behind them, which
    /// the caller has to write at once.
    ///
    /// # Errors
    /// [`Overflow`] if there is no room.
    #[inline(always)]
    pub fn push(
        &self,
        method: &'static Method,
        code: Option<&'static Code>,
        n_cleared: usize,
        n_arguments: usize,
    ) -> Result<Registers, Overflow> {
        let (top, depth, n_registers) =
            (self.top.load(Relaxed), self.depth(), n_cleared + n_arguments);
        let has_slots = top + n_registers <= self.limit.load(Relaxed);
        if !has_slots || depth >= self.most_frames.load(Relaxed) {
            return Err(Overflow);
        }
        // SAFETY: both are within their limits, and so within the tables.
        let (frame, slots) = unsafe {
            (self.frames.get_unchecked(depth), self.slots.get_unchecked(top..top + n_registers))
        };
        let (cleared, _) = slots.split_at(n_cleared);
        cleared.iter().for_each(|slot| slot.store(0, Relaxed));
        frame.method.set(method);
        match code {
            Some(code) => frame.code.set(code),
            None => frame.code.clear(),
        }
        frame.base.store(top as u32, Relaxed);
        frame.pc.store(0, Relaxed);
        self.top.store(top + n_registers, Relaxed);
        self.depth.store(depth + 1, Relaxed);
        Ok(Registers::of(slots))
    }

    /// Lets `run` use the slots and frames that are reserved for throwing an overflow.
    pub(crate) fn with_reserve<T>(&self, run: impl FnOnce() -> T) -> T {
        let limit = self.limit.swap(self.slots.len(), Relaxed);
        let most_frames = self.most_frames.swap(self.frames.len(), Relaxed);
        let result = run();
        self.limit.store(limit, Relaxed);
        self.most_frames.store(most_frames, Relaxed);
        result
    }

    /// Pops the top frame.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn pop(&self) {
        self.top.store(self.top_frame().base.load(Relaxed) as usize, Relaxed);
        self.depth.store(self.depth() - 1, Relaxed);
    }

    /// The top frame.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn top_frame(&self) -> &Frame {
        let below = self.depth().checked_sub(1).expect("a frame");
        // SAFETY: there are at least as many frames as are in use.
        unsafe { self.frames.get_unchecked(below) }
    }

    /// The registers of the top frame, and slots behind them.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(crate) fn top_registers(&self) -> Registers {
        Registers::of(&self.slots[self.base()..])
    }

    /// Keeps a reference in the top frame until that frame is popped.
    ///
    /// # Errors
    /// [`Overflow`] if there is no room.
    pub fn keep(&self, object: Ref) -> Result<(), Overflow> {
        let top = self.top.load(Relaxed);
        let Some(slot) = self.slots.get(top) else { return Err(Overflow) };
        slot.store(reference_slot(object), Relaxed);
        self.top.store(top + 1, Relaxed);
        Ok(())
    }

    /// Keeps a reference in the top frame, within the limit of frames; returns the slot.
    ///
    /// # Errors
    /// [`Overflow`] if there is no room.
    pub fn keep_within_limit(&self, object: Ref) -> Result<usize, Overflow> {
        let slot = self.top.load(Relaxed);
        if slot >= self.limit.load(Relaxed) {
            return Err(Overflow);
        }
        self.keep(object)?;
        Ok(slot)
    }

    /// How many slots frames may still use.
    pub fn room(&self) -> usize {
        self.limit.load(Relaxed).saturating_sub(self.top.load(Relaxed))
    }

    /// The first slot of the top frame.
    ///
    /// # Panics
    /// If there is no frame.
    #[inline(always)]
    pub fn base(&self) -> usize {
        self.top_frame().base.load(Relaxed) as usize
    }

    /// The reference in a slot, if that slot is in use and the reference has this address.
    #[inline(always)]
    pub fn reference_at(&self, slot: usize, address: u32) -> Option<Ref> {
        if slot >= self.top.load(Relaxed) {
            return None;
        }
        // SAFETY: only compared with what the slot holds, until it is known to be that.
        let object = unsafe { Ref::from_address(address) };
        (self.slots[slot].load(Relaxed) == reference_slot(object)).then_some(object)
    }

    /// Puts a reference into a slot that [`Stack::keep_within_limit`] has given.
    ///
    /// # Panics
    /// If the slot is not in use.
    pub fn set_kept(&self, slot: usize, object: Ref) {
        assert!(slot < self.top.load(Relaxed), "a slot in use");
        self.slots[slot].store(reference_slot(object), Relaxed);
    }

    /// Marks how much the top frame keeps.
    pub fn kept(&self) -> usize {
        self.top.load(Relaxed)
    }

    /// Lets go of what was kept since [`Stack::kept`].
    ///
    /// # Panics
    /// If fewer slots are in use.
    pub fn release(&self, kept: usize) {
        debug_assert!(kept <= self.top.load(Relaxed), "{kept} slots are in use");
        self.top.store(kept, Relaxed);
    }

    /// Calls `with` for each reference on the stack.
    pub fn each_reference(&self, mut with: impl FnMut(Ref)) {
        for slot in &self.slots[..self.top.load(Relaxed)] {
            let address = (slot.load(Relaxed) >> 32) as u32;
            // SAFETY: the high half of a slot is a reference, by the stack's invariant.
            with(unsafe { Ref::from_address(address) });
        }
    }
}

fn reference_slot(object: Ref) -> u64 {
    u64::from(object.address()) << 32 | u64::from(object.address())
}

/// The registers of one frame, by their numbers.
///
/// A number has to be below the frame's count of registers: the structural verification of the
/// code says so, and debug builds check it.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    first: *const AtomicU64,
    #[cfg(debug_assertions)]
    count: usize,
}

impl Registers {
    #[inline(always)]
    fn of(slots: &[AtomicU64]) -> Registers {
        Registers {
            first: slots.as_ptr(),
            #[cfg(debug_assertions)]
            count: slots.len(),
        }
    }

    #[inline(always)]
    fn slot(&self, register: usize) -> &AtomicU64 {
        #[cfg(debug_assertions)]
        assert!(register < self.count, "register {register} of {}", self.count);
        // SAFETY: the register is one of the frame's, by the verification of its code.
        unsafe { &*self.first.add(register) }
    }

    /// The value of 32 bits.
    #[inline(always)]
    pub fn int(&self, register: usize) -> i32 {
        self.slot(register).load(Relaxed) as i32
    }

    /// Writes a value of 32 bits.
    #[inline(always)]
    pub fn set_int(&self, register: usize, value: i32) {
        self.slot(register).store(u64::from(value as u32), Relaxed);
    }

    /// The value as a float.
    #[inline(always)]
    pub fn float(&self, register: usize) -> f32 {
        f32::from_bits(self.int(register) as u32)
    }

    /// Writes a float.
    #[inline(always)]
    pub fn set_float(&self, register: usize, value: f32) {
        self.set_int(register, value.to_bits() as i32);
    }

    /// The value of a pair of registers.
    #[inline(always)]
    pub fn long(&self, register: usize) -> i64 {
        let low = self.slot(register).load(Relaxed) as u32;
        let high = self.slot(register + 1).load(Relaxed) as u32;
        (u64::from(high) << 32 | u64::from(low)) as i64
    }

    /// Writes a pair of registers.
    #[inline(always)]
    pub fn set_long(&self, register: usize, value: i64) {
        self.slot(register).store(u64::from(value as u32), Relaxed);
        self.slot(register + 1).store(value as u64 >> 32, Relaxed);
    }

    /// The value of a pair as a double.
    #[inline(always)]
    pub fn double(&self, register: usize) -> f64 {
        f64::from_bits(self.long(register) as u64)
    }

    /// Writes a double to a pair.
    #[inline(always)]
    pub fn set_double(&self, register: usize, value: f64) {
        self.set_long(register, value.to_bits() as i64);
    }

    /// The reference; null if the register has none.
    #[inline(always)]
    pub fn reference(&self, register: usize) -> Ref {
        let address = (self.slot(register).load(Relaxed) >> 32) as u32;
        // SAFETY: the high half of a slot is a reference, by the stack's invariant.
        unsafe { Ref::from_address(address) }
    }

    /// Writes a reference.
    #[inline(always)]
    pub fn set_reference(&self, register: usize, value: Ref) {
        self.slot(register).store(reference_slot(value), Relaxed);
    }

    /// Copies a register of any type from another frame or this one.
    #[inline(always)]
    pub fn copy(&self, to: usize, from: &Registers, register: usize) {
        self.slot(to).store(from.slot(register).load(Relaxed), Relaxed);
    }

    /// Whether two registers hold one number or one reference.
    #[inline(always)]
    pub fn same(&self, one: usize, other: usize) -> bool {
        self.int(one) == self.int(other)
    }
}

/// A value of a Java type. Boolean, byte, char and short are ints.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// No value
    Void,
    /// boolean, byte, char, short, int
    Int(i32),
    /// long
    Long(i64),
    /// float
    Float(f32),
    /// double
    Double(f64),
    /// an object or null
    Ref(Ref),
}

impl Value {
    /// The int.
    ///
    /// # Panics
    /// If the value is of another type. The other accessors panic as well.
    pub fn int(self) -> i32 {
        let Value::Int(value) = self else { panic!("{self:?} is no int") };
        value
    }

    /// The long.
    pub fn long(self) -> i64 {
        let Value::Long(value) = self else { panic!("{self:?} is no long") };
        value
    }

    /// The reference.
    pub fn reference(self) -> Ref {
        let Value::Ref(value) = self else { panic!("{self:?} is no reference") };
        value
    }

    /// Writes the value to registers; returns how many.
    pub(crate) fn write(self, registers: &Registers, at: usize) -> usize {
        match self {
            Value::Void => return 0,
            Value::Int(value) => registers.set_int(at, value),
            Value::Float(value) => registers.set_float(at, value),
            Value::Ref(value) => registers.set_reference(at, value),
            Value::Long(value) => registers.set_long(at, value),
            Value::Double(value) => registers.set_double(at, value),
        }
        if matches!(self, Value::Long(_) | Value::Double(_)) { 2 } else { 1 }
    }
}

/// The arguments of a native method: registers from 0 on, `this` first, two for long and double.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    registers: Registers,
    count: usize,
}

impl Args {
    pub(crate) fn new(registers: Registers, count: usize) -> Args {
        Args { registers, count }
    }

    fn checked(&self, register: usize) -> usize {
        assert!(register < self.count, "argument {register} of {}", self.count);
        register
    }

    /// An argument of type boolean, byte, char, short or int.
    ///
    /// # Panics
    /// If there are fewer registers. The other accessors panic as well.
    pub fn int(&self, register: usize) -> i32 {
        self.registers.int(self.checked(register))
    }

    /// An argument of type boolean.
    pub fn boolean(&self, register: usize) -> bool {
        self.int(register) != 0
    }

    /// An argument of type long.
    pub fn long(&self, register: usize) -> i64 {
        self.checked(register + 1);
        self.registers.long(register)
    }

    /// An argument of type float.
    pub fn float(&self, register: usize) -> f32 {
        self.registers.float(self.checked(register))
    }

    /// An argument of type double.
    pub fn double(&self, register: usize) -> f64 {
        self.checked(register + 1);
        self.registers.double(register)
    }

    /// An argument of a kind.
    pub(crate) fn value(&self, register: usize, kind: Kind) -> Value {
        match kind {
            Kind::Long => Value::Long(self.long(register)),
            Kind::Double => Value::Double(self.double(register)),
            Kind::Float => Value::Float(self.float(register)),
            Kind::Reference => Value::Ref(self.reference(register)),
            _ => Value::Int(self.int(register)),
        }
    }

    /// A reference, `this` for register 0 of an instance method.
    pub fn reference(&self, register: usize) -> Ref {
        self.registers.reference(self.checked(register))
    }
}
