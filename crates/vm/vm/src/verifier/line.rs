//! The types of all registers before one instruction.

use super::types::{Checked, Type, Types, Value, Wide};

/// Types of registers, and of the result that a `move-result` would take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub registers: Box<[Type]>,
    pub result: Value,
    /// In a constructor: whether another constructor of `this` has run
    pub is_constructed: bool,
}

impl Line {
    pub fn new(n_registers: usize) -> Line {
        let registers = vec![Type::Unset; n_registers].into();
        Line { registers, result: Value::Void, is_constructed: false }
    }

    /// Makes this the line of a place that is reached with `other`, too. Returns whether it has
    /// changed.
    pub fn merge(&mut self, other: &Line, types: &mut Types<'_>) -> bool {
        let mut changed = self.is_constructed && !other.is_constructed;
        self.is_constructed &= other.is_constructed;
        self.result = other.result;
        for (mine, its) in self.registers.iter_mut().zip(&other.registers) {
            let merged = types.merge(*mine, *its);
            changed |= merged != *mine;
            *mine = merged;
        }
        changed
    }

    pub fn get(&self, register: u16) -> Type {
        self.registers[usize::from(register)]
    }

    /// Sets a register. The other half of a pair that it was part of is lost.
    pub fn set(&mut self, register: u16, to: Type) {
        let at = usize::from(register);
        match self.registers[at] {
            Type::Low(_) => self.registers[at + 1] = Type::Unset,
            Type::High(_) => self.registers[at - 1] = Type::Unset,
            _ => {}
        }
        self.registers[at] = to;
    }

    pub fn set_wide(&mut self, register: u16, to: Wide) {
        self.set(register, Type::Low(to));
        self.set_high(register + 1, to);
    }

    /// The second half: its low half stays.
    fn set_high(&mut self, register: u16, to: Wide) {
        let at = usize::from(register);
        if let Type::Low(_) = self.registers[at] {
            self.registers[at + 1] = Type::Unset;
        }
        self.registers[at] = Type::High(to);
    }

    pub fn set_value(&mut self, register: u16, to: Value) {
        match to {
            Value::Void => {}
            Value::Int => self.set(register, Type::Int),
            Value::Float => self.set(register, Type::Float),
            Value::Wide(wide) => self.set_wide(register, wide),
            Value::Object(name) => self.set(register, Type::Object(name)),
        }
    }

    /// Replaces a type in all registers.
    pub fn replace(&mut self, from: Type, to: Type) {
        self.registers.iter_mut().filter(|it| **it == from).for_each(|it| *it = to);
    }

    pub fn int(&self, register: u16) -> Checked<()> {
        match self.get(register) {
            Type::Zero | Type::Constant | Type::Int => Ok(()),
            found => expect("an int", register, found),
        }
    }

    pub fn float(&self, register: u16) -> Checked<()> {
        match self.get(register) {
            Type::Zero | Type::Constant | Type::Float => Ok(()),
            found => expect("a float", register, found),
        }
    }

    pub fn wide(&self, register: u16, of: Wide) -> Checked<()> {
        let fits = |found: Wide| found == Wide::Constant || found == of || of == Wide::Constant;
        match (self.get(register), self.get(register + 1)) {
            (Type::Low(low), Type::High(high)) if fits(low) && fits(high) => Ok(()),
            (found, _) => {
                expect(if of == Wide::Double { "a double" } else { "a long" }, register, found)
            }
        }
    }

    /// A reference to an object whose constructor has run, or null.
    pub fn reference(&self, register: u16) -> Checked<Type> {
        match self.get(register) {
            Type::Zero | Type::Null => Ok(Type::Null),
            found @ Type::Object(_) => Ok(found),
            found => expect("a reference", register, found),
        }
    }
}

/// A register has another type than the instruction needs.
pub(super) fn expect<T>(expected: &str, register: u16, found: Type) -> Checked<T> {
    let found = match found {
        Type::Unset => "no value",
        Type::Zero => "zero",
        Type::Constant => "a constant",
        Type::Int => "an int",
        Type::Float => "a float",
        Type::Low(Wide::Long) => "a long",
        Type::Low(Wide::Double) => "a double",
        Type::Low(Wide::Constant) => "a constant of 64 bits",
        Type::High(_) => "the second half of a value",
        Type::Null => "null",
        Type::Object(_) => "a reference",
        Type::Uninitialized(_) | Type::UninitializedThis => "an object before its constructor",
    };
    Err(format!("{expected} in v{register}, which has {found}"))
}
