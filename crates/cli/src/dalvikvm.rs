//! `baton dalvikvm`: runs a Java program from dex files, with the options of Android's dalvikvm.

use crate::failure::{Failure, Kind};
use baton_vm::heap::Collector;
use baton_vm::runtime;
use baton_vm::vm::Options;
use clap::Args;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// The stack of the main thread in Rust: for natives and initializers that call Java.
const NATIVE_STACK_BYTES: usize = 64 << 20;

/// Options of `baton dalvikvm`.
#[derive(Args)]
#[command(after_help = "\
Options of the program's VM, before the class:
  -cp, -classpath PATHS    dex files, or archives with classes.dex, separated by colons
  -Xbootclasspath:PATHS    the class library [default: what scripts/vm-library has made]
  -Xmx<N>[k|m|g]           the size of the heap [default: 256m]
  -Xgc:<COLLECTOR>         mark-sweep stops the program; counting runs beside it
                           [default: mark-sweep]
  -Xcheck:jni              accepted: what C does with JNI is always checked
  -verbose:gc              tell of each collection on standard error
  --verify-heap            check the heap after each collection of the counting collector
  --torture                let collections of the counting collector follow without a pause
  -D<NAME>=<VALUE>         a system property

The exit code is 1 after an uncaught exception, and System.exit's otherwise.")]
pub struct DalvikvmArgs {
    /// Options, the class with `main`, and its arguments
    #[arg(
        allow_hyphen_values = true,
        trailing_var_arg = true,
        required = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<String>,
}

/// The program that the command line asks for, and its VM.
#[derive(Debug)]
struct Program {
    vm: Options,
    class: String,
    arguments: Vec<String>,
}

fn paths(of: &str) -> Vec<PathBuf> {
    of.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

fn usage(wrong: impl std::fmt::Display) -> Failure {
    Failure::new("run a program", wrong).kind(Kind::Usage).advice("see baton dalvikvm --help")
}

fn size(text: &str) -> Result<usize, Failure> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(usage(format!("{text:?} is no size"))),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| *size < 4 << 30)
        .ok_or_else(|| usage(format!("{text:?} is no size below 4g")))
}

fn parse(arguments: &[String]) -> Result<Program, Failure> {
    let mut program =
        Program { vm: Options::default(), class: String::new(), arguments: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "-cp" || argument == "-classpath" {
            let value = rest.next().ok_or_else(|| usage(format!("{argument} needs paths")))?;
            program.vm.class_path = paths(value);
        } else if let Some(value) = argument.strip_prefix("-Xbootclasspath:") {
            program.vm.boot_class_path = paths(value);
        } else if let Some(value) = argument.strip_prefix("-Xmx") {
            program.vm.heap_bytes = size(value)?;
        } else if let Some(value) = argument.strip_prefix("-Xgc:") {
            program.vm.collector = match value {
                "mark-sweep" => Collector::MarkSweep,
                "counting" => Collector::Counting,
                _ => return Err(usage(format!("there is no collector {value:?}"))),
            };
        } else if argument == "--verify-heap" {
            program.vm.verify_heap = true;
        } else if argument == "-verbose:gc" {
            program.vm.reports_collections = true;
        } else if argument == "-Xcheck:jni" {
            // It always is.
        } else if argument == "--torture" {
            program.vm.is_tortured = true;
        } else if let Some(value) = argument.strip_prefix("-D") {
            let (name, value) = value.split_once('=').unwrap_or((value, ""));
            program.vm.properties.push((name.to_owned(), value.to_owned()));
        } else if argument.starts_with('-') {
            return Err(usage(format!("there is no option {argument}")));
        } else {
            program.class = argument.replace('/', ".");
            program.arguments = rest.cloned().collect();
            return Ok(program);
        }
    }
    Err(usage("no class is named"))
}

/// The cache of the virtual machine: scripts/vm-library puts the class library there.
fn cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let cache =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("baton/vm"))
}

/// Runs the program. Returns only if the VM does not start.
pub fn dalvikvm(args: &DalvikvmArgs, socket: &Path) -> Result<(), Failure> {
    let Program { mut vm, class, arguments } = parse(&args.arguments)?;
    let cache = cache();
    if vm.boot_class_path.is_empty() {
        let library = cache.as_ref().map(|cache| cache.join("library.dex"));
        let library = library.filter(|library| library.exists()).ok_or_else(|| {
            Failure::new("run a program", "there is no class library")
                .advice("make one with scripts/vm-library, or name one by -Xbootclasspath:")
        })?;
        vm.boot_class_path = vec![library];
    }
    vm.dex_cache = cache.map(|cache| cache.join("checked"));
    vm.natives = baton_vm_binder::natives(socket.to_owned());
    vm.natives.extend(baton_vm_jni::natives());
    vm.foreign = Some(baton_vm_jni::foreign_calls());
    // The command line's properties come later, and win.
    if let Ok(directories) = std::env::var("LD_LIBRARY_PATH") {
        vm.properties.insert(0, ("java.library.path".to_owned(), directories));
    }
    let run = move || -> Result<Infallible, runtime::StartError> {
        let t = runtime::start(vm)?;
        let code = runtime::run_main(&t, &class, &arguments);
        std::process::exit(code.into())
    };
    let builder = std::thread::Builder::new().name("main".to_owned());
    let thread = builder.stack_size(NATIVE_STACK_BYTES).spawn(run);
    let thread = thread.map_err(|error| Failure::new("start the main thread", error))?;
    let Err(error) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Err(Failure::new("start the virtual machine", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Program, Failure> {
        parse(&arguments.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_end_at_the_class() {
        let program =
            parsed(&["-cp", "a.dex:b.dex", "-Xmx64m", "-Dx=y=z", "-Dw", "p/Main", "-cp", "q"]);
        let Program { vm, class, arguments } = program.unwrap();
        assert_eq!(vm.class_path, paths("a.dex:b.dex"));
        assert_eq!(vm.heap_bytes, 64 << 20);
        assert_eq!(vm.properties, [("x".into(), "y=z".into()), ("w".into(), String::new())]);
        assert_eq!((class.as_str(), arguments), ("p.Main", vec!["-cp".into(), "q".into()]));
    }

    #[test]
    fn wrong_options_are_refused() {
        for arguments in [
            &["-cp"][..],
            &["-cp", "a"],
            &["-Xmx1x", "M"],
            &["-Xmx9g", "M"],
            &["-Xgc:none", "M"],
            &["-Q", "M"],
            &["-Xmxm", "M"],
        ] {
            assert!(parsed(arguments).is_err(), "{arguments:?}");
        }
    }
}
