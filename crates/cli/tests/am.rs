//! `baton am` as a user types it, and what it does to processes.
#[path = "support/applications.rs"]
mod applications;
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use applications::{Application, Applications, BATON, is_alive, manifest};
use baton::android::Reader;
use baton::{Parcel, Process, ServiceManager};
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::Delivery;
use baton_services::intent::ComponentName;
use baton_services::process::client::Client;
use baton_services::process::protocol::{ENTER, NAME, TRIM};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::Broker;

/// A broker, a service manager and a process manager.
struct System {
    broker: Broker,
    manager: Child,
    serve: Child,
    manifests: PathBuf,
}

fn spawn(socket: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(BATON);
    command.arg("--socket").arg(socket).args(words).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn run(socket: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(BATON);
    let output = command.arg("--socket").arg(socket).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

impl System {
    fn start(applications: &Applications, manifests: &[String]) -> System {
        let broker = Broker::start();
        let directory = applications.directory.path().join("manifests");
        fs::create_dir(&directory).unwrap();
        for (number, text) in manifests.iter().enumerate() {
            fs::write(directory.join(format!("{number}.xml")), text).unwrap();
        }
        let manager = spawn(&broker.socket, &["manager"]);
        let serve = System::serve(&broker, &directory);
        System { broker, manager, serve, manifests: directory }
    }

    fn serve(broker: &Broker, manifests: &Path) -> Child {
        let serve = ["am", "serve", "--minfree", "0,0,0,0,0,0", "--manifests"];
        let child = spawn(&broker.socket, &[&serve[..], &[manifests.to_str().unwrap()]].concat());
        assert_eq!(run(&broker.socket, &["wait", NAME]).0, Some(0));
        child
    }

    /// Runs a command that succeeds.
    fn am(&self, words: &[&str]) -> String {
        let (status, said, wrong) = run(&self.broker.socket, &[&["am"], words].concat());
        assert_eq!((status, wrong.as_str()), (Some(0), ""), "{words:?}");
        said
    }

    /// What a command says that fails.
    fn fails(&self, words: &[&str], expected: i32) -> String {
        let (status, _, wrong) = run(&self.broker.socket, &[&["am"], words].concat());
        assert_eq!(status, Some(expected), "{words:?}: {wrong}");
        wrong
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.am(&[words, &["--json"]].concat())).unwrap()
    }

    /// The class and the states of the components of a process.
    fn shown(&self, pid: u32) -> Option<(String, String)> {
        let stack = self.json(&["stack"]);
        let mut all = stack["processes"].as_array().unwrap().iter();
        let process = all.find(|process| process["pid"] == pid)?;
        Some((process["class"].as_str().unwrap().to_owned(), process["components"].to_string()))
    }

    fn class(&self, pid: u32) -> String {
        // The manager starts persistent processes by itself, and may not have heard of it.
        loop {
            if let Some((class, ..)) = self.shown(pid) {
                return class;
            }
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        for child in [&mut self.serve, &mut self.manager] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two activities and a service of one package, each in its own process.
fn app(applications: &Applications) -> String {
    let component = |kind: &str, name: &str| {
        let load = applications.load(name);
        format!("<{kind} android:name='.{name}' android:process=':{name}' {load}/>")
    };
    let components = component("activity", "One")
        + &component("activity", "Two")
        + &component("service", "Work");
    manifest("org.app", "", &components)
}

fn start(system: &System, applications: &Applications, words: &[&str]) -> Application {
    let started = system.json(words);
    let application = applications.accept();
    assert_eq!(started["pid"], application.pid);
    application
}

#[test]
fn applications_are_started_seen_and_stopped() {
    let applications = Applications::new();
    let system = System::start(&applications, &[app(&applications)]);
    let one = start(&system, &applications, &["start", "-n", "org.app/.One"]);
    let work = start(&system, &applications, &["start-service", "org.app/.Work"]);
    assert_eq!(
        (system.class(one.pid), system.class(work.pid)),
        ("foreground".into(), "secondary-server".into())
    );
    let two = start(&system, &applications, &["start", "org.app/.Two"]);
    assert_eq!(
        (system.class(one.pid), system.class(two.pid)),
        ("hidden".into(), "foreground".into())
    );
    let stack = system.am(&["stack"]);
    assert!(
        stack.contains("*org.app.Two resumed") && stack.contains("org.app.One stopped"),
        "{stack}"
    );
    let pid = two.pid.to_string();
    system.am(&["set-adj", &pid, "empty"]);
    assert_eq!(system.class(two.pid), "empty");
    system.am(&["set-adj", &pid, "-1"]);
    assert_eq!(system.class(two.pid), "real-time");
    system.am(&["set-adj", &pid, "default"]);
    assert_eq!(system.class(two.pid), "foreground");
    // Others see it: by AIDL, in the dump, in the log.
    let call = run(&system.broker.socket, &["call", NAME, "stack"]);
    assert_eq!(call.1, "result: [\"org.app/org.app.Two\",\"org.app/org.app.One\"]\n", "{call:?}");
    let call = run(&system.broker.socket, &["call", NAME, "processes"]);
    assert!(call.1.contains("org.app:Work"), "{call:?}");
    let dump = system.am(&["dumpsys"]);
    for part in ["free memory", "org.app:Two uid", "org.app.Work started", "killed for memory"] {
        assert!(dump.contains(part), "{part:?} is missing:\n{dump}");
    }
    assert_eq!(system.json(&["kill", "org.app"])["killed"], 2);
    one.await_end();
    work.await_end();
    assert!(two.is_alive());
    system.am(&["stop", "org.app/.Two"]);
    assert_eq!(system.shown(two.pid), Some(("empty".to_owned(), "[]".to_owned())));
    assert_eq!(system.am(&["force-stop", "org.app"]), "Killed 1 process of org.app\n");
    two.await_end();
}

#[test]
fn what_is_wrong_is_said_and_told_by_the_exit_code() {
    let applications = Applications::new();
    let system = System::start(&applications, &[app(&applications)]);
    let check = |words: &[&str], status: i32, part: &str| {
        let said = system.fails(words, status);
        assert!(said.contains(part), "{words:?}: {said}");
    };
    check(&["start", "org.none/.One"], 1, "no package \"org.none\"");
    check(&["start", "org.app/.None"], 1, "not in its package's manifest");
    check(&["start", "org.app"], 2, "a component is PACKAGE/CLASS");
    check(&["start"], 2, "PACKAGE/CLASS");
    check(&["stop", "org.app/.One"], 1, "does not run");
    check(&["kill", "org.none"], 1, "no package");
    check(&["force-stop", "org.none"], 1, "no package");
    check(&["set-adj", "1", "default"], 1, "no process 1");
    check(&["set-adj", "1", "best"], 2, "content-provider");
    check(&["trim", "1", "hidden"], 1, "no process 1");
    check(&["trim", "1", "much"], 2, "running-low");
    let work = start(&system, &applications, &["start-service", "org.app/.Work"]);
    check(&["trim", &work.pid.to_string(), "complete"], 1, "has not attached");
    // Bad settings of the manager itself.
    let bad = applications.directory.path().join("bad");
    fs::create_dir(&bad).unwrap();
    let directory = bad.to_str().unwrap();
    check(&["serve", "--manifests", "/nowhere"], 2, "/nowhere");
    check(&["serve", "--minfree", "6,5,4,3,2,1"], 2, "six numbers");
    check(&["serve", "--cgroup", directory], 1, "no control group");
    fs::write(bad.join("one.xml"), "<manifest>\n</manifest>").unwrap();
    check(&["serve", "--manifests", directory], 2, "one.xml: line 1, column 1");
    fs::write(bad.join("one.xml"), manifest("a", "", "")).unwrap();
    fs::write(bad.join("two.xml"), manifest("a", "", "")).unwrap();
    check(&["serve", "--manifests", directory], 2, "two manifests");
    let nobody = Broker::start();
    let said = run(&nobody.socket, &["am", "stack"]);
    assert_eq!(said.0, Some(4), "{said:?}");
    let _manager = support::serve_manager(&nobody);
    let said = run(&nobody.socket, &["am", "stack"]);
    assert!(said.0 == Some(1) && said.2.contains("baton am serve"), "{said:?}");
}

/// SIGKILL of the manager ends its processes and helpers, and the next one serves.
#[test]
fn processes_find_a_socket_that_was_given_by_a_relative_path() {
    let applications = Applications::new();
    let broker = Broker::start();
    let directory = broker.socket.parent().unwrap();
    let relative = Path::new(broker.socket.file_name().unwrap());
    let manifests = applications.directory.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    fs::write(manifests.join("app.xml"), app(&applications)).unwrap();
    let mut manager = spawn(&broker.socket, &["manager"]);
    let mut command = Command::new(BATON);
    command.arg("--socket").arg(relative).current_dir(directory).stdin(Stdio::null());
    command.args(["am", "serve", "--minfree", "0,0,0,0,0,0", "--manifests"]).arg(&manifests);
    let mut serve = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(run(&broker.socket, &["wait", NAME]).0, Some(0));
    assert_eq!(run(&broker.socket, &["am", "start", "org.app/.One"]).0, Some(0));
    // It runs as long as it is connected.
    let application = applications.accept();
    let environment = fs::read(format!("/proc/{}/environ", application.pid)).unwrap();
    let expected = format!("BATON_SOCKET={}", broker.socket.display());
    assert!(environment.split(|byte| *byte == 0).any(|it| it == expected.as_bytes()));
    for process in [&mut serve, &mut manager] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn nothing_outlives_the_manager() {
    let applications = Applications::new();
    let core = format!("<service android:name='.Core' {}/>", applications.exec("Core"));
    let core = manifest("org.core", "android:persistent='true'", &core);
    let mut system = System::start(&applications, &[app(&applications), core]);
    for _ in 0..3 {
        let persistent = applications.accept();
        assert_eq!(system.class(persistent.pid), "persistent");
        let one = start(&system, &applications, &["start", "org.app/.One"]);
        system.serve.kill().unwrap();
        system.serve.wait().unwrap();
        let preloader = one.preloader;
        persistent.await_end();
        one.await_end();
        // The warm parent has waited for its child, and ends.
        while is_alive(preloader) {
            std::thread::yield_now();
        }
        system.serve = System::serve(&system.broker, &system.manifests);
    }
    let _last = applications.accept();
}

/// An application that attaches: a program of the next test, which is this test itself.
#[test]
#[ignore = "a program of another test"]
fn an_application_that_attaches() {
    let Some(socket) = std::env::var_os("BATON_SOCKET").map(PathBuf::from) else { return };
    let Ok(events) = UnixStream::connect(socket.with_file_name("events")) else { return };
    let process = Process::open("binder", &socket).unwrap();
    let object = process.object(move |request| {
        let mut reader = Reader::new(request.data());
        reader.token().ok_or(baton::Errno::INVAL)?;
        let line = match request.code() {
            ENTER => format!("{} {}", reader.string().unwrap(), reader.string().unwrap()),
            TRIM => format!("trim {}", reader.i32().unwrap()),
            _ => return Err(baton::Errno::NOSYS),
        };
        writeln!(&events, "{line}").map_err(|_| baton::Errno::PIPE)?;
        Ok(Parcel::new())
    });
    let object = object.add();
    let looper = std::thread::spawn({
        let process = process.clone();
        move || process.serve()
    });
    let names = ServiceManager::find(&process).unwrap();
    Client::new(names.service(NAME).unwrap().unwrap()).attach(object).unwrap();
    let _ = looper.join();
}

#[test]
fn an_attached_process_hears_of_its_components_and_is_shown_with_its_class() {
    let applications = Applications::new();
    let program = std::env::current_exe().unwrap();
    let exec = format!(
        "baton:exec='{} an_application_that_attaches --exact --ignored --nocapture'",
        program.display()
    );
    let components =
        format!("<activity android:name='.One' {exec}/><activity android:name='.Two' {exec}/>");
    let system = System::start(&applications, &[manifest("org.attached", "", &components)]);
    let events = UnixListener::bind(system.broker.socket.with_file_name("events")).unwrap();
    let started = system.json(&["start", "org.attached/.One"]);
    let mut lines = BufReader::new(events.accept().unwrap().0).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "org.attached.One resumed");
    system.am(&["start", "org.attached/.Two"]);
    let said: Vec<String> = (0..5).map(|_| next()).collect();
    let (one, two): (Vec<&String>, Vec<&String>) = said.iter().partition(|it| it.contains("One"));
    assert_eq!(one, ["org.attached.One paused", "org.attached.One stopped"]);
    let states = ["created", "started", "resumed"].map(|state| format!("org.attached.Two {state}"));
    assert_eq!(two, states.each_ref());
    let pid = started["pid"].to_string();
    system.am(&["trim", &pid, "running-low"]);
    assert_eq!(next(), "trim 10");
    let ps = run(&system.broker.socket, &["ps"]).1;
    let line = ps.lines().find(|line| line.split_whitespace().nth(1) == Some(&pid));
    assert!(line.is_some_and(|line| line.contains("foreground")), "{ps}");
    system.am(&["force-stop", "org.attached"]);
}

/// An application with a receiver, which finishes when it is told to: a program of the next test.
#[test]
#[ignore = "a program of another test"]
fn an_application_that_receives() {
    let Some(socket) = std::env::var_os("BATON_SOCKET").map(PathBuf::from) else { return };
    let Ok(events) = UnixStream::connect(socket.with_file_name("events")) else { return };
    let process = Process::open("binder", &socket).unwrap();
    let receive = move |delivery: Delivery| {
        let action = delivery.intent().action.as_deref();
        writeln!(&events, "{} {}", std::process::id(), action.unwrap()).unwrap();
        let _ = BufReader::new(&events).read_line(&mut String::new());
    };
    let name = ComponentName::parse("org.receiving/.News").unwrap();
    let looper = std::thread::spawn({
        let process = process.clone();
        move || process.serve()
    });
    // As long as it is there, deliveries finish.
    let broadcasts = BroadcastManager::find(&process).unwrap();
    broadcasts.attach(name, receive).unwrap();
    let _ = looper.join();
}

#[test]
fn a_process_is_in_the_foreground_while_its_receiver_works() {
    let applications = Applications::new();
    let program = std::env::current_exe().unwrap();
    let components = format!(
        "<receiver android:name='.News' android:exported='true' \
         baton:exec='{} an_application_that_receives --exact --ignored --nocapture'>\
         <intent-filter><action android:name='first'/><action android:name='second'/>\
         </intent-filter></receiver>",
        program.display()
    );
    let system = System::start(&applications, &[manifest("org.receiving", "", &components)]);
    assert_eq!(run(&system.broker.socket, &["wait", "broadcast"]).0, Some(0));
    let events = UnixListener::bind(system.broker.socket.with_file_name("events")).unwrap();
    assert_eq!(system.am(&["broadcast", "-a", "first"]), "Sent to 1 receivers\n");
    let events = events.accept().unwrap().0;
    let mut lines = BufReader::new(&events).lines();
    let said = lines.next().unwrap().unwrap();
    let (pid, action) = said.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert_eq!((action, system.class(pid).as_str()), ("first", "foreground"));
    let finish = |class: &str| {
        writeln!(&events).unwrap();
        while system.class(pid) != class {
            std::thread::yield_now();
        }
    };
    finish("empty");
    // The process runs now, and its class follows the call.
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| system.am(&["broadcast", "-a", "second", "--ordered"]));
        assert_eq!(lines.next().unwrap().unwrap(), format!("{pid} second"));
        while system.class(pid) != "foreground" {
            std::thread::yield_now();
        }
        finish("empty");
        assert_eq!(sent.join().unwrap(), "Sent to 1 receivers\nResult: 0\n");
    });
    // It has finished in time.
    assert_eq!(system.json(&["receivers"])["skipped"], serde_json::json!([]));
    system.am(&["force-stop", "org.receiving"]);
}
