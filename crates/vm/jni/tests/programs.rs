//! Java programs with native methods in C and C++, which are built against the JDK's jni.h.
//!
//! What they print on this VM has to be what they print on `java`, with the same libraries. Each
//! runs with both collectors; with the one that counts, collections follow each other without a
//! pause, and the heap is checked after each. The program `Misuse` breaks a rule of JNI at a time,
//! and has to end with a message that names the function. `Ends` has to print what is expected of
//! this VM alone. `Database` uses a published library.
//!
//! Each program runs in a process of its own: this test once more, with the program in its
//! environment.

use baton_vm::heap::Collector;
use baton_vm::runtime;
use baton_vm::vm::Options;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use tools::{build, files, library, output, succeed, translate};

#[path = "../../vm/tests/tools/mod.rs"]
mod tools;

/// In the environment of a process that runs a program: its class, its argument, the class library,
/// the directory of what the test has built, and the collector.
const PROGRAM: [&str; 5] = [
    "BATON_VM_PROGRAM",
    "BATON_VM_ARGUMENT",
    "BATON_VM_LIBRARY",
    "BATON_VM_DIRECTORY",
    "BATON_VM_COLLECTOR",
];
const COLLECTORS: [&str; 2] = ["mark-sweep", "counting"];
const SIGABRT: i32 = 6;

/// What `Misuse` does wrong, and what the message has to contain.
const MISUSES: &[(&str, &str)] = &[
    ("deleted local", "JNI: GetObjectClass: 0x"),
    ("reused local", "JNI: GetObjectClass: 0x"),
    ("stale local", "JNI: GetObjectClass: 0x"),
    ("deleted global", "JNI: GetObjectClass: 0x"),
    ("no reference", "JNI: NewLocalRef: 0x"),
    ("local as global", "JNI: DeleteGlobalRef: a reference of kind Some(Local)"),
    ("global as local", "JNI: DeleteLocalRef: a global reference"),
    ("null object", "JNI: GetObjectClass: the object is NULL"),
    ("no class", "JNI: GetSuperclass: an object of java.lang.String is no class"),
    ("no string", "JNI: GetStringLength: an object of java.lang.Class is no string"),
    ("no array", "JNI: GetArrayLength: an object of java.lang.String is no array"),
    ("other array", "JNI: GetFloatArrayElements: int[] in place of an array of Float"),
    ("copy of another", "JNI: ReleaseIntArrayElements: the elements are no copy"),
    ("other elements", "JNI: ReleasePrimitiveArrayCritical: the elements are another array's"),
    ("null method", "JNI: CallVoidMethod: the method's ID is NULL"),
    ("other result", "JNI: CallLongMethod: the method has another result"),
    ("other receiver", "JNI: CallIntMethod: an object of java.lang.Class has no"),
    ("other argument", "JNI: CallStaticVoidMethod: java.lang.Class in place of java.lang.String"),
    ("static as virtual", "JNI: CallVoidMethod: the method is static"),
    ("virtual as static", "JNI: CallStaticIntMethod: the method is not static"),
    ("other constructor", "JNI: NewObject: "),
    ("null field", "JNI: GetIntField: the field's ID is NULL"),
    ("other field", "JNI: GetIntField: Misuse.text is an instance field of Ljava/lang/String;"),
    ("other value", "JNI: SetObjectField: java.lang.Class for Misuse.text of"),
    ("other holder", "JNI: GetObjectField: an object of java.lang.Class has no field"),
    ("pending exception", "JNI: FindClass: an exception is pending: java.lang.RuntimeException"),
    ("no exception", "JNI: Throw: an object of java.lang.String cannot be thrown"),
    ("no frame", "JNI: PopLocalFrame: there is no frame"),
    ("malformed text", "JNI: NewStringUTF: byte 1 of a string is no modified UTF-8"),
    ("other thread", "JNI: GetVersion: the JNIEnv is not the calling thread's"),
    ("other returned", "JNI: the result of java.lang.String Misuse.returned(): an object of"),
    ("too many locals", "JNI: NewLocalRef: there is no room for another local reference"),
    ("fatal error", "JNI: FatalError: it is fatal"),
];

/// Arguments of `Ends`, what it has to print, and its exit code. `java` differs: it runs no
/// JNI_OnUnload, and a thread that is not detached never ends.
const ENDS: &[(&str, &str, i32)] = &[
    (
        "here",
        "loaded\n\
         java.lang.IllegalStateException: nobody catches it true\n\
         the lock is free, and the thread TERMINATED\n\
         the worker ends\n\
         unloaded\n\
         destroyed: 0 false\n\
         again: 0\n",
        3,
    ),
    ("elsewhere", "main ends\n", 0),
];

fn main() -> ExitCode {
    if let [Ok(program), Ok(argument), Ok(library), Ok(directory), Ok(collector)] =
        PROGRAM.map(std::env::var)
    {
        return run(&program, argument, library.into(), directory.as_ref(), &collector);
    }
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| name.contains(wanted));
    let place = Place::new();
    let mut failed = false;
    for name in place.programs.iter().filter(|name| is_wanted(name)) {
        let expected = output(&mut place.java(name));
        for collector in COLLECTORS {
            let found = output(&mut place.command(name, "", collector));
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            let is_same = expected.status.success()
                && text(&expected) == text(&found)
                && found.status.success();
            println!("{name}, {collector} ... {}", if is_same { "ok" } else { "FAILED" });
            if !is_same {
                let errors = [&expected, &found].map(|it| String::from_utf8_lossy(&it.stderr));
                println!("java ({}):\n{}{}", expected.status, text(&expected), errors[0]);
                println!("the VM ({}):\n{}{}", found.status, text(&found), errors[1]);
                failed = true;
            }
        }
    }
    for (what, message) in MISUSES.iter().filter(|(what, _)| is_wanted(what)) {
        let found = output(&mut place.command("Misuse", what, COLLECTORS[0]));
        let said = String::from_utf8_lossy(&found.stderr);
        // The program that ends hung processes passes the signal on as its exit code.
        let is_aborted =
            found.status.signal() == Some(SIGABRT) || found.status.code() == Some(128 + SIGABRT);
        // A thread that is not attached has no Java stack.
        let has_stack = said.contains("Misuse.") || *what == "other thread";
        let is_right = is_aborted && said.contains(message) && has_stack;
        println!("misuse: {what} ... {}", if is_right { "ok" } else { "FAILED" });
        if !is_right {
            println!("{}:\n{}{said}", found.status, String::from_utf8_lossy(&found.stdout));
            failed = true;
        }
    }
    for (argument, expected, code) in ENDS {
        for collector in COLLECTORS {
            let name = format!("Ends {argument}, {collector}");
            if !is_wanted(&name) {
                continue;
            }
            let found = output(&mut place.command("Ends", argument, collector));
            let said = String::from_utf8_lossy(&found.stdout);
            let is_right = said == *expected && found.status.code() == Some(*code);
            println!("{name} ... {}", if is_right { "ok" } else { "FAILED" });
            if !is_right {
                let errors = String::from_utf8_lossy(&found.stderr);
                println!("{}:\n{said}{errors}", found.status);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run(
    program: &str,
    argument: String,
    library: PathBuf,
    directory: &Path,
    collector: &str,
) -> ExitCode {
    let is_counting = collector == COLLECTORS[1];
    let path = directory.display().to_string();
    let options = Options {
        boot_class_path: vec![library],
        class_path: vec![directory.join("programs.dex"), directory.join("sqlite.jar")],
        natives: baton_vm_jni::natives(),
        foreign: Some(baton_vm_jni::foreign_calls()),
        properties: vec![
            ("java.library.path".to_owned(), path.clone()),
            ("java.io.tmpdir".to_owned(), path),
            ("defined".to_owned(), directory.join("defined/programs.dex").display().to_string()),
        ],
        heap_bytes: 64 << 20,
        collector: if is_counting { Collector::Counting } else { Collector::MarkSweep },
        verify_heap: true,
        is_tortured: is_counting,
        // The first program checks the library, the others find its record.
        dex_cache: Some(directory.join("checked")),
        ..Options::default()
    };
    match runtime::start(options) {
        Ok(t) => ExitCode::from(runtime::run_main(&t, program, &[argument])),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What has been built: classes, their dex file, and libraries, all in one directory.
struct Place {
    programs: Vec<String>,
    library: String,
    /// SQLite's driver
    sqlite: String,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let sources = files(&tests.join("programs"), "java");
        let sqlite = library("sqlite");
        build(&sources, &sqlite, directory.path());
        // The driver's archive has its native libraries as well.
        translate(Path::new(&sqlite), &directory.path().join("sqlite.jar"));
        let defined = directory.path().join("defined");
        std::fs::create_dir(&defined).expect("a directory");
        let class_path = directory.path().display().to_string();
        build(&files(&tests.join("defined"), "java"), &class_path, &defined);
        build_c(&tests.join("native"), directory.path());
        let name = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
        let mut programs: Vec<String> = sources.iter().filter_map(name).collect();
        programs.retain(|name| name != "Misuse" && name != "Ends");
        Place { programs, library: library("library"), sqlite, directory }
    }

    fn java(&self, program: &str) -> Command {
        let mut java = Command::new("java");
        let path = self.directory.path();
        java.arg("-Dfile.encoding=UTF-8").arg(format!("-Djava.library.path={}", path.display()));
        java.arg(format!("-Djava.io.tmpdir={}", path.display()));
        java.arg(format!("-Ddefined={}", path.join("defined/Defined.class").display()));
        java.arg("-cp").arg(format!("{}:{}", path.display(), self.sqlite)).arg(program);
        java
    }

    fn command(&self, program: &str, argument: &str, collector: &str) -> Command {
        // A VM that hangs is ended, and so has printed too little.
        let mut vm = Command::new("timeout");
        vm.args(["--kill-after=5", "120"]).arg(std::env::current_exe().expect("it has a path"));
        vm.env(PROGRAM[0], program).env(PROGRAM[1], argument).env(PROGRAM[2], &self.library);
        vm.env(PROGRAM[3], self.directory.path()).env(PROGRAM[4], collector);
        vm
    }
}

/// Builds libjnitest.so of all C files but those that are a library each. C++ is one, too.
fn build_c(sources: &Path, directory: &Path) {
    let javac = succeed(Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]));
    let include = Path::new(&javac).parent().and_then(Path::parent).expect("a JDK").join("include");
    let compile = |compiler: &str, library: &str, sources: &[PathBuf]| {
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O1", "-pthread", "-I"]).arg(&include);
        command.arg("-I").arg(include.join("linux")).arg("-o").arg(directory.join(library));
        succeed(command.args(sources));
    };
    let mut c = files(sources, "c");
    for own in ["version", "unload"] {
        let source = sources.join(format!("{own}.c"));
        c.retain(|path| *path != source);
        compile("cc", &format!("libjni{own}.so"), &[source]);
    }
    compile("cc", "libjnitest.so", &c);
    compile("c++", "libjnitestcpp.so", &files(sources, "cpp"));
}
