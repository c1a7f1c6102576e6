//! Fuzzes dex files: edits of files that tools wrote, and files of the fuzzer's own.
//!
//! The checksum and the length are made right, as an attacker would. A file that opens is read to
//! its end, and code that is verified is decoded.

use super::input::Input;
use baton_dex::{
    AnnotationSet, CallSiteId, Code, DexFile, EncodedAnnotation, FieldId, Flow, IndexKind,
    Instruction, MethodHandleId, MethodId, Payload, ProtoId, StringId, TypeId, Value, verify,
};

const FILES: [&[u8]; 2] = [
    include_bytes!("../../crates/vm/dex/tests/golden/sample.dex"),
    include_bytes!("../../crates/vm/dex/tests/golden/code.dex"),
];

pub fn run(data: &[u8]) {
    if data.starts_with(b"dex\n") {
        return open(data.to_vec());
    }
    let mut input = Input::new(data);
    let mut bytes = input.pick(&FILES).to_vec();
    if input.below(8) == 0 {
        let length = input.u32() as usize % bytes.len();
        bytes.truncate(length);
    }
    // Few edits, as a file with many is refused for the first.
    for _ in 0..1 + input.below(3) {
        let at = input.u32() as usize;
        let value = input.small();
        let n_bytes = [1, 2, 4][input.below(3)];
        for (index, byte) in value.to_le_bytes()[..n_bytes].iter().enumerate() {
            if let Some(place) = bytes.len().checked_sub(1).map(|last| (at + index) % (last + 1)) {
                bytes[place] = *byte;
            }
        }
    }
    open(bytes);
}

/// Opens a file with its checksum and length repaired.
fn open(mut bytes: Vec<u8>) {
    if bytes.len() >= 36 {
        let length = bytes.len() as u32;
        bytes[32..36].copy_from_slice(&length.to_le_bytes());
        let sum = adler2::adler32_slice(&bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
    match DexFile::open(&bytes) {
        Ok(file) => read(&file),
        Err(error) => assert!(error.offset <= bytes.len(), "{error}"),
    }
}

/// Reads all that a file has.
fn read(file: &DexFile) {
    for id in (0..file.n_strings()).map(StringId) {
        let string = file.string(id);
        assert_eq!(string.utf16().count(), file.string_units(id) as usize);
        assert_eq!(file.find_string(string), Some(id));
    }
    for id in (0..file.n_types()).map(TypeId) {
        assert_eq!(file.find_type(file.descriptor(id).as_bytes()), Some(id));
    }
    for id in (0..file.n_protos()).map(ProtoId) {
        assert!(file.signature(id).starts_with('('));
    }
    for id in (0..file.n_fields()).map(FieldId) {
        file.descriptor(file.field(id).type_id);
    }
    for id in (0..file.n_methods()).map(MethodId) {
        file.proto(file.method(id).proto);
    }
    for id in (0..file.n_method_handles()).map(MethodHandleId) {
        file.method_handle(id);
    }
    for id in (0..file.n_call_sites()).map(CallSiteId) {
        file.call_site(id).iter().for_each(|one| value(file, one));
    }
    for class in file.classes() {
        let descriptor = file.descriptor(class.type_id);
        assert!(file.find_class(descriptor.as_bytes()).is_some());
        class.interfaces.iter().for_each(|id| assert!(id.0 < file.n_types()));
        let annotations = class.annotations();
        set(file, annotations.class());
        let data = class.data();
        let values = class.static_values();
        values.into_iter().flat_map(|values| values.iter()).for_each(|one| value(file, one));
        for field in data.static_fields.iter().chain(&data.instance_fields) {
            set(file, annotations.field(field.id));
        }
        for method in data.methods() {
            set(file, annotations.method(method.id));
            annotations.parameters(method.id).for_each(|one| set(file, one));
            if let Some(code) = file.code(method) {
                file.line(&code, 0);
                if verify(file, method, &code).is_ok() {
                    walk(file, &code);
                }
            }
        }
    }
}

fn set(file: &DexFile, set: AnnotationSet) {
    set.iter().for_each(|one| annotation(file, one.annotation));
}

fn annotation(file: &DexFile, annotation: EncodedAnnotation) {
    file.descriptor(annotation.type_id);
    for (name, element) in annotation.elements() {
        file.string(name);
        value(file, element);
    }
}

fn value(file: &DexFile, one: Value) {
    match one {
        Value::String(id) => {
            let _ = file.string(id);
        }
        Value::Type(id) => {
            let _ = file.descriptor(id);
        }
        Value::MethodType(id) => {
            let _ = file.signature(id);
        }
        Value::MethodHandle(id) => {
            let _ = file.method_handle(id);
        }
        Value::Field(id) | Value::Enum(id) => {
            let _ = file.field(id);
        }
        Value::Method(id) => {
            let _ = file.method(id);
        }
        Value::Array(values) => values.iter().for_each(|one| value(file, one)),
        Value::Annotation(one) => annotation(file, one),
        _ => {}
    }
}

/// Follows verified code along every way, as an interpreter would.
fn walk(file: &DexFile, code: &Code) {
    let units: Vec<u16> = code.units().collect();
    let mut is_reached = vec![false; units.len()];
    let mut open = vec![0];
    let tries = code.tries();
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut is_reached[at], true) {
            continue;
        }
        let one = Instruction::decode(&units, at).expect("verified code");
        let named = one.opcode.registers().bytes().map(|letter| {
            let register = match letter.to_ascii_lowercase() {
                b'a' => one.a,
                b'b' => one.b,
                _ => one.c,
            };
            register + u16::from(letter.is_ascii_uppercase())
        });
        assert!(named.chain(one.arguments()).all(|register| register < code.n_registers));
        match one.opcode.index_kind() {
            IndexKind::String => {
                let _ = file.string(StringId(one.index));
            }
            IndexKind::Type => {
                let _ = file.descriptor(TypeId(one.index));
            }
            IndexKind::Field => {
                let _ = file.field(FieldId(one.index));
            }
            IndexKind::Method => {
                let _ = file.proto(file.method(MethodId(one.index)).proto);
            }
            IndexKind::MethodAndProto => {
                let _ = file.proto(ProtoId(one.proto));
            }
            IndexKind::CallSite => {
                let _ = file.call_site(CallSiteId(one.index));
            }
            IndexKind::MethodHandle => {
                let _ = file.method_handle(MethodHandleId(one.index));
            }
            IndexKind::Proto => {
                let _ = file.proto(ProtoId(one.index));
            }
            IndexKind::None => {}
        }
        let next = at + one.n_units();
        let target = |distance: i32| at.checked_add_signed(distance as isize).unwrap();
        let payload = || Payload::decode(&units, target(one.distance)).expect("verified payloads");
        match one.opcode.flow() {
            Flow::Next | Flow::Throwing => open.push(next),
            Flow::Goto => open.push(target(one.distance)),
            Flow::If => open.extend([next, target(one.distance)]),
            Flow::Switch => {
                open.push(next);
                match payload() {
                    Payload::PackedSwitch { distances, .. }
                    | Payload::SparseSwitch { distances, .. } => {
                        open.extend(distances.into_iter().map(target));
                    }
                    Payload::ArrayData { .. } => panic!("a switch with array data"),
                }
            }
            Flow::Return | Flow::Throw => {}
        }
        for one_try in &tries {
            if one.opcode.can_throw() && (one_try.start..one_try.end).contains(&(at as u32)) {
                open.extend(one_try.handlers.iter().map(|handler| handler.address as usize));
            }
        }
    }
}
