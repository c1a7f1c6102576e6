//! All ways through a method, until no line of types changes.

use super::line::Line;
use super::step::{Step, Subject};
use super::transfer::transfer;
use super::types::{Assign, Name, Type, Types, Value};
use crate::class::access;
use crate::verified::Deferred;
use baton_dex::{Code, Flow, Handler, Instruction, Opcode, Payload, Try};
use std::collections::BTreeSet;

/// A unit, and what its instruction needs.
type Refusal = (u32, String);

/// What is known of the method's places.
struct Places {
    /// By unit: none where no way has led yet
    lines: Vec<Option<Line>>,
    /// Instructions whose line has changed since they were executed
    open: BTreeSet<u32>,
    tries: Vec<Try>,
}

/// Executes every instruction that can be reached. The structure of the code has been verified.
pub(super) fn run(
    subject: Subject<'_>,
    code: &Code<'static>,
    types: &mut Types<'_>,
) -> Result<Vec<(u32, Deferred)>, Refusal> {
    let mut places = Places {
        lines: vec![None; subject.units.len()],
        open: BTreeSet::new(),
        tries: code.tries(),
    };
    let start = entry(subject, code, types);
    reach(&mut places, 0, &start, types);
    let mut deferred = Vec::new();
    while let Some(unit) = places.open.pop_first() {
        let mut line = places.lines[unit as usize].clone().expect("an open place has a line");
        let instruction = decode(subject.units, unit);
        let mut step =
            Step { subject, types, line: &mut line, unit, instruction, deferred: &mut deferred };
        transfer(&mut step).map_err(|expected| (unit, expected))?;
        if throws(instruction.opcode, unit, &deferred) {
            caught(subject, &mut places, unit, types)?;
        }
        for target in successors(subject.units, unit, &instruction) {
            reach(&mut places, target, &line, types);
        }
    }
    Ok(deferred)
}

fn decode(units: &[u16], unit: u32) -> Instruction {
    Instruction::decode(units, unit as usize).expect("an instruction of verified structure")
}

/// The line of the first instruction: the arguments, in the last registers.
fn entry(subject: Subject<'_>, code: &Code<'static>, types: &mut Types<'_>) -> Line {
    let Subject { method, class, .. } = subject;
    let mut line = Line::new(code.n_registers.into());
    let mut register = code.n_registers - code.n_ins;
    if method.access & access::STATIC == 0 {
        let is_new = method.name == "<init>" && class.superclass.is_some();
        let object = Type::Object(types.name_of(class));
        line.set(register, if is_new { Type::UninitializedThis } else { object });
        register += 1;
    }
    for descriptor in method.parameter_descriptors() {
        let value = types.value(descriptor);
        line.set_value(register, value);
        register += if matches!(value, Value::Wide(_)) { 2 } else { 1 };
    }
    line
}

/// Control comes to a place with this line.
fn reach(places: &mut Places, unit: u32, line: &Line, types: &mut Types<'_>) {
    let changed = match &mut places.lines[unit as usize] {
        Some(known) => known.merge(line, types),
        none => {
            *none = Some(line.clone());
            true
        }
    };
    if changed {
        places.open.insert(unit);
    }
}

/// Whether the instruction at a unit may throw. A return does only if a check was left to it:
/// compilers have returns in tries, and reuse registers of the handlers there.
fn throws(opcode: Opcode, unit: u32, deferred: &[(u32, Deferred)]) -> bool {
    let is_return = opcode.flow() == Flow::Return;
    debug_assert!(opcode.can_throw() || deferred.iter().all(|(at, _)| *at != unit));
    opcode.can_throw() && (!is_return || deferred.iter().any(|(at, _)| *at == unit))
}

/// An exception of the instruction at a unit comes to its handlers, with the types before it.
fn caught(
    subject: Subject<'_>,
    places: &mut Places,
    unit: u32,
    types: &mut Types<'_>,
) -> Result<(), Refusal> {
    let index = places.tries.partition_point(|one| one.end <= unit);
    let Some(one) = places.tries.get(index).filter(|one| one.start <= unit) else {
        return Ok(());
    };
    let handlers = one.handlers.clone();
    let before = places.lines[unit as usize].clone().expect("an open place has a line");
    for handler in handlers.iter() {
        let exception = exception(subject, places, handler.address, types)?;
        let line = Line { result: Value::Object(exception), ..before.clone() };
        reach(places, handler.address, &line, types);
    }
    Ok(())
}

/// The type of exceptions that come to an address.
fn exception(
    subject: Subject<'_>,
    places: &Places,
    address: u32,
    types: &mut Types<'_>,
) -> Result<Name, Refusal> {
    let all = places.tries.iter().flat_map(|one| one.handlers.iter());
    let mut merged = None;
    for Handler { exception, .. } in all.filter(|it| it.address == address) {
        let name = match exception {
            Some(id) => {
                let descriptor = types.descriptor(subject.dex, *id);
                types.name(descriptor)
            }
            None => Name::THROWABLE,
        };
        if types.assign(name, Name::THROWABLE) == Assign::No {
            return Err((address, "a handler of a class of exceptions".to_owned()));
        }
        let one = Type::Object(match types.class(name) {
            Some(_) => name,
            None => Name::UNKNOWN,
        });
        merged = Some(merged.map_or(one, |other| types.merge(one, other)));
    }
    match merged {
        Some(Type::Object(name)) => Ok(name),
        _ => Ok(Name::THROWABLE),
    }
}

/// The units that may follow an instruction, apart from handlers.
fn successors(units: &[u16], unit: u32, instruction: &Instruction) -> Vec<u32> {
    let target = |distance: i32| unit.wrapping_add_signed(distance);
    let next = unit + instruction.n_units() as u32;
    match instruction.opcode.flow() {
        Flow::Next | Flow::Throwing => vec![next],
        Flow::Goto => vec![target(instruction.distance)],
        Flow::If => vec![next, target(instruction.distance)],
        Flow::Switch => {
            let payload = Payload::decode(units, target(instruction.distance) as usize);
            let distances = match payload.expect("a payload of verified structure") {
                Payload::PackedSwitch { distances, .. } => distances,
                Payload::SparseSwitch { distances, .. } => distances,
                Payload::ArrayData { .. } => unreachable!("a switch has another payload"),
            };
            std::iter::once(next).chain(distances.into_iter().map(target)).collect()
        }
        Flow::Return | Flow::Throw => Vec::new(),
    }
}
