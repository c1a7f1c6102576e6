//! The verifier of types on dex assembler: each wrong program throws VerifyError and no right one
//! does, the class library's code is right, and code with random changes harms nobody.
//!
//! One test, as it starts one VM.

use baton_dex::{DexFile, Format, Instruction, Opcode};
use baton_vm::class::{Class, Loader};
use baton_vm::stack::Value;
use baton_vm::vm::{Options, Thread};
use baton_vm::{exception, initialize, linker, runtime, verifier};
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::{library, succeed};

mod tools;

/// Bodies of `static test(ILjava/lang/String;JF)Ljava/lang/Object;` with v0 to v5 free: v6 is the
/// int, v7 the string, v8 the long and v10 the float. `return-object v7` follows.
const RIGHT: &[&str] = &[
    "",
    "const/4 v0, 0
     invoke-virtual {v0}, Ljava/lang/Object;->hashCode()I",
    "add-int v0, v6, v6
     int-to-float v1, v0
     add-float v1, v1, v10
     long-to-double v2, v8
     mul-double v2, v2, v2",
    // A constant is an int and a float.
    "const/4 v0, 1
     add-int v1, v0, v6
     add-float v2, v0, v10",
    // An object of one of two classes has their superclass's methods, and every interface.
    "new-instance v0, Ljava/lang/Integer;
     invoke-direct {v0, v6}, Ljava/lang/Integer;-><init>(I)V
     if-eqz v6, :end
     new-instance v0, Ljava/lang/Long;
     invoke-direct {v0, v8, v9}, Ljava/lang/Long;-><init>(J)V
     :end
     invoke-virtual {v0}, Ljava/lang/Number;->intValue()I
     invoke-interface {v7, v7}, Ljava/lang/Comparable;->compareTo(Ljava/lang/Object;)I",
    "const/4 v0, 2
     new-array v0, v0, [Ljava/lang/String;
     if-eqz v6, :end
     const/4 v0, 0
     new-array v0, v0, [Ljava/lang/Integer;
     :end
     array-length v1, v0
     const/4 v1, 0
     aget-object v2, v0, v1",
    "check-cast v7, Ljava/lang/CharSequence;
     invoke-interface {v7}, Ljava/lang/CharSequence;->length()I
     move-result v0
     packed-switch v0, :table
     goto :end
     :table
     .packed-switch 0
         :end
     .end packed-switch
     :end
     nop",
    // A handler has the types before the instruction that throws.
    "const/4 v0, 1
     :start
     invoke-static {v7}, Ljava/lang/Integer;->parseInt(Ljava/lang/String;)I
     move-result v0
     :end
     .catch Ljava/lang/NumberFormatException; {:start .. :end} :handler
     goto :out
     :handler
     move-exception v1
     add-int v0, v0, v6
     invoke-virtual {v1}, Ljava/lang/NumberFormatException;->getMessage()Ljava/lang/String;
     :out
     nop",
    "monitor-enter v7
     monitor-exit v7",
    // The missing class is an error where the instruction runs, and it does not.
    "if-nez v6, :end
     new-instance v0, Lmissing/One;
     invoke-direct {v0}, Lmissing/One;-><init>()V
     invoke-static {v0}, Lmissing/Two;->take(Ljava/lang/Thread;)V
     iget-object v0, v0, Lmissing/One;->field:Ljava/lang/String;
     invoke-virtual {v0}, Ljava/lang/String;->length()I
     :end
     nop",
    // The result's class is missing: the method's own handler catches the error.
    "invoke-static {v7}, Lcase/NAME;->missing(Ljava/lang/String;)Lmissing/One;
     return-object v7
     .end method
     .method static missing(Ljava/lang/String;)Lmissing/One;
     .registers 8
     const/4 v0, 1
     :start
     return-object v7
     :end
     .catch Ljava/lang/NoClassDefFoundError; {:start .. :end} :handler
     :handler
     move-exception v1
     add-int v0, v0, v0
     const/4 v7, 0",
    // A return that throws nothing brings its types to no handler.
    "return-object v7
     .end method
     .method static returned(Ljava/lang/String;)Ljava/lang/String;
     .registers 8
     :start
     return-object v7
     :end
     .catchall {:start .. :end} :handler
     :handler
     move-exception v1
     add-int v0, v0, v0",
];

/// Bodies that are refused, and a part of the reason.
const WRONG: &[(&str, &str)] = &[
    (
        "const/4 v0, 1
         invoke-virtual {v0}, Ljava/lang/Object;->hashCode()I",
        "a reference in v0, which has a constant",
    ),
    ("add-int v0, v1, v6", "an int in v1, which has no value"),
    ("add-int v0, v6, v10", "an int in v10, which has a float"),
    ("add-float v0, v6, v10", "a float in v6, which has an int"),
    ("add-long v0, v8, v6", "a long in v6"),
    ("long-to-int v0, v9", "a long in v9, which has the second half"),
    ("neg-double v0, v8", "a double in v8, which has a long"),
    (
        "const/4 v9, 0
         long-to-int v0, v8",
        "a long in v8, which has no value",
    ),
    ("move v0, v7", "a value of 32 bits in v7"),
    ("move-object v0, v6", "a reference in v6, which has an int"),
    ("move-wide v0, v6", "in v6, which has an int"),
    ("array-length v0, v7", "an array in v7"),
    ("throw v6", "a reference in v6"),
    ("monitor-enter v6", "a reference in v6"),
    ("check-cast v6, Ljava/lang/String;", "a reference in v6"),
    ("instance-of v0, v6, Ljava/lang/String;", "a reference in v6"),
    (
        "if-eqz v7, :end
         if-eq v6, v7, :end
         :end
         nop",
        "a reference in v6",
    ),
    (
        "if-ltz v7, :end
         :end
         nop",
        "an int in v7",
    ),
    (
        "new-instance v0, Ljava/lang/Object;
         invoke-virtual {v0}, Ljava/lang/Object;->hashCode()I",
        "a reference in v0, which has an object before its constructor",
    ),
    (
        "new-instance v0, Ljava/lang/Object;
         return-object v0",
        "before its constructor",
    ),
    (
        "new-instance v0, Ljava/lang/Object;
         invoke-direct {v0}, Ljava/lang/Object;-><init>()V
         invoke-direct {v0}, Ljava/lang/Object;-><init>()V",
        "an object before its constructor in v0, which has a reference",
    ),
    (
        "new-instance v0, Ljava/lang/StringBuilder;
         invoke-direct {v0}, Ljava/lang/Object;-><init>()V",
        "a new Ljava/lang/Object; in v0",
    ),
    // Of two objects of one instruction only the last one gets a constructor.
    (
        "const/4 v1, 0
         :again
         move-object v1, v0
         new-instance v0, Ljava/lang/Object;
         if-nez v6, :again
         invoke-direct {v0}, Ljava/lang/Object;-><init>()V
         invoke-virtual {v1}, Ljava/lang/Object;->hashCode()I",
        "v0, which has no value",
    ),
    ("invoke-virtual {v7}, Ljava/lang/Thread;->getName()Ljava/lang/String;", "Ljava/lang/Thread;"),
    ("iget v0, v7, Ljava/io/StreamTokenizer;->ttype:I", "Ljava/io/StreamTokenizer; in v7"),
    ("invoke-static {v10}, Ljava/lang/Math;->abs(I)I", "an int in v10"),
    (
        "invoke-static {v7}, Ljava/lang/Thread;->holdsLock(Ljava/lang/Object;)Z
      move-result v0
      aget v1, v0, v6",
        "a reference in v0",
    ),
    // A native method gets what its signature says.
    ("invoke-virtual {v7, v6}, Ljava/lang/String;->equals(Ljava/lang/Object;)Z", "v6"),
    (
        "const/4 v0, 0
         invoke-static {v6, v0, v7, v0, v0}, \
             Ljava/lang/System;->arraycopy(Ljava/lang/Object;ILjava/lang/Object;II)V",
        "a reference in v6",
    ),
    (
        "const/4 v0, 2
         new-array v0, v0, [I
         aget-object v1, v0, v6",
        "an array of the instruction's type",
    ),
    (
        "const/4 v0, 2
         new-array v0, v0, [I
         aget-wide v1, v0, v6",
        "an array of the instruction's type",
    ),
    (
        "const/4 v0, 2
         new-array v0, v0, [F
         aput v6, v0, v6",
        "a float in v6",
    ),
    ("new-array v0, v7, [I", "an int in v7"),
    (
        "filled-new-array {v6}, [Ljava/lang/String;
         move-result-object v0",
        "a reference in v6",
    ),
    (
        "const/4 v0, 2
         new-array v0, v0, [J
         fill-array-data v0, :data
         return-object v7
         :data
         .array-data 4
             1
         .end array-data",
        "an array of numbers of 4 bytes",
    ),
    (
        "const/4 v0, 0
         aget v0, v0, v0
         invoke-virtual {v0}, Ljava/lang/Object;->hashCode()I",
        "a reference in v0",
    ),
    (
        "const/4 v0, 0
         aget-object v0, v0, v0
         add-int v0, v0, v6",
        "an int in v0, which has null",
    ),
    // Joins lose what only one side has.
    (
        "move-object v0, v7
         if-eqz v6, :end
         move v0, v6
         :end
         invoke-virtual {v0}, Ljava/lang/Object;->hashCode()I",
        "a reference in v0, which has no value",
    ),
    (
        "move-object v0, v7
         if-eqz v6, :end
         new-instance v0, Ljava/lang/Object;
         invoke-direct {v0}, Ljava/lang/Object;-><init>()V
         :end
         invoke-virtual {v0}, Ljava/lang/String;->length()I",
        "Ljava/lang/String; in v0, which has Ljava/lang/Object;",
    ),
    (
        ":start
         invoke-static {v7}, Ljava/lang/Integer;->parseInt(Ljava/lang/String;)I
         move-result v0
         invoke-virtual {v7}, Ljava/lang/String;->length()I
         :end
         .catchall {:start .. :end} :handler
         goto :out
         :handler
         add-int v0, v0, v6
         :out
         nop",
        "an int in v0, which has no value",
    ),
    (
        ":start
         invoke-virtual {v7}, Ljava/lang/String;->length()I
         :end
         .catch Ljava/lang/String; {:start .. :end} :handler
         goto :out
         :handler
         move-exception v0
         :out
         nop",
        "a handler of a class of exceptions",
    ),
    (
        "new-instance v0, Ljava/lang/Thread;
         invoke-direct {v0}, Ljava/lang/Thread;-><init>()V
         sput-object v0, Lcase/NAME;->text:Ljava/lang/String;",
        "Ljava/lang/String; in v0, which has Ljava/lang/Thread;",
    ),
    ("sput-wide v6, Lcase/NAME;->number:J", "a long in v6"),
    // The return throws, as the result's class is missing.
    (
        "return-object v7
         .end method
         .method static missing(Ljava/lang/String;)Lmissing/One;
         .registers 8
         :start
         return-object v7
         :end
         .catchall {:start .. :end} :handler
         :handler
         move-exception v0
         add-int v0, v0, v0",
        "an int in v0, which has a reference",
    ),
    (
        "return-object v7
         .end method
         .method static missing(Ljava/lang/String;)Lmissing/One;
         .registers 8
         :start
         return-object v7
         :end
         .catchall {:start .. :end} :handler
         :handler
         move-exception v0
         .array-data 4
             1
         .end array-data",
        "control that stays on instructions",
    ),
];

/// Constructors, and a part of the reason if they are refused.
const CONSTRUCTORS: &[(&str, Option<&str>)] = &[
    ("invoke-direct {p0}, Ljava/lang/Object;-><init>()V", None),
    (
        "const/4 v0, 3
         iput v0, p0, Lcase/NAME;->own:I
         invoke-direct {p0}, Ljava/lang/Object;-><init>()V",
        None,
    ),
    ("", Some("a call of another constructor")),
    (
        "if-nez p1, :end
         invoke-direct {p0}, Ljava/lang/Object;-><init>()V
         :end
         nop",
        Some("a call of another constructor"),
    ),
    (
        "invoke-virtual {p0}, Ljava/lang/Object;->hashCode()I
         invoke-direct {p0}, Ljava/lang/Object;-><init>()V",
        Some("before its constructor"),
    ),
    (
        "sput-object p0, Lcase/NAME;->text:Ljava/lang/String;
         invoke-direct {p0}, Ljava/lang/Object;-><init>()V",
        Some("before its constructor"),
    ),
    ("invoke-direct {p0}, Ljava/lang/Thread;-><init>()V", Some("not Ljava/lang/Thread;")),
];

/// Methods without loops, of which the random changes are made. All that they call ends.
const CHANGED: &str = "
.field public static text:Ljava/lang/String;
.field public static number:J
.field public own:I
.field public next:Lcase/NAME;
.method public constructor <init>(I)V
    .registers 3
    invoke-direct {p0}, Ljava/lang/Object;-><init>()V
    iput p1, p0, Lcase/NAME;->own:I
    iput-object p0, p0, Lcase/NAME;->next:Lcase/NAME;
    return-void
.end method
.method public virtual(Ljava/lang/String;J)I
    .registers 8
    iget v0, p0, Lcase/NAME;->own:I
    iget-object v1, p0, Lcase/NAME;->next:Lcase/NAME;
    invoke-virtual {p1}, Ljava/lang/String;->length()I
    move-result v2
    add-int v0, v0, v2
    sput-wide p2, Lcase/NAME;->number:J
    sput-object p1, Lcase/NAME;->text:Ljava/lang/String;
    return v0
.end method
.method public static test(ILjava/lang/String;JF)Ljava/lang/Object;
    .registers 11
    new-instance v0, Lcase/NAME;
    invoke-direct {v0, p0}, Lcase/NAME;-><init>(I)V
    invoke-virtual {v0, p1, p2, p3}, Lcase/NAME;->virtual(Ljava/lang/String;J)I
    move-result v1
    const/4 v2, 4
    new-array v3, v2, [I
    new-array v4, v2, [Ljava/lang/Object;
    const/4 v2, 1
    aput v1, v3, v2
    aput-object v0, v4, v2
    aget v1, v3, v2
    aget-object v5, v4, v2
    check-cast v5, Lcase/NAME;
    :start
    invoke-static {v3, v2, v3, v2, v2}, \
        Ljava/lang/System;->arraycopy(Ljava/lang/Object;ILjava/lang/Object;II)V
    invoke-virtual {p1, v2}, Ljava/lang/String;->charAt(I)C
    move-result v1
    invoke-virtual {p1, p1}, Ljava/lang/String;->compareTo(Ljava/lang/String;)I
    invoke-virtual {p1, p1}, Ljava/lang/String;->concat(Ljava/lang/String;)Ljava/lang/String;
    move-result-object v5
    invoke-static {p4}, Ljava/lang/Float;->floatToRawIntBits(F)I
    invoke-static {p2, p3}, Ljava/lang/Double;->longBitsToDouble(J)D
    move-result-wide v2
    invoke-virtual {v0}, Ljava/lang/Object;->getClass()Ljava/lang/Class;
    move-result-object v0
    invoke-virtual {v0}, Ljava/lang/Class;->isArray()Z
    :end
    .catch Ljava/lang/RuntimeException; {:start .. :end} :handler
    add-double v2, v2, v2
    double-to-int v1, v2
    monitor-enter v4
    monitor-exit v4
    return-object v5
    :handler
    move-exception v0
    invoke-virtual {v0}, Ljava/lang/Throwable;->getMessage()Ljava/lang/String;
    move-result-object v5
    return-object v5
.end method
";

fn class(name: &str, members: &str) -> String {
    format!(".class public L{name};\n.super Ljava/lang/Object;\n{members}")
        .replace("case/NAME", name)
}

/// A class with a body of `test`.
fn with_body(name: &str, body: &str) -> String {
    let method = "test(ILjava/lang/String;JF)Ljava/lang/Object;";
    let members = format!(
        ".field public static text:Ljava/lang/String;\n.field public static number:J\n\
         .method public static {method}\n.registers 11\n{body}\nreturn-object v7\n.end method\n"
    );
    class(name, &members)
}

fn with_constructor(name: &str, body: &str) -> String {
    let members = format!(
        ".field public static text:Ljava/lang/String;\n.field public own:I\n\
         .method public constructor <init>(I)V\n.registers 4\n{body}\nreturn-void\n.end method\n"
    );
    class(name, &members)
}

/// Assembles classes into one dex file.
fn assemble(directory: &Path, classes: &[(String, String)]) -> PathBuf {
    let sources = directory.join("smali");
    std::fs::create_dir(&sources).unwrap();
    for (name, text) in classes {
        std::fs::write(sources.join(format!("{name}.smali")), text).unwrap();
    }
    let dex = directory.join("classes.dex");
    let mut smali = Command::new("java");
    smali.args(["-cp", &library("smali"), "org.jf.smali.Main", "assemble", "-o"]);
    succeed(smali.arg(&dex).arg(&sources));
    std::fs::remove_dir_all(sources).unwrap();
    dex
}

/// A class loader of its own for a file. Any object may be one whose file has all classes.
fn open(t: &Thread, path: &Path) -> Loader {
    let loader = Loader(exception::new_string(t, "loader").unwrap());
    baton_vm::dex_files::open(t.vm, loader, path).unwrap();
    loader
}

/// Initializes a class: the exception as text if there is one.
fn initialized(t: &Thread, loader: Loader, name: &str) -> Result<&'static Class, String> {
    let class = linker::find(t, loader, &format!("L{name};")).unwrap();
    match initialize::initialize(t, class) {
        Ok(()) => Ok(class),
        Err(_) => Err(runtime::describe(t)),
    }
}

/// Calls `test`; an exception is as good as a result.
fn call(t: &Thread, class: &'static Class) -> Result<(), String> {
    let Some(test) = class.methods.iter().find(|method| method.name == "test") else {
        return Ok(());
    };
    t.scope(|| {
        let text = exception::new_string(t, "text").unwrap();
        let values = [Value::Int(1), Value::Ref(text), Value::Long(1 << 40), Value::Float(0.5)];
        t.invoke(test, &values).map(|_| ()).map_err(|_| runtime::describe(t))
    })
}

fn right_and_wrong_programs(t: &Thread, directory: &Path) {
    let mut classes = Vec::new();
    let mut add = |kind: &str, text: fn(&str, &str) -> String, body: &str| {
        let name = format!("{kind}{}", classes.len());
        classes.push((name.clone(), text(&name, body)));
        name
    };
    let mut expected = Vec::new();
    for body in RIGHT {
        expected.push((add("Right", with_body, body), *body, None));
    }
    for (body, reason) in WRONG {
        expected.push((add("Wrong", with_body, body), *body, Some(*reason)));
    }
    for (body, reason) in CONSTRUCTORS {
        expected.push((add("Constructor", with_constructor, body), *body, *reason));
    }
    let dex = assemble(directory, &classes);
    let loader = open(t, &dex);
    let mut failures = Vec::new();
    for (name, body, reason) in expected {
        let result = initialized(t, loader, &name).and_then(|class| call(t, class));
        let refusal = result.err().filter(|error| error.starts_with("java.lang.VerifyError"));
        let fits = match (&refusal, reason) {
            (Some(error), Some(reason)) => error.contains(reason),
            (None, None) => true,
            _ => false,
        };
        if !fits {
            failures.push(format!("{body}\nexpected {reason:?}: {refusal:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Every class of the library is verified here, as a VM trusts it. Classes whose superclass or
/// interface is missing are none.
fn library_is_right(t: &Thread, library: &Path) {
    let bytes = std::fs::read(library).unwrap();
    let file = DexFile::open(&bytes).unwrap();
    let mut n_classes = 0;
    for definition in file.classes() {
        let descriptor = file.descriptor(definition.type_id).to_string();
        t.scope(|| {
            let Ok(class) = linker::find(t, Loader::BOOT, &descriptor) else { return };
            if let Err(error) = verifier::verify(t, class) {
                panic!("{error}");
            }
            n_classes += 1;
        });
    }
    assert!(n_classes > 4000, "{n_classes} classes of the library");
}

/// A sequence of numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // Knuth's multiplier for a linear congruential generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % n
    }
}

/// Changes of code that keep its way: an opcode of one format, a register, or an index.
fn change(random: &mut Random, units: &mut [u16], file: &DexFile<'_>) {
    let mut at = random.below(units.len());
    let Some(instruction) = Instruction::decode(units, at) else { return };
    let stays = |opcode: Opcode| {
        use baton_dex::Flow::{Next, Return, Throw, Throwing};
        matches!(opcode.flow(), Next | Throwing | Return | Throw)
    };
    if !stays(instruction.opcode) {
        return;
    }
    match random.below(3) {
        0 => {
            let opcode = Opcode::from_number(random.below(256) as u8);
            let format = instruction.opcode.format();
            if let Some(opcode) = opcode.filter(|it| it.format() == format && stays(*it)) {
                units[at] = units[at] & 0xff00 | opcode as u16;
            }
        }
        1 => units[at] = units[at] & 0xff | (random.below(256) as u16) << 8,
        _ => {
            let is_index = matches!(instruction.opcode.format(), Format::F35c | Format::F3rc);
            at += 1 + if is_index { random.below(2) } else { 0 };
            if let Some(unit) = units.get_mut(at) {
                *unit = match random.below(2) {
                    0 => random.below(file.n_methods() as usize + 4) as u16,
                    _ => *unit ^ 1 << random.below(16),
                };
            }
        }
    }
}

/// Runs the class after each of many changes: it may throw anything, and the VM goes on.
fn changed_code_harms_nobody(t: &Thread, directory: &Path, seed: u64) {
    let directory = directory.join("changed");
    std::fs::create_dir(&directory).unwrap();
    let dex = assemble(&directory, &[("Changed".to_owned(), class("Changed", CHANGED))]);
    let original = std::fs::read(&dex).unwrap();
    let file = DexFile::open(&original).unwrap();
    let codes: Vec<(usize, usize)> = file
        .classes()
        .flat_map(|class| class.data().methods().copied().collect::<Vec<_>>())
        .filter_map(|method| file.code(&method))
        .map(|code| (code.offset() as usize + 16, code.n_units() as usize))
        .collect();
    let mut random = Random(seed);
    let (mut n_refused, mut n_run) = (0, 0);
    for _ in 0..1500 {
        let mut bytes = original.clone();
        for _ in 0..=random.below(2) {
            let (start, n_units) = codes[random.below(codes.len())];
            let place = start..start + 2 * n_units;
            let mut units: Vec<u16> = bytes[place.clone()]
                .chunks_exact(2)
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                .collect();
            change(&mut random, &mut units, &file);
            let changed: Vec<u8> = units.into_iter().flat_map(u16::to_le_bytes).collect();
            bytes[place].copy_from_slice(&changed);
        }
        let sum = adler2::adler32_slice(&bytes[12..]).to_le_bytes();
        bytes[8..12].copy_from_slice(&sum);
        std::fs::write(&dex, bytes).unwrap();
        t.scope(|| {
            let loader = open(t, &dex);
            match initialized(t, loader, "Changed") {
                Ok(class) => {
                    n_run += 1;
                    let _ = call(t, class);
                }
                Err(error) => {
                    assert!(error.starts_with("java.lang.VerifyError"), "seed {seed}: {error}");
                    n_refused += 1;
                }
            }
        });
    }
    assert!(n_refused > 100 && n_run > 100, "seed {seed}: {n_refused} refused, {n_run} run");
}

#[test]
fn only_right_programs_run() {
    let directory = tempfile::tempdir().unwrap();
    let library = PathBuf::from(library("library"));
    let options = Options {
        boot_class_path: vec![library.clone()],
        heap_bytes: 64 << 20,
        ..Options::default()
    };
    let t = runtime::start(options).unwrap();
    right_and_wrong_programs(&t, directory.path());
    changed_code_harms_nobody(&t, directory.path(), 0x5eed);
    library_is_right(&t, &library);
}
