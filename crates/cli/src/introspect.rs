//! `baton introspect`: what is known of a service: its interface, its process, and its methods.

use crate::aidl::{self, FormArgs, interface::Sources};
use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, PATIENCE, interface};
use crate::observer;
use crate::ping::PING;
use crate::program::name_of;
use crate::stdout::{show, show_json};
use baton::android::Reader;
use baton::service_manager::transport_status;
use baton::{Handle, Parcel};
use baton_abi::control::Report;
use clap::Args;
use serde::Serialize;
use std::path::Path;

/// The codes by which an interface of AIDL tells its version and its hash.
const VERSION: u32 = 0x00ff_ffff;
const HASH: u32 = 0x00ff_fffe;

/// Options of `baton introspect`.
#[derive(Args)]
#[command(after_help = "\
The methods are shown by --aidl. Services that come with baton need none, except `manager`, which \
speaks the protocol of the release of Android that it was started with.

Printed with --json: {\"name\", \"interface\", \"answers\", \"process\": {\"pid\", \"program\"}, \
\"version\", \"hash\", \"methods\": [{\"code\", \"name\", \"oneway\", \"signature\"}]}; null is \
what the service does not tell, or what is not known.")]
pub struct IntrospectArgs {
    #[command(flatten)]
    place: ContextArgs,
    #[command(flatten)]
    form: FormArgs,
    /// The service's name
    name: String,
}

#[derive(Serialize)]
struct Introspected<'a> {
    name: &'a str,
    interface: Option<String>,
    /// Whether it answers a ping in time.
    answers: bool,
    process: Option<Process>,
    version: Option<i32>,
    hash: Option<String>,
    methods: Option<Vec<ShownMethod>>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    program: Option<String>,
}

#[derive(Serialize)]
struct ShownMethod {
    code: u32,
    name: String,
    oneway: bool,
    signature: String,
}

/// Prints what is known of the service.
pub fn introspect(args: &IntrospectArgs, socket: &Path) -> Result<(), Failure> {
    let name = &args.name;
    let tried = format!("introspect the service {name:?}");
    let wrong = |error| aidl::failure(&tried, &error);
    let sources = Sources::at(&args.form.aidl).map_err(wrong)?;
    let manager = Manager::find(&args.place.context, socket, &tried)?;
    let service = manager.service(&tried, name)?;
    let mut found = Introspected {
        name,
        interface: None,
        answers: service.call_within(PING, &Parcel::new(), PATIENCE).is_ok(),
        process: None,
        version: None,
        hash: None,
        methods: None,
    };
    // A service that does not answer a ping would take as long for each question.
    if found.answers {
        found.interface = interface(&service);
    }
    let report = observer::connect(socket, &tried)?.report();
    let report = report.map_err(|errno| Failure::refused(&tried, errno))?;
    found.process = process(&service, &args.place.context, &report);
    if let Some(descriptor) = &found.interface {
        let own = |code| own_reply(&service, code, &manager.request(descriptor, None));
        found.version = own(VERSION).and_then(|reply| Reader::new(&reply).i32());
        found.hash = own(HASH).and_then(|reply| Reader::new(&reply).string());
        let declared = match args.form.aidl.is_empty() {
            true => sources.find(descriptor).map_err(wrong)?,
            false => Some(aidl::declared(&tried, &sources, descriptor)?),
        };
        if let Some(declared) = declared {
            let methods = declared.methods().map_err(wrong)?.into_iter();
            let shown = methods.map(|(code, method)| ShownMethod {
                code,
                name: method.name.clone(),
                oneway: method.oneway,
                signature: method.to_string(),
            });
            found.methods = Some(shown.collect());
        }
    }
    if args.form.json { show_json(&found) } else { show(&text(&found)) }
}

/// What an interface tells of itself, behind the status. Older ones do not know the question.
fn own_reply(service: &Handle, code: u32, request: &Parcel) -> Option<Vec<u8>> {
    let answer = service.call_within(code, request, PATIENCE).ok()?;
    let mut reader = Reader::new(answer.data());
    let answered = transport_status(&answer).is_none() && reader.status()?.is_ok();
    answered.then(|| reader.rest().to_vec())
}

/// The process that serves a service. `None` if this user may not see it.
fn process(service: &Handle, context: &str, report: &Report) -> Option<Process> {
    let context = report.contexts.iter().find(|known| known.name == context)?;
    // The context manager's handle has no identity.
    let owner = service.identity().map(|(owner, _)| owner).or(context.manager)?;
    let owner = context.processes.iter().find(|process| process.process == owner)?;
    let program = Some(name_of(owner.pid)).filter(|name| name != "?");
    Some(Process { pid: owner.pid, program })
}

fn text(found: &Introspected<'_>) -> String {
    let unknown = || "?".to_owned();
    let interface = found.interface.clone().unwrap_or_else(unknown);
    let process = found.process.as_ref().map_or_else(unknown, |process| {
        let program = process.program.as_deref().unwrap_or("?");
        format!("{} ({program})", process.pid)
    });
    let answers = if found.answers { "alive" } else { "no answer" };
    let mut text = format!(
        "service: {}\ninterface: {interface}\nprocess: {process}\nping: {answers}\n",
        found.name
    );
    if let Some(version) = found.version {
        text.push_str(&format!("version: {version}\n"));
    }
    if let Some(hash) = &found.hash {
        text.push_str(&format!("hash: {hash}\n"));
    }
    for ShownMethod { code, signature, .. } in found.methods.iter().flatten() {
        text.push_str(&format!("{code}\t{signature}\n"));
    }
    text
}
