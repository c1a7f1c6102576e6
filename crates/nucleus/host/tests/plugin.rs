//! Services from shared objects.
mod support;

use baton::{CallError, Parcel};
use baton_host::plugin::{Plugin, PluginError};
use baton_host::{Call, Host};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::Broker;
use tempfile::TempDir;

fn build(directory: &TempDir, arguments: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = directory.path().join("service.so");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-I"])
        .arg(here.join("include"))
        .args(arguments)
        .arg("-o")
        .arg(&object)
        .current_dir(here.join("tests"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

#[test]
fn a_shared_object_is_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let weather = Plugin::load(&build(&directory, &["weather.c"])).unwrap();
    assert_eq!(weather.name(), "weather");
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let mut host = Host::new();
    host.add("weather", weather).unwrap();
    host.add("one", |call: &mut Call<'_>| Ok(Parcel::from(call.data()))).unwrap();
    let mut running = host.start("binder", &broker.socket).unwrap();
    running.publish().unwrap();
    let client = broker.open();
    let handle = support::find(&client, "weather");
    let call = |code, data: &[u8]| {
        let parcel = Parcel::from(data);
        handle.call(code, &parcel).map(|answer| answer.data().to_vec())
    };
    for count in 1..=3u32 {
        assert_eq!(call(1, b""), Ok(count.to_ne_bytes().to_vec()));
    }
    assert_eq!(call(2, b"ab"), Ok(b"abab".to_vec()));
    assert_eq!(call(3, b""), Err(CallError::Refused(Errno::NOENT)));
    assert_eq!(call(9, b""), Err(CallError::Refused(Errno::BADMSG)));
    let interface = call(u32::from_be_bytes(*b"_NTF"), b"").unwrap();
    assert_eq!(interface[..4], 14i32.to_le_bytes());
    assert_eq!(call(4, b""), Err(CallError::DeadObject));
    assert_eq!(running.call("one", 1, b"a").unwrap().data(), b"a");
    running.close();
    manager.close();
}

#[test]
fn what_is_no_service_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |source: &str| {
        let path = directory.path().join("source.c");
        std::fs::write(&path, format!("#include <baton_service.h>\n{source}\n")).unwrap();
        Plugin::load(&build(&tempfile::tempdir().unwrap(), &[path.to_str().unwrap()])).err()
    };
    let load = |error: Option<PluginError>| matches!(error, Some(PluginError::Load(_)));
    assert!(load(Plugin::load(Path::new("/nonexistent.so")).err()));
    assert!(load(refused("int nothing;")));
    let version = refused("const struct baton_service baton_service = { .version = 7 };");
    assert_eq!(version, Some(PluginError::Version(7)));
    let bare = refused("const struct baton_service baton_service = { .version = 1 };");
    assert_eq!(bare, Some(PluginError::Incomplete));
    let flags = refused("const struct baton_service baton_service = { .version = 1, .flags = 6 };");
    assert_eq!(flags, Some(PluginError::Flags(6)));
    let fails = refused(
        "static int start(void **state) { (void)state; return 13; }
         static int handle(void *state, struct baton_call *call) { (void)state; (void)call; return \
         0; }
         const struct baton_service baton_service =
             { BATON_SERVICE_VERSION, BATON_SERVICE_STAYS, \"fails\", 0, start, handle, 0 };",
    );
    assert_eq!(fails, Some(PluginError::Start(Errno::ACCESS)));
}
