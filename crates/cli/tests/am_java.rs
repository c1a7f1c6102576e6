//! Java components of manifests, and broadcasts to and from Java, with real processes. javac and
//! dx make the program when the test runs.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;
#[path = "../../vm/vm/tests/tools/mod.rs"]
mod tools;

use baton::android::{Reader, Write as _};
use baton::{Parcel, ServiceManager};
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::Delivery;
use baton_services::intent::{Bundle, ComponentName, Intent, IntentFilter, Uri, Value};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use support::Broker;
use tempfile::TempDir;

const BATON: &str = env!("CARGO_BIN_EXE_baton");

/// The class path of the program, and the directory in which a part of it lies.
static PROGRAM: LazyLock<(TempDir, String)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = own.join("../vm/binder/java/baton/app");
    let sources: Vec<PathBuf> = ["BroadcastContext", "IntentParcels"]
        .map(|name| library.join(format!("{name}.java")))
        .into_iter()
        .chain([own.join("tests/programs/App.java")])
        .collect();
    let android = tools::library("android");
    let (dex, jar) = android.split_once(':').expect("two paths");
    let program = tools::build(&sources, jar, directory.path());
    (directory, format!("{dex}:{}", program.display()))
});

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker, and a service manager.
struct Place {
    _manager: Running,
    /// What is known of dex files, and manifests
    directory: TempDir,
    broker: Broker,
}

impl Place {
    fn new() -> Place {
        let broker = Broker::start();
        let directory = tempfile::tempdir().unwrap();
        let mut manager = Command::new(BATON);
        manager.arg("--socket").arg(&broker.socket).arg("manager").stdout(Stdio::null());
        let place = Place { _manager: Running(manager.spawn().unwrap()), directory, broker };
        place.succeed("wait manager");
        place
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(BATON);
        command.arg("--socket").arg(&self.broker.socket).args(line.split_whitespace());
        command.env("XDG_CACHE_HOME", self.directory.path()).stdin(Stdio::null());
        command
    }

    fn succeed(&self, line: &str) -> String {
        tools::succeed(&mut self.command(line))
    }

    /// A process manager with this manifest.
    fn serve(&self, manifest: &str) -> Running {
        let manifests = self.directory.path().join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        std::fs::write(manifests.join("app.xml"), manifest).unwrap();
        let mut command = self.command("am serve --zygote-option=-Xgc:counting --manifests");
        command.arg(manifests);
        let library = tools::library("library");
        command.arg(format!("--zygote-option=-Xbootclasspath:{library}"));
        let services = Running(command.stdout(Stdio::null()).spawn().unwrap());
        self.succeed("wait broadcast");
        services
    }

    /// The program, and what it says.
    fn program(&self, line: &str) -> (Running, Lines<BufReader<ChildStdout>>) {
        let library = format!("-Xbootclasspath:{}", tools::library("library"));
        let mut command = self.command("dalvikvm");
        command.args([&library, "-cp", &PROGRAM.1, "App"]).args(line.split_whitespace());
        let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(program.stdout.take().unwrap()).lines();
        (Running(program), said)
    }
}

fn manifest(attributes: &str, components: &str) -> String {
    format!(
        "<manifest xmlns:android='http://schemas.android.com/apk/res/android' \
         xmlns:baton='urn:baton' package='org.app'><application {attributes}>{components}\
         </application></manifest>"
    )
}

/// The pid of the program behind a service, which greets.
fn greet(place: &Place, name: &str) -> Option<i32> {
    let process = place.broker.open();
    let service = ServiceManager::find(&process).unwrap().service(name).unwrap()?;
    let mut request = Parcel::new();
    request.write_token("app");
    request.write_string("Ann");
    let reply = service.call(1, &request).ok()?;
    let mut reader = Reader::new(reply.data());
    assert_eq!(reader.status(), Some(Ok(())));
    let pid = reader.i32();
    assert_eq!(reader.string().as_deref(), Some("Hello Ann"));
    pid
}

/// The command line of a process's parent.
fn parent(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim();
    std::fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap().replace('\0', " ")
}

#[test]
fn a_java_service_of_a_manifest_is_forked_from_a_zygote() {
    let place = Place::new();
    let components = format!(
        "<service android:name='.One' baton:java='{0} App serve one'/>\
         <service android:name='.Two' android:process=':two' baton:java='{0} App serve two'/>\
         <service android:name='.None' android:process=':none' baton:java='{0} None'/>",
        PROGRAM.1
    );
    let _services = place.serve(&manifest("", &components));
    let zygotes = ["One", "Two"].map(|name| {
        place.succeed(&format!("am start-service org.app/.{name}"));
        let service = name.to_lowercase();
        place.succeed(&format!("wait {service}"));
        let pid = greet(&place, &service).unwrap();
        assert!(place.succeed("am stack").contains(&pid.to_string()), "the manager's process");
        parent(pid)
    });
    assert!(zygotes[0].contains("zygote --parent"), "{zygotes:?}");
    assert_eq!(zygotes[0], zygotes[1]);
}

#[test]
fn a_persistent_java_service_is_restarted() {
    let place = Place::new();
    let components =
        format!("<service android:name='.Core' baton:java='{} App serve core'/>", PROGRAM.1);
    let _services = place.serve(&manifest("android:persistent='true'", &components));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let pid = loop {
            place.succeed("wait core");
            // Until the service manager hears of its death, the last one is registered.
            match greet(&place, "core") {
                Some(pid) if !seen.contains(&pid) => break pid,
                _ => {}
            }
        };
        seen.push(pid);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn java_receives_broadcasts_and_answers_ordered_ones() {
    let place = Place::new();
    let components = format!(
        "<receiver android:name='.Alarm' android:exported='true' \
         baton:java='{} App component org.app org.app.Alarm'><intent-filter>\
         <action android:name='alarm'/></intent-filter></receiver>",
        PROGRAM.1
    );
    let _services = place.serve(&manifest("", &components));
    let (_program, mut said) = place.program("receive news");
    let mut line = || said.next().unwrap().unwrap();
    assert_eq!(line(), "registered");
    // The second receiver wants no data, and the first one's filter is more than an action.
    let sent = place.succeed(
        "am broadcast -a news -d news://a.example.org:80/today/1 -t text/plain -c urgent \
         --es title hello --ei n 3 --ela longs 1,2 --esn nothing --eu uri a:b --ecn who p/c",
    );
    assert_eq!(sent, "Sent to 1 receivers");
    assert_eq!(
        line(),
        "news news://a.example.org:80/today/1 longs=[1, 2] n=3 nothing=null title=hello uri=a:b \
         who=ComponentInfo{p/c}"
    );
    let sent = place.succeed("am broadcast -a news --ordered");
    assert_eq!(sent, "Sent to 1 receivers\nResult: 7, data \"from Java\"");
    assert_eq!(line(), "news null");
    // The receiver of the manifest, whose process is started for it.
    let sent = place.succeed("am broadcast -a alarm --ordered");
    assert_eq!(sent, "Sent to 1 receivers\nResult: 7, data \"from Java\"");
}

#[test]
fn java_sends_broadcasts_and_hears_of_results() {
    let place = Place::new();
    let _services = place.serve(&manifest("", ""));
    let process = place.broker.open();
    let service = BroadcastManager::find(&process).unwrap();
    let (tell, told) = mpsc::channel::<Intent>();
    let filter = IntentFilter::new("news").category("urgent").scheme("news");
    let receive = move |mut delivery: Delivery| {
        let mut outcome = delivery.outcome().clone();
        outcome.code += 1;
        outcome.data = outcome.data.map(|data| data + " and last");
        delivery.set_outcome(outcome);
        tell.send(delivery.intent().clone()).unwrap();
    };
    service.register(filter, None, None, receive).unwrap();
    let serving = process.clone();
    let looper = std::thread::spawn(move || serving.serve());
    let (_program, said) = place.program("send news");
    let said: Vec<String> = said.map(Result::unwrap).collect();
    let intent = told.recv().unwrap();
    let inner: Bundle = [("inner".to_owned(), Value::Null)].into_iter().collect();
    let expected: [(&str, Value); 22] = [
        ("text", "Grüße".into()),
        ("int", (-3).into()),
        ("long", (1i64 << 40).into()),
        ("byte", Value::Byte(-1)),
        ("short", Value::Short(-2)),
        ("char", Value::Char(0xdf)),
        ("float", 1.5f32.into()),
        ("double", (-0.25).into()),
        ("boolean", true.into()),
        ("bundle", inner.into()),
        ("uri", Uri::from("a:b").into()),
        ("component", ComponentName::new("p", "c").into()),
        ("sequence", Value::CharSequence("letters".into())),
        ("bytes", vec![1u8, 2, 3].into()),
        ("ints", vec![4, 5].into()),
        ("strings", Value::StringArray(vec![Some("a".into()), None])),
        ("shorts", Value::ShortArray(vec![6])),
        ("chars", Value::CharArray(vec![u16::from(b'x')])),
        ("longs", vec![7i64].into()),
        ("floats", Value::FloatArray(vec![8.0])),
        ("doubles", Value::DoubleArray(vec![9.0])),
        ("booleans", Value::BooleanArray(vec![true, false])),
    ];
    for (key, value) in &expected {
        assert_eq!(intent.extras.get(key), Some(value), "{key}");
    }
    assert_eq!(intent.extras.iter().count(), expected.len());
    assert_eq!(intent.data, Some(Uri::from("news://a.example.org:80/today?x")));
    // The same intent, as Java has it again.
    assert_eq!(
        said,
        [
            "news news://a.example.org:80/today?x boolean=true booleans=[true, false] \
             bundle=[inner] byte=-1 bytes=[1, 2, 3] char=ß chars=[x] \
             component=ComponentInfo{p/c} double=-0.25 doubles=[9.0] float=1.5 floats=[8.0] \
             int=-3 ints=[4, 5] long=1099511627776 longs=[7] sequence=letters short=-2 \
             shorts=[6] strings=[a, null] text=Grüße uri=a:b",
            "6 first and last",
        ]
    );
    process.close();
    let _ = looper.join();
}
