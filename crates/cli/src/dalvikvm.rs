//! `baton dalvikvm`: runs a Java program from dex files, with the options of Android's dalvikvm.

use crate::contexts::parse_name;
use crate::failure::Failure;
use crate::java_vm::{CommandLine, complete, complete_program, on_main_thread, parse_program};
use crate::zygote;
use baton_vm::runtime;
use baton_vm::vm::{Options, Program};
use clap::Args;
use std::convert::Infallible;
use std::path::Path;

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
  --trace FILE             write collections and pauses for Perfetto (ui.perfetto.dev)
  --profile-allocations FILE
                           write which code makes how many objects of which class: as JSON if the
                           name ends in .json, otherwise as text
  --verify-heap            check the heap after each collection
  --torture                collect before each allocation; with counting, let collections follow
                           each other without a pause
  -D<NAME>=<VALUE>         a system property

The exit code is 1 after an uncaught exception, and System.exit's otherwise. A program from a \
zygote gets this process's variables, directory, standard streams and signals. If a signal ends \
it, the exit code is 128 and the signal's number. It dies with this process.")]
pub struct DalvikvmArgs {
    /// Fork the program from the zygote of this name: see `baton zygote`
    #[arg(long, value_name = "NAME")]
    from_zygote: Option<String>,
    /// With --from-zygote: the context in which the zygote is registered
    #[arg(long, default_value = "binder", value_name = "NAME", requires = "from_zygote",
          value_parser = parse_name)]
    context: String,
    /// With --from-zygote: run it as another user, if the zygote is root's
    #[arg(long, value_name = "UID", requires = "from_zygote")]
    user: Option<u32>,
    /// Options, the class with `main`, and its arguments
    #[arg(
        allow_hyphen_values = true,
        trailing_var_arg = true,
        required = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<String>,
}

/// Runs the program. Returns only if the VM does not start.
pub fn dalvikvm(args: &DalvikvmArgs, socket: &Path) -> Result<(), Failure> {
    let (line, class) = parse_program(&args.arguments)?;
    if let Some(name) = &args.from_zygote {
        return zygote::run_from(name, &args.context, args.user, &args.arguments, socket);
    }
    let CommandLine { vm, program, arguments, .. } = line;
    let Program { class_path, properties } = complete_program(program);
    let vm = Options { class_path, properties, ..complete(vm, socket)? };
    let run = move || -> Result<Infallible, runtime::StartError> {
        let t = runtime::start(vm)?;
        let code = runtime::run_main(&t, &class, &arguments);
        std::process::exit(code.into())
    };
    let Err(error) = on_main_thread(run)?;
    Err(Failure::new("start the virtual machine", error))
}
