//! Files that dx and smali wrote, with their sources beside them; and edits of these files.

use baton_dex::{
    Annotation, ClassDef, Code, DexFile, Field, Flow, Instruction, Method, MethodHandle, Opcode,
    StringId, Value, Visibility, access, verify,
};

const SAMPLE: &[u8] = include_bytes!("golden/sample.dex");
const CODE: &[u8] = include_bytes!("golden/code.dex");

fn text(file: &DexFile, id: StringId) -> String {
    file.string(id).to_string()
}

fn method<'a>(
    file: &DexFile<'a>,
    class: &ClassDef,
    name: &str,
) -> (baton_dex::EncodedMethod, Code<'a>) {
    let data = class.data();
    let of_name = |id| text(file, file.method(id).name) == name;
    let found = *data.methods().find(|one| of_name(one.id)).unwrap();
    (found, file.code(&found).unwrap())
}

#[test]
fn members_are_those_of_the_source() {
    let file = DexFile::open(SAMPLE).unwrap();
    assert_eq!(file.version(), 38);
    let class = file.find_class(b"LSample;").unwrap();
    assert_eq!(class.access_flags & access::PUBLIC, access::PUBLIC);
    assert_eq!(file.descriptor(class.superclass.unwrap()).to_str(), Some("Ljava/lang/Object;"));
    let interfaces: Vec<_> = class.interfaces.iter().map(|id| file.descriptor(id)).collect();
    assert_eq!(interfaces.len(), 1);
    assert_eq!(interfaces[0].as_bytes(), b"Ljava/lang/Runnable;");
    assert_eq!(text(&file, class.source_file.unwrap()), "Sample.java");
    let data = class.data();
    let signatures: Vec<String> = data
        .methods()
        .map(|one| {
            let Method { proto, name, .. } = file.method(one.id);
            format!("{}{}", text(&file, name), file.signature(proto))
        })
        .collect();
    assert_eq!(
        signatures,
        [
            "<init>()V",
            "lambda$run$0([I)V",
            "choose(ILjava/lang/String;)I",
            "missing(J[[D)I",
            "run()V"
        ]
    );
    let missing = data.virtual_methods[1];
    assert_eq!(missing.access_flags, access::NATIVE);
    assert!(file.code(&missing).is_none());
    assert!(file.find_class(b"Ljava/lang/Object;").is_none());
    assert!(file.find_class(b"LNowhere;").is_none());
    assert!(file.find_type(b"Ljava/lang/Object;").is_some());
}

#[test]
fn static_values_are_those_of_the_source() {
    let file = DexFile::open(SAMPLE).unwrap();
    let class = file.find_class(b"LSample;").unwrap();
    let values = class.static_values().unwrap();
    let fields = class.data().static_fields;
    let shown: Vec<String> = fields
        .iter()
        .zip(values.iter())
        .map(|(field, value)| {
            let Field { name, .. } = file.field(field.id);
            let value = match value {
                Value::String(id) => format!("{:?}", text(&file, id)),
                other => format!("{other:?}"),
            };
            format!("{} {value}", text(&file, name))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "BYTE Byte(-1)",
            "CHAR Char(65535)",
            "DOUBLE Double(-2.5)",
            "FLOAT Float(1.5)",
            "INT Int(-2147483648)",
            "LONG Long(9223372036854775807)",
            "SHORT Short(-300)",
            "STRING \"z\\0é€😀\"",
            "TRUTH Boolean(true)"
        ]
    );
    assert_eq!(fields.len(), 10);
}

fn shown(file: &DexFile, one: Annotation) -> String {
    let elements: Vec<String> = one
        .annotation
        .elements()
        .map(|(name, value)| format!("{}={}", text(file, name), element(file, value)))
        .collect();
    let name = file.descriptor(one.annotation.type_id);
    format!("{:?} {name}({})", one.visibility, elements.join(", "))
}

fn element(file: &DexFile, value: Value) -> String {
    match value {
        Value::String(id) => text(file, id),
        Value::Type(id) => file.descriptor(id).to_string(),
        Value::Enum(id) => text(file, file.field(id).name),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| element(file, value)).collect();
            format!("[{}]", values.join(" "))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn annotations_are_those_of_the_source() {
    let file = DexFile::open(SAMPLE).unwrap();
    let class = file.find_class(b"LSample;").unwrap();
    let annotations = class.annotations();
    let data = class.data();
    let value = data.instance_fields[0].id;
    let field: Vec<String> = annotations.field(value).iter().map(|one| shown(&file, one)).collect();
    assert_eq!(field, ["Runtime LSample$Note;(numbers=[Int(1) Int(-2)], text=a field)"]);
    let (choose, _) = method(&file, &class, "choose");
    let set = annotations.method(choose.id);
    let of_method: Vec<String> = set.iter().map(|one| shown(&file, one)).collect();
    assert_eq!(
        of_method,
        [
            "Runtime LSample$Note;(color=GREEN, type=Ljava/lang/String;)",
            "System Ldalvik/annotation/Throws;(value=[Ljava/lang/Exception;])"
        ]
    );
    let parameters: Vec<Vec<String>> = annotations
        .parameters(choose.id)
        .map(|set| set.iter().map(|one| shown(&file, one)).collect())
        .collect();
    assert_eq!(parameters, [vec![], vec!["Runtime LSample$Note;(text=a parameter)".to_owned()]]);
    let (run, _) = method(&file, &class, "run");
    assert!(annotations.method(run.id).is_empty());
    assert_eq!(annotations.parameters(run.id).len(), 0);
    let note = file.find_class(b"LSample$Note;").unwrap();
    let defaults = note.annotations().class();
    let system = defaults.iter().filter(|one| one.visibility == Visibility::System);
    assert!(system.map(|one| shown(&file, one)).any(|one| one.contains("AnnotationDefault")));
}

#[test]
fn code_has_lines_tries_and_call_sites() {
    let file = DexFile::open(SAMPLE).unwrap();
    let class = file.find_class(b"LSample;").unwrap();
    let (choose, code) = method(&file, &class, "choose");
    assert_eq!((code.n_ins, verify(&file, &choose, &code)), (3, Ok(())));
    let source = include_str!("golden/Sample.java");
    let line_of = |part: &str| source.lines().position(|line| line.contains(part)).unwrap() + 1;
    assert_eq!(file.line(&code, 0), Some(line_of("switch (which)") as u32));
    let units: Vec<u16> = code.units().collect();
    let call = file
        .lines(&code)
        .into_iter()
        .find(|(_, line)| *line == line_of("Integer.parseInt") as u32)
        .unwrap()
        .0;
    let one = Instruction::decode(&units, call as usize).unwrap();
    assert_eq!((one.opcode, one.opcode.flow()), (Opcode::InvokeStatic, Flow::Throwing));
    let tries = code.tries();
    let around = tries.iter().find(|one| (one.start..one.end).contains(&call)).unwrap();
    let exceptions: Vec<_> =
        around.handlers.iter().map(|one| one.exception.map(|id| file.descriptor(id))).collect();
    assert_eq!(exceptions.len(), 2);
    assert_eq!(exceptions[0].unwrap().to_str(), Some("Ljava/lang/NumberFormatException;"));
    assert_eq!(exceptions[1], None);

    assert_eq!(file.n_call_sites(), 1);
    let values: Vec<Value> = file.call_site(baton_dex::CallSiteId(0)).iter().collect();
    let [Value::MethodHandle(handle), Value::String(name), Value::MethodType(proto)] = values[..3]
    else {
        panic!("{values:?}")
    };
    assert!(matches!(file.method_handle(handle), MethodHandle::InvokeStatic(_)));
    assert_eq!(text(&file, name), "run");
    assert_eq!(file.signature(proto), "(LSample;[I)Ljava/lang/Runnable;");
}

#[test]
fn all_code_is_verified() {
    for bytes in [SAMPLE, CODE] {
        let file = DexFile::open(bytes).unwrap();
        for class in file.classes() {
            for method in class.data().methods() {
                if let Some(code) = file.code(method) {
                    assert_eq!(verify(&file, method, &code), Ok(()));
                }
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn write<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn repair(bytes: &mut [u8]) {
    let sum = adler2::adler32_slice(&bytes[12..]);
    write(bytes, 8, sum.to_le_bytes());
}

/// A table of the header: its offset, by the place of its count.
fn table(place: usize) -> usize {
    word(SAMPLE, place + 4) as usize
}

#[test]
fn bad_files_are_refused() {
    let check = |edit: &dyn Fn(&mut Vec<u8>), offset: usize, expected: &str| {
        let mut bytes = SAMPLE.to_vec();
        edit(&mut bytes);
        repair(&mut bytes);
        let error = DexFile::open(&bytes).unwrap_err();
        assert_eq!((error.offset, error.expected), (offset, expected));
        let shown = format!("byte {offset:#x} of the dex file: expected {expected}");
        assert_eq!(error.to_string(), shown);
    };
    let set =
        |at: usize, value: u32| move |bytes: &mut Vec<u8>| write(bytes, at, value.to_le_bytes());
    let half =
        |at: usize, value: u16| move |bytes: &mut Vec<u8>| write(bytes, at, value.to_le_bytes());
    let [strings, types, protos, fields, methods, classes] = [56, 64, 72, 80, 88, 96].map(table);
    let map = word(SAMPLE, 52) as usize;
    check(&|bytes| bytes[0] = b'D', 0, "the magic of a dex file 035 to 039");
    check(&|bytes| write(bytes, 4, *b"040\0"), 0, "the magic of a dex file 035 to 039");
    check(&|bytes| bytes.truncate(bytes.len() - 1), 32, "the number of bytes of the file");
    check(&set(36, 0x6c), 36, "0x70, the number of bytes of the header");
    check(&set(40, 0x7856_3412), 40, "the tag of little-endian files");
    check(&set(44, 1 << 30), 44, "a link section inside the file");
    check(&set(104, 1 << 30), 104, "a data section inside the file");
    check(&set(64, 1 << 17), 64, "at most 65536 entries");
    check(&set(60, 0x71), 60, "an aligned table between the header and the file's end");
    check(&set(84, 1 << 30), 84, "an aligned table between the header and the file's end");
    check(&set(56, word(SAMPLE, 56) - 1), map, "a map with the header's tables");
    check(&set(52, 3), 52, "the aligned offset of the map");
    check(&set(52, 1 << 30), SAMPLE.len(), "more bytes before the end of the file");
    check(&set(map + 24, 0), map + 16, "sections in ascending order of offsets");
    check(&half(map + 16, 0x3000), map + 16, "a known kind of section");
    check(&half(map + 16, 0), map + 16, "one section of each kind");
    check(&set(strings, 1), strings, "the offset of a string");
    check(&set(strings + 4, word(SAMPLE, strings)), strings + 4, "strings in ascending order");
    let below = "an index below the number of the table's entries";
    check(&set(types, 0xffff), types, below);
    check(&set(types, 0), types, "the descriptor of a type");
    let order = "types in ascending order of descriptors";
    check(&set(types + 4, word(SAMPLE, types)), types + 4, order);
    check(&set(protos, 0xffff), protos, below);
    check(&set(protos, 0), protos, "the letters of the result and the parameters");
    check(&set(protos + 8, 4), protos, "the offset of a list of types");
    check(&half(fields, 0), fields, "a field of a class");
    check(&set(fields + 4, 0xffff), fields, below);
    check(&half(fields + 8, 0xffff), fields + 8, below);
    check(&half(methods, 0), methods, "a method of a class or of an array");
    check(&half(methods + 2, 0xffff), methods, below);
    check(&set(classes, 0), classes, "a class");
    check(&set(classes + 8, 0), classes, "a class as superclass");
    let none = "a superclass of every class except java.lang.Object";
    check(&set(classes + 8, u32::MAX), classes, none);
    check(&set(classes + 12, 8), classes, "the offset of a list of types");
    check(&set(classes + 16, 0xffff), classes, "the name of a source file");
    check(&set(classes + 20, 8), classes, "the offset of annotations");
    check(&set(classes + 24, 8), classes, "the offset of a class's data");
    check(&set(classes + 28, 8), classes, "the offset of an encoded array");
    let other = word(SAMPLE, classes + 32 + 24);
    check(&set(classes + 24, other), classes, "members of the class in the class's data");
    check(
        &set(classes + 32, word(SAMPLE, classes)),
        classes + 32,
        "annotations of members of the class",
    );
    let first = word(SAMPLE, strings) as usize;
    check(&|bytes| bytes[first] += 1, first, "the number of UTF-16 units of the string");
    check(&|bytes| bytes[first + 1] = 0xf0, first + 1, "modified UTF-8");
    let mut bytes = SAMPLE.to_vec();
    bytes[100] ^= 1;
    let error = DexFile::open(&bytes).unwrap_err();
    assert_eq!((error.offset, error.expected), (8, "the Adler-32 checksum of the file"));
    for length in 0..SAMPLE.len() {
        assert!(DexFile::open(&SAMPLE[..length]).is_err());
    }
}

/// The method of `code.smali` whose units a test replaces: 8 registers, of which the last 3 are
/// arguments. Units 24 to 33 do nothing, 26 to 29 have a handler at 35, and 34 returns v0.
fn room(edit: impl FnOnce(&mut [u16])) -> Result<(), (usize, &'static str)> {
    let file = DexFile::open(CODE).unwrap();
    let class = file.find_class(b"LCode;").unwrap();
    let (_, code) = method(&file, &class, "room");
    let mut units: Vec<u16> = code.units().collect();
    edit(&mut units);
    let mut bytes = CODE.to_vec();
    for (index, unit) in units.iter().enumerate() {
        write(&mut bytes, code.offset() as usize + 16 + 2 * index, unit.to_le_bytes());
    }
    repair(&mut bytes);
    let file = DexFile::open(&bytes).unwrap();
    let class = file.find_class(b"LCode;").unwrap();
    let (found, code) = method(&file, &class, "room");
    verify(&file, &found, &code).map_err(|error| (error.unit, error.expected))
}

/// The index of each instruction of the unedited method, in its order: `room`, `nothing`, the
/// fields `number`, `wide`, `object`, the types `[I`, `[J`, `I`, `Object`, and its `<init>`.
fn indices() -> [u16; 10] {
    let mut found = [0; 10];
    let _ = room(|units| {
        found = [1, 5, 8, 10, 12, 14, 16, 18, 20, 22].map(|at| units[at]);
    });
    found
}

#[test]
fn bad_code_is_refused() {
    let [room_, nothing, number, wide, object, ints, longs, int, class, init] = indices();
    let check = |code: &[u16], expected: Result<(), (usize, &str)>| {
        let result = room(|units| {
            units[..24].fill(0);
            units[..code.len()].copy_from_slice(code);
        });
        assert_eq!(result, expected, "{code:x?}");
    };
    let registers = "registers of the method";
    let stays = "control that stays on instructions of the method";
    let result = "an instruction for the type of the result";
    check(&[0x000f], Ok(()));
    check(&[0x000e], Err((0, result)));
    check(&[0x0011], Err((0, result)));
    check(&[0x0010], Err((0, result)));
    check(&[0x080f], Err((0, registers)));
    check(&[0x6704], Err((0, registers)));
    check(&[0x7604], Err((0, registers)));
    check(&[0x6004], Ok(()));
    check(&[0x0090, 0x0800], Err((0, registers)));
    check(&[0x003e], Err((0, "a whole instruction")));
    check(&[0x0100, 0xffff], Err((0, "a whole payload")));
    // Branches.
    check(&[0xff28], Err((0, stays)));
    check(&[0x0028], Err((0, "a branch to another instruction")));
    check(&[0x0038, 0], Err((0, "a branch to another instruction")));
    check(&[0x002a, 0, 0], Ok(()));
    check(&[0x0038, 2], Ok(()));
    check(&[0x0228, 0x0013, 5], Err((0, stays)));
    check(&[0x7f28], Err((0, stays)));
    // Indices.
    let index = "an index into a table of the file";
    check(&[0x001a, 0xffff], Err((0, index)));
    check(&[0x001c, 0xffff], Err((0, index)));
    check(&[0x0060, 0xffff], Err((0, index)));
    check(&[0x0071, 0xffff, 0], Err((0, index)));
    check(&[0x00fe, 0xffff], Err((0, index)));
    check(&[0x00ff, 0xffff], Err((0, index)));
    check(&[0x00fc, 0, 0], Err((0, index)));
    check(&[0x00fa, nothing, 0, 0xffff], Err((0, "a prototype of the file")));
    // Fields and types.
    let of_field = "an instruction for the type of the field";
    check(&[0x0060, number], Ok(()));
    check(&[0x0060, wide], Err((0, of_field)));
    check(&[0x0061, object], Err((0, of_field)));
    check(&[0x0062, number], Err((0, of_field)));
    check(&[0x0063, number], Err((0, of_field)));
    check(&[0x006d, number], Err((0, of_field)));
    check(&[0x0761, wide], Err((0, registers)));
    check(&[0x0022, ints], Err((0, "a class")));
    check(&[0x0023, class], Err((0, "an array's type")));
    check(&[0x0023, longs], Ok(()));
    check(&[0x001f, int], Err((0, "a type of objects")));
    check(&[0x0020, int], Err((0, "a type of objects")));
    let narrow = "the type of an array without long and double elements";
    check(&[0x1024, longs, 0], Err((0, narrow)));
    check(&[0x1024, class, 0], Err((0, narrow)));
    check(&[0x1024, ints, 0, 0x000c], Ok(()));
    check(&[0x1024, ints, 0, 0x000a], Err((3, result)));
    // Calls.
    check(&[0x3071, room_, 0x0210, 0x000a], Ok(()));
    check(&[0x3071, room_, 0x0210, 0x000b], Err((3, result)));
    check(
        &[0x3071, room_, 0x0210, 0, 0x000a],
        Err((4, "a call or filled-new-array before move-result")),
    );
    check(&[0x000a], Err((0, "a branch to another instruction than move-result")));
    check(&[0x000f, 0x000a, 0x080f, 0x1071, room_, 0], Ok(()));
    check(&[0x0071, nothing, 0, 0x000a], Err((3, result)));
    check(&[0x2071, room_, 0x0010], Err((0, "one register for each word of the arguments")));
    check(&[0x3071, room_, 0x0310], Err((0, "pairs of adjacent registers")));
    check(&[0x3071, room_, 0x0980], Err((0, registers)));
    check(&[0x0377, room_, 5], Ok(()));
    check(&[0x0377, room_, 6], Err((0, registers)));
    check(&[0x0377, room_, 0xffff], Err((0, registers)));
    check(&[0x1070, init, 4], Ok(()));
    check(&[0x0071, init, 0], Err((0, "a method that may be called so")));
    check(&[0x106e, init, 4], Err((0, "a method that may be called so")));
    check(
        &[0x0428, 0x3071, room_, 0x0210, 0x000a],
        Err((0, "a branch to another instruction than move-result")),
    );
    // Payloads.
    let payload = "a payload at an even unit";
    check(&[0x002b, 6, 0, 0x000f, 0, 0, 0x0100, 1, 0, 0, 3, 0], Ok(()));
    check(&[0x002b, 6, 0, 0x000f, 0, 0, 0x0100, 1, 0, 0, 1, 0], Err((0, stays)));
    check(&[0x002b, 6, 0, 0, 0, 0, 0x0100, 1, 0, 0, 3, 0], Err((5, stays)));
    check(&[0x002c, 6, 0, 0x000f, 0, 0, 0x0100, 1, 0, 0, 3, 0], Err((0, payload)));
    check(&[0x002b, 7, 0, 0x000f, 0, 0, 0, 0x0100, 1, 0, 0, 3, 0], Err((0, payload)));
    check(&[0x002b, 6, 0], Err((0, payload)));
    let switch =
        |low: u16, high: u16| [0x002c, 4, 0, 0x000f, 0x0200, 2, low, 0, high, 0, 3, 0, 3, 0];
    check(&switch(1, 2), Ok(()));
    check(&switch(2, 2), Err((0, "a switch with ascending values")));
    let fill = |bytes: u16| [0x0026, 6, 0, 0x000f, 0, 0, 0x0300, bytes, 1, 0, 0, 0];
    check(&fill(4), Ok(()));
    check(&fill(3), Err((0, "array elements of 1, 2, 4 or 8 bytes")));
    // Exceptions.
    let by_exceptions = "a way to move-exception by exceptions alone";
    check(&[0x000d], Err((0, by_exceptions)));
    check(&[0x000f, 0x000d], Ok(()));
    let end = |edit: &dyn Fn(&mut [u16]), expected: Result<(), (usize, &'static str)>| {
        assert_eq!(room(edit), expected);
    };
    end(&|units| units[37] = 0, Ok(()));
    end(&|units| (units[37], units[34]) = (0, 0), Err((37, stays)));
    end(&|units| (units[28], units[37]) = (0x001d, 0), Err((37, stays)));
    end(&|units| (units[28], units[35]) = (0x001d, 0x000d), Ok(()));
    end(&|units| (units[34], units[35]) = (0, 0x000d), Err((34, by_exceptions)));
    end(&|units| units[25] = 0x0013, Err((26, "a try that begins with an instruction")));
    end(&|units| units[34] = 0x0013, Err((35, "a handler that begins with an instruction")));
}

#[test]
fn registers_of_arguments_are_counted() {
    let file = DexFile::open(CODE).unwrap();
    let class = file.find_class(b"LCode;").unwrap();
    let (_, code) = method(&file, &class, "room");
    for (at, value, expected) in [
        (2, 2u16, "one argument register for each word"),
        (4, 2, "at most as many arguments as the code announces"),
    ] {
        let mut bytes = CODE.to_vec();
        write(&mut bytes, code.offset() as usize + at, value.to_le_bytes());
        repair(&mut bytes);
        let file = DexFile::open(&bytes).unwrap();
        let class = file.find_class(b"LCode;").unwrap();
        let (found, code) = method(&file, &class, "room");
        let error = verify(&file, &found, &code).unwrap_err();
        assert_eq!((error.unit, error.expected), (0, expected));
    }
}
