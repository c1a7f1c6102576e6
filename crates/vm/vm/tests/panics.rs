//! A panic in a thread that Java has started ends the process: nobody waits for that thread.

use baton_vm::runtime;
use baton_vm::vm::{Native, Options};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use tools::{build, library, output};

mod tools;

/// In the environment of the process that panics: the program's dex file.
const DEX: &str = "BATON_VM_PANICS";
const PROGRAM: &str = r#"
public class Panics {
    static native void panic();

    public static void main(String[] a) throws Exception {
        Thread other = new Thread(() -> panic());
        other.start();
        other.join();
        System.out.println("joined");
    }
}
"#;
const NATIVES: &[Native] = &[("LPanics;", "panic", "()V", |_, _| panic!("a test's panic"))];

fn run(dex: PathBuf) {
    let options = Options {
        boot_class_path: vec![library("library").into()],
        class_path: vec![dex],
        natives: NATIVES.to_vec(),
        heap_bytes: 16 << 20,
        ..Options::default()
    };
    let t = runtime::start(options).unwrap();
    runtime::run_main(&t, "Panics", &[]);
}

#[test]
fn a_panic_in_a_java_thread_ends_the_process() {
    if let Some(dex) = std::env::var_os(DEX) {
        return run(dex.into());
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("Panics.java");
    std::fs::write(&source, PROGRAM).unwrap();
    let dex = build(&[source], "", directory.path());
    // A process that hangs is ended.
    let mut this = Command::new("timeout");
    this.args(["--kill-after=5", "60"]).arg(std::env::current_exe().unwrap());
    let found = output(this.arg("--nocapture").env(DEX, dex));
    let errors = String::from_utf8_lossy(&found.stderr);
    assert!(errors.contains("a test's panic"), "{errors}");
    let signal = found.status.signal().or(found.status.code().map(|code| code - 128));
    assert_eq!(signal, Some(libc::SIGABRT), "{}: {errors}", found.status);
}
