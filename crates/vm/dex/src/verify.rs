//! The structure of one method's code: opcodes, registers, indices, targets and handlers.
//!
//! Types of registers are not known here. A caller that has them may rely on this: every
//! instruction that can be reached is whole, its registers and indices exist, control never leaves
//! the code, `move-result` follows the call whose result it takes, and `move-exception` begins a
//! handler. Compilers leave instructions that nothing reaches, with any operands.

use crate::class::{EncodedMethod, access};
use crate::code::{Code, Try};
use crate::error::CodeError;
use crate::file::DexFile;
use crate::ids::{CallSiteId, FieldId, MethodId, Proto, ProtoId, TypeId};
use crate::instruction::{Instruction, Payload};
use crate::opcode::{Flow, Format, IndexKind, Opcode};
use crate::value::Value;

/// The part of code that a unit begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Instruction,
    Payload,
    /// None: the unit belongs to an instruction or payload before it.
    Inside,
}

struct Verifier<'a, 'b> {
    file: &'b DexFile<'a>,
    code: &'b Code<'a>,
    units: Vec<u16>,
    starts: Vec<Start>,
    tries: Vec<Try>,
}

/// Checks the code of a method of this file.
pub fn verify(file: &DexFile, method: &EncodedMethod, code: &Code) -> Result<(), CodeError> {
    let units: Vec<u16> = code.units().collect();
    let starts = vec![Start::Inside; units.len()];
    let mut verifier = Verifier { file, code, units, starts, tries: code.tries() };
    let proto = file.proto(file.method(method.id).proto);
    let has_receiver = method.access_flags & access::STATIC == 0;
    let n_ins = usize::from(has_receiver) + n_words(file, &proto);
    require(usize::from(code.n_ins) == n_ins, 0, "one argument register for each word")?;
    verifier.find_starts()?;
    verifier.handlers()?;
    verifier.control(letter(file, proto.return_type))
}

fn require(holds: bool, unit: usize, expected: &'static str) -> Result<(), CodeError> {
    if holds { Ok(()) } else { Err(CodeError { unit, expected }) }
}

/// The first letter of a type's descriptor.
fn letter(file: &DexFile, class: TypeId) -> u8 {
    file.descriptor(class).as_bytes()[0]
}

fn is_wide(letter: u8) -> bool {
    matches!(letter, b'J' | b'D')
}

/// The registers that arguments take, without a receiver.
fn n_words(file: &DexFile, proto: &Proto) -> usize {
    proto.parameters.iter().map(|class| 1 + usize::from(is_wide(letter(file, class)))).sum()
}

impl Verifier<'_, '_> {
    /// Finds where instructions and payloads begin.
    fn find_starts(&mut self) -> Result<(), CodeError> {
        let mut at = 0;
        while at < self.units.len() {
            let is_payload = matches!(
                self.units[at],
                Payload::PACKED_SWITCH | Payload::SPARSE_SWITCH | Payload::ARRAY_DATA
            );
            let (start, n_units) = if is_payload {
                (Start::Payload, Payload::n_units(&self.units, at))
            } else {
                let found = Instruction::decode(&self.units, at);
                (Start::Instruction, found.map(|instruction| instruction.n_units()))
            };
            let expected = if is_payload { "a whole payload" } else { "a whole instruction" };
            let n_units = n_units.ok_or(CodeError { unit: at, expected })?;
            self.starts[at] = start;
            at += n_units;
        }
        Ok(())
    }

    /// The instruction at a unit where one begins.
    fn instruction(&self, at: usize) -> Instruction {
        Instruction::decode(&self.units, at).expect("a unit where an instruction begins")
    }

    /// The letter of the result of a call or of `filled-new-array`.
    fn result(&self, at: usize, instruction: &Instruction) -> Option<u8> {
        match instruction.opcode {
            Opcode::FilledNewArray | Opcode::FilledNewArrayRange => Some(b'['),
            _ => {
                let (proto, _) = self.callee(at, instruction)?;
                Some(letter(self.file, proto.return_type))
            }
        }
    }

    fn registers(&self, at: usize, instruction: &Instruction) -> Result<(), CodeError> {
        let exists = |register: u16, is_wide: bool| {
            u32::from(register) + u32::from(is_wide) < u32::from(self.code.n_registers)
        };
        let all_exist = instruction.opcode.registers().bytes().all(|letter| {
            let register = match letter.to_ascii_lowercase() {
                b'a' => instruction.a,
                b'b' => instruction.b,
                _ => instruction.c,
            };
            exists(register, letter.is_ascii_uppercase())
        });
        let is_range = matches!(instruction.opcode.format(), Format::F3rc | Format::F4rcc);
        // The registers of a range ascend, unless their numbers overflow.
        let count = instruction.n_arguments();
        let ascends =
            !is_range || count == 0 || usize::from(instruction.argument(0)) + count <= 1 << 16;
        let arguments_exist = instruction.arguments().all(|register| exists(register, false));
        require(all_exist && ascends && arguments_exist, at, "registers of the method")
    }

    fn index(&self, at: usize, instruction: &Instruction) -> Result<(), CodeError> {
        let file = self.file;
        let index = instruction.index;
        let below = |count: u32| require(index < count, at, "an index into a table of the file");
        match instruction.opcode.index_kind() {
            IndexKind::None => Ok(()),
            IndexKind::String => below(file.n_strings()),
            IndexKind::Proto => below(file.n_protos()),
            IndexKind::MethodHandle => below(file.n_method_handles()),
            IndexKind::Type => {
                below(file.n_types())?;
                self.type_operand(at, instruction)
            }
            IndexKind::Field => {
                below(file.n_fields())?;
                let first = letter(file, file.field(FieldId(index)).type_id);
                // Seven opcodes each for iget, iput, sget and sput, in one order of types.
                let kind = (instruction.opcode as u8 - Opcode::Iget as u8) % 7;
                let letters = [&b"IF"[..], b"JD", b"L[", b"Z", b"B", b"C", b"S"];
                let fits = letters[usize::from(kind)].contains(&first);
                require(fits, at, "an instruction for the type of the field")
            }
            IndexKind::Method => {
                below(file.n_methods())?;
                self.call(at, instruction)
            }
            IndexKind::MethodAndProto => {
                below(file.n_methods())?;
                require(instruction.proto < file.n_protos(), at, "a prototype of the file")?;
                self.call(at, instruction)
            }
            IndexKind::CallSite => {
                below(file.n_call_sites())?;
                self.call(at, instruction)
            }
        }
    }

    fn type_operand(&self, at: usize, instruction: &Instruction) -> Result<(), CodeError> {
        let descriptor = self.file.descriptor(TypeId(instruction.index)).as_bytes();
        let first = descriptor[0];
        match instruction.opcode {
            Opcode::NewInstance => require(first == b'L', at, "a class"),
            Opcode::NewArray => require(first == b'[', at, "an array's type"),
            Opcode::FilledNewArray | Opcode::FilledNewArrayRange => {
                let fits = first == b'[' && !is_wide(descriptor[1]);
                require(fits, at, "the type of an array without long and double elements")
            }
            Opcode::CheckCast | Opcode::InstanceOf => {
                require(matches!(first, b'L' | b'['), at, "a type of objects")
            }
            _ => Ok(()),
        }
    }

    /// The prototype that a call uses, and whether it has a receiver.
    fn callee(&self, at: usize, instruction: &Instruction) -> Option<(Proto<'_>, bool)> {
        let proto = match instruction.opcode.index_kind() {
            IndexKind::Method => self.file.method(MethodId(instruction.index)).proto,
            IndexKind::MethodAndProto => ProtoId(instruction.proto),
            IndexKind::CallSite => {
                match self.file.call_site(CallSiteId(instruction.index)).iter().nth(2) {
                    Some(Value::MethodType(proto)) => proto,
                    _ => unreachable!("unit {at}: call sites are checked when a file is opened"),
                }
            }
            _ => return None,
        };
        let has_receiver = !matches!(
            instruction.opcode,
            Opcode::InvokeStatic
                | Opcode::InvokeStaticRange
                | Opcode::InvokeCustom
                | Opcode::InvokeCustomRange
        );
        Some((self.file.proto(proto), has_receiver))
    }

    fn call(&self, at: usize, instruction: &Instruction) -> Result<(), CodeError> {
        let (proto, has_receiver) = self.callee(at, instruction).expect("a call");
        let count = usize::from(has_receiver) + n_words(self.file, &proto);
        let fits = instruction.n_arguments() == count;
        require(fits, at, "one register for each word of the arguments")?;
        let fits = count <= usize::from(self.code.n_outs);
        require(fits, at, "at most as many arguments as the code announces")?;
        let mut word = usize::from(has_receiver);
        for class in proto.parameters.iter() {
            if is_wide(letter(self.file, class)) {
                let [low, high] = [instruction.argument(word), instruction.argument(word + 1)];
                require(low.checked_add(1) == Some(high), at, "pairs of adjacent registers")?;
                word += 1;
            }
            word += 1;
        }
        if instruction.opcode.index_kind() != IndexKind::CallSite {
            let method = self.file.method(MethodId(instruction.index));
            let is_direct =
                matches!(instruction.opcode, Opcode::InvokeDirect | Opcode::InvokeDirectRange);
            let may = match self.file.string(method.name).as_bytes() {
                b"<init>" => is_direct,
                [b'<', ..] => false,
                _ => true,
            };
            require(may, at, "a method that may be called so")?;
        }
        Ok(())
    }

    /// Checks where tries begin, and their handlers.
    fn handlers(&self) -> Result<(), CodeError> {
        let mut checked = None;
        for one in &self.tries {
            let start = one.start as usize;
            let begins = self.starts[start] == Start::Instruction;
            require(begins, start, "a try that begins with an instruction")?;
            // Tries often have one list of handlers, which is checked once.
            if checked.is_some_and(|list| std::ptr::eq(list, &*one.handlers)) {
                continue;
            }
            checked = Some(&*one.handlers);
            for handler in one.handlers.iter() {
                let address = handler.address as usize;
                let begins = self.starts[address] == Start::Instruction
                    && !is_move_result(self.instruction(address).opcode);
                require(begins, address, "a handler that begins with an instruction")?;
                let is_class =
                    handler.exception.is_none_or(|class| letter(self.file, class) == b'L');
                require(is_class, address, "a handler of a class of exceptions")?;
            }
        }
        Ok(())
    }

    /// Follows control from the first instruction, and checks every instruction that it reaches. A
    /// `move-exception` that is reached without a step begins a handler. `result` is the letter of
    /// the method's result.
    fn control(&self, result: u8) -> Result<(), CodeError> {
        let mut is_reached = vec![false; self.units.len()];
        let mut is_followed = vec![false; self.tries.len()];
        let mut open = Vec::new();
        self.target(0, 0)?;
        is_reached[0] = true;
        open.push(0);
        let mut reach = |target: usize, open: &mut Vec<usize>| {
            if !std::mem::replace(&mut is_reached[target], true) {
                open.push(target);
            }
        };
        while let Some(at) = open.pop() {
            let instruction = self.instruction(at);
            self.registers(at, &instruction)?;
            self.index(at, &instruction)?;
            let returns = instruction.opcode.flow() == Flow::Return;
            let fits = !returns || takes(instruction.opcode, result);
            require(fits, at, "an instruction for the type of the result")?;
            for target in self.successors(at, &instruction)? {
                reach(target, &mut open);
            }
            if let Some(index) = self.try_at(at).filter(|_| instruction.opcode.can_throw())
                && !std::mem::replace(&mut is_followed[index], true)
            {
                for handler in self.tries[index].handlers.iter() {
                    reach(handler.address as usize, &mut open);
                }
            }
        }
        Ok(())
    }

    /// The try that covers a unit.
    fn try_at(&self, at: usize) -> Option<usize> {
        let index = self.tries.partition_point(|one| one.end as usize <= at);
        let one = self.tries.get(index)?;
        (one.start as usize <= at).then_some(index)
    }

    /// The units that may follow an instruction, apart from handlers.
    fn successors(&self, at: usize, instruction: &Instruction) -> Result<Vec<usize>, CodeError> {
        Ok(match instruction.opcode.flow() {
            Flow::Next | Flow::Throwing => {
                if instruction.opcode == Opcode::FillArrayData {
                    self.payload(at, instruction)?;
                }
                vec![self.next(at, instruction)?]
            }
            Flow::Goto => vec![self.branch(at, instruction)?],
            Flow::If => vec![self.branch(at, instruction)?, self.next(at, instruction)?],
            Flow::Switch => {
                let mut targets = vec![self.next(at, instruction)?];
                let distances = match self.payload(at, instruction)? {
                    Payload::PackedSwitch { distances, .. } => distances,
                    Payload::SparseSwitch { keys, distances } => {
                        let ascend = keys.is_sorted_by(|one, next| one < next);
                        require(ascend, at, "a switch with ascending values")?;
                        distances
                    }
                    Payload::ArrayData { .. } => unreachable!("a switch has another payload"),
                };
                for distance in distances {
                    targets.push(self.target(at, distance)?);
                }
                targets
            }
            Flow::Return | Flow::Throw => Vec::new(),
        })
    }

    /// The payload of a switch or of `fill-array-data`.
    fn payload(&self, at: usize, instruction: &Instruction) -> Result<Payload, CodeError> {
        let kind = match instruction.opcode {
            Opcode::PackedSwitch => Payload::PACKED_SWITCH,
            Opcode::SparseSwitch => Payload::SPARSE_SWITCH,
            _ => Payload::ARRAY_DATA,
        };
        let target = at.checked_add_signed(instruction.distance as isize).filter(|target| {
            target.is_multiple_of(2)
                && self.starts.get(*target) == Some(&Start::Payload)
                && self.units[*target] == kind
        });
        let payload = target.and_then(|target| Payload::decode(&self.units, target));
        let payload =
            payload.ok_or(CodeError { unit: at, expected: "a payload at an even unit" })?;
        if let Payload::ArrayData { element_bytes, .. } = payload {
            let is_size = matches!(element_bytes, 1 | 2 | 4 | 8);
            require(is_size, at, "array elements of 1, 2, 4 or 8 bytes")?;
        }
        Ok(payload)
    }

    fn branch(&self, at: usize, instruction: &Instruction) -> Result<usize, CodeError> {
        let moves = instruction.distance != 0 || instruction.opcode == Opcode::Goto32;
        require(moves, at, "a branch to another instruction")?;
        self.target(at, instruction.distance)
    }

    /// The unit behind an instruction. A `move-result` there takes the instruction's result.
    fn next(&self, at: usize, instruction: &Instruction) -> Result<usize, CodeError> {
        let next = self.step(at, at + instruction.n_units())?;
        let opcode = self.instruction(next).opcode;
        if is_move_result(opcode) {
            let letter = self.result(at, instruction);
            require(letter.is_some(), next, "a call or filled-new-array before move-result")?;
            let fits = letter.is_some_and(|letter| takes(opcode, letter));
            require(fits, next, "an instruction for the type of the result")?;
        }
        Ok(next)
    }

    /// The target of a branch or of a switch.
    fn target(&self, at: usize, distance: i32) -> Result<usize, CodeError> {
        let target = at.checked_add_signed(distance as isize).unwrap_or(usize::MAX);
        let target = self.step(at, target)?;
        let takes_result = is_move_result(self.instruction(target).opcode);
        require(!takes_result, at, "a branch to another instruction than move-result")?;
        Ok(target)
    }

    /// A unit that control reaches other than by an exception.
    fn step(&self, at: usize, target: usize) -> Result<usize, CodeError> {
        let is_start = self.starts.get(target) == Some(&Start::Instruction);
        require(is_start, at, "control that stays on instructions of the method")?;
        let takes = self.instruction(target).opcode == Opcode::MoveException;
        require(!takes, at, "a way to move-exception by exceptions alone")?;
        Ok(target)
    }
}

/// Whether a return or `move-result` takes a value of a type with this letter.
fn takes(opcode: Opcode, letter: u8) -> bool {
    let letters = match opcode {
        Opcode::ReturnVoid => &b"V"[..],
        Opcode::Return | Opcode::MoveResult => b"ZBSCIF",
        Opcode::ReturnWide | Opcode::MoveResultWide => b"JD",
        _ => b"L[",
    };
    letters.contains(&letter)
}

fn is_move_result(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::MoveResult | Opcode::MoveResultWide | Opcode::MoveResultObject)
}
