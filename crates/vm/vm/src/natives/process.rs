//! java.lang.ProcessManager: programs that Java starts

use super::posix::ok;
use super::values::{Outcome, VOID, field, rust, throw};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::pipe;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};

const MANAGER: &str = "Ljava/lang/ProcessManager;";
const POSIX: &str = "Llibcore/io/Posix;";

pub(super) const TABLE: &[Native] = &[
    (
        MANAGER,
        "exec",
        "([Ljava/lang/String;[Ljava/lang/String;Ljava/lang/String;Ljava/io/FileDescriptor;\
         Ljava/io/FileDescriptor;Ljava/io/FileDescriptor;Z)I",
        exec,
    ),
    // Waits as a safe thread.
    (POSIX, "waitpid", "(ILlibcore/util/MutableInt;I)I", |t, a| {
        let flags = WaitOptions::from_bits_retain(a.int(3) as u32);
        let waited = t.safe(|| waitpid(Pid::from_raw(a.int(1)), flags));
        match ok(t, "waitpid", waited)? {
            Some((pid, status)) => {
                if !a.reference(2).is_null() {
                    let value = field(a.reference(2), "value", "I");
                    value.set32(a.reference(2), status.as_raw() as u32);
                }
                Ok(Value::Int(pid.as_raw_nonzero().get()))
            }
            None => Ok(Value::Int(0)),
        }
    }),
    (POSIX, "kill", "(II)V", |t, a| {
        let signal = Signal::from_named_raw(a.int(2)).ok_or(Errno::INVAL);
        let pid = Pid::from_raw(a.int(1)).ok_or(Errno::INVAL);
        let sent = signal.and_then(|signal| kill_process(pid?, signal));
        ok(t, "kill", sent)?;
        VOID
    }),
];

/// Starts a program: (command, environment, directory, in, out, err, redirects). `in` is what the
/// program prints.
fn exec(t: &Thread, a: Args) -> Outcome {
    let words = texts(t, a.reference(0))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if !a.reference(1).is_null() {
        command.env_clear();
        for variable in texts(t, a.reference(1))? {
            let (name, value) = variable.split_once('=').unwrap_or((&variable, ""));
            command.env(name, value);
        }
    }
    if !a.reference(2).is_null() {
        command.current_dir(rust(t, a.reference(2))?);
    }
    let io_error = |error: std::io::Error| throw(t, "java/io/IOException", &error.to_string());
    let (output, printed) = pipe().map_err(io_error)?;
    let (errors, complained) = pipe().map_err(io_error)?;
    let complained = if a.boolean(6) { printed.try_clone().map_err(io_error)? } else { complained };
    command.stdin(Stdio::piped()).stdout(printed).stderr(complained);
    let mut child = t.safe(|| command.spawn()).map_err(io_error)?;
    // The reaper of the library waits for the program.
    let input = child.stdin.take().expect("a pipe to the program");
    give(a.reference(3), output.into());
    give(a.reference(4), input.into());
    give(a.reference(5), errors.into());
    Ok(Value::Int(child.id() as i32))
}

fn texts(t: &Thread, array: Ref) -> Result<Vec<String>, Thrown> {
    (0..array.length()).map(|index| rust(t, array.get_ref(index))).collect()
}

/// Hands a descriptor over to a java.io.FileDescriptor.
fn give(object: Ref, fd: OwnedFd) {
    field(object, "descriptor", "I").set32(object, fd.into_raw_fd() as u32);
}
