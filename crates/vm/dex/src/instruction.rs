//! Instructions, decoded from 16-bit units.

use crate::opcode::{Format, Opcode};

/// An instruction. An operand that its format lacks is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub opcode: Opcode,
    /// The first register: mostly the destination.
    pub a: u16,
    /// The second register.
    pub b: u16,
    /// The third register.
    pub c: u16,
    /// The constant. `const/high16` and `const-wide/high16` have it shifted into place.
    pub literal: i64,
    /// The distance in units from this instruction to the target or the payload.
    pub distance: i32,
    /// The index into the table that the opcode names.
    pub index: u32,
    /// The prototype of `invoke-polymorphic`.
    pub proto: u32,
    arguments: Arguments,
}

/// Registers of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arguments {
    List { registers: [u8; 5], count: u8 },
    Range { first: u16, count: u8 },
}

impl Instruction {
    /// Decodes the instruction at a unit: `None` for an unused opcode, a list of more than 5
    /// arguments, and where units are missing.
    pub fn decode(units: &[u16], at: usize) -> Option<Instruction> {
        let first = *units.get(at)?;
        let opcode = Opcode::from_number(first as u8)?;
        let format = opcode.format();
        let units = units.get(at..at + format.n_units())?;
        let unit = |index: usize| units[index];
        let word = |index: usize| u32::from(units[index]) | u32::from(units[index + 1]) << 16;
        let high = first >> 8;
        let (low_nibble, high_nibble) = (high & 0xf, high >> 4);
        let mut to = Instruction {
            opcode,
            a: 0,
            b: 0,
            c: 0,
            literal: 0,
            distance: 0,
            index: 0,
            proto: 0,
            arguments: Arguments::List { registers: [0; 5], count: 0 },
        };
        match format {
            Format::F10x => {}
            Format::F12x => (to.a, to.b) = (low_nibble, high_nibble),
            Format::F11n => {
                to.a = low_nibble;
                to.literal = i64::from(first as i16 >> 12);
            }
            Format::F11x => to.a = high,
            Format::F10t => to.distance = i32::from(high as i8),
            Format::F20t => to.distance = i32::from(unit(1) as i16),
            Format::F22x => (to.a, to.b) = (high, unit(1)),
            Format::F21t => (to.a, to.distance) = (high, i32::from(unit(1) as i16)),
            Format::F21s => (to.a, to.literal) = (high, i64::from(unit(1) as i16)),
            Format::F21h => {
                to.a = high;
                let shift = if opcode == Opcode::ConstHigh16 { 16 } else { 48 };
                to.literal = i64::from(unit(1) as i16) << shift;
            }
            Format::F21c => (to.a, to.index) = (high, unit(1).into()),
            Format::F23x => (to.a, to.b, to.c) = (high, unit(1) & 0xff, unit(1) >> 8),
            Format::F22b => {
                (to.a, to.b) = (high, unit(1) & 0xff);
                to.literal = i64::from(unit(1) as i16 >> 8);
            }
            Format::F22t => {
                (to.a, to.b) = (low_nibble, high_nibble);
                to.distance = i32::from(unit(1) as i16);
            }
            Format::F22s => {
                (to.a, to.b) = (low_nibble, high_nibble);
                to.literal = i64::from(unit(1) as i16);
            }
            Format::F22c => {
                (to.a, to.b) = (low_nibble, high_nibble);
                to.index = unit(1).into();
            }
            Format::F30t => to.distance = word(1) as i32,
            Format::F32x => (to.a, to.b) = (unit(1), unit(2)),
            Format::F31i => (to.a, to.literal) = (high, i64::from(word(1) as i32)),
            Format::F31t => (to.a, to.distance) = (high, word(1) as i32),
            Format::F31c => (to.a, to.index) = (high, word(1)),
            Format::F35c | Format::F45cc => {
                let nibble = |index: usize| (unit(2) >> (4 * index)) as u8 & 0xf;
                let registers = [nibble(0), nibble(1), nibble(2), nibble(3), low_nibble as u8];
                if high_nibble > 5 {
                    return None;
                }
                to.arguments = Arguments::List { registers, count: high_nibble as u8 };
                to.index = unit(1).into();
            }
            Format::F3rc | Format::F4rcc => {
                to.arguments = Arguments::Range { first: unit(2), count: high as u8 };
                to.index = unit(1).into();
            }
            Format::F51l => {
                to.a = high;
                to.literal = (u64::from(word(1)) | u64::from(word(3)) << 32) as i64;
            }
        }
        if matches!(format, Format::F45cc | Format::F4rcc) {
            to.proto = unit(3).into();
        }
        Some(to)
    }

    /// The number of 16-bit units.
    pub fn n_units(&self) -> usize {
        self.opcode.format().n_units()
    }

    /// The number of registers of arguments.
    pub fn n_arguments(&self) -> usize {
        match self.arguments {
            Arguments::List { count, .. } | Arguments::Range { count, .. } => count.into(),
        }
    }

    /// A register of an argument. Panics if the index is not below `n_arguments`.
    pub fn argument(&self, index: usize) -> u16 {
        assert!(index < self.n_arguments());
        match self.arguments {
            Arguments::List { registers, .. } => registers[index].into(),
            Arguments::Range { first, .. } => first.wrapping_add(index as u16),
        }
    }

    /// The registers of arguments in their order.
    pub fn arguments(&self) -> impl ExactSizeIterator<Item = u16> {
        let copy = *self;
        (0..self.n_arguments()).map(move |index| copy.argument(index))
    }
}

/// A table between instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Distances from the switch, for the values from `first` on.
    PackedSwitch {
        /// The value of the first distance.
        first: i32,
        /// Units from the switch to each target.
        distances: Vec<i32>,
    },
    /// Values in ascending order, with distances from the switch.
    SparseSwitch {
        /// The values.
        keys: Vec<i32>,
        /// Units from the switch to each target.
        distances: Vec<i32>,
    },
    /// The elements of an array.
    ArrayData {
        /// Bytes of an element: 1, 2, 4 or 8.
        element_bytes: u16,
        /// The number of elements.
        count: u32,
        /// The elements, little-endian.
        data: Vec<u8>,
    },
}

impl Payload {
    /// The first units: `nop` with another high byte than zero.
    pub const PACKED_SWITCH: u16 = 0x0100;
    /// Likewise of a sparse switch.
    pub const SPARSE_SWITCH: u16 = 0x0200;
    /// Likewise of array data.
    pub const ARRAY_DATA: u16 = 0x0300;

    /// The number of units of the payload at a unit: `None` if none begins there.
    pub fn n_units(units: &[u16], at: usize) -> Option<usize> {
        let count = usize::from(*units.get(at + 1)?);
        let n_units = match units[at] {
            Payload::PACKED_SWITCH => 4 + 2 * count,
            Payload::SPARSE_SWITCH => 2 + 4 * count,
            Payload::ARRAY_DATA => {
                let n_elements = word(units, at + 2)? as usize;
                4 + n_elements.checked_mul(count)?.div_ceil(2)
            }
            _ => return None,
        };
        (at + n_units <= units.len()).then_some(n_units)
    }

    /// Decodes the payload at a unit: `None` if no whole payload is there.
    pub fn decode(units: &[u16], at: usize) -> Option<Payload> {
        let n_units = Payload::n_units(units, at)?;
        let count = usize::from(units[at + 1]);
        let words = |from: usize, count: usize| {
            (0..count)
                .map(|index| Some(word(units, from + 2 * index)? as i32))
                .collect::<Option<Vec<i32>>>()
        };
        Some(match units[at] {
            Payload::PACKED_SWITCH => Payload::PackedSwitch {
                first: word(units, at + 2)? as i32,
                distances: words(at + 4, count)?,
            },
            Payload::SPARSE_SWITCH => Payload::SparseSwitch {
                keys: words(at + 2, count)?,
                distances: words(at + 2 + 2 * count, count)?,
            },
            _ => {
                let n_elements = word(units, at + 2)?;
                let units = &units[at + 4..at + n_units];
                let mut data: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
                data.truncate(n_elements as usize * count);
                Payload::ArrayData { element_bytes: count as u16, count: n_elements, data }
            }
        })
    }
}

fn word(units: &[u16], at: usize) -> Option<u32> {
    Some(u32::from(*units.get(at)?) | u32::from(*units.get(at + 1)?) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(units: &[u16], edit: impl FnOnce(&mut Instruction), n_units: usize) {
        let mut expected = Instruction {
            opcode: Opcode::from_number(units[0] as u8).unwrap(),
            a: 0,
            b: 0,
            c: 0,
            literal: 0,
            distance: 0,
            index: 0,
            proto: 0,
            arguments: Arguments::List { registers: [0; 5], count: 0 },
        };
        edit(&mut expected);
        assert_eq!(Instruction::decode(units, 0), Some(expected), "{units:x?}");
        assert_eq!(expected.n_units(), n_units);
        assert_eq!(Instruction::decode(&units[..n_units - 1], 0), None);
    }

    #[test]
    fn every_format_is_decoded() {
        check(&[0x0000], |_| {}, 1);
        check(&[0x4301], |i| (i.a, i.b) = (3, 4), 1);
        check(&[0xf212], |i| (i.a, i.literal) = (2, -1), 1);
        check(&[0x7212], |i| (i.a, i.literal) = (2, 7), 1);
        check(&[0xff0f], |i| i.a = 255, 1);
        check(&[0xfe28], |i| i.distance = -2, 1);
        check(&[0x0029, 0x8000], |i| i.distance = -0x8000, 2);
        check(&[0x1202, 0xfffe], |i| (i.a, i.b) = (0x12, 0xfffe), 2);
        check(&[0x1238, 0x0003], |i| (i.a, i.distance) = (0x12, 3), 2);
        check(&[0x1213, 0xffff], |i| (i.a, i.literal) = (0x12, -1), 2);
        check(&[0x1215, 0x8000], |i| (i.a, i.literal) = (0x12, -0x8000_0000), 2);
        check(&[0x1219, 0x8000], |i| (i.a, i.literal) = (0x12, i64::MIN), 2);
        check(&[0x121a, 0xffff], |i| (i.a, i.index) = (0x12, 0xffff), 2);
        check(&[0x1290, 0x5634], |i| (i.a, i.b, i.c) = (0x12, 0x34, 0x56), 2);
        check(&[0x12d8, 0xff34], |i| (i.a, i.b, i.literal) = (0x12, 0x34, -1), 2);
        check(&[0x4332, 0xffff], |i| (i.a, i.b, i.distance) = (3, 4, -1), 2);
        check(&[0x43d0, 0x8000], |i| (i.a, i.b, i.literal) = (3, 4, -0x8000), 2);
        check(&[0x4352, 0x8000], |i| (i.a, i.b, i.index) = (3, 4, 0x8000), 2);
        check(&[0x002a, 0x0000, 0x8000], |i| i.distance = i32::MIN, 3);
        check(&[0x0003, 0x1234, 0x5678], |i| (i.a, i.b) = (0x1234, 0x5678), 3);
        check(&[0x1214, 0x0001, 0xffff], |i| (i.a, i.literal) = (0x12, -0xffff), 3);
        check(&[0x122b, 0x0001, 0x0002], |i| (i.a, i.distance) = (0x12, 0x2_0001), 3);
        check(&[0x121b, 0x0001, 0x0002], |i| (i.a, i.index) = (0x12, 0x2_0001), 3);
        let list = |registers, count| Arguments::List { registers, count };
        check(
            &[0x536e, 0x1234, 0xba98],
            |i| (i.index, i.arguments) = (0x1234, list([8, 9, 10, 11, 3], 5)),
            3,
        );
        let range = |first, count| Arguments::Range { first, count };
        check(&[0xff74, 0x1234, 2], |i| (i.index, i.arguments) = (0x1234, range(2, 255)), 3);
        check(
            &[0x20fa, 1, 0x0021, 7],
            |i| (i.index, i.proto, i.arguments) = (1, 7, list([1, 2, 0, 0, 0], 2)),
            4,
        );
        check(&[0x02fb, 1, 5, 7], |i| (i.index, i.proto, i.arguments) = (1, 7, range(5, 2)), 4);
        check(
            &[0x1218, 0x1111, 0x2222, 0x3333, 0x4444],
            |i| (i.a, i.literal) = (0x12, 0x4444_3333_2222_1111),
            5,
        );
    }

    #[test]
    fn unused_opcodes_and_long_lists_are_refused() {
        let used = (0..=255u8).filter(|number| Opcode::from_number(*number).is_some());
        assert_eq!(used.count(), 224);
        assert_eq!(Instruction::decode(&[0x003e], 0), None);
        assert_eq!(Instruction::decode(&[0x606e, 0, 0], 0), None);
        assert_eq!(Instruction::decode(&[], 0), None);
    }

    #[test]
    fn payloads_are_decoded() {
        let packed = [0x0100, 2, 0xffff, 0xffff, 3, 0, 0xfffd, 0xffff];
        let expected = Payload::PackedSwitch { first: -1, distances: vec![3, -3] };
        assert_eq!(Payload::decode(&packed, 0), Some(expected));
        let sparse = [0, 0x0200, 2, 1, 0, 2, 0, 5, 0, 6, 0];
        let expected = Payload::SparseSwitch { keys: vec![1, 2], distances: vec![5, 6] };
        assert_eq!(Payload::decode(&sparse, 1), Some(expected));
        let data = [0x0300, 1, 3, 0, 0x0201, 0x0003];
        let expected = Payload::ArrayData { element_bytes: 1, count: 3, data: vec![1, 2, 3] };
        assert_eq!(Payload::decode(&data, 0), Some(expected));
        for whole in [&packed[..], &data] {
            assert_eq!(Payload::decode(&whole[..whole.len() - 1], 0), None);
        }
        assert_eq!(Payload::decode(&[0x0300, 0xffff, 0xffff, 0xffff], 0), None);
        assert_eq!(Payload::decode(&[0, 0], 0), None);
    }
}
