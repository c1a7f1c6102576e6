//! How wrong use ends the process: with the function's name, what is wrong, and the Java stack.

use baton_vm::exception;
use baton_vm::vm::Thread;
use std::fmt::Display;

/// Ends the process because C has broken a rule of JNI.
#[cold]
pub fn wrong_use(t: Option<&Thread>, function: &str, wrong: impl Display) -> ! {
    abort(t, format_args!("JNI: {function}: {wrong}"))
}

/// Ends the process with a message and the stack.
#[cold]
pub fn abort(t: Option<&Thread>, message: impl Display) -> ! {
    eprintln!("{message}");
    for entry in t.map(|t| exception::trace(&t.state.stack)).unwrap_or_default() {
        let file = entry.method.class().source_file().unwrap_or_default();
        eprintln!("\tat {} ({file}:{})", entry.method, entry.line());
    }
    std::process::abort()
}
