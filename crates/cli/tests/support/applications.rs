//! Applications for tests of the process manager: they connect to the test, and do what it says.
#![allow(dead_code, reason = "not every test needs all of it")]

use baton_services::intent::Manifest;
use baton_services::process::package::Package;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub const BATON: &str = env!("CARGO_BIN_EXE_baton");

/// The application's files, and the socket to which its processes connect.
pub struct Applications {
    pub directory: TempDir,
    pub program: PathBuf,
    pub object: PathBuf,
    pub socket: PathBuf,
    listener: UnixListener,
}

/// A process of an application.
pub struct Application {
    pub name: String,
    pub pid: u32,
    pub uid: u32,
    /// The process that has called `baton_preload`, 0 if none has.
    pub preloader: u32,
    pub session: u32,
    stream: BufReader<UnixStream>,
}

impl Applications {
    pub fn new() -> Applications {
        let directory = tempfile::tempdir().unwrap();
        // Processes of other users come here, too.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/application.c");
        let compile = |name: &str, arguments: &[&str]| {
            let path = directory.path().join(name);
            let mut cc = Command::new("cc");
            let status = cc.args(arguments).arg(source).arg("-o").arg(&path).status().unwrap();
            assert!(status.success());
            path
        };
        let program = compile("application", &["-DPROGRAM"]);
        let object = compile("application.so", &["-shared", "-fPIC"]);
        let socket = directory.path().join("applications.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
        Applications { directory, program, object, socket, listener }
    }

    /// The next process that connects.
    pub fn accept(&self) -> Application {
        let (stream, _) = self.listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().to_owned();
        let mut number = || words.next().unwrap().parse().unwrap();
        let [pid, uid, preloader, session] = [number(), number(), number(), number()];
        Application { name, pid, uid, preloader, session, stream }
    }

    /// The words for `baton:exec` or `baton:load` of a process with this name.
    pub fn exec(&self, name: &str) -> String {
        let (program, socket) = (self.program.display(), self.socket.display());
        format!("baton:exec='{program} {socket} {name}'")
    }

    pub fn load(&self, name: &str) -> String {
        let (object, socket) = (self.object.display(), self.socket.display());
        format!("baton:load='{object} {socket} {name}'")
    }
}

/// The text of a manifest.
pub fn manifest(package: &str, attributes: &str, components: &str) -> String {
    let (uid, attributes) = match attributes.split_once(';') {
        Some((uid, attributes)) => (format!("baton:uid='{uid}'"), attributes),
        None => (String::new(), attributes),
    };
    format!(
        "<manifest xmlns:android='http://schemas.android.com/apk/res/android' \
         xmlns:baton='urn:baton' package='{package}' {uid}><application {attributes}>{components}\
         </application></manifest>"
    )
}

pub fn package(name: &str, attributes: &str, components: &str) -> Package {
    Package::new(&Manifest::parse(&manifest(name, attributes, components)).unwrap()).unwrap()
}

impl Application {
    /// Has it allocate memory. False if it has died of that.
    pub fn allocate(&mut self, mib: u64) -> bool {
        let told = writeln!(self.stream.get_mut(), "a{mib}");
        let mut line = String::new();
        told.is_ok() && matches!(self.stream.read_line(&mut line), Ok(1..))
    }

    /// Has it end with an exit code.
    pub fn exit(&mut self, code: i32) {
        writeln!(self.stream.get_mut(), "x{code}").unwrap();
    }

    /// Waits until it has ended: nothing else closes its socket.
    pub fn await_end(mut self) {
        let mut line = String::new();
        while matches!(self.stream.read_line(&mut line), Ok(1..)) {}
    }

    pub fn is_alive(&self) -> bool {
        is_alive(self.pid)
    }
}

/// Whether a process runs: a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    status.is_ok_and(|text| {
        let state = text.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
        !matches!(state, Some('Z' | 'X'))
    })
}
