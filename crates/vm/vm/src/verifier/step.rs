//! An instruction in its place, and what rules ask of it.

use super::line::Line;
use super::naming;
use super::types::{Assign, Checked, Name, Type, Types, Value, found};
use crate::class::{Class, LoadedDex, Method};
use crate::verified::Deferred;
use baton_dex::{Instruction, TypeId};

/// The method whose code is verified.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub method: &'static Method,
    pub class: &'static Class,
    pub dex: &'static LoadedDex,
    pub units: &'a [u16],
}

/// An instruction in its place.
pub(super) struct Step<'a, 't> {
    pub subject: Subject<'a>,
    pub types: &'a mut Types<'t>,
    pub line: &'a mut Line,
    pub unit: u32,
    pub instruction: Instruction,
    pub deferred: &'a mut Vec<(u32, Deferred)>,
}

impl Step<'_, '_> {
    pub fn name(&mut self, id: TypeId) -> Name {
        let descriptor = self.types.descriptor(self.subject.dex, id);
        self.types.name(descriptor)
    }

    pub fn value(&mut self, id: TypeId) -> Value {
        let descriptor = self.types.descriptor(self.subject.dex, id);
        self.types.value(descriptor)
    }

    /// Leaves a check to the time when the instruction runs.
    pub fn defer(&mut self, check: Deferred) {
        if !self.deferred.contains(&(self.unit, check)) {
            self.deferred.push((self.unit, check));
        }
    }

    /// Leaves it to the interpreter to throw if the code may not name what the instruction names,
    /// or that cannot be found.
    pub fn access(&mut self) {
        let Subject { class, dex, .. } = self.subject;
        let t = self.types.t;
        let checked = found(t, || naming::check(t, class, dex, &self.instruction));
        if checked.is_err() {
            self.defer(Deferred::Access);
        }
    }

    /// A register has a value for a variable of this type.
    pub fn assign(&mut self, register: u16, to: Value) -> Checked<()> {
        match to {
            Value::Void => Ok(()),
            Value::Int => self.line.int(register),
            Value::Float => self.line.float(register),
            Value::Wide(wide) => self.line.wide(register, wide),
            Value::Object(to) => self.assign_reference(register, to),
        }
    }

    pub fn assign_reference(&mut self, register: u16, to: Name) -> Checked<()> {
        let Type::Object(from) = self.line.reference(register)? else { return Ok(()) };
        match self.types.assign(from, to) {
            Assign::Yes => Ok(()),
            Assign::Null(missing) => {
                self.defer(Deferred::Null(register, self.types.text(missing)));
                Ok(())
            }
            Assign::No => {
                let names = (self.types.text(to), self.types.text(from));
                Err(format!("{} in v{register}, which has {}", names.0, names.1))
            }
        }
    }
}
