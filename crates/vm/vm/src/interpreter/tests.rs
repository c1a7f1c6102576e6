//! Each operation that needs no class library, on operands at the edges of their types.

use super::context::{Context, Flow, Pc};
use super::table::operation;
use crate::class::{Body, Code, LoadedDex, Loader, Method};
use crate::object::Ref;
use crate::resolved::Resolved;
use crate::stack::Registers;
use crate::vm::{Options, Thread, Vm};
use baton_dex::DexFile;

/// A dex file without anything.
fn empty_file() -> DexFile<'static> {
    let mut bytes = b"dex\n035\0".to_vec();
    bytes.resize(0x70, 0);
    let mut word = |at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    word(0x20, 0x70 + 28); // file size
    word(0x24, 0x70);
    word(0x28, 0x1234_5678);
    word(0x34, 0x70); // map
    word(0x68, 28); // data size
    word(0x6c, 0x70);
    for word in [2u32, 0x0000, 1, 0, 0x1000, 1, 0x70] {
        bytes.extend(word.to_le_bytes());
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &bytes[12..] {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    bytes[8..12].copy_from_slice(&(b << 16 | a).to_le_bytes());
    DexFile::open(bytes.leak()).unwrap()
}

/// A thread with one frame of 16 registers.
struct Machine {
    t: Thread,
    dex: &'static LoadedDex,
}

impl Machine {
    fn new() -> Machine {
        let options = Options { heap_bytes: 1 << 20, stack_slots: 0, ..Options::default() };
        let vm = Vm::new(options, &[], super::enter).unwrap();
        let t = Thread::attach(Box::leak(Box::new(vm)));
        let method = Method::synthetic("test", "()V", Body::Abstract);
        t.state.stack.push(Box::leak(Box::new(method)), None, 16, 0).unwrap();
        let dex = LoadedDex {
            file: empty_file(),
            path: String::new(),
            loader: Loader::BOOT,
            types: Resolved::table(0),
            fields: Resolved::table(0),
            methods: Resolved::table(0),
            strings: Box::default(),
            lambdas: Resolved::table(0),
        };
        Machine { t, dex: Box::leak(Box::new(dex)) }
    }

    fn registers(&self) -> Registers {
        self.t.state.stack.top_registers()
    }

    /// Executes one instruction; returns the number of units to the next one.
    fn step(&self, units: &[u16]) -> i32 {
        self.step_at(units, 0)
    }

    fn step_at(&self, units: &[u16], at: u32) -> i32 {
        let code: &'static Code = Box::leak(Box::new(Code {
            dex: self.dex,
            n_registers: 16,
            n_ins: 0,
            units: units.into(),
            tries: Vec::new(),
            checks: &[],
        }));
        let pc = Pc::at(code, at);
        let context = Context { t: &self.t, code, r: self.registers(), pc };
        match operation(pc.opcode(), context) {
            Flow::Next(next) => next.index(code) as i32 - at as i32,
            _ => panic!("{units:x?} goes on in this frame"),
        }
    }
}

/// Executes `opcode vA, vB` with 1 unit: B is register 2, A register 0.
fn unary(m: &Machine, opcode: u16) {
    assert_eq!(m.step(&[opcode | 0x2000]), 1);
}

/// Executes `opcode vAA, vBB, vCC`: 2 and 4 into 0.
fn binary(m: &Machine, opcode: u16) {
    assert_eq!(m.step(&[opcode, 0x0402]), 2);
}

#[test]
fn moves_and_constants_have_their_values() {
    let m = Machine::new();
    let r = m.registers();
    let object = m.t.state.java();
    for (units, register, value) in [
        (&[0x7012u16][..], 0, 7),
        (&[0x8012], 0, -8),
        (&[0x0313, 0xffff], 3, -1),
        (&[0x0314, 0x5678, 0x8234], 3, 0x8234_5678_u32 as i32),
        (&[0x0315, 0x8000], 3, i32::MIN),
    ] {
        assert_eq!(m.step(units), units.len() as i32);
        assert_eq!(r.int(register), value, "{units:x?}");
    }
    for (units, value) in [
        (&[0x0316u16, 0x8000][..], -0x8000),
        (&[0x0317, 0, 0x8000], i64::from(i32::MIN)),
        (&[0x0318, 0xcdef, 0x89ab, 0x4567, 0x8123], 0x8123_4567_89ab_cdef_u64 as i64),
        (&[0x0319, 0x8000], i64::MIN),
    ] {
        assert_eq!(m.step(units), units.len() as i32);
        assert_eq!(r.long(3), value, "{units:x?}");
    }
    for units in [&[0x2401u16][..], &[0x0402, 2], &[0x0003, 4, 2]] {
        r.set_int(2, 5);
        r.set_int(4, 6);
        assert_eq!(m.step(units), units.len() as i32);
        assert_eq!(r.int(4), 5, "{units:x?}");
    }
    for units in [&[0x2304u16][..], &[0x0305, 2], &[0x0006, 3, 2]] {
        // The pairs overlap.
        r.set_long(2, 0x1122_3344_5566_7788);
        assert_eq!(m.step(units), units.len() as i32);
        assert_eq!(r.long(3), 0x1122_3344_5566_7788, "{units:x?}");
    }
    assert_eq!(object, Ref::NULL);
}

#[test]
fn a_number_is_no_reference() {
    let m = Machine::new();
    let r = m.registers();
    // SAFETY: nothing follows the reference.
    let object = unsafe { Ref::from_address(0x1234_5678) };
    for writes in [&[0x0012u16][..], &[0x0013, 5], &[0x0016, 5], &[0x2001], &[0x0090, 0x0402]] {
        r.set_reference(0, object);
        r.set_int(2, 1);
        r.set_int(4, 1);
        assert_eq!(r.reference(0), object);
        m.step(writes);
        assert_eq!(r.reference(0), Ref::NULL, "{writes:x?}");
    }
    r.set_reference(2, object);
    for units in [&[0x2007u16][..], &[0x0008, 2], &[0x0009, 0, 2]] {
        r.set_int(0, 0);
        m.step(units);
        assert_eq!(r.reference(0), object, "{units:x?}");
    }
    r.set_int(2, 0);
}

const INTS: [i32; 9] = [0, 1, -1, 2, 31, 33, i32::MAX, i32::MIN, -0x5555_5556];
const LONGS: [i64; 9] = [0, 1, -1, 63, 65, i64::MAX, i64::MIN, 1 << 32, -0x5555_5555_5555_5556];

#[test]
fn int_arithmetic_wraps() {
    type Of = fn(i64, i64) -> i64;
    let m = Machine::new();
    let r = m.registers();
    let operations: [(u16, Of); 9] = [
        (0x90, |a, b| a + b),
        (0x91, |a, b| a - b),
        (0x92, |a, b| a * b),
        (0x95, |a, b| a & b),
        (0x96, |a, b| a | b),
        (0x97, |a, b| a ^ b),
        (0x98, |a, b| a << (b & 31)),
        (0x99, |a, b| a >> (b & 31)),
        (0x9a, |a, b| (a & 0xffff_ffff) >> (b & 31)),
    ];
    for (opcode, of) in operations {
        for a in INTS {
            for b in INTS {
                let expected = of(a.into(), b.into()) as i32;
                r.set_int(2, a);
                r.set_int(4, b);
                binary(&m, opcode);
                assert_eq!(r.int(0), expected, "{opcode:x} {a} {b}");
                r.set_int(0, a);
                r.set_int(2, b);
                assert_eq!(m.step(&[(opcode + 0x20) | 0x2000]), 1);
                assert_eq!(r.int(0), expected, "{opcode:x}/2addr {a} {b}");
            }
        }
    }
}

#[test]
fn literals_have_signs() {
    type Of = fn(i64, i64) -> i64;
    let m = Machine::new();
    let r = m.registers();
    let operations: [(u16, Of); 8] = [
        (0, |a, b| a + b),
        (1, |a, b| b - a),
        (2, |a, b| a * b),
        (3, |a, b| if b == 0 { 0 } else { a / b }),
        (4, |a, b| if b == 0 { 0 } else { a % b }),
        (5, |a, b| a & b),
        (6, |a, b| a | b),
        (7, |a, b| a ^ b),
    ];
    for (index, of) in operations {
        for a in INTS {
            r.set_int(2, a);
            for literal in [1i16, -1, i16::MIN, i16::MAX] {
                assert_eq!(m.step(&[(0xd0 + index) | 0x2000, literal as u16]), 2);
                let expected = of(a.into(), literal.into()) as i32;
                assert_eq!(r.int(0), expected, "{index}/lit16 {a} {literal}");
            }
            for literal in [1i8, -1, i8::MIN, i8::MAX] {
                assert_eq!(m.step(&[0xd8 + index, (literal as u8 as u16) << 8 | 2]), 2);
                let expected = of(a.into(), literal.into()) as i32;
                assert_eq!(r.int(0), expected, "{index}/lit8 {a} {literal}");
            }
        }
    }
    for (opcode, expected) in [(0xe0u16, -16), (0xe1, -1), (0xe2, 0x7fff_ffff)] {
        r.set_int(2, -8);
        let literal: u16 = if opcode == 0xe1 { 31 } else { 33 };
        m.step(&[opcode, literal << 8 | 2]);
        let expected = if opcode == 0xe2 { (-8i32 as u32 >> 1) as i32 } else { expected };
        assert_eq!(r.int(0), expected, "{opcode:x}");
    }
}

#[test]
fn division_of_the_least_number_by_minus_one_wraps() {
    let m = Machine::new();
    let r = m.registers();
    for (a, b, quotient, remainder) in [
        (i32::MIN, -1, i32::MIN, 0),
        (7, -2, -3, 1),
        (-7, 2, -3, -1),
        (-7, -2, 3, -1),
        (i32::MIN, i32::MAX, -1, -1),
    ] {
        r.set_int(2, a);
        r.set_int(4, b);
        binary(&m, 0x93);
        assert_eq!(r.int(0), quotient, "{a} / {b}");
        binary(&m, 0x94);
        assert_eq!(r.int(0), remainder, "{a} % {b}");
    }
    for (a, b, quotient, remainder) in [
        (i64::MIN, -1, i64::MIN, 0),
        (7, -2, -3, 1),
        (-7, 2, -3, -1),
        (i64::MIN, 3, i64::MIN / 3, -2),
    ] {
        r.set_long(2, a);
        r.set_long(4, b);
        binary(&m, 0x9e);
        assert_eq!(r.long(0), quotient, "{a} / {b}");
        binary(&m, 0x9f);
        assert_eq!(r.long(0), remainder, "{a} % {b}");
        r.set_long(0, a);
        r.set_long(2, b);
        assert_eq!(m.step(&[0x20be]), 1);
        assert_eq!(r.long(0), quotient);
        r.set_long(0, a);
        assert_eq!(m.step(&[0x20bf]), 1);
        assert_eq!(r.long(0), remainder);
    }
}

#[test]
fn long_arithmetic_wraps() {
    type Of = fn(i128, i128) -> i128;
    let m = Machine::new();
    let r = m.registers();
    let operations: [(u16, Of); 6] = [
        (0x9b, |a, b| a + b),
        (0x9c, |a, b| a - b),
        (0x9d, |a, b| a * b),
        (0xa0, |a, b| a & b),
        (0xa1, |a, b| a | b),
        (0xa2, |a, b| a ^ b),
    ];
    for (opcode, of) in operations {
        for a in LONGS {
            for b in LONGS {
                let expected = of(a.into(), b.into()) as i64;
                r.set_long(2, a);
                r.set_long(4, b);
                binary(&m, opcode);
                assert_eq!(r.long(0), expected, "{opcode:x} {a} {b}");
                r.set_long(0, a);
                r.set_long(2, b);
                assert_eq!(m.step(&[(opcode + 0x20) | 0x2000]), 1);
                assert_eq!(r.long(0), expected, "{opcode:x}/2addr {a} {b}");
            }
        }
    }
    let shifts: [(u16, Of); 3] = [
        (0xa3, |a, b| a << (b & 63)),
        (0xa4, |a, b| a >> (b & 63)),
        (0xa5, |a, b| (a & 0xffff_ffff_ffff_ffff) >> (b & 63)),
    ];
    for (opcode, of) in shifts {
        for a in LONGS {
            for b in [0, 1, -1, 63, 64, 65, i32::MIN] {
                r.set_long(2, a);
                r.set_int(4, b);
                binary(&m, opcode);
                assert_eq!(r.long(0), of(a.into(), b.into()) as i64, "{opcode:x} {a} {b}");
            }
        }
    }
}

#[test]
fn conversions_saturate_and_cut() {
    let m = Machine::new();
    let r = m.registers();
    for (opcode, value, expected) in [
        (0x7bu16, i32::MIN, i32::MIN),
        (0x7b, 5, -5),
        (0x7c, 5, -6),
        (0x8d, 0x180, -128),
        (0x8e, -1, 0xffff),
        (0x8f, 0x1_8000, -0x8000),
    ] {
        r.set_int(2, value);
        unary(&m, opcode);
        assert_eq!(r.int(0), expected, "{opcode:x} {value}");
    }
    for (value, int, long) in [
        (f32::NAN, 0, 0),
        (f32::INFINITY, i32::MAX, i64::MAX),
        (f32::NEG_INFINITY, i32::MIN, i64::MIN),
        (-1.9, -1, -1),
        (3e9, i32::MAX, 3_000_000_000),
        (-0.0, 0, 0),
    ] {
        r.set_float(2, value);
        unary(&m, 0x87);
        assert_eq!(r.int(0), int, "{value}");
        unary(&m, 0x88);
        assert_eq!(r.long(0), long, "{value}");
        r.set_double(2, value.into());
        unary(&m, 0x8a);
        assert_eq!(r.int(0), int, "{value}");
        unary(&m, 0x8b);
        assert_eq!(r.long(0), long, "{value}");
    }
    r.set_int(2, i32::MAX);
    unary(&m, 0x81);
    assert_eq!(r.long(0), i64::from(i32::MAX));
    unary(&m, 0x82);
    assert_eq!(r.float(0), 2_147_483_648.0);
    unary(&m, 0x83);
    assert_eq!(r.double(0), 2_147_483_647.0);
    r.set_long(2, i64::MIN + 1);
    unary(&m, 0x84);
    assert_eq!(r.int(0), 1);
    unary(&m, 0x85);
    assert_eq!(r.float(0), -9_223_372_036_854_775_808.0);
    unary(&m, 0x86);
    assert_eq!(r.double(0), -9_223_372_036_854_775_808.0);
    unary(&m, 0x7d);
    assert_eq!(r.long(0), i64::MAX);
    unary(&m, 0x7e);
    assert_eq!(r.long(0), i64::MAX - 1);
    r.set_double(2, 1e300);
    unary(&m, 0x8c);
    assert_eq!(r.float(0), f32::INFINITY);
    r.set_float(2, 0.1);
    unary(&m, 0x89);
    assert_eq!(r.double(0), f64::from(0.1f32));
    r.set_float(2, 0.0);
    unary(&m, 0x7f);
    assert_eq!(r.int(0), i32::MIN, "the sign of zero");
    r.set_double(2, f64::NAN);
    unary(&m, 0x80);
    assert!(r.double(0).is_nan());
}

#[test]
fn floating_point_follows_ieee_754() {
    let m = Machine::new();
    let r = m.registers();
    let values = [0.0, -0.0, 1.5, -2.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, 1e308];
    type Operation = (u16, fn(f64, f64) -> f64, fn(f32, f32) -> f32);
    let operations: [Operation; 5] = [
        (0, |a, b| a + b, |a, b| a + b),
        (1, |a, b| a - b, |a, b| a - b),
        (2, |a, b| a * b, |a, b| a * b),
        (3, |a, b| a / b, |a, b| a / b),
        (4, |a, b| a % b, |a, b| a % b),
    ];
    // NaN has many representations, and all are one number to Java.
    let bits = |value: f64| if value.is_nan() { 1 } else { value.to_bits() };
    for (index, of, of_floats) in operations {
        for a in values {
            for b in values {
                r.set_double(2, a);
                r.set_double(4, b);
                binary(&m, 0xab + index);
                assert_eq!(bits(r.double(0)), bits(of(a, b)), "{index} {a} {b}");
                r.set_double(0, a);
                r.set_double(2, b);
                assert_eq!(m.step(&[(0xcb + index) | 0x2000]), 1);
                assert_eq!(bits(r.double(0)), bits(of(a, b)), "{index}/2addr {a} {b}");
                let (a, b) = (a as f32, b as f32);
                let expected = bits(of_floats(a, b).into());
                r.set_float(2, a);
                r.set_float(4, b);
                binary(&m, 0xa6 + index);
                assert_eq!(bits(r.float(0).into()), expected, "{index} {a} {b}");
                r.set_float(0, a);
                r.set_float(2, b);
                assert_eq!(m.step(&[(0xc6 + index) | 0x2000]), 1);
                assert_eq!(bits(r.float(0).into()), expected, "{index}/2addr {a} {b}");
            }
        }
    }
    r.set_double(2, -7.5);
    r.set_double(4, 2.0);
    binary(&m, 0xaf);
    assert_eq!(r.double(0), -1.5, "the remainder has the dividend's sign");
}

#[test]
fn comparisons_know_nan() {
    let m = Machine::new();
    let r = m.registers();
    for (a, b, less, greater) in [
        (1.0, 2.0, -1, -1),
        (2.0, 1.0, 1, 1),
        (-0.0, 0.0, 0, 0),
        (f64::NAN, 0.0, -1, 1),
        (0.0, f64::NAN, -1, 1),
        (f64::NEG_INFINITY, f64::INFINITY, -1, -1),
    ] {
        r.set_double(2, a);
        r.set_double(4, b);
        binary(&m, 0x2f);
        assert_eq!(r.int(0), less, "cmpl {a} {b}");
        binary(&m, 0x30);
        assert_eq!(r.int(0), greater, "cmpg {a} {b}");
        r.set_float(2, a as f32);
        r.set_float(4, b as f32);
        binary(&m, 0x2d);
        assert_eq!(r.int(0), less, "cmpl {a} {b}");
        binary(&m, 0x2e);
        assert_eq!(r.int(0), greater, "cmpg {a} {b}");
    }
    for (a, b) in LONGS.into_iter().flat_map(|a| LONGS.map(|b| (a, b))) {
        r.set_long(2, a);
        r.set_long(4, b);
        binary(&m, 0x31);
        assert_eq!(r.int(0), a.cmp(&b) as i32, "{a} {b}");
    }
}

#[test]
fn branches_follow_signs() {
    let m = Machine::new();
    let r = m.registers();
    let holds: [fn(i32, i32) -> bool; 6] =
        [|a, b| a == b, |a, b| a != b, |a, b| a < b, |a, b| a >= b, |a, b| a > b, |a, b| a <= b];
    for (index, holds) in (0u16..).zip(holds) {
        for (a, b) in INTS.into_iter().flat_map(|a| INTS.map(|b| (a, b))) {
            r.set_int(2, a);
            r.set_int(4, b);
            let expected = if holds(a, b) { 5 } else { 2 };
            let units = [(0x32 + index) | 0x4200, 5, 0, 0, 0, 0];
            assert_eq!(m.step(&units), expected, "{index} {a} {b}");
            let expected = if holds(a, 0) { 5 } else { 2 };
            let units = [(0x38 + index) | 0x0200, 5, 0, 0, 0, 0];
            assert_eq!(m.step(&units), expected, "{index} {a} 0");
        }
    }
    for units in
        [&[0, 0, 0, 0xfe28u16][..], &[0, 0, 0, 0x29, 0xfffe], &[0, 0, 0, 0x2a, 0xfffe, 0xffff]]
    {
        assert_eq!(m.step_at(units, 3), -2);
    }
}

#[test]
fn switches_find_their_targets() {
    let m = Machine::new();
    let r = m.registers();
    let packed = [0x022b, 4, 0, 0, 0x0100, 3, 0xffff, 0x7fff, 4, 0, 5, 0, 6, 0];
    // The first value is 0x7fffffff: what follows is not found by an overflow.
    for (value, expected) in
        [(i32::MAX, 4), (i32::MIN, 5), (i32::MIN + 1, 6), (0, 3), (i32::MAX - 1, 3)]
    {
        r.set_int(2, value);
        // Java has no such switch, and dx writes none; a wrap is as good as any answer.
        if value >= 0 {
            assert_eq!(m.step(&packed), expected, "{value}");
        }
    }
    let low = [0x022b, 4, 0, 0, 0x0100, 2, 0xfffe, 0xffff, 4, 0, 5, 0];
    for (value, expected) in [(-2, 4), (-1, 5), (0, 3), (-3, 3), (i32::MIN, 3)] {
        r.set_int(2, value);
        assert_eq!(m.step(&low), expected, "{value}");
    }
    let sparse = [0x022c, 4, 0, 0, 0x0200, 3, 0, 0x8000, 7, 0, 0xffff, 0x7fff, 4, 0, 5, 0, 6, 0];
    for (value, expected) in [(i32::MIN, 4), (7, 5), (i32::MAX, 6), (8, 3), (0, 3)] {
        r.set_int(2, value);
        assert_eq!(m.step(&sparse), expected, "{value}");
    }
}
