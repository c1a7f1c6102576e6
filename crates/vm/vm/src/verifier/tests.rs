//! The lattice, and rules that need no class.

use super::line::Line;
use super::numbers::{self, Number};
use super::types::{Name, Type, Types, Value, Wide};
use crate::class::Loader;
use crate::vm::{Options, Thread, Vm};
use baton_dex::Instruction;

/// A thread of a VM without classes.
fn thread() -> Thread {
    let options = Options { heap_bytes: 1 << 20, stack_slots: 0, ..Options::default() };
    let vm = Vm::new(options, &[], |_, _, _| unreachable!("nothing runs")).unwrap();
    Thread::attach(Box::leak(Box::new(vm)))
}

#[test]
fn merges_give_the_lowest_type_of_both() {
    use Type::{Constant, Float, High, Int, Low, Null, Object, Uninitialized, Unset, Zero};
    use Wide::{Double, Long};
    let t = thread();
    let mut types = Types::new(&t, Loader::BOOT);
    let string = Object(Name::STRING);
    let missing = Object(types.name("Lmissing/One;"));
    let other = Object(types.name("Lmissing/Two;"));
    let object = Object(Name::OBJECT);
    let constant = Wide::Constant;
    let table = [
        (Zero, Constant, Constant),
        (Zero, Int, Int),
        (Zero, Float, Float),
        (Zero, Null, Null),
        (Zero, string, string),
        (Zero, Low(Long), Unset),
        (Zero, Uninitialized(3), Unset),
        (Constant, Int, Int),
        (Constant, Float, Float),
        (Constant, Null, Unset),
        (Constant, string, Unset),
        (Int, Float, Unset),
        (Int, Null, Unset),
        (Null, string, string),
        (string, object, object),
        (missing, object, object),
        (missing, missing, missing),
        (missing, other, Object(Name::UNKNOWN)),
        (Object(Name::UNKNOWN), missing, Object(Name::UNKNOWN)),
        (Low(constant), Low(Long), Low(Long)),
        (High(constant), High(Double), High(Double)),
        (Low(Long), Low(Double), Unset),
        (Low(Long), High(Long), Unset),
        (Uninitialized(3), Uninitialized(3), Uninitialized(3)),
        (Uninitialized(3), Uninitialized(5), Unset),
        (Type::UninitializedThis, string, Unset),
        (Unset, Int, Unset),
    ];
    for (one, other, expected) in table {
        assert_eq!(types.merge(one, other), expected, "{one:?} and {other:?}");
        assert_eq!(types.merge(other, one), expected, "{other:?} and {one:?}");
        assert_eq!(types.merge(expected, one), expected, "{expected:?} is above {one:?}");
    }
}

#[test]
fn half_a_pair_is_lost_with_the_other_half() {
    let mut line = Line::new(4);
    line.set_wide(1, Wide::Long);
    line.set(2, Type::Int);
    assert_eq!(*line.registers, [Type::Unset, Type::Unset, Type::Int, Type::Unset]);
    line.set_wide(1, Wide::Long);
    line.set_wide(0, Wide::Double);
    let double = [Type::Low(Wide::Double), Type::High(Wide::Double)];
    assert_eq!(line.registers[..], [double[0], double[1], Type::Unset, Type::Unset]);
    line.set_wide(2, Wide::Long);
    line.set_wide(1, Wide::Constant);
    let constant = [Type::Low(Wide::Constant), Type::High(Wide::Constant)];
    assert_eq!(line.registers[..], [Type::Unset, constant[0], constant[1], Type::Unset]);
}

/// A value of a type in a register, and the values of all other types.
fn put(line: &mut Line, register: u16, number: Number) {
    match number {
        Number::Int => line.set(register, Type::Int),
        Number::Float => line.set(register, Type::Float),
        Number::Long => line.set_wide(register, Wide::Long),
        Number::Double => line.set_wide(register, Wide::Double),
    }
}

#[test]
fn arithmetic_takes_and_leaves_the_types_of_its_signature() {
    use Number::{Double, Float, Int, Long};
    let all = [Int, Float, Long, Double];
    let mut n_opcodes = 0;
    for opcode in 0..=u8::MAX {
        let Some((result, first, second)) = numbers::signature(opcode) else { continue };
        n_opcodes += 1;
        // Registers 0 and 2, or 2 and 4 into 0; format 22s and 22b have a constant in place of 4.
        let is_short = matches!(opcode, 0x7b..=0x8f | 0xb0..=0xcf | 0xd0..=0xd7);
        let first_unit = u16::from(opcode) | if is_short { 0x2000 } else { 0 };
        let instruction = Instruction::decode(&[first_unit, 0x0402], 0).unwrap();
        let registers = if matches!(opcode, 0xb0..=0xcf) { [0, 2] } else { [2, 4] };
        for one in all {
            for other in all {
                let mut line = Line::new(6);
                put(&mut line, registers[0], one);
                put(&mut line, registers[1], other);
                let fits = one == first && second.is_none_or(|second| other == second);
                let done = numbers::transfer(&mut line, &instruction, (result, first, second));
                assert_eq!(done.is_ok(), fits, "{opcode:#x} of {one:?} and {other:?}");
                let mut expected = Line::new(6);
                put(&mut expected, 0, result);
                if fits {
                    assert_eq!(line.registers[..2], expected.registers[..2], "{opcode:#x}");
                }
            }
        }
    }
    assert_eq!(n_opcodes, 5 + 21 + 32 + 32 + 19);
}

#[test]
fn a_line_changes_only_upwards() {
    let t = thread();
    let mut types = Types::new(&t, Loader::BOOT);
    let mut line = Line::new(2);
    line.set(0, Type::Zero);
    line.is_constructed = true;
    let mut other = line.clone();
    assert!(!line.merge(&other, &mut types));
    other.set(0, Type::Int);
    other.result = Value::Int;
    assert!(line.merge(&other, &mut types));
    assert!(!line.merge(&other, &mut types));
    other.is_constructed = false;
    assert!(line.merge(&other, &mut types));
    assert_eq!(line, other);
}
