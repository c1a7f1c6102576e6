//! The library as C programs get it: both of its forms, between processes.

use baton::Process;
use baton_broker::{Config, Running};
use baton_manager::{Manager, Policy, Release};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FORMS: [&str; 2] = ["libbaton.so", "libbaton.a"];

/// Both forms of the library: in the directory `BATON_LIBRARIES`, else built as this test was.
fn libraries() -> [PathBuf; 2] {
    if let Some(directory) = std::env::var_os("BATON_LIBRARIES") {
        return FORMS.map(|name| Path::new(&directory).join(name));
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--lib", "--package", "baton-capi", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built: Vec<PathBuf> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|message| message["target"]["name"] == "baton")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .map(|file| PathBuf::from(file.as_str().unwrap()))
        .collect();
    FORMS.map(|name| {
        built.iter().find(|file| file.ends_with(name)).expect("cargo builds both forms").clone()
    })
}

/// The libraries that a static link needs, from the pkg-config file.
fn private_libraries() -> Vec<String> {
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../dist/baton.pc.in");
    let template = std::fs::read_to_string(template).unwrap();
    let line = template.lines().find_map(|line| line.strip_prefix("Libs.private:")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

fn compile(program: &Path, library: &Path, rest: &[String]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/ping.c"))
        .arg(library)
        .args(rest)
        .arg("-o")
        .arg(program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn converse(program: &Path) {
    // Not that of the last broker, which may have ended before it heard that its manager had.
    let socket = program.with_extension("sock");
    let _broker = Running::start(Config::at(&socket)).unwrap();
    let manager = Process::open("vndbinder", &socket).unwrap();
    let _manager = Manager::start(&manager, Release::Sixteen, Policy::Everyone).unwrap();
    let its = manager.clone();
    let looper = std::thread::spawn(move || its.serve());
    let run = |part| {
        let mut command = Command::new(program);
        command.arg(part).arg(&socket).env("BATON_SOCKET", &socket).stdin(Stdio::null());
        command
    };
    let mut server = run("server").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = if line == "ready\n" { Some(run("client").status().unwrap()) } else { None };
    if !client.is_some_and(|status| status.success()) {
        let _ = server.kill();
    }
    let status = server.wait().unwrap();
    assert!(client.is_some_and(|status| status.success()), "client: {client:?}");
    assert!(status.success(), "server: {status:?}");
    manager.close();
    looper.join().unwrap();
}

#[test]
fn c_programs_converse() {
    let directory = tempfile::tempdir().unwrap();
    let [shared, archive] = libraries();
    let program = directory.path().join("ping-shared");
    // The layout of an installer: programs are linked to the name with the version.
    std::os::unix::fs::symlink(&shared, directory.path().join("libbaton.so.0")).unwrap();
    let rpath = format!("-Wl,-rpath,{}", directory.path().display());
    compile(&program, &shared, &[rpath]);
    converse(&program);
    let program = directory.path().join("ping-static");
    compile(&program, &archive, &private_libraries());
    converse(&program);
}
