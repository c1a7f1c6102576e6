//! Java machines as command lines ask for them.

use crate::failure::{Failure, Kind};
use baton_vm::heap::Collector;
use baton_vm::vm::{Options, Program};
use std::path::{Path, PathBuf};

/// The stack of the main thread in Rust: for natives and initializers that call Java.
const NATIVE_STACK_BYTES: usize = 64 << 20;

/// A command line: the VM and the program that it asks for.
#[derive(Debug, Default)]
pub struct CommandLine {
    /// The options of the VM
    pub vm: Options,
    /// Those of them that do not concern the program alone, as they were given
    pub vm_arguments: Vec<String>,
    /// What runs, apart from its class
    pub program: Program,
    /// The class with `main`, if there is one
    pub class: Option<String>,
    /// Its arguments
    pub arguments: Vec<String>,
}

fn paths(of: &str) -> Vec<PathBuf> {
    of.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// A command line that makes no sense.
pub fn usage(wrong: impl std::fmt::Display) -> Failure {
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

/// Reads a command line.
pub fn parse(arguments: &[String]) -> Result<CommandLine, Failure> {
    let mut line = CommandLine::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "-cp" || argument == "-classpath" {
            let value = rest.next().ok_or_else(|| usage(format!("{argument} needs paths")))?;
            line.program.class_path = paths(value);
            continue;
        } else if let Some(value) = argument.strip_prefix("-D") {
            let (name, value) = value.split_once('=').unwrap_or((value, ""));
            line.program.properties.push((name.to_owned(), value.to_owned()));
            continue;
        } else if !argument.starts_with('-') {
            line.class = Some(argument.replace('/', "."));
            line.arguments = rest.cloned().collect();
            break;
        }
        if let Some(value) = argument.strip_prefix("-Xbootclasspath:") {
            line.vm.boot_class_path = paths(value);
        } else if let Some(value) = argument.strip_prefix("-Xmx") {
            line.vm.heap_bytes = size(value)?;
        } else if let Some(value) = argument.strip_prefix("-Xgc:") {
            line.vm.collector = match value {
                "mark-sweep" => Collector::MarkSweep,
                "counting" => Collector::Counting,
                _ => return Err(usage(format!("there is no collector {value:?}"))),
            };
        } else if argument == "--verify-heap" {
            line.vm.verify_heap = true;
        } else if argument == "-verbose:gc" {
            line.vm.reports_collections = true;
        } else if argument == "--trace" || argument == "--profile-allocations" {
            let value = rest.next().ok_or_else(|| usage(format!("{argument} needs a file")))?;
            let file = match argument.as_str() {
                "--trace" => &mut line.vm.trace,
                _ => &mut line.vm.allocation_profile,
            };
            *file = Some(value.into());
        } else if argument == "-Xcheck:jni" {
            // It always is.
        } else if argument == "--torture" {
            line.vm.is_tortured = true;
        } else {
            return Err(usage(format!("there is no option {argument}")));
        }
        line.vm_arguments.push(argument.clone());
    }
    Ok(line)
}

/// Reads the command line of a program: it names a class.
pub fn parse_program(arguments: &[String]) -> Result<(CommandLine, String), Failure> {
    let mut line = parse(arguments)?;
    let class = line.class.take().ok_or_else(|| usage("no class is named"))?;
    Ok((line, class))
}

/// The cache of the virtual machine: scripts/vm-library puts the class library there.
fn cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let cache =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("baton/vm"))
}

/// Adds what a VM needs beside its options: the class library, unless the options name one, the
/// records of checked files, and native methods.
pub fn complete(mut vm: Options, socket: &Path) -> Result<Options, Failure> {
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
    vm.natives.extend(baton_vm_real_time::natives(baton_rt::Options::new()));
    Ok(vm)
}

/// Adds the system property that a variable of this process names.
pub fn complete_program(mut program: Program) -> Program {
    // The command line's properties come later, and win.
    if let Ok(directories) = std::env::var("LD_LIBRARY_PATH") {
        program.properties.insert(0, ("java.library.path".to_owned(), directories));
    }
    program
}

/// Runs a function on a thread with room for natives that call Java, and waits for it.
pub fn on_main_thread<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    // As long as there is one thread.
    baton_vm::asymmetric_fence::register();
    let builder = std::thread::Builder::new().name("main".to_owned());
    let thread = builder.stack_size(NATIVE_STACK_BYTES).spawn(run);
    let thread = thread.map_err(|error| Failure::new("start the main thread", error))?;
    Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<(CommandLine, String), Failure> {
        parse_program(&arguments.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_end_at_the_class() {
        let parsed =
            parsed(&["-cp", "a.dex:b.dex", "-Xmx64m", "-Dx=y=z", "-Dw", "p/Main", "-cp", "q"]);
        let (CommandLine { vm, vm_arguments, program, arguments, .. }, class) = parsed.unwrap();
        assert_eq!((vm.heap_bytes, vm_arguments), (64 << 20, vec!["-Xmx64m".to_owned()]));
        assert_eq!(program.class_path, paths("a.dex:b.dex"));
        assert_eq!(program.properties, [("x".into(), "y=z".into()), ("w".into(), String::new())]);
        assert_eq!((class.as_str(), arguments), ("p.Main", vec!["-cp".into(), "q".into()]));
    }

    #[test]
    fn wrong_options_are_refused() {
        for arguments in [
            &["-cp"][..],
            &["-cp", "a"],
            &["--trace"],
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
