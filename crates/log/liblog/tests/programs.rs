//! C programs that are built against Debian's headers of Android's liblog and run with this
//! library.

use baton_logcat::entry::Entry;
use baton_logcat::event::Style;
use baton_logcat::tags::Tags;
use ring_log::{Item, Reader};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The directory of the library in Debian's package android-liblog, where its programs find it.
const ANDROIDS: &str = "/usr/lib/x86_64-linux-gnu/android";
const NAME: &str = "liblog.so.0";

/// Builds the library in this test's profile, and returns its path.
fn library() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--lib", "--package", "baton-liblog", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .map(|file| PathBuf::from(file.as_str().unwrap()))
        .find(|file| file.ends_with("libbaton_log.so"))
        .expect("cargo builds it")
}

/// A directory with a program that is linked against Android's library.
fn program(source: &str) -> tempfile::TempDir {
    program_with(source, &Path::new(ANDROIDS).join(NAME))
}

fn program_with(source: &str, library: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-Wno-deprecated-declarations",
            "-pthread",
            "-I/usr/include/android",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source))
        .arg(library)
        .arg("-o")
        .arg(directory.path().join("program"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(directory.join("program"));
    command.env("BATON_LOG_DIR", directory.join("log")).env("TZ", "UTC0").stdin(Stdio::null());
    command
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that a program prints the same with either library.
fn check_same(source: &str, arguments: &[&Path], at_least: usize) {
    let directory = program(source);
    std::os::unix::fs::symlink(library(), directory.path().join(NAME)).unwrap();
    let [androids, ours] = [Path::new(ANDROIDS), directory.path()].map(|libraries| {
        let mut command = command(directory.path());
        printed(&command.args(arguments).env("LD_LIBRARY_PATH", libraries).output().unwrap())
    });
    assert!(androids.lines().count() > at_least);
    for (index, (ours, androids)) in ours.lines().zip(androids.lines()).enumerate() {
        assert_eq!(ours, androids, "line {}", index + 1);
    }
    assert_eq!(ours.lines().count(), androids.lines().count());
}

#[test]
fn lists_are_androids() {
    check_same("lists.c", &[], 100);
}

#[test]
fn formats_are_androids() {
    let tags = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&tags, "# tags\n42 answer (to life|3)\n314\tpi\n2718 e (a|1),(b|2) # two\n")
        .unwrap();
    check_same("formats.c", &[tags.path()], 150);
}

#[test]
fn a_program_reads_what_it_has_written() {
    // The program uses functions that Debian's library does not have.
    let directory = program_with("reads.c", &library());
    std::os::unix::fs::symlink(library(), directory.path().join("libbaton_log.so.0")).unwrap();
    let mut command = command(directory.path());
    let output = command.env("LD_LIBRARY_PATH", directory.path()).output().unwrap();
    let expected = "0 1\n0 4 one: first\n2 4 [42]: third\n0 6 four: fourth\nno more\n0 6 four: \
        fourth\n\
                    0 5 later: awaited\nno more\n0\nno more\nno more\n";
    assert_eq!(printed(&output), expected);
}

/// This library exports every C function of Android's. Its C++ functions do not count.
#[test]
fn every_function_is_there() {
    let exported = |library: &Path| {
        let output =
            Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        let names = names.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name);
        names.filter(|name| !name.starts_with("_Z")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let androids = exported(&Path::new(ANDROIDS).join(NAME));
    assert!(androids.len() > 60);
    let missing: Vec<_> = androids.difference(&exported(&library())).cloned().collect();
    assert_eq!(missing, [""; 0]);
}

/// The buffer, level, tag and message of each entry, as `baton logcat` would show them.
fn logged(directory: &Path) -> Vec<String> {
    let mut reader = Reader::open(&directory.join("log")).unwrap();
    let mut entries = Vec::new();
    let tags = Tags::default();
    while let Some(item) = reader.next_item() {
        let Item::Record(record) = item else { panic!("{item:?}") };
        let entry = Entry::from(&record);
        let shown = entry.shown(&tags, Style::Plain).unwrap();
        let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (tag, message) = (words(&shown.tag), words(&shown.message));
        entries.push(format!("{} {} {tag}: {message}", entry.buffer.name(), shown.level.letter()));
    }
    entries
}

const WRITTEN: [&str; 21] = [
    "main I write: plain",
    "main W print: -1 two 3.25 c 1099511627776 ff seventh 1 2 3 4 5 6 7 8.5",
    "main E vprint: words 0.500000",
    "system D buf_write: system",
    "crash F buf_print: crash",
    "main I Tagged: macro 1",
    "system W Tagged: macro two",
    "radio E Tagged: macro",
    "main V program: by the program's name",
    "main I null: ",
    "main V default: by default",
    "main I seen: again",
    "main I logger: by way of mine",
    "main I data: by data",
    "events I [2722]: 5",
    "events I [2723]: 1099511627776",
    "events I [2725]: words",
    "events I [1397638484]: [12345,-1,info]",
    "events I [2724]: [1,two]",
    "events I [2726]: 1099511627776",
    "main I thread: 3",
];

/// `libraries`: where the program finds the library.
fn check_writes(directory: &Path, command: &mut Command) {
    let output = command.output().unwrap();
    let expected = "1\n1\n1\n1\n1\n1\n1 1 0 1 1 1 5\n0 4 logger to mine\n1\n9 13 14 30 19\n";
    assert_eq!(printed(&output), expected);
    assert_eq!(logged(directory), WRITTEN);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("logger I ") && lines[0].ends_with("] to stderr"), "{said}");
    assert!(
        lines[1].starts_with("data I ") && lines[1].ends_with(" file.c:7] with a place"),
        "{said}"
    );
}

#[test]
fn a_program_that_finds_this_library_by_its_name_logs_here() {
    let directory = program("writes.c");
    std::os::unix::fs::symlink(library(), directory.path().join(NAME)).unwrap();
    check_writes(
        directory.path(),
        command(directory.path()).env("LD_LIBRARY_PATH", directory.path()),
    );
}

#[test]
fn a_program_with_androids_library_logs_here_by_preload() {
    let directory = program("writes.c");
    let mut command = command(directory.path());
    check_writes(
        directory.path(),
        command.env("LD_LIBRARY_PATH", ANDROIDS).env("LD_PRELOAD", library()),
    );
}

#[test]
fn a_failed_assertion_is_logged_and_ends_the_program() {
    let directory = program("writes.c");
    let mut command = command(directory.path());
    command.env("LD_LIBRARY_PATH", ANDROIDS).env("LD_PRELOAD", library()).arg("fail");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "crash 3 fail\naborter: number is 3\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "number is 3\n");
    assert_eq!(logged(directory.path()), ["main F Tagged: number is 3"]);
}

/// Debian's aapt, an unrelated program, prints its usual message about a file that is no archive.
#[test]
fn a_program_of_debians_logs_here() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("bad.apk");
    std::fs::write(&archive, b"this is none").unwrap();
    let output = Command::new("aapt")
        .args(["dump", "badging"])
        .arg(&archive)
        .env("LD_PRELOAD", library())
        .env("BATON_LOG_DIR", directory.path().join("log"))
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("zipro"), "{output:?}");
    let expected =
        format!("main W zipro: Error opening archive {}: Invalid file", archive.display());
    let entries = logged(directory.path());
    assert!(entries.contains(&expected), "{entries:?}");
}
